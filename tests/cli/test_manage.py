"""`dlmexp status`, `logs` and `cancel`: what they show and what they stop."""

import io
import json
import os
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from dlmexp.atomic import machine
from dlmexp.cli import main, results
from dlmexp.cluster import jobs as jobs_module
from dlmexp.cluster.jobs import SUBMITTED, SlurmState, write_submission
from dlmexp.records.store import Store
from tests.support.cells import ELBO, ask, scored

BANANA = [replace(ELBO, seed=seed) for seed in range(4)]


@pytest.fixture
def mine(here):
    """The experiment `mine`: two cells done, one failed, one missing; the first three are of jobs 12_0, 12_1 and 13,
    of which the last has not started."""
    store = Store("results")
    ask(store.root, "mine", BANANA)
    for cell in BANANA[:2]:
        store.write(scored(cell, nll=0.5))
    store.write(scored(BANANA[2], "failed", "the objective is [red]NaN[/red]"))
    for job, cell in zip(("12_0", "12_1", "13"), BANANA, strict=False):
        place = store.root / "multirun" / "now" / "jobs" / job
        write_submission(place, job, [f"seeds=[{cell.seed}]"], [cell.key])
        if job != "13":
            (place / f"{job}_0_log.out").write_text(f"first of {job}\nlast of {job}\n")
    return here


def _files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


REFUSED = {  # what is typed: what the sentence names
    "status --results nowhere": "dlmexp run results=nowhere", "logs 99": "'99'", "logs bananna": "'bananna'",
    "logs --results nowhere": "nowhere", "cancel 12": "'12'", "cancel --results nowhere --yes": "nowhere",
}  # fmt: skip


@pytest.mark.parametrize("typed", REFUSED)
def test_mistakes_are_refused_and_change_nothing(mine, capsys, typed):
    before = _files(mine)
    assert main(typed.split()) == 2
    assert REFUSED[typed] in capsys.readouterr().err
    assert _files(mine) == before


def test_status(mine, capsys):
    (mine / "results" / "mine" / "cells" / "notes.txt").write_bytes("café".encode("latin-1"))
    assert main(["status", "--failed", "--missing"]) == 0
    said = capsys.readouterr().out
    (line,) = [line for line in said.splitlines() if "mine " in line and "│" in line]
    assert [word for word in line.replace("│", " ").split() if word.isdigit()] == ["2", "0", "0", "1", "1"]
    assert "mine: banana n=100 seed=2 elbo exact beta=0.1: the objective is [red]NaN[/red] (iteration 3)" in said
    assert "mine: missing banana n=100 seed=3 elbo exact beta=0.1" in said
    assert main(["status", "--json", "--failed"]) == 0
    (experiment,) = json.loads(capsys.readouterr().out)["experiments"]
    assert (experiment["done"], experiment["failed"], experiment["missing"]) == (2, 1, 1)
    assert experiment["failures"][0]["key"] == BANANA[2].key
    main(["collect", "--pack", "other/records.parquet"])
    assert main(["status", "--results", "other"]) == 0
    assert "3 records" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["status", "data list"])
def test_tables_fit_80_columns(mine, capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(command.split()) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


LOGS = {
    "12_1": ["first of 12_1", "last of 12_1"], "12": ["first of 12_0", "last of 12_0", "first of 12_1", "last of 12_1"],
    "12 seeds=[1]": ["first of 12_1", "last of 12_1"],
    "13": ["(no log: the job has not started, or never did)"],
    "": ["job 12_0: seeds=[0]", "job 12_1: seeds=[1]", "job 13: seeds=[2]"],
}  # fmt: skip


@pytest.mark.parametrize("typed", LOGS)
def test_whose_log(mine, capsys, typed):
    assert main(["logs", *typed.split()]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if not line.startswith(("==", "  "))] == LOGS[typed]


STATES = {
    "12_0": SlurmState("RUNNING", "node1"), "12_1": SlurmState("PENDING", reason="PartitionConfig"),
    "13": SlurmState("COMPLETED", "node1"), "14": SlurmState("PENDING", reason="Priority"),
}  # fmt: skip
OURS = os.getppid()


@pytest.fixture
def cancelled(here, monkeypatch):
    """What is cancelled of two tasks of ours, a job that has ended, one of another user, a process here and one
    elsewhere."""
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
    monkeypatch.setattr(jobs_module, "ask", lambda *words: stopped.extend(words[2:]))
    monkeypatch.setattr(jobs_module.os, "kill", lambda pid, number: stopped.append((pid, number)) if number else 0)
    return stopped


@pytest.mark.parametrize(
    ("words", "expected", "code"),
    [
        ("--yes", ["12_0", "12_1", (OURS, signal.SIGTERM)], 0),
        ("12 --yes", ["12_0", "12_1"], 0),
        ("12_1 --yes", ["12_1"], 0),
        ("14 --yes", [], 0),
        ("777 --yes", [], 0),
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
        assert "job 14 of somebody-else: pending (Priority)" in said
        assert "h pid 777" in said
        assert "job 12_1: can't start (PartitionConfig)" in said


def test_nothing_to_cancel(tmp_path, capsys):
    assert main(["cancel", "--results", str(tmp_path)]) == 0
    assert str(tmp_path) in capsys.readouterr().out


@pytest.mark.parametrize(("answer", "agreed"), [("y\n", True), ("n\n", False), ("", False)])
def test_the_question(cancelled, monkeypatch, answer, agreed):
    terminal = io.StringIO(answer)
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(results.sys, "stdin", terminal)
    assert main(["cancel", "12"]) == 0
    assert cancelled == (["12_0", "12_1"] if agreed else [])
