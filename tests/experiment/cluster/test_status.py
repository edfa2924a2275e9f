"""The status of a results folder, without a cluster: SLURM's answers, states where SLURM and
records contradict each other, and what is counted and shown."""

import json
import os
import signal
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from dlmexp.cli import main
from dlmexp.experiment.cluster import multirun
from dlmexp.experiment.cluster import status as module
from dlmexp.experiment.cluster.multirun import SETUP, THREADS, settings
from dlmexp.experiment.cluster.status import (
    STUCK,
    SUBMITTED,
    job_states,
    print_tables,
    read_status,
    unfinished_jobs,
)
from dlmexp.experiment.records.store import Manifest, Store, write_manifest
from dlmexp.experiment.running.leases import BatchProgress, Leases
from dlmexp.experiment.running.process import StopRequest
from tests.support.cells import PLAIN, candidates, scored

CELLS = [replace(PLAIN, seed=seed) for seed in range(6)]


@pytest.fixture
def answers(tmp_path, monkeypatch):
    """Puts a command in front of all others that prints `text`, complains with `error` and exits
    with `code`."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def answer(command, text="", error="", code=0):
        path = tmp_path / command
        path.write_text(
            f"#!/bin/sh\ncat <<'END'\n{text}END\nprintf '%s' '{error}' >&2\nexit {code}\n"
        )
        path.chmod(0o755)

    return answer


def submitted(root: Path, job: str, *keys: str) -> Path:
    folder = root / "multirun" / "sweep" / "jobs" / job
    module.write_submission(folder, job, ["dataset=a", "seeds=[0]"], keys)
    return folder


def test_states_of_arrays_and_single_jobs(answers):
    answers(
        "squeue", "12_0|RUNNING|node1|None\n12_1|PENDING||Resources\n13|COMPLETING|node2|None\n"
    )
    known = {
        "12_0": ("RUNNING", "node1", ""),
        "12_1": ("PENDING", "", "Resources"),
        "13": ("COMPLETING", "node2", ""),
    }
    assert job_states(["12_0", "12_1", "13"]) == known
    answers("scontrol", "MaxArraySize            = 17\nMaxJobCount = 5\n")
    assert module.max_array_size() == 17


NEVER = [
    "PENDING||PartitionConfig", "PENDING||BadConstraints", "PENDING||PartitionTimeLimit", "PENDING||InvalidAccount",
    "PENDING||QOSMaxCpuPerJobLimit", "PENDING||AssocMaxWallDurationPerJobLimit", "PENDING||QOSMinGRES",
    "PENDING||DependencyNeverSatisfied", "REQUEUE_HOLD||launch failed requeued held",
]  # fmt: skip
PASSES = [
    "PENDING||(JobHeldUser)", "PENDING||Priority", "PENDING||None", "PENDING||QOSMaxJobsPerUserLimit",
    "PENDING||AssocGrpCpuLimit", "PENDING||ReqNodeNotAvail, UnavailableNodes:node1",
    "PENDING||a reason of a later SLURM", "RUNNING|node1|PartitionConfig",
]  # fmt: skip


@pytest.mark.parametrize("line", NEVER + PASSES)
def test_reasons_that_never_pass_are_told_from_those_that_do(answers, line):
    answers("squeue", f"12|{line}\n")
    assert (job_states(["12"])["12"][0] == STUCK) == (line in NEVER)


def test_a_job_that_squeue_does_not_list_has_ended_and_sacct_may_know_how(answers):
    answers("squeue", "15|RUNNING|node2|None\n")
    answers(
        "sacct",
        "12_0|CANCELLED by 1000|None assigned\n12_1|RUNNING|node1\n14|FAILED|node1\n15|NODE_FAIL|node1\n",
    )
    found = job_states(["12_0", "12_1", "14", "15"])
    assert (found["12_0"], found["14"]) == (
        ("ENDED", "", "CANCELLED"),
        ("ENDED", "node1", "FAILED"),
    )
    assert found["12_1"] == ("ENDED", "", ""), "the accounting may miss the end of a job"
    assert found["15"] == ("RUNNING", "node2", ""), "it was requeued"
    answers("squeue", error="slurm_load_jobs error: Invalid job id specified", code=1)
    answers("sacct", error="Slurm accounting storage is disabled", code=1)
    assert job_states(["12"]) == {"12": ("ENDED", "", "")}
    answers("squeue", error="slurm_load_jobs error: Unable to contact slurm controller", code=1)
    ((state, _, reason),) = job_states(["12"]).values()
    assert (state, "Unable to contact" in reason) == ("UNKNOWN", True)


@pytest.fixture
def slurm(monkeypatch):
    """The jobs that SLURM lists."""
    known: dict[str, tuple[str, str, str]] = {}
    monkeypatch.setattr(
        module, "job_states", lambda jobs: {job: known.get(job, ("ENDED", "", "")) for job in jobs}
    )
    return known


@pytest.mark.parametrize(
    ("state", "described", "lost"),
    [
        (("PENDING", "", "Priority"), "pending (Priority)", 0),
        (("RUNNING", "node1", ""), "running", 0),
        ((STUCK, "", "PartitionConfig"), "can't start (PartitionConfig): ", 0),
        (("ENDED", "node1", "COMPLETED"), "ended (COMPLETED): ValueError: x", 1),
    ],
)
def test_a_job_is_judged_by_its_state_and_its_records(tmp_path, slurm, state, described, lost):
    submitted(tmp_path, "9_0", "k1", "k2")
    submitted(tmp_path, "11").joinpath(SUBMITTED).write_text("{")
    (job,) = module.read_submissions(tmp_path)  # a torn file is skipped
    Path(job.log).write_text("Traceback\nValueError: x\nsubmitit INFO: done\n")
    slurm["9_0"] = state
    (tmp_path / "records" / "a").mkdir(parents=True)
    (tmp_path / "records" / "a" / "k1.json").touch()
    (job,) = unfinished_jobs(Store(tmp_path))
    assert job.description.startswith(described)
    assert (job.active, job.facts["lost"], job.left) == (not lost, lost, {"k2"})
    (tmp_path / "records" / "a" / "k2.failed.json").touch()
    assert len(unfinished_jobs(Store(tmp_path))) == (not lost), "a failed cell may be retried"
    (tmp_path / "records" / "a" / "k2.json").touch()
    assert len(unfinished_jobs(Store(tmp_path))) == 0


def test_a_cell_belongs_to_an_active_job_then_to_the_latest(tmp_path, slurm):
    submitted(tmp_path, "9", "k1", "k2")
    submitted(tmp_path, "10", "k1", "k3")
    slurm |= {"9": ("RUNNING", "", ""), "10": ("ENDED", "", "CANCELLED")}
    assert {job.id: job.left for job in unfinished_jobs(Store(tmp_path))} == {
        "9": {"k1", "k2"},
        "10": {"k3"},
    }
    slurm["9"] = ("ENDED", "", "CANCELLED")
    assert {job.id: job.left for job in unfinished_jobs(Store(tmp_path))} == {
        "9": {"k2"},
        "10": {"k1", "k3"},
    }


def test_what_can_not_be_seen_from_here_is_unknown_and_not_lost(tmp_path, slurm):
    path = submitted(tmp_path, "9", "k1") / SUBMITTED
    path.write_text(json.dumps({**json.loads(path.read_text()), "user": "somebody-else"}))
    assert "somebody-else" in unfinished_jobs(Store(tmp_path))[0].description
    slurm["9"] = ("ENDED", "", "FAILED")
    assert unfinished_jobs(Store(tmp_path))[0].facts["lost"] == 1, "the accounting shows it"
    slurm["9"] = ("UNKNOWN", "", "no answer")
    (job,) = unfinished_jobs(Store(tmp_path))
    assert (job.facts["lost"], job.active, job.description) == (0, False, "unknown (no answer)")


def test_only_jobs_that_can_start_are_waited_for(tmp_path, slurm, monkeypatch, capsys):
    stuck, running = (STUCK, "", "PartitionConfig"), ("RUNNING", "node1", "")
    states = [(stuck, running, running), (stuck, ("ENDED", "", ""), running)]
    for job in ("1_0", "1_1", "of another sweep"):
        submitted(tmp_path, job, job)
    monkeypatch.setattr(
        module, "job_states", lambda jobs: dict(zip(sorted(jobs), states.pop(0), strict=True))
    )
    monkeypatch.setattr(multirun, "POLL_SECONDS", 0.0)
    assert multirun.wait(Store(tmp_path), frozenset(("1_0", "1_1")), StopRequest()) == 0
    assert "1 job can't start (PartitionConfig)" in capsys.readouterr().out.splitlines()[-1]
    assert not states


@pytest.mark.parametrize(
    ("received", "state", "goes_back"),
    [
        (signal.SIGUSR2, "RUNNING", True),  # the time limit is near
        (signal.SIGTERM, "RUNNING", True),  # grace time before a preemption
        (signal.SIGTERM, "COMPLETING", False),  # cancelled
        (signal.SIGTERM, "PENDING", False),  # SLURM has requeued it already
        (signal.SIGINT, "RUNNING", False),
    ],
)
def test_requeue(received, state, goes_back, monkeypatch):
    monkeypatch.setattr(multirun, "job_states", lambda jobs: dict.fromkeys(jobs, (state, "", "")))
    assert multirun.returns_to_queue("17", received) == goes_back


def test_settings_of_a_job(monkeypatch):
    """Our shell lines come before the user's; a signal leaves time to train."""
    params = {
        "name": "dlmexp",
        "setup": [],
        "signal_delay_s": 120,
        "timeout_min": 240,
        "additional_parameters": {},
    }
    monkeypatch.setenv(SETUP, "module load cuda")
    found = settings({**params, "setup": ["a"], "submitit_folder": "jobs"}, "class-log")
    expected = {**params, "setup": [THREADS, "module load cuda", "a"], "name": "dlmexp-class-log"}
    assert found == {f"slurm_{name}": value for name, value in expected.items()}
    assert settings({**params, "timeout_min": 4}, "mine")["slurm_signal_delay_s"] == 60
    more = {"requeue": False, "reservation": None, "exclusive": True, "mail-type": "END"}
    kept = settings({**params, "additional_parameters": more}, "mine")[
        "slurm_additional_parameters"
    ]
    assert kept == {"exclusive": True, "mail-type": "END"}


@pytest.fixture
def root(tmp_path):
    """Two done, one failed, one running, two missing."""
    store = Store(tmp_path)
    for name, cells in {"one": CELLS, "two": CELLS[:2]}.items():
        write_manifest(
            tmp_path, Manifest(name, [candidates("fixed_log_dlm", [cell]) for cell in cells])
        )
    for cell in CELLS[:2]:
        store.write(scored(cell, nll=0.5))
    store.write(scored(CELLS[2], "failed"))
    with Leases(tmp_path, print) as mine:
        mine.take([CELLS[3].key])
        yield tmp_path


def test_counts(root, capsys):
    (root / "quarantine").mkdir()
    for name in ("a.json", "a.json.why"):
        (root / "quarantine" / name).touch()
    status = read_status(root)
    names = ("name", "done", "running", "failed", "missing")
    counts = [[experiment[name] for name in names] for experiment in status["experiments"]]
    assert counts == [["one", 2, 1, 1, 2], ["two", 2, 0, 0, 0]]
    absent = sorted(status["experiments"][0]["absent"])
    assert ["seed=4" in absent[0], "seed=5" in absent[1], len(absent)] == [True, True, 2]
    assert [process["cells"] for process in status["running"]] == [1]
    assert status["quarantined"] == 1, "without its reason"
    print_tables(status)
    assert "quarantined: 1 in quarantine/\n" in capsys.readouterr().out


def test_reasons_are_read_when_asked_for(root, capsys):
    """A torn failure stays a failure, with the way out."""
    assert read_status(root)["experiments"][0]["failures"] == []
    assert main(["status", "--json", "--failed", "--results", str(root)]) == 0
    assert CELLS[2].key in capsys.readouterr().out
    path = Store(root).path("banana", CELLS[2].key, ".failed.json")
    for reason in ("no reason (iteration 3)", "retry_failed=true"):
        status = read_status(root, failure_reasons=True)
        (failure,) = status["experiments"][0]["failures"]
        assert "seed=2" in failure["cell"]
        assert reason in failure["reason"]
        assert (status["quarantined"], status["experiments"][0]["failed"]) == (0, 1)
        path.write_text("{")


NUMBERS = {
    "cells": 2,
    "live": 1,
    "iteration": 400,
    "limit": 3000,
    "rate": 1204.3,
    "objective": 0.25,
}
BATCH = BatchProgress(what="banana n=100 joint elbo: 2 cells", **NUMBERS)
TOLD = {"settled": 3, "total": 9, "failed": 1, "seconds_left": 90, "batches": [BATCH]}


def test_progress_on_other_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_manifest(tmp_path, Manifest("one", [candidates("fixed_log_dlm", CELLS[4:5])]))
    about = {"host": "node7", "pid": 7, "job": "12_1", "machine": "another"}
    path = tmp_path / "running" / "node7-7.json"
    path.parent.mkdir()
    path.write_bytes(msgspec.json.encode(about | TOLD))
    path.with_suffix(".1.lease").write_bytes(msgspec.json.encode({**about, "keys": [CELLS[4].key]}))
    assert main(["status", "--json", "--results", str(tmp_path)]) == 0
    status = json.loads(capsys.readouterr().out)
    assert list(status) == [
        "results",
        "experiments",
        "running",
        "jobs",
        "checkpoints",
        "quarantined",
        "packed",
    ]
    names = ["name", "done", "running", "queued", "failed", "missing", "failures", "absent"]
    assert list(status["experiments"][0]) == names
    assert status["running"][0]["batches"] == [msgspec.to_builtins(BATCH)]
    print_tables(read_status(tmp_path))
    said = capsys.readouterr().out
    numbers = "1 cell; 3 of the 9 of this run settled, 1 failed, about 90 s left\n"
    assert f"running: node7 pid 7 job 12_1, {numbers}" in said
    assert (
        "  banana n=100 joint elbo: 2 cells: iteration 400 of 3000, 1 live, 1204 it/s, objective 0.2500\n"
        in said
    )
