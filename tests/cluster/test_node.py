"""A job on a node: signals that requeue it, its outcome, and the context it takes over from the submitter."""

import importlib
import json
import os
import pickle
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from dlmexp.cluster.node import ProcessContext
from dlmexp.cluster.scheduler import SchedulerUnavailable, SlurmState

from dlmexp.cluster import node, scheduler


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

    def states(jobs: list[str]) -> dict[str, SlurmState]:
        if isinstance(state, Exception):
            raise state
        return {job: SlurmState(state) for job in jobs}

    calls: list[int] = []
    monkeypatch.setattr(scheduler, "job_states", states)
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
        (signal.SIGTERM, SchedulerUnavailable("no answer"), False),
        (signal.SIGINT, "RUNNING", False),
    ],
)
@pytest.mark.usefixtures("job_folder")
def test_requeue(received: int, state: Any, goes_back: bool, monkeypatch: pytest.MonkeyPatch):
    assert raised(monkeypatch, received, state) == goes_back


def test_outside_of_a_submitted_job_nothing_is_requeued_or_written(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SUBMITIT_EXECUTOR", raising=False)
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert not raised(monkeypatch, signal.SIGUSR2, "RUNNING")
    assert node.job_folder() is None
    node.write_outcome(1, "no file")


def test_the_outcome_of_a_process(job_folder: Path):
    job_folder.mkdir()
    node.clear_outcome()
    node.write_outcome(2, "no such file")
    outcome = json.loads((job_folder / "outcome.json").read_text())
    assert (outcome["code"], outcome["reason"]) == (2, "no such file")
    node.clear_outcome()
    assert not list(job_folder.iterdir())


def test_an_outcome_that_cannot_be_written_is_no_error(job_folder: Path):
    job_folder.write_text("a file in place of the folder")
    node.write_outcome(1, "lost")


def test_a_job_gets_the_context_of_the_submitter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    submitter, elsewhere = tmp_path / "submitter", tmp_path / "elsewhere"
    submitter.mkdir()
    elsewhere.mkdir()
    (submitter / "plugin_of_a_user.py").write_text("number = 7")
    with monkeypatch.context() as patch:
        patch.chdir(submitter)
        patch.setattr(sys, "path", ["", *sys.path])
        patch.setenv("DLMEXP_PLUGINS", "plugin_of_a_user")
        patch.setenv("OTHER", "1")
        context = pickle.loads(pickle.dumps(ProcessContext.current()))
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(sys, "path", [*sys.path, "only-here"])
    monkeypatch.setattr(os, "environ", {})
    context.restore()
    assert os.getcwd() == str(submitter)
    assert importlib.import_module("plugin_of_a_user").number == 7
    assert os.environ["DLMEXP_PLUGINS"] == "plugin_of_a_user"
    assert "OTHER" not in os.environ
    assert sys.path[-1] == "only-here"
