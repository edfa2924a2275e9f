"""The command `dlmexp`: help that loads nothing slow, version, errors and exit codes; and `dlmexp collect`."""

import os
import subprocess
import sys

import pandas as pd
import pytest
from msgspec.structs import replace

from dlmexp import __version__
from dlmexp.cli import main
from dlmexp.records.manifest import manifest, write_manifest
from dlmexp.records.store import Store
from tests.support.cells import candidates
from tests.support.made_up import cell, fit

LOADED = """
import sys
from dlmexp.cli import main
for command in sys.argv[1:]:
    try:
        assert not main(command.split())
    except SystemExit as stop:
        assert not stop.code
heavy = {"torch", "pandas", "matplotlib", "scipy", "gpytorch", "hydra"} & set(sys.modules)
print(f"\\nloaded {sorted(heavy)}")
"""
COMMANDS = [
    "run",
    "predict",
    "export",
    "status",
    "logs",
    "cancel",
    "collect",
    "plot",
    "claims",
    "report",
    "data",
]


def _run(*commands, cwd):
    narrow = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *commands], capture_output=True, text=True, cwd=cwd, env=narrow
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.processes
def test_help_of_every_command_fits_80_columns_and_loads_nothing_heavy(tmp_path):
    """All in one process: whatever one of them loads would show."""
    out = _run("--help", "run dataset=banana --help", *(f"{command} --help" for command in COMMANDS), cwd=tmp_path)
    assert "loaded []" in out
    assert out.count("usage: dlmexp") == len(COMMANDS) + 2
    assert [line for line in out.splitlines() if len(line) > 80] == []
    assert {*COMMANDS} <= {*out.partition("usage: dlmexp run")[0].split()}
    assert list(tmp_path.iterdir()) == []
    assert f"dlmexp {__version__}\n\nloaded []" in _run("--version", cwd=tmp_path)


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
    assert (done.returncode, done.stderr) == (0, "")


CELLS = [replace(cell("banana"), seed=seed, beta=beta) for seed in range(2) for beta in (1.0, 0.3)]


@pytest.fixture
def collected(here):
    store = Store("results")
    several = [candidates("beta_elbo", CELLS[:2]), candidates("beta_elbo", CELLS[2:])]
    several += [candidates("elbo", [each]) for each in CELLS[::2]]
    write_manifest(store.root, manifest("mine", several))
    for each in CELLS:
        store.write(fit(each, nll=each.beta or 0.0, error=0.1))
    return here


@pytest.mark.parametrize(("option", "read"), [([], pd.read_parquet), (["--csv"], pd.read_csv)])
def test_the_tidy_table(collected, capsys, option, read):
    assert main(["collect", *option]) == 0
    table = read(capsys.readouterr().out.split(":")[0])
    assert sorted(zip(table["method"], table["beta"], strict=True)) == [("beta_elbo", 0.3)] * 2 + [("elbo", 1.0)] * 2
    assert set(table["role"]) == {"fit"}
    assert main(["collect", "--pack", "other/records.parquet"]) == 0
    assert "4 records" in capsys.readouterr().out
    assert len(Store("other").keys()[0]) == 4


@pytest.mark.processes
def test_collect_loads_no_torch_and_keeps_a_file_that_is_no_record(collected):
    foreign = collected / "results" / "records" / "banana" / "mine.json"
    foreign.write_text("{}")
    code = "from dlmexp.cli import main; import sys; sys.exit(main(['collect']) or 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    assert "mine.json" in done.stderr
    assert done.stderr.count("\n") == 1
    assert foreign.read_text() == "{}"


MISTAKES = {
    "--protocol paper": "--pack", "--pack records.tar.xz": "records.tar.xz", "--results empty": "dlmexp run",
    "--pack afile/records.parquet": "afile/records.parquet", "--pack records.parquet --results nowhere": "nowhere",
    "--pack records.parquet --protocol mine": "mine",
}  # fmt: skip


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_mistake_is_one_line_and_nothing_is_written(collected, typed, capsys):
    (collected / "afile").write_text("")
    (collected / "empty").mkdir()
    before = sorted(collected.rglob("*"))
    assert main(["collect", *typed.split()]) == 2
    err = capsys.readouterr().err
    assert MISTAKES[typed] in err
    assert err.count("\n") == 1
    assert sorted(collected.rglob("*")) == before
