"""What SLURM's commands print, and what is made of it."""

import os
from pathlib import Path

import pytest

from dlmexp.common.errors import UserError
from dlmexp.experiment.cluster.slurm import (
    ENDED,
    STUCK,
    UNKNOWN,
    JobState,
    ask,
    job_scripts,
    job_states,
    max_array_size,
)


@pytest.fixture
def answers(tmp_path, monkeypatch):
    """Puts a command in front of all others; it prints `text` and `error`, and exits with `code`."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def answer(command, text="", error="", code=0):
        path = tmp_path / command
        path.write_text(
            f"#!/bin/sh\ncat <<'END'\n{text}END\nprintf '%s' '{error}' >&2\nexit {code}\n"
        )
        path.chmod(0o755)

    return answer


def test_states_of_array_tasks_and_single_jobs_are_read_from_squeue(answers):
    lines = ["12_0|RUNNING|node1|None", "12_1|PENDING||Resources", "13|COMPLETING|node2|None"]
    answers("squeue", "\n".join([*lines, ""]))
    assert job_states(["12_0", "12_1", "13"]) == {
        "12_0": JobState("RUNNING", "node1", ""),
        "12_1": JobState("PENDING", "", "Resources"),
        "13": JobState("COMPLETING", "node2", ""),
    }


def test_squeue_is_asked_once_for_every_array(answers, tmp_path):
    asked = tmp_path / "asked"
    path = tmp_path / "squeue"
    path.write_text(f'#!/bin/sh\necho "$@" >> {asked}\n')
    path.chmod(0o755)
    answers("sacct")
    job_states(["12_0", "12_1", "9"])
    (line,) = asked.read_text().splitlines()
    assert line.endswith("--jobs 12,9")


def test_largest_array_is_read_from_the_configuration(answers):
    answers("scontrol", "MaxArraySize            = 17\nMaxJobCount = 5\n")
    assert max_array_size() == 17


NEVER_START = [
    "PENDING||PartitionConfig",
    "PENDING||BadConstraints",
    "PENDING||PartitionTimeLimit",
    "PENDING||InvalidAccount",
    "PENDING||QOSMaxCpuPerJobLimit",
    "PENDING||AssocMaxWallDurationPerJobLimit",
    "PENDING||QOSMinGRES",
    "PENDING||DependencyNeverSatisfied",
    "REQUEUE_HOLD||launch failed requeued held",
]
MAY_START = [
    "PENDING||(JobHeldUser)",
    "PENDING||Priority",
    "PENDING||None",
    "PENDING||QOSMaxJobsPerUserLimit",
    "PENDING||AssocGrpCpuLimit",
    "PENDING||ReqNodeNotAvail, UnavailableNodes:node1",
    "PENDING||a reason of a later SLURM",
    "RUNNING|node1|PartitionConfig",
]


@pytest.mark.parametrize("line", NEVER_START)
def test_job_with_a_reason_that_never_passes_is_stuck(answers, line):
    answers("squeue", f"12|{line}\n")
    assert job_states(["12"])["12"].state == STUCK


@pytest.mark.parametrize("line", MAY_START)
def test_job_with_a_reason_that_may_pass_is_not_stuck(answers, line):
    answers("squeue", f"12|{line}\n")
    assert job_states(["12"])["12"].state == line.partition("|")[0]


def test_job_that_left_the_queue_has_ended_as_sacct_says(answers):
    answers("squeue", "15|RUNNING|node2|None\n")
    lines = [
        "12_0|CANCELLED by 1000|None assigned",
        "12_1|RUNNING|node1",
        "14|FAILED|node1",
        "15|NODE_FAIL|node1",
    ]
    answers("sacct", "\n".join([*lines, ""]))
    states = job_states(["12_0", "12_1", "14", "15"])
    assert states["12_0"] == JobState(ENDED, "", "CANCELLED")
    assert states["14"] == JobState(ENDED, "node1", "FAILED")
    assert states["12_1"] == JobState(ENDED), "the accounting may be late"
    assert states["15"] == JobState("RUNNING", "node2", ""), "it was requeued"


def test_job_that_slurm_has_forgotten_has_ended(answers):
    answers("squeue", error="slurm_load_jobs error: Invalid job id specified", code=1)
    answers("sacct", error="Slurm accounting storage is disabled", code=1)
    assert job_states(["12"]) == {"12": JobState(ENDED)}


def test_states_are_unknown_if_slurm_does_not_answer(answers):
    answers("squeue", error="slurm_load_jobs error: Unable to contact slurm controller", code=1)
    (state,) = job_states(["12"]).values()
    assert (state.state, state.node) == (UNKNOWN, "")
    assert state.reason.startswith("SLURM says: slurm_load_jobs error: Unable to contact")


def test_states_are_unknown_without_slurm(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert job_states(["12"])["12"].state == UNKNOWN


def test_command_that_fails_silently_is_named(answers):
    answers("scancel", code=1)
    with pytest.raises(UserError, match="SLURM says: scancel failed"):
        ask("scancel", "12")


def test_script_of_a_job_is_what_slurm_says(answers):
    answers("squeue", "12_0|/home/user|results/job.sh\n12_1|/home/user|/tmp/other.sh\n")
    assert job_scripts(["12_0"]) == {"12_0": Path("/home/user/results/job.sh")}
