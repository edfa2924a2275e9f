"""The status of jobs, where SLURM, the live processes and the records contradict each other."""

import json
from pathlib import Path

import pytest
from dlmexp.cluster.queue import unfinished_jobs
from dlmexp.cluster.scheduler import ClusterInfo, SchedulerUnavailable, SlurmState
from dlmexp.running.presence import ActiveProcess

from dlmexp.cluster import queue as module
from dlmexp.cluster.jobs import (
    SUBMITTED,
    Outcome,
    SubmittedJob,
    clear_outcome,
    read_submissions,
    write_outcome,
    write_submission,
)


def submitted(root: Path, job: str, *keys: str, cluster: str = "here") -> SubmittedJob:
    return write_submission(root / "multirun" / "sweep" / "jobs" / job, job, cluster, ["dataset=a", "seeds=[0]"], keys)


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> dict[str, SlurmState]:
    """The jobs that SLURM lists."""
    known: dict[str, SlurmState] = {}
    monkeypatch.setattr(module, "cluster_info", lambda: ClusterInfo("here", 1001))
    monkeypatch.setattr(module, "job_states", lambda jobs: {job: known.get(job, SlurmState("ENDED")) for job in jobs})
    return known


def test_submissions_are_read_in_order(tmp_path: Path):
    first, second = submitted(tmp_path, "9", "k1"), submitted(tmp_path, "10_0", "k2", "k3")
    assert read_submissions(tmp_path) == [first, second]
    assert second.log == second.folder / "10_0_0_log.out"
    (tmp_path / "multirun" / "sweep" / "jobs" / "11").mkdir()
    (tmp_path / "multirun" / "sweep" / "jobs" / "11" / SUBMITTED).write_text("{")
    assert len(read_submissions(tmp_path)) == 2, "a torn file is skipped"


def test_an_outcome_counts_until_the_job_begins_again(tmp_path: Path):
    job = submitted(tmp_path, "9", "k1")
    write_outcome(job.folder, Outcome("node1", 1, "ValueError: x"))
    assert read_submissions(tmp_path)[0].outcome == Outcome("node1", 1, "ValueError: x")
    clear_outcome(job.folder)
    assert read_submissions(tmp_path)[0].outcome is None


def test_a_completed_job_without_a_record_is_lost(tmp_path: Path, slurm: dict[str, SlurmState]):
    job = submitted(tmp_path, "9", "k1", "k2")
    write_outcome(job.folder, Outcome("node1", 1, "ValueError: x"))
    slurm["9"] = SlurmState("COMPLETED", "node1")
    (status,) = unfinished_jobs(tmp_path, {"k1"}, [])
    assert status.lost
    assert status.owned == {"k2"}
    assert status.description == "ended (COMPLETED): ValueError: x"
    assert unfinished_jobs(tmp_path, {"k1", "k2"}, []) == []


def test_pending_and_running_jobs_are_not_lost(tmp_path: Path, slurm: dict[str, SlurmState]):
    submitted(tmp_path, "9_0", "k1")
    submitted(tmp_path, "9_1", "k2")
    slurm |= {"9_0": SlurmState("PENDING", reason="Priority"), "9_1": SlurmState("RUNNING", "node1")}
    assert [(s.description, s.node, s.lost) for s in unfinished_jobs(tmp_path, set(), [])] == [
        ("pending (Priority)", "", False),
        ("running", "node1", False),
    ]


def test_a_job_that_can_not_start_says_why(tmp_path: Path, slurm: dict[str, SlurmState]):
    submitted(tmp_path, "9", "k1")
    slurm["9"] = SlurmState("PENDING", reason="PartitionConfig")
    (status,) = unfinished_jobs(tmp_path, set(), [])
    assert status.active, "it is still in the queue"
    assert status.description.startswith("can't start (PartitionConfig): no node of its partition has what it asks for")


def test_cells_submitted_again_belong_to_the_later_job(tmp_path: Path, slurm: dict[str, SlurmState]):
    submitted(tmp_path, "9", "k1", "k2")
    submitted(tmp_path, "10", "k1", "k2")
    slurm["10"] = SlurmState("PENDING")
    assert [(s.job.id, s.active) for s in unfinished_jobs(tmp_path, set(), [])] == [("10", True)]


def test_cells_belong_to_a_job_in_the_queue_rather_than_to_a_later_one_that_ended(
    tmp_path: Path, slurm: dict[str, SlurmState]
):
    submitted(tmp_path, "9", "k1", "k2")
    submitted(tmp_path, "10", "k1", "k3")
    slurm |= {"9": SlurmState("RUNNING"), "10": SlurmState("CANCELLED")}
    assert [(s.job.id, s.owned, s.lost) for s in unfinished_jobs(tmp_path, set(), [])] == [
        ("9", {"k1", "k2"}, False),
        ("10", {"k3"}, True),
    ]


def test_a_live_process_counts_more_than_the_queue(tmp_path: Path, slurm: dict[str, SlurmState]):
    submitted(tmp_path, "9", "k1")
    (status,) = unfinished_jobs(
        tmp_path, set(), [ActiveProcess(name="w", host="node3", pid=1, keys={"k1": 0}, job="9")]
    )
    assert (status.description, status.node) == ("running", "node3")


def test_nothing_is_lost_where_slurm_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def unavailable() -> None:
        raise SchedulerUnavailable("there is no scontrol on this machine")

    submitted(tmp_path, "9", "k1")
    monkeypatch.setattr(module, "cluster_info", unavailable)
    (status,) = unfinished_jobs(tmp_path, set(), [])
    assert not status.lost
    assert not status.active
    assert status.description == "unknown: there is no scontrol on this machine"


def test_jobs_of_another_cluster_are_unknown(tmp_path: Path, slurm: dict[str, SlurmState]):
    submitted(tmp_path, "9", "k1", cluster="there")
    (status,) = unfinished_jobs(tmp_path, set(), [])
    assert status.description == "unknown: a job of cluster there"


def test_a_job_of_another_user_that_is_hidden_is_unknown(tmp_path: Path, slurm: dict[str, SlurmState]):
    job = submitted(tmp_path, "9", "k1")
    path = job.folder / SUBMITTED
    path.write_text(json.dumps({**json.loads(path.read_text()), "user": "somebody-else"}))
    (status,) = unfinished_jobs(tmp_path, set(), [])
    assert "somebody-else" in status.description
    write_outcome(job.folder, Outcome("node1", 1, "ValueError: x"))
    assert unfinished_jobs(tmp_path, set(), [])[0].lost, "its own outcome shows that it has ended"
