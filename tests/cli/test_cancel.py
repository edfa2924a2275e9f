"""`dlmexp cancel`: our jobs and processes, and nobody else's."""

import json
import os
import signal
from pathlib import Path

import pytest

from dlmexp.atomic import machine
from dlmexp.cli import main
from dlmexp.cluster import jobs as module
from dlmexp.cluster.jobs import SUBMITTED, write_submission
from dlmexp.cluster.slurm import SlurmState

STATES = {
    "12_0": SlurmState("RUNNING", "node1"),
    "12_1": SlurmState("PENDING", reason="PartitionConfig"),
    "13": SlurmState("COMPLETED", "node1"),
    "14": SlurmState("PENDING", reason="Priority"),
}


def _process(root: Path, pid: int, where: str) -> None:
    (root / "running").mkdir(exist_ok=True)
    about = {"host": "h", "pid": pid, "machine": where}
    (root / "running" / f"h-{pid}.json").write_text(json.dumps(about))


@pytest.fixture
def cancelled(tmp_path, monkeypatch):
    """Two tasks of ours, a job that has ended, one of another user, a process here and one elsewhere. What was
    cancelled."""
    monkeypatch.chdir(tmp_path)
    root = Path("results")
    for job in STATES:
        write_submission(root / "multirun" / "now" / "jobs" / job, job, "here", [], [f"k{job}"])
    foreign = root / "multirun" / "now" / "jobs" / "14" / SUBMITTED
    foreign.write_text(json.dumps({**json.loads(foreign.read_text()), "user": "somebody-else"}))
    _process(root, os.getppid(), machine())
    _process(root, 777, "elsewhere")
    monkeypatch.setattr(module, "cluster_info", lambda: ("here", 1001))
    monkeypatch.setattr(module, "job_states", lambda jobs: {job: STATES[job] for job in jobs})
    found: list[str] = []
    monkeypatch.setattr(module, "ask", lambda *words: found.extend(words[2:]))

    def kill(pid: int, number: int) -> None:
        if number:
            found.append(f"{pid} {number:d}")

    monkeypatch.setattr(module.os, "kill", kill)
    return found


def test_everything_of_ours(cancelled, capsys):
    assert main(["cancel", "--yes"]) == 0
    assert cancelled == ["12_0", "12_1", f"{os.getppid()} {signal.SIGTERM:d}"]
    said = capsys.readouterr().out
    assert "not from here: job 14 of somebody-else: pending (Priority)" in said
    assert "not from here: h pid 777: stop it on its own machine" in said
    assert "job 12_1: can't start (PartitionConfig)" in said


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["12"], ["12_0", "12_1"]),
        (["12_1"], ["12_1"]),
        (["14"], []),
        (["777"], []),
        ([str(os.getppid())], [f"{os.getppid()} {signal.SIGTERM:d}"]),
    ],
)
def test_only_what_is_named(cancelled, names, expected):
    assert main(["cancel", *names, "--yes"]) == 0
    assert cancelled == expected


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["13", "--yes"], "'13' is no job or process of results"),
        (["12"], "add --yes"),
        (["--results", "nowhere", "--yes"], "there is no such folder"),
    ],
)
def test_nothing_is_cancelled_otherwise(cancelled, capsys, words, said):
    assert main(["cancel", *words]) == 2
    assert said in capsys.readouterr().err
    assert cancelled == []


def test_nothing_to_cancel(tmp_path, capsys):
    assert main(["cancel", "--results", str(tmp_path)]) == 0
    assert f"nothing to cancel in {tmp_path}" in capsys.readouterr().out
