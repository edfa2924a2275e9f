"""Queries to SLURM, with commands that print canned answers."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from dlmexp.cluster.scheduler import (
    ClusterInfo,
    SchedulerUnavailable,
    SlurmState,
    cluster_info,
    job_states,
    rename_jobs,
)

from dlmexp.records.provenance import own_job

Answers = Callable[..., None]


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Puts a command in front of all others that prints `text`, complains with `error` and exits with `code`."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def answer(command: str, text: str = "", error: str = "", code: int = 0) -> None:
        path = tmp_path / command
        path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\nprintf '%s' '{error}' >&2\nexit {code}\n")
        path.chmod(0o755)

    return answer


def test_states_of_arrays_and_single_jobs(answers: Answers):
    answers("squeue", "12_0|RUNNING|node1|None\n12_1|PENDING||Resources\n13|COMPLETED|node2|None\n")
    found = job_states(["12_0", "12_1", "13"])
    assert found == {
        "12_0": SlurmState("RUNNING", "node1"),
        "12_1": SlurmState("PENDING", "", "Resources"),
        "13": SlurmState("COMPLETED", "node2"),
    }
    assert [found[job].active for job in ("12_0", "12_1", "13")] == [True, True, False]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("PENDING||PartitionConfig", "no node of its partition has what it asks for"),
        ("PENDING||BadConstraints", "constraint="),
        ("PENDING||PartitionTimeLimit", "timeout_min="),
        ("PENDING||QOSMaxCpuPerJobLimit", "allows one job"),
        ("PENDING||AssocMaxWallDurationPerJobLimit", "allows one job"),
        ("PENDING||QOSMinGRES", "allows one job"),
        ("PENDING||InvalidAccount", "account="),
        ("PENDING||DependencyNeverSatisfied", "depends on"),
        ("PENDING||(JobHeldUser)", ""),
        ("REQUEUE_HOLD||launch failed requeued held", "scontrol release"),
        ("PENDING||Resources", ""),
        ("PENDING||Priority", ""),
        ("PENDING||None", ""),
        ("PENDING||BeginTime", ""),
        ("PENDING||JobArrayTaskLimit", ""),
        ("PENDING||QOSMaxJobsPerUserLimit", ""),
        ("PENDING||QOSMaxCpuPerUserLimit", ""),
        ("PENDING||AssocGrpCpuLimit", ""),
        ("PENDING||ReqNodeNotAvail, UnavailableNodes:node1", ""),
        ("PENDING||a reason of a later SLURM", ""),
        ("RUNNING|node1|PartitionConfig", ""),
    ],
)
def test_reasons_that_never_pass_are_told_from_those_that_do(answers: Answers, line: str, words: str):
    answers("squeue", f"12|{line}\n")
    said = job_states(["12"])["12"].never_starts
    assert words in said
    assert bool(said) == bool(words)


def test_a_job_that_squeue_does_not_list_has_ended_and_sacct_knows_how(answers: Answers):
    answers("squeue", error="slurm_load_jobs error: Invalid job id specified", code=1)
    answers("sacct", "12_0|CANCELLED by 1000|node1\n12_1|RUNNING|node1\n")
    found = job_states(["12_0", "12_1", "14"])
    assert found["12_0"] == SlurmState("CANCELLED", "node1")
    assert not found["12_1"].active, "the accounting may miss the end of a job; squeue does not list it any more"
    assert found["14"] == SlurmState("ENDED")


def test_a_job_that_squeue_does_not_list_has_ended_where_there_is_no_accounting(answers: Answers):
    answers("squeue")
    answers("sacct", error="Slurm accounting storage is disabled", code=1)
    assert job_states(["12"]) == {"12": SlurmState("ENDED")}


def test_a_job_has_not_ended_because_slurm_does_not_answer(answers: Answers):
    answers("squeue", error="slurm_load_jobs error: Unable to contact slurm controller", code=1)
    with pytest.raises(SchedulerUnavailable, match="Unable to contact"):
        job_states(["12"])


def test_no_command_is_run_for_no_jobs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")
    assert job_states([]) == {}


def test_cluster_info(answers: Answers):
    answers("scontrol", "ClusterName             = big\nMaxArraySize            = 1001\nMaxJobCount = 5\n")
    assert cluster_info() == ClusterInfo("big", 1001)


def test_cluster_info_without_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SchedulerUnavailable, match="no scontrol on this machine"):
        cluster_info()


@pytest.mark.parametrize(
    ("env", "job"),
    [
        ({}, None),
        ({"SLURM_JOB_ID": "17"}, "17"),
        ({"SLURM_JOB_ID": "17", "SLURM_ARRAY_JOB_ID": "15", "SLURM_ARRAY_TASK_ID": "0"}, "15_0"),
    ],
)
def test_own_job(env: dict[str, str], job: str | None, monkeypatch: pytest.MonkeyPatch):
    for name in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert own_job() == job


@pytest.mark.parametrize("code", [0, 1], ids=["allowed", "refused"])
def test_jobs_are_renamed_by_one_command_and_a_refusal_is_no_error(tmp_path: Path, answers: Answers, code: int):
    answers("scontrol")
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\ncat >> {tmp_path}/read\nexit {code}\n")
    rename_jobs({"12_0": "dlmexp-class-log-banana", "12_1": "dlmexp-class-log-ringnorm"})
    assert (tmp_path / "read").read_text() == (
        "update JobId=12_0 JobName=dlmexp-class-log-banana\nupdate JobId=12_1 JobName=dlmexp-class-log-ringnorm\n"
    )
