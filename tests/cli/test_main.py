"""The command `dlmexp`: help, version, mistakes and exit codes, what is loaded; and `dlmexp collect`."""

import os
import signal
import subprocess
import sys

import pandas as pd
import pytest
from msgspec.structs import replace

from dlmexp import __version__
from dlmexp.cli import main, results
from dlmexp.records.manifest import manifest, write_manifest
from dlmexp.records.store import Store
from tests.support.cells import ELBO, candidates, scored

LOADED = """
import sys
from dlmexp.cli import main
for line in sys.stdin:
    try:
        code = main(line.split())
    except SystemExit as stop:
        code = stop.code or 0
    heavy = {"torch", "pandas", "matplotlib", "scipy", "gpytorch", "hydra"} & set(sys.modules)
    print("\\nended", code, *sorted(heavy))
"""
COMMANDS = ["run", "predict", "export", "status", "logs", "cancel"]
COMMANDS += ["collect", "plot", "claims", "report", "data"]
HELP = ["--version", "--help", "run dataset=banana --help", *(f"{command} --help" for command in COMMANDS)]
LIGHT = [*HELP, "data list"]
REFUSED = ["run dataset=bananna", "run device=gpu", "run training.lr=1e10"]
CELLS = [replace(ELBO, seed=seed, beta=beta) for seed in range(2) for beta in (1.0, 0.3)]


@pytest.fixture
def collected(here):
    store = Store("results")
    several = [candidates("beta_elbo", CELLS[:2]), candidates("beta_elbo", CELLS[2:])]
    several += [candidates("elbo", [each]) for each in CELLS[::2]]
    write_manifest(store.root, manifest("mine", several))
    for each in CELLS:
        store.write(scored(each, nll=each.beta or 0.0, error=0.1))
    return here


@pytest.mark.processes
def test_help_fits_80_columns_and_no_command_loads_more_than_it_needs(collected):
    """All in one process, so that whatever one of them loads shows from there on."""
    foreign = collected / "results" / "records" / "banana" / "mine.json"
    foreign.write_text("{}")
    lines = [*LIGHT, "status", *REFUSED, "collect"]
    done = subprocess.run(
        [sys.executable, "-c", LOADED], input="\n".join(lines), capture_output=True, text=True,
        env={**os.environ, "COLUMNS": "80"},
    )  # fmt: skip
    out = done.stdout
    ends = [line.split()[1:] for line in out.splitlines() if line.startswith("ended")]
    assert ends[: len(LIGHT)] == [["0"]] * len(LIGHT)
    (status, *loaded), *refused, collect = ends[len(LIGHT) :]
    assert status == collect[0] == "0"
    assert not {"torch", "pandas"} & set(loaded)
    assert [code for code, *_ in refused] == ["2"] * len(REFUSED)
    assert "torch" not in collect
    assert out.startswith(f"dlmexp {__version__}\n")
    assert out.count("usage: dlmexp") == len(COMMANDS) + 2
    assert {*COMMANDS} <= {*out.partition("usage: dlmexp run")[0].split()}
    assert [line for line in out.splitlines() if len(line) > 80] == []
    assert len(done.stderr.splitlines()) == len(REFUSED) + 1
    assert "mine.json" in done.stderr
    assert foreign.read_text() == "{}"


NAMED = {  # what is typed: what the sentence names
    "": "COMMAND", "runn": "'runn'", "status --unknown": "--unknown", "stats": "did you mean status",
    "status --faild": "did you mean --failed", "data fech": "did you mean fetch",
    "collect --protocol paper": "--pack", "collect --pack records.tar.xz": "records.tar.xz",
    "collect --results empty": "dlmexp run", "collect --pack afile/records.parquet": "afile/records.parquet",
    "collect --pack records.parquet --results nowhere": "nowhere", "collect --pack r.parquet --protocol mine": "mine",
}  # fmt: skip


@pytest.mark.parametrize("typed", NAMED)
def test_a_mistake_is_one_line_and_nothing_is_written(collected, typed, capsys):
    (collected / "afile").write_text("")
    (collected / "empty").mkdir()
    before = sorted(collected.rglob("*"))
    assert main(typed.split()) == 2
    err = capsys.readouterr().err
    assert err.startswith("dlmexp: ")
    assert err.count("\n") == 1
    assert NAMED[typed] in err
    if typed in ("status --faild", "data fech"):
        assert f"dlmexp {typed.split()[0]} --help" in err
    assert sorted(collected.rglob("*")) == before


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (PermissionError(13, "Permission denied", "there/it"), 2, "there/it: Permission denied"),
        (OSError(28, "No space left on device"), 2, "No space left on device"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_errors_of_the_file_system_and_interrupts_are_one_line(monkeypatch, capsys, error, code, said):
    def fail(*_):
        raise error

    monkeypatch.setattr(results, "results_folder", fail)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # it would ignore Ctrl-C from now on
    assert main(["status"]) == code
    err = capsys.readouterr().err
    assert err.startswith(f"dlmexp: {said}")
    assert err.count("\n") == 1


@pytest.mark.processes
def test_a_closed_pipe_is_not_an_error(tmp_path):
    (tmp_path / "results").mkdir()
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", "from dlmexp.cli import main; import sys; sys.exit(main())", "status", "--json"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("option", "read"), [([], pd.read_parquet), (["--csv"], pd.read_csv)])
def test_the_tidy_table(collected, capsys, option, read):
    assert main(["collect", *option]) == 0
    table = read(capsys.readouterr().out.split(":")[0])
    assert sorted(zip(table["method"], table["beta"], strict=True)) == [("beta_elbo", 0.3)] * 2 + [("elbo", 1.0)] * 2
    assert set(table["role"]) == {"fit"}
    assert main(["collect", "--pack", "other/records.parquet"]) == 0
    assert "4 records" in capsys.readouterr().out
    assert len(Store("other").keys()[0]) == 4
