"""The command itself: help without waiting, versions, exit codes."""

import errno
import os
import subprocess
import sys

import pytest

from dlmexp import __version__
from dlmexp.cli import COMMANDS, main
from dlmexp.cli.benchmark import SUITES

LOADED = """
import sys
from dlmexp.cli import main
code = None
try:
    code = main(sys.argv[1:])
except SystemExit as leaving:
    code = leaving.code
heavy = {"torch", "pandas", "matplotlib", "scipy", "gpytorch", "hydra"} & set(sys.modules)
print(f"\\nloaded {sorted(heavy)} exit {code or 0}")
"""


def _run(*words, cwd=None):
    done = subprocess.run([sys.executable, "-c", LOADED, *words], capture_output=True, text=True, cwd=cwd)
    assert not done.stderr, done.stderr
    return done.stdout


@pytest.mark.processes
def test_help_names_every_command_and_loads_nothing_heavy(tmp_path):
    said = _run("--help", cwd=tmp_path)
    assert "loaded [] exit 0" in said
    for command in COMMANDS:
        assert command in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.processes
def test_version():
    said = _run("--version")
    assert f"dlmexp {__version__}" in said
    assert "loaded [] exit 0" in said


@pytest.mark.processes
def test_every_subcommands_help_loads_nothing_heavy(tmp_path):
    """All in one process: whatever one of them loads would show."""
    code = LOADED.replace("code = main(sys.argv[1:])", "[_help(main, word) for word in sys.argv[1:]]").replace(
        "code = None",
        "code = None\ndef _help(main, word):\n"
        "    try:\n        main([word, '--help'])\n    except SystemExit as leaving:\n        assert not leaving.code",
    )
    done = subprocess.run([sys.executable, "-c", code, *COMMANDS], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "loaded [] exit 0" in done.stdout
    assert done.stdout.count("usage: dlmexp") == len(COMMANDS)
    assert list(tmp_path.iterdir()) == []


def test_help_after_other_words():
    assert "usage: dlmexp run" in _run("run", "dataset=banana", "--help")


@pytest.mark.parametrize(
    ("words", "hint"), [([], "COMMAND"), (["runn"], "'runn'"), (["status", "--unknown"], "--unknown")]
)
def test_unknown_words(words, hint, capsys):
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith("dlmexp: ")
    assert said.count("\n") == 1
    assert hint in said
    assert "dlmexp --help" in said


@pytest.mark.processes
def test_a_reader_that_has_gone_is_no_error(tmp_path):
    (tmp_path / "results").mkdir()
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "-c", "from dlmexp.cli import main; import sys; sys.exit(main())", "status", "--json"]
    done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    os.close(writer)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("word", ["status", "run"])
def test_an_interrupt_is_one_line_and_exit_code_130(word, monkeypatch, capsys):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"dlmexp.cli.{word}.run", interrupted)
    assert main([word]) == 130
    assert capsys.readouterr().err == "dlmexp: interrupted\n"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "there/it"), "there/it: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
    ],
)
def test_what_the_disk_refuses_is_one_sentence(error, said, monkeypatch, capsys):
    def refused(_):
        raise error

    monkeypatch.setattr("dlmexp.cli.status.run", refused)
    assert main(["status"]) == 2
    assert capsys.readouterr().err == f"dlmexp: {said}; see to that, or name another file or folder\n"


@pytest.mark.processes
@pytest.mark.parametrize("suite", SUITES)
def test_a_benchmarks_help_loads_nothing_slow(suite):
    done = subprocess.run(
        [sys.executable, "-c", LOADED, "benchmark", suite, "--help"], capture_output=True, text=True, check=True
    )
    assert f"usage: dlmexp benchmark {suite}" in done.stdout
    assert "loaded [] exit 0" in done.stdout
