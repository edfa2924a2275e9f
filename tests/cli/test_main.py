"""The command `dlmexp`: help, version, mistakes and exit codes, what is loaded; what `collect`,
`status`, `logs` and `cancel` write, show and stop."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from msgspec.structs import replace

from dlmexp import __version__
from dlmexp.cli import jobs, main
from dlmexp.common.atomic import machine
from dlmexp.experiment.cluster import jobs as jobs_module
from dlmexp.experiment.cluster.jobs import SUBMITTED, write_submission
from dlmexp.experiment.records.manifests import Manifest, write_manifest
from dlmexp.experiment.records.store import Store
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
COMMANDS += ["collect", "plot", "claims", "rank", "report", "data", "test"]
HELP = [
    "--version",
    "--help",
    "run dataset=banana --help",
    *(f"{command} --help" for command in COMMANDS),
]
LIGHT = [*HELP, "data list"]
REFUSED = ["run dataset=bananna", "run device=gpu", "run training.lr=1e10"]
CELLS = [replace(ELBO, seed=seed, beta=beta) for seed in range(2) for beta in (1.0, 0.3)]


@pytest.fixture
def mine(here):
    """The experiment `mine`: four cells done, two of which ELBO asks for as well, one failed, one
    missing. Jobs 12_0, 12_1 and 13 have one cell each; the last has not started."""
    store = Store("results")
    several = [candidates("beta_elbo", CELLS[:2]), candidates("beta_elbo", CELLS[2:])]
    others = [replace(ELBO, seed=seed) for seed in (2, 3)]
    several += [candidates("elbo", [each]) for each in (*CELLS[::2], *others)]
    write_manifest(store.root, Manifest("mine", several))
    for each in CELLS:
        store.write(scored(each, nll=each.beta or 0.0, error=0.1))
    store.write(scored(others[0], "failed", "the objective is [red]NaN[/red]"))
    for job, cell in zip(("12_0", "12_1", "13"), CELLS[::2] + others[:1], strict=True):
        place = store.root / "multirun" / "now" / "jobs" / job
        write_submission(place, job, [f"seeds=[{cell.seed}]"], [cell.key])
        if job != "13":
            (place / f"{job}_0_log.out").write_text(f"first of {job}\nlast of {job}\n")
    return here


@pytest.mark.processes
def test_help_fits_80_columns_and_no_command_loads_more_than_it_needs(mine):
    """All in one process, so that whatever one of them loads shows from there on."""
    foreign = mine / "results" / "records" / "banana" / "mine.json"
    foreign.write_text("{}")
    lines = [*LIGHT, "status", *REFUSED, "collect"]
    done = subprocess.run(
        [sys.executable, "-c", LOADED],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "80"},
    )
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
    "": "COMMAND",
    "runn": "'runn'",
    "status --unknown": "--unknown",
    "stats": "did you mean status",
    "status --faild": "did you mean --failed",
    "data fech": "did you mean fetch",
    "collect --protocol paper": "--pack",
    "collect --pack records.tar.xz": "records.tar.xz",
    "collect --results empty": "dlmexp run results=empty",
    "collect --pack afile/records.parquet": "afile/",
    "collect --pack records.parquet --results nowhere": "nowhere",
    "collect --pack r.parquet --protocol mine": "mine",
    "status --results nowhere": "dlmexp run results=nowhere",
    "logs 99": "'99'",
    "logs bananna": "'bananna'",
    "data fetch cadata sonng": "did you mean song",
    "data import sonng x": "did you mean song",
    "data check sonng": "did you mean song",
    "logs --results nowhere": "nowhere",
    "cancel 12": "'12'",
    "cancel --results nowhere --yes": "nowhere",
}


@pytest.mark.parametrize("typed", NAMED)
def test_a_mistake_is_one_line_and_nothing_is_written(mine, typed, refused):
    (mine / "afile").write_text("")
    (mine / "empty").mkdir()
    said = refused(typed.split(), NAMED[typed])
    if typed in ("status --faild", "data fech"):
        assert f"dlmexp {typed.split()[0]} --help" in said


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (PermissionError(13, "Permission denied", "there/it"), 2, "there/it: Permission denied"),
        (OSError(28, "No space left on device"), 2, "No space left on device"),
        (MemoryError(), 2, "not enough memory"),
        (ImportError("libtorch.so: failed to map segment"), 2, "not enough memory"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_errors_of_the_system_and_interrupts_are_one_line(monkeypatch, capsys, error, code, said):
    def fail(*_):
        raise error

    monkeypatch.setattr(jobs, "results_folder", fail)
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
    command = [
        sys.executable,
        "-c",
        "from dlmexp.cli import main; import sys; sys.exit(main())",
        "status",
        "--json",
    ]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("option", "read"), [([], pd.read_parquet), (["--csv"], pd.read_csv)])
def test_the_tidy_table(mine, capsys, option, read):
    assert main(["collect", *option]) == 0
    table = read(capsys.readouterr().out.split(":")[0])
    done = table[table["status"] == "done"]
    assert (
        sorted(zip(done["method"], done["beta"], strict=True))
        == [("beta_elbo", 0.3)] * 2 + [("elbo", 1.0)] * 2
    )
    assert set(table["role"]) == {"fit"}
    assert main(["collect", "--pack", "other/records.parquet"]) == 0
    assert "5 records" in capsys.readouterr().out
    done, failed = Store("other").keys()
    assert (len(done), len(failed)) == (4, 1)


def test_status(mine, capsys):
    (mine / "results" / "mine" / "cells" / "notes.txt").write_bytes("café".encode("latin-1"))
    assert main(["status", "--failed", "--missing"]) == 0
    said = capsys.readouterr().out
    (line,) = [line for line in said.splitlines() if "mine " in line and "│" in line]
    assert [word for word in line.replace("│", " ").split() if word.isdigit()] == [
        "4",
        "0",
        "0",
        "1",
        "1",
    ]
    assert (
        "mine: banana n=100 seed=2 elbo exact beta=0.1: "
        "the objective is [red]NaN[/red] (iteration 3)" in said
    )
    assert "mine: missing banana n=100 seed=3 elbo exact beta=0.1" in said
    main(["collect", "--pack", "other/records.parquet"])
    assert main(["status", "--results", "other"]) == 0
    assert "5 records" in capsys.readouterr().out


LOGS = {
    "12_1": ["first of 12_1", "last of 12_1"],
    "12": ["first of 12_0", "last of 12_0", "first of 12_1", "last of 12_1"],
    "12 seeds=[1]": ["first of 12_1", "last of 12_1"],
    "13": ["(no log: the job has not started, or never did)"],
    "": ["job 12_0: seeds=[0]", "job 12_1: seeds=[1]", "job 13: seeds=[2]"],
}


@pytest.mark.parametrize("typed", LOGS)
def test_whose_log(mine, capsys, typed):
    assert main(["logs", *typed.split()]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if not line.startswith(("==", "  "))] == LOGS[typed]


STATES = {
    "12_0": ("RUNNING", "node1", ""),
    "12_1": ("CAN'T START", "", "PartitionConfig"),
    "13": ("ENDED", "node1", "COMPLETED"),
    "14": ("PENDING", "", "Priority"),
}
OURS = os.getppid()


@pytest.fixture
def cancelled(here, monkeypatch):
    """What is cancelled of two tasks of ours, a job that has ended, one of another user, a process
    here and one elsewhere."""
    root, stopped = Path("results"), []
    for job in STATES:
        write_submission(root / "multirun" / "now" / "jobs" / job, job, [], [f"k{job}"])
    foreign = root / "multirun" / "now" / "jobs" / "14" / SUBMITTED
    foreign.write_text(json.dumps({**json.loads(foreign.read_text()), "user": "somebody-else"}))
    (root / "running").mkdir()
    for pid, where in ((OURS, machine()), (777, "elsewhere")):
        about = {"host": "h", "pid": pid, "machine": where}
        (root / "running" / f"h-{pid}.json").write_text(json.dumps(about))
    monkeypatch.setattr(jobs_module, "job_states", lambda jobs: {job: STATES[job] for job in jobs})
    scripts = dict.fromkeys(STATES, root / "multirun" / "now" / "jobs" / "job.sh")
    monkeypatch.setattr(jobs_module, "job_scripts", lambda jobs: scripts)
    monkeypatch.setattr(jobs_module, "is_run_of", lambda process, root: process.pid == OURS)
    monkeypatch.setattr(jobs_module, "ask", lambda *words: stopped.extend(words[2:]))
    monkeypatch.setattr(
        jobs_module.os, "kill", lambda pid, number: stopped.append((pid, number)) if number else 0
    )
    return stopped


@pytest.mark.parametrize(
    ("words", "expected", "code"),
    [
        ("--yes", ["12_0", "12_1", (OURS, signal.SIGTERM)], 0),
        ("12 --yes", ["12_0", "12_1"], 0),
        ("12_1 --yes", ["12_1"], 0),
        ("14 --yes", [], 2),  # another user's
        ("777 --yes", [], 2),  # another machine's
        (f"{OURS} --yes", [(OURS, signal.SIGTERM)], 0),
        ("13 --yes", [], 2),  # it has ended
        ("12", [], 2),  # nobody can be asked
    ],
)
def test_only_what_is_ours_and_named_is_cancelled(cancelled, capsys, words, expected, code):
    assert main(["cancel", *words.split()]) == code
    assert cancelled == expected
    said = capsys.readouterr().out
    if words == "--yes":
        assert "job 12_1: can't start (PartitionConfig)" in said


def test_nothing_to_cancel(tmp_path, capsys):
    assert main(["cancel", "--results", str(tmp_path)]) == 0
    assert str(tmp_path) in capsys.readouterr().out


@pytest.mark.parametrize(("answer", "agreed"), [("y\n", True), ("n\n", False), ("", False)])
def test_the_question(cancelled, monkeypatch, answer, agreed):
    terminal = io.StringIO(answer)
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(jobs.sys, "stdin", terminal)
    assert main(["cancel", "12"]) == 0
    assert cancelled == (["12_0", "12_1"] if agreed else [])
