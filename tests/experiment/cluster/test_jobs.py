"""Jobs of a results folder: states where SLURM and records contradict each other."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from dlmexp.common.atomic import machine
from dlmexp.common.errors import UserError
from dlmexp.common.process_table import start_time
from dlmexp.experiment.cluster import jobs
from dlmexp.experiment.cluster.jobs import (
    SUBMITTED,
    cancel,
    cancellable,
    jobs_of,
    read_submissions,
    unfinished_jobs,
)
from dlmexp.experiment.cluster.slurm import ENDED, STUCK, UNKNOWN, JobState
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running.leases import active_processes
from tests.support.jobs import submit_job


def record_file(root: Path, name: str) -> None:
    """Make an empty file: states depend on names alone."""
    folder = root / "records" / "a"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).touch()


def left_by_job(root: Path) -> dict[str, set[str]]:
    return {job.id: set(job.unrecorded_keys) for job in unfinished_jobs(Store(root))}


def change_user(submission: Path) -> None:
    content = json.loads(submission.read_text())
    submission.write_text(json.dumps({**content, "user": "somebody-else"}))


@pytest.mark.parametrize(
    ("state", "description", "lost"),
    [
        (JobState("PENDING", "", "Priority"), "pending (Priority)", 0),
        (JobState("RUNNING", "node1", ""), "running", 0),
        (JobState(STUCK, "", "PartitionConfig"), "can't start (PartitionConfig): see ", 0),
        (JobState(ENDED, "node1", "FAILED"), "ended (FAILED): ValueError: x", 1),
    ],
)
def test_job_is_described_by_its_state_and_has_lost_cells_if_it_ended(
    tmp_path, slurm, state, description, lost
):
    folder = submit_job(tmp_path, "9_0", "k1", "k2")
    of_others = "submitit INFO: done\nsrun: error: node1: task 0: Exited with exit code 1\n"
    (folder / "9_0_0_log.out").write_text(f"Traceback\nValueError: x\n\n{of_others}")
    slurm["9_0"] = state
    record_file(tmp_path, "k1.json")
    (job,) = unfinished_jobs(Store(tmp_path))
    assert job.description.startswith(description)
    assert job.active == (not lost)
    assert job.unrecorded_keys == {"k2"}
    assert (job.facts.lost, job.facts.left, job.facts.cells) == (lost, 1, 2)


def test_ended_job_without_a_log_is_described_by_how_it_ended(tmp_path, slurm):
    submit_job(tmp_path, "9", "k1")
    slurm["9"] = JobState(ENDED, "", "FAILED")
    (job,) = unfinished_jobs(Store(tmp_path))
    assert job.description == "ended (FAILED)"


@pytest.mark.parametrize(("state", "count"), [(JobState("RUNNING"), 1), (JobState(ENDED), 0)])
def test_job_whose_cells_failed_is_unfinished_while_it_is_active(tmp_path, slurm, state, count):
    submit_job(tmp_path, "9", "k1")
    slurm["9"] = state
    record_file(tmp_path, "k1.failed.json")
    assert len(unfinished_jobs(Store(tmp_path))) == count


def test_job_whose_cells_are_done_is_finished_even_if_slurm_still_lists_it(tmp_path, slurm):
    submit_job(tmp_path, "9", "k1")
    slurm["9"] = JobState("COMPLETING")
    record_file(tmp_path, "k1.json")
    assert unfinished_jobs(Store(tmp_path)) == []


def test_torn_submission_is_skipped(tmp_path):
    submit_job(tmp_path, "9", "k1")
    submit_job(tmp_path, "11").joinpath(SUBMITTED).write_text("{")
    assert [job.id for job in read_submissions(tmp_path)] == ["9"]


def test_active_job_is_responsible_for_a_cell_of_two_jobs(tmp_path, slurm):
    submit_job(tmp_path, "9", "k1", "k2")
    submit_job(tmp_path, "10", "k1", "k3")
    slurm |= {"9": JobState("RUNNING"), "10": JobState(ENDED, "", "CANCELLED")}
    assert left_by_job(tmp_path) == {"9": {"k1", "k2"}, "10": {"k3"}}


def test_latest_of_two_ended_jobs_is_responsible_for_a_cell(tmp_path, slurm):
    submit_job(tmp_path, "9", "k1", "k2")
    submit_job(tmp_path, "10", "k1", "k3")
    assert left_by_job(tmp_path) == {"9": {"k2"}, "10": {"k1", "k3"}}


def test_job_of_another_user_that_slurm_hides_is_unknown(tmp_path, slurm):
    change_user(submit_job(tmp_path, "9", "k1") / SUBMITTED)
    (job,) = unfinished_jobs(Store(tmp_path))
    assert (job.state, job.facts.lost) == (UNKNOWN, 0)
    assert "somebody-else" in job.description


def test_job_of_another_user_that_the_accounting_shows_has_lost_cells(tmp_path, slurm):
    change_user(submit_job(tmp_path, "9", "k1") / SUBMITTED)
    slurm["9"] = JobState(ENDED, "", "FAILED")
    (job,) = unfinished_jobs(Store(tmp_path))
    assert job.facts.lost == 1


def test_cells_of_an_unknown_job_are_not_lost(tmp_path, slurm):
    submit_job(tmp_path, "9", "k1")
    slurm["9"] = JobState(UNKNOWN, "", "no answer")
    (job,) = unfinished_jobs(Store(tmp_path))
    assert (job.facts.lost, job.active) == (0, False)
    assert job.description == "unknown (no answer)"


def test_line_of_a_job_names_its_user_node_cells_block_and_log(tmp_path, slurm):
    folder = submit_job(tmp_path, "9_0", "k1", "k2")
    change_user(folder / SUBMITTED)
    slurm["9_0"] = JobState("RUNNING", "node1")
    (job,) = unfinished_jobs(Store(tmp_path))
    assert job.facts.line == (
        "job 9_0 of somebody-else on node1: running; 2 cells, 2 to do: dataset=a seeds=[0]\n"
        f"  log: {folder}/9_0_0_log.out"
    )


def test_line_of_an_ended_job_counts_the_cells_without_a_record(tmp_path, slurm):
    submit_job(tmp_path, "9", "k1", "k2")
    record_file(tmp_path, "k1.json")
    (job,) = unfinished_jobs(Store(tmp_path))
    assert ": ended; 2 cells, 1 of them without a record: dataset=a" in job.facts.line


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], ["12_0", "12_1"]),
        (["12"], ["12_0", "12_1"]),
        (["12_1"], ["12_1"]),
        (["dataset=a", "12_0"], ["12_0"]),
    ],
)
def test_jobs_are_found_by_id_array_and_overrides(tmp_path, words, expected):
    for job in ("12_0", "12_1"):
        submit_job(tmp_path, job, "k1")
    assert [job.id for job in jobs_of(tmp_path, words)] == expected


def test_unknown_word_for_a_job_is_refused(tmp_path):
    submit_job(tmp_path, "12", "k1")
    with pytest.raises(UserError, match="'dataset=b' is no job"):
        jobs_of(tmp_path, ["dataset=b"])


@pytest.fixture
def running(tmp_path, slurm, monkeypatch):
    """Jobs 12_0 and 12_1 of this user, 14 of another one; process 7 here, 8 in a job, 9 elsewhere."""
    for job in ("12_0", "12_1", "14"):
        submit_job(tmp_path, job, f"k{job}")
        slurm[job] = JobState("RUNNING")
    change_user(tmp_path / "multirun" / "sweep" / "jobs" / "14" / SUBMITTED)
    (tmp_path / "running").mkdir()
    abouts = [
        {"pid": 7, "machine": machine()},
        {"pid": 8, "machine": machine(), "job": "12_0"},
        {"pid": 9, "machine": "elsewhere"},
    ]
    for about in abouts:
        path = tmp_path / "running" / f"host-{about['pid']}.json"
        path.write_bytes(msgspec.json.encode({"host": "host", **about}))
    monkeypatch.setattr(jobs, "is_run_of", lambda process, root: process.pid == 7)
    return tmp_path


@pytest.mark.parametrize(
    ("names", "expected_jobs", "expected_pids"),
    [
        ([], ["12_0", "12_1"], [7]),
        (["12"], ["12_0", "12_1"], []),
        (["12_1", "7"], ["12_1"], [7]),
    ],
)
def test_own_jobs_and_processes_of_this_machine_can_be_cancelled(
    running, names, expected_jobs, expected_pids
):
    found_jobs, found_processes, _ = cancellable(running, names)
    assert sorted(job.id for job in found_jobs) == expected_jobs
    assert [process.pid for process in found_processes] == expected_pids


@pytest.mark.parametrize("name", ["14", "8", "9", "12_7"])
def test_what_can_not_be_cancelled_from_here_is_refused(running, name):
    with pytest.raises(UserError, match=f"'{name}' is no job or process of"):
        cancellable(running, [name])


def test_cancelling_asks_slurm_for_jobs_and_signals_processes(running, monkeypatch):
    asked, signalled = [], []
    monkeypatch.setattr(jobs, "ask", lambda *words: asked.append(words))
    monkeypatch.setattr(os, "kill", lambda *call: signalled.append(call))
    found_jobs, found_processes, _ = cancellable(running)
    cancel(running, found_jobs, found_processes)
    assert asked == [("scancel", "--quiet", "12_0", "12_1")]
    assert signalled[-1] == (7, signal.SIGTERM)


def test_cancelling_a_process_that_has_just_ended_is_no_error(running, monkeypatch):
    _, processes, _ = cancellable(running, ["7"])

    def ended(*_):
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", ended)
    cancel(running, [], processes)


def test_job_whose_script_lies_elsewhere_is_left_alone(tmp_path, slurm, monkeypatch):
    """A forged file may name any job of the user."""
    submit_job(tmp_path, "4242", "k1")
    slurm["4242"] = JobState("RUNNING")
    monkeypatch.setattr(jobs, "job_scripts", lambda jobs: {"4242": Path("/home/user/train.sh")})
    assert cancellable(tmp_path) == ([], [], ["job 4242"])
    with pytest.raises(UserError, match="'4242' is no job or process of"):
        cancellable(tmp_path, ["4242"])


@pytest.mark.processes
@pytest.mark.parametrize("starts", ["as it did", "not at all", "later"])
def test_process_that_a_forged_file_names_is_left_alone(tmp_path, starts):
    """Whatever the file says of it: it does not train for this folder."""
    folder = tmp_path / "running"
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as unrelated:
        started = {"as it did": start_time(unrelated.pid), "not at all": None, "later": 1 << 60}
        about = {
            "host": "h",
            "pid": unrelated.pid,
            "machine": machine(),
            "started": started[starts],
        }
        (folder / f"{machine()}-{unrelated.pid}.json").write_bytes(msgspec.json.encode(about))
        found = cancellable(tmp_path)
        assert found == ([], [], [f"process {unrelated.pid}"])
        cancel(tmp_path, [], active_processes(tmp_path))
        assert unrelated.poll() is None
        unrelated.communicate(b"\n")
        assert unrelated.returncode == 0


@pytest.mark.processes
def test_process_that_trains_for_the_folder_is_cancelled(tmp_path):
    code = f"""
import pathlib
from dlmexp.experiment.running.leases import Leases
with Leases(pathlib.Path({str(tmp_path)!r}), print):
    print("ready", flush=True)
    input()
"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        _, processes, foreign = cancellable(tmp_path)
        assert ([process.pid for process in processes], foreign) == ([process.pid], [])
        cancel(tmp_path, [], processes)
        assert process.wait() == -signal.SIGTERM
