"""The command `dlmexp`: help that loads nothing slow, version, errors and exit codes."""

import errno
import os
import subprocess
import sys

import pytest

from dlmexp import __version__
from dlmexp.cli import COMMANDS, main

LOADED = """
import sys
from dlmexp.cli import main
code = None
try:
    code = main(sys.argv[1:])
except SystemExit as stop:
    code = stop.code
heavy = {"torch", "pandas", "matplotlib", "scipy", "gpytorch", "hydra"} & set(sys.modules)
print(f"\\nloaded {sorted(heavy)} exit {code or 0}")
"""


def _run(*arguments, cwd=None):
    done = subprocess.run([sys.executable, "-c", LOADED, *arguments], capture_output=True, text=True, cwd=cwd)
    assert not done.stderr, done.stderr
    return done.stdout


@pytest.mark.processes
def test_help_names_every_command_and_loads_nothing_heavy(tmp_path):
    out = _run("--help", cwd=tmp_path)
    assert "loaded [] exit 0" in out
    for command in COMMANDS:
        assert command in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.processes
def test_version_loads_nothing_heavy():
    out = _run("--version")
    assert f"dlmexp {__version__}" in out
    assert "loaded [] exit 0" in out


@pytest.mark.processes
def test_every_subcommands_help_loads_nothing_heavy(tmp_path):
    """All in one process: whatever one of them loads would show."""
    code = LOADED.replace("code = main(sys.argv[1:])", "[_help(main, command) for command in sys.argv[1:]]").replace(
        "code = None",
        "code = None\ndef _help(main, command):\n"
        "    try:\n        main([command, '--help'])\n    except SystemExit as stop:\n        assert not stop.code",
    )
    narrow = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(
        [sys.executable, "-c", code, *COMMANDS], capture_output=True, text=True, cwd=tmp_path, env=narrow
    )
    assert done.returncode == 0, done.stderr
    assert "loaded [] exit 0" in done.stdout
    assert done.stdout.count("usage: dlmexp") == len(COMMANDS)
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []
    assert list(tmp_path.iterdir()) == []


def test_help_after_other_arguments():
    assert "usage: dlmexp run" in _run("run", "dataset=banana", "--help")


@pytest.mark.parametrize(
    ("arguments", "hint"), [([], "COMMAND"), (["runn"], "'runn'"), (["status", "--unknown"], "--unknown")]
)
def test_unknown_arguments_are_refused(arguments, hint, capsys):
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("dlmexp: ")
    assert err.count("\n") == 1
    assert hint in err
    assert "--help'" in err


@pytest.mark.processes
def test_a_closed_pipe_is_not_an_error(tmp_path):
    (tmp_path / "results").mkdir()
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", "from dlmexp.cli import main; import sys; sys.exit(main())", "status", "--json"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    os.close(writer)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["status", "run"])
def test_an_interrupt_is_one_line_and_exit_code_130(command, monkeypatch, capsys):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"dlmexp.cli.{command}.run", interrupted)
    assert main([command]) == 130
    assert capsys.readouterr().err == "dlmexp: interrupted\n"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "there/it"), "there/it: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
    ],
)
def test_an_error_of_the_file_system_is_one_line(error, message, monkeypatch, capsys):
    def refused(_):
        raise error

    monkeypatch.setattr("dlmexp.cli.status.run", refused)
    assert main(["status"]) == 2
    assert capsys.readouterr().err == f"dlmexp: {message}; fix that, or choose another file or folder\n"
