"""A job as it is called on a node: its surroundings, its end, and its way back to the queue."""

import importlib
import os
import pickle
import signal
import subprocess
import sys

import pytest

from dlmexp.common.errors import UserError
from dlmexp.experiment.cluster import node
from dlmexp.experiment.cluster.node import BlockOnNode, returns_to_queue, run_block
from dlmexp.experiment.cluster.slurm import JobState

REQUEUED = 128 + signal.SIGUSR2


def test_job_on_a_node_has_the_surroundings_of_the_submitter(tmp_path, monkeypatch):
    (tmp_path / "plugin_of_a_user.py").write_text("number = 7")
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path)
        patch.setattr(sys, "path", ["", *sys.path])
        patch.setenv("DLMEXP_PLUGINS", "plugin_of_a_user")
        patch.setenv("UNRELATED", "x")
        block = pickle.loads(pickle.dumps(BlockOnNode(["seeds=[0]"])))
    monkeypatch.setattr(sys, "path", [*sys.path, "only-here"])
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.chdir("/")
    monkeypatch.setattr(node, "run_block", lambda overrides: len(overrides) - 1)
    assert block() == 0
    assert os.getcwd() == str(tmp_path)
    assert importlib.import_module("plugin_of_a_user").number == 7
    assert os.environ == {"DLMEXP_PLUGINS": "plugin_of_a_user"}
    assert sys.path[-1] == "only-here"


@pytest.fixture
def usr2(monkeypatch):
    """Signals that reach the handler of submitit, which may raise the first of `errors`."""
    received, errors = [], []

    def handler(number, _):
        received.append(number)
        if errors:
            raise errors[0]

    before = signal.signal(signal.SIGUSR2, handler)
    yield received, errors
    signal.signal(signal.SIGUSR2, before)


def exit_code(block: BlockOnNode) -> int | str | None:
    """Return the exit code of the program that a job is."""
    try:
        return block()
    except SystemExit as end:
        return end.code


@pytest.mark.parametrize(("code", "times"), [(REQUEUED, 1), (130, 0), (1, 0), (0, 0)])
def test_job_is_requeued_if_its_time_is_over(monkeypatch, usr2, code, times):
    received, _ = usr2
    monkeypatch.setattr(node, "run_block", lambda overrides: code)
    assert exit_code(BlockOnNode(["seeds=[0]"])) == code
    assert len(received) == times


def test_job_that_slurm_does_not_requeue_says_so(monkeypatch, capsys, usr2):
    """The handler of submitit raises this error if `scontrol requeue` is forbidden."""
    _, errors = usr2
    errors.append(subprocess.CalledProcessError(1, ["scontrol", "requeue", "17"]))
    monkeypatch.setattr(node, "run_block", lambda overrides: REQUEUED)
    assert exit_code(BlockOnNode(["seeds=[0]"])) == REQUEUED
    assert "does not requeue" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("received", "state", "expected"),
    [
        (signal.SIGUSR2, "RUNNING", True),  # the time limit is near
        (signal.SIGUSR2, "COMPLETING", True),
        (signal.SIGTERM, "RUNNING", True),  # grace time before a preemption
        (signal.SIGTERM, "COMPLETING", False),  # cancelled
        (signal.SIGTERM, "PENDING", False),  # SLURM has requeued it already
        (signal.SIGINT, "RUNNING", False),
    ],
)
def test_job_returns_to_the_queue_unless_it_was_cancelled(received, state, expected, monkeypatch):
    monkeypatch.setattr(node, "job_states", lambda jobs: dict.fromkeys(jobs, JobState(state)))
    assert returns_to_queue("17", received) == expected


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UserError("no such dataset"), 2, "dlmexp: no such dataset\n"),
        (RuntimeError("broken"), 1, "RuntimeError: broken\n"),
    ],
)
def test_block_that_raises_prints_its_error(monkeypatch, capsys, error, code, message):
    def compose(overrides):
        raise error

    monkeypatch.setattr(node, "compose", compose)
    assert run_block(["seeds=[0]"]) == code
    printed = capsys.readouterr().err
    assert printed.endswith(message)
    assert ("Traceback" in printed) == (code == 1)
