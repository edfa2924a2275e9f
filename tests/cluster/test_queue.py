"""Whom to believe: SLURM's states, the processes at work and the records, one against the other."""

import json
from pathlib import Path

import pytest
from dlmexp.sweep import queue as module

from dlmexp.cluster.jobs import SUBMITTED, Block, Outcome, began, ended, remember, remembered
from dlmexp.cluster.queue import queue
from dlmexp.cluster.scheduler import Silent, State
from dlmexp.running.presence import ActiveProcess


def submitted(root: Path, job: str, *keys: str, cluster: str = "here") -> Block:
    return remember(root / "multirun" / "sweep" / "jobs" / job, job, cluster, ["dataset=a", "seeds=[0]"], keys)


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> dict[str, State]:
    """What SLURM knows; what it does not has ended."""
    known: dict[str, State] = {}
    monkeypatch.setattr(module, "limits", lambda: ("here", 1001))
    monkeypatch.setattr(module, "states", lambda jobs: {job: known.get(job, State("ENDED")) for job in jobs})
    return known


def test_blocks_are_remembered_in_order(tmp_path: Path):
    first, second = submitted(tmp_path, "9", "k1"), submitted(tmp_path, "10_0", "k2", "k3")
    assert remembered(tmp_path) == [first, second]
    assert second.log == second.folder / "10_0_0_log.out"
    (tmp_path / "multirun" / "sweep" / "jobs" / "11").mkdir()
    (tmp_path / "multirun" / "sweep" / "jobs" / "11" / SUBMITTED).write_text("{")
    assert len(remembered(tmp_path)) == 2, "a torn note is not trusted"


def test_an_outcome_counts_until_the_job_begins_again(tmp_path: Path):
    block = submitted(tmp_path, "9", "k1")
    ended(block.folder, Outcome("node1", 1, "ValueError: x"))
    assert remembered(tmp_path)[0].outcome == Outcome("node1", 1, "ValueError: x")
    began(block.folder)
    assert remembered(tmp_path)[0].outcome is None


def test_a_completed_job_without_a_record_is_lost(tmp_path: Path, slurm: dict[str, State]):
    block = submitted(tmp_path, "9", "k1", "k2")
    ended(block.folder, Outcome("node1", 1, "ValueError: x"))
    slurm["9"] = State("COMPLETED", "node1")
    (standing,) = queue(tmp_path, {"k1"}, [])
    assert standing.lost
    assert standing.open == {"k2"}
    assert standing.sentence == "ended (COMPLETED): ValueError: x"
    assert queue(tmp_path, {"k1", "k2"}, []) == []


def test_pending_and_running_jobs_are_not_lost(tmp_path: Path, slurm: dict[str, State]):
    submitted(tmp_path, "9_0", "k1")
    submitted(tmp_path, "9_1", "k2")
    slurm |= {"9_0": State("PENDING", reason="Priority"), "9_1": State("RUNNING", "node1")}
    assert [(s.sentence, s.node, s.lost) for s in queue(tmp_path, set(), [])] == [
        ("pending (Priority)", "", False),
        ("running", "node1", False),
    ]


def test_cells_submitted_again_belong_to_the_later_job(tmp_path: Path, slurm: dict[str, State]):
    submitted(tmp_path, "9", "k1", "k2")
    submitted(tmp_path, "10", "k1", "k2")
    slurm["10"] = State("PENDING")
    assert [(s.block.job, s.active) for s in queue(tmp_path, set(), [])] == [("10", True)]


def test_cells_belong_to_a_job_in_the_queue_rather_than_to_a_later_one_that_ended(
    tmp_path: Path, slurm: dict[str, State]
):
    submitted(tmp_path, "9", "k1", "k2")
    submitted(tmp_path, "10", "k1", "k3")
    slurm |= {"9": State("RUNNING"), "10": State("CANCELLED")}
    assert [(s.block.job, s.open, s.lost) for s in queue(tmp_path, set(), [])] == [
        ("9", {"k1", "k2"}, False),
        ("10", {"k3"}, True),
    ]


def test_a_process_at_work_is_believed_more_than_the_queue(tmp_path: Path, slurm: dict[str, State]):
    submitted(tmp_path, "9", "k1")
    (standing,) = queue(tmp_path, set(), [ActiveProcess("w", "node3", 1, 0, frozenset({"k1"}), "9")])
    assert (standing.sentence, standing.node) == ("running", "node3")


def test_nothing_is_lost_where_slurm_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def silent() -> None:
        raise Silent("there is no scontrol on this machine")

    submitted(tmp_path, "9", "k1")
    monkeypatch.setattr(module, "limits", silent)
    (standing,) = queue(tmp_path, set(), [])
    assert not standing.lost
    assert not standing.active
    assert standing.sentence == "unknown: there is no scontrol on this machine"


def test_jobs_of_another_cluster_are_unknown(tmp_path: Path, slurm: dict[str, State]):
    submitted(tmp_path, "9", "k1", cluster="there")
    (standing,) = queue(tmp_path, set(), [])
    assert standing.sentence == "unknown: a job of cluster there"


def test_a_job_of_another_user_that_is_hidden_is_unknown(tmp_path: Path, slurm: dict[str, State]):
    block = submitted(tmp_path, "9", "k1")
    note = block.folder / SUBMITTED
    note.write_text(json.dumps({**json.loads(note.read_text()), "user": "somebody-else"}))
    (standing,) = queue(tmp_path, set(), [])
    assert "somebody-else" in standing.sentence
    ended(block.folder, Outcome("node1", 1, "ValueError: x"))
    assert queue(tmp_path, set(), [])[0].lost, "its own note says that it is over"
