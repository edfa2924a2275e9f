"""On a node: which signal sends a job back into the queue, and what it leaves behind."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from dlmexp.sweep import node, scheduler

from dlmexp.cluster.scheduler import Silent, State


@pytest.fixture
def job_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As submitit starts a task of an array."""
    for name, value in {
        "SLURM_JOB_ID": "17", "SLURM_ARRAY_JOB_ID": "15", "SLURM_ARRAY_TASK_ID": "2", "SUBMITIT_EXECUTOR": "slurm",
        "SUBMITIT_FOLDER": str(tmp_path / "%j"),
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    return tmp_path / "15_2"


def raised(monkeypatch: pytest.MonkeyPatch, received: int, state: Any) -> bool:
    """Whether submitit's handler of SIGUSR2, which requeues, is called."""

    def states(jobs: list[str]) -> dict[str, State]:
        if isinstance(state, Exception):
            raise state
        return {job: State(state) for job in jobs}

    calls: list[int] = []
    monkeypatch.setattr(scheduler, "states", states)
    before = signal.signal(signal.SIGUSR2, lambda number, frame: calls.append(number))
    try:
        node.requeue(received)
    finally:
        signal.signal(signal.SIGUSR2, before)
    return bool(calls)


@pytest.mark.parametrize(
    ("received", "state", "goes_back"),
    [
        (signal.SIGUSR2, "RUNNING", True),  # the time limit is near
        (signal.SIGTERM, "RUNNING", True),  # grace time before a preemption
        (signal.SIGTERM, "CANCELLED", False),
        (signal.SIGTERM, "PENDING", False),  # SLURM has requeued it already
        (signal.SIGTERM, Silent("no answer"), False),
        (signal.SIGINT, "RUNNING", False),
    ],
)
@pytest.mark.usefixtures("job_folder")
def test_requeue(received: int, state: Any, goes_back: bool, monkeypatch: pytest.MonkeyPatch):
    assert raised(monkeypatch, received, state) == goes_back


def test_outside_of_a_submitted_job_nothing_is_requeued_or_noted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SUBMITIT_EXECUTOR", raising=False)
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert not raised(monkeypatch, signal.SIGUSR2, "RUNNING")
    assert node.folder() is None
    node.ended(1, "nobody is told")


def test_the_last_word_of_a_process(job_folder: Path):
    job_folder.mkdir()
    node.began()
    node.ended(2, "no such file")
    note = json.loads((job_folder / "outcome.json").read_text())
    assert (note["code"], note["why"]) == (2, "no such file")


def test_a_disk_without_room_for_a_note_is_no_failure(job_folder: Path):
    job_folder.write_text("in the way")
    node.ended(1, "lost")
