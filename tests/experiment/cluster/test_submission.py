"""From blocks to jobs in the queue, and waiting for them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlmexp.common.errors import UserError
from dlmexp.experiment.cluster import jobs, submission
from dlmexp.experiment.cluster.slurm import ENDED, STUCK, JobState
from dlmexp.experiment.cluster.submission import (
    SETUP,
    THREADS,
    Block,
    sbatch_settings,
    submit,
    wait,
)
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running.process import Stop, StopRequest
from tests.support.cells import PLAIN
from tests.support.jobs import submit_job

NO_FOLDER = Path("no folder of this name")
LAUNCHER = {
    "name": "dlmexp",
    "setup": [],
    "signal_delay_s": 120,
    "timeout_min": 240,
    "mem_gb": None,
    "submitit_folder": "jobs",
    "max_num_timeout": 100,
    "additional_parameters": {},
}


@pytest.fixture
def executor(tmp_path, monkeypatch):
    """A stand-in for submitit's executor: the arrays of overrides that were submitted."""
    from contextlib import contextmanager

    arrays: list[list[Any]] = []

    @contextmanager
    def batch():
        arrays.append([])
        yield

    def submit_block(block):
        arrays[-1].append(block.overrides)
        task = f"{len(arrays)}_{len(arrays[-1]) - 1}"
        return SimpleNamespace(job_id=task, paths=SimpleNamespace(folder=tmp_path / task))

    made = SimpleNamespace(update_parameters=lambda **_: None, batch=batch, submit=submit_block)
    monkeypatch.setattr("submitit.AutoExecutor", lambda **_: made)
    monkeypatch.setattr(submission, "max_array_size", lambda: 2)
    monkeypatch.setattr(submission, "unfinished_jobs", lambda _: [])
    return arrays


def block(*keys: str, name: str = "one", retry_failed: bool = False) -> Block:
    cfg = SimpleNamespace(name=name, retry_failed=retry_failed)
    sweep: Any = SimpleNamespace(cfg=cfg, by_key=dict.fromkeys(keys, PLAIN))
    return Block(sweep, list(keys))


def store(done=(), failed=()) -> Any:
    return SimpleNamespace(root=NO_FOLDER, keys=lambda: (set(done), set(failed)))


def job_named(name: str, state: str, key: str, **fields: Any) -> jobs.Job:
    """Return a job that was submitted for a cell, and has left it."""
    cells = frozenset([key])
    return jobs.Job(
        id=name,
        user="me",
        time=0.0,
        overrides="",
        keys=cells,
        unrecorded_keys=cells,
        state=state,
        **fields,
    )


def test_blocks_are_cut_into_arrays_of_the_largest_size(executor, tmp_path, capsys):
    submit(store(), [block(key) for key in "abc"], LAUNCHER)
    assert executor == [[["a"], ["b"]], [["c"]]]
    assert [line[:23] for line in capsys.readouterr().out.splitlines()] == [
        "submitted job 1: 2 bloc",
        "submitted job 2: 1 bloc",
    ]
    assert all((tmp_path / task / jobs.SUBMITTED).exists() for task in ("1_0", "1_1", "2_0"))


@pytest.mark.parametrize(("retry_failed", "arrays"), [(False, []), (True, [[["failed"]]])])
def test_failed_cells_are_submitted_only_on_request(executor, retry_failed, arrays):
    submit(store(failed=["failed"]), [block("failed", retry_failed=retry_failed)], LAUNCHER)
    assert executor == arrays


def test_block_is_submitted_if_one_of_its_cells_has_no_record(executor):
    submit(store(done=["a"]), [block("a", "b"), block("a")], LAUNCHER)
    assert executor == [[["a", "b"]]]


def test_block_whose_cells_are_in_the_queue_is_not_submitted_again(executor, monkeypatch, capsys):
    queued = job_named("7", "RUNNING", "a")
    ended = job_named("6", ENDED, "b")
    monkeypatch.setattr(submission, "unfinished_jobs", lambda _: [ended, queued])
    submit(store(), [block("a"), block("b")], LAUNCHER)
    assert executor == [[["b"]]]
    printed = capsys.readouterr().out
    assert "already in the queue: job 7\n" in printed
    assert "no new job for 1 of 2 blocks\n" in printed


def test_job_that_ends_while_the_queue_is_read_is_not_submitted_again(executor, monkeypatch):
    """Its records are read after the queue that it has just left."""
    recorded: set[str] = set()
    monkeypatch.setattr(submission, "unfinished_jobs", lambda _: recorded.add("a") or [])
    late = SimpleNamespace(root=NO_FOLDER, keys=lambda: (set(recorded), set()))
    submit(late, [block("a")], LAUNCHER)  # pyright: ignore[reportArgumentType]
    assert executor == []


def test_refusal_of_slurm_is_reported_in_one_line(executor, monkeypatch):
    from submitit.core.utils import FailedJobError

    def refused(**_):
        raise FailedJobError("Command failed\nsbatch: error: invalid partition")

    monkeypatch.setattr(submission, "_executor", lambda *_, **__: SimpleNamespace(batch=refused))
    with pytest.raises(UserError, match="refused the job: sbatch: error: invalid partition; what"):
        submit(store(), [block("a")], LAUNCHER)


def test_misspelled_option_is_named_by_the_first_line_of_sbatch(executor, monkeypatch):
    from submitit.core.utils import FailedJobError

    def refused(**_):
        raise FailedJobError(
            "sbatch: unrecognized option '--mail-tipe=END'\nTry \"sbatch --help\" for more information"
        )

    monkeypatch.setattr(submission, "_executor", lambda *_, **__: SimpleNamespace(batch=refused))
    with pytest.raises(UserError, match="unrecognized option '--mail-tipe=END'; what is queued"):
        submit(store(), [block("a")], LAUNCHER)


@pytest.fixture
def asked(monkeypatch):
    """The settings of the launchers of the arrays that are submitted."""
    launchers: list[dict[str, Any]] = []
    executor = submission._executor
    monkeypatch.setattr(
        submission,
        "_executor",
        lambda launcher, experiment: launchers.append(launcher) or executor(launcher, experiment),
    )
    return launchers


def killed(**fields: Any) -> jobs.Job:
    """Return a job for the cell a that needed too much memory."""
    return job_named("6", ENDED, "a", reason="OUT_OF_MEMORY", **fields)


@pytest.mark.parametrize(
    ("job", "wanted", "expected"),
    [
        (killed(memory_gb=4), 4, 8),
        (killed(memory_gb=4), 10, 10),  # the user has asked for more
        (killed(memory_gb=8, more_memory=True), 4, 4),  # once
    ],
)
def test_block_that_was_killed_for_memory_gets_twice_as_much(
    executor, asked, monkeypatch, capsys, tmp_path, job, wanted, expected
):
    monkeypatch.setattr(submission, "unfinished_jobs", lambda _: [job])
    submit(store(), [block("a"), block("b")], {**LAUNCHER, "mem_gb": wanted})
    by_memory = sorted(launcher["mem_gb"] for launcher in asked)
    assert by_memory == sorted({expected, wanted})
    is_doubled = expected == 2 * wanted
    assert ("1 block ran out of memory: now with 8 GB" in capsys.readouterr().out) == is_doubled
    submitted = [(tmp_path / name / jobs.SUBMITTED).read_text() for name in ("1_0",)]
    assert ('"more_memory":true' in submitted[0]) == is_doubled


def test_memory_of_the_partition_can_not_be_doubled(executor, monkeypatch):
    monkeypatch.setattr(submission, "unfinished_jobs", lambda _: [killed()])
    with pytest.raises(UserError, match=r"job 6 ran out .*mem_gb=N asks for more"):
        submit(store(), [block("a")], LAUNCHER)


def test_job_that_is_killed_for_memory_is_submitted_again_once(tmp_path, polls):
    submit_job(tmp_path, "1", "k1")
    out_of_memory = JobState(ENDED, reason="OUT_OF_MEMORY")
    polls += [(out_of_memory,), (out_of_memory,)]
    calls = []
    cells = frozenset(["k1"])
    assert wait(Store(tmp_path), cells, StopRequest(), lambda: calls.append(1)) == 0
    assert calls == [1]


def test_settings_have_the_prefix_and_nothing_that_is_not_for_sbatch():
    settings = sbatch_settings({**LAUNCHER, "_target_": "x", "partition": "short"}, "class-log")
    assert settings == {
        "slurm_name": "dlmexp-class-log",
        "slurm_setup": [THREADS],
        "slurm_signal_delay_s": 120,
        "slurm_timeout_min": 240,
        "slurm_mem_gb": None,
        "slurm_partition": "short",
        "slurm_additional_parameters": {},
    }


def test_shell_lines_of_the_site_come_before_those_of_the_user(monkeypatch):
    monkeypatch.setenv(SETUP, "module load cuda")
    settings = sbatch_settings({**LAUNCHER, "setup": ["a"]}, "mine")
    assert settings["slurm_setup"] == [THREADS, "module load cuda", "a"]


def test_signal_of_a_short_job_comes_in_its_last_quarter():
    settings = sbatch_settings({**LAUNCHER, "timeout_min": 4}, "mine")
    assert settings["slurm_signal_delay_s"] == 60


def test_additional_parameters_without_a_value_are_left_out():
    parameters = {"requeue": False, "reservation": None, "exclusive": True, "mail-type": "END"}
    settings = sbatch_settings({**LAUNCHER, "additional_parameters": parameters}, "mine")
    assert settings["slurm_additional_parameters"] == {"exclusive": True, "mail-type": "END"}


@pytest.fixture
def polls(monkeypatch):
    """The states of the jobs in successive polls of SLURM."""
    states: list[tuple[JobState, ...]] = []

    def job_states(job_ids):
        return dict(zip(sorted(job_ids), states.pop(0), strict=True))

    monkeypatch.setattr(jobs, "job_states", job_states)
    monkeypatch.setattr(submission, "POLL_SECONDS", 0.0)
    return states


def test_only_jobs_of_this_sweep_that_can_start_are_waited_for(tmp_path, polls, capsys):
    of_another_sweep = "2"
    for job in ("1_0", "1_1", of_another_sweep):
        submit_job(tmp_path, job, job)
    stuck = JobState(STUCK, "", "PartitionConfig")
    running = JobState("RUNNING", "node1")
    polls += [(stuck, running, running), (stuck, JobState(ENDED), running)]
    assert wait(Store(tmp_path), frozenset(("1_0", "1_1")), StopRequest()) == 0
    assert not polls
    first, last = capsys.readouterr().out.splitlines()
    assert first.endswith("; 1 job running; 0 of 2 cells done")
    assert first.startswith("1 job can't start (PartitionConfig): see")
    assert last.endswith("NAME=; 0 of 2 cells done")


def test_states_are_printed_only_when_they_change(tmp_path, polls, capsys):
    submit_job(tmp_path, "1", "k1")
    running = JobState("RUNNING")
    polls += [(running,), (running,), (JobState(ENDED),)]
    assert wait(Store(tmp_path), frozenset(["k1"]), StopRequest()) == 0
    assert capsys.readouterr().out.splitlines() == [
        "1 job running; 0 of 1 cell done",
        "no job is left; 0 of 1 cell done",
    ]


def test_waiting_ends_on_a_request_to_stop(tmp_path, polls):
    submit_job(tmp_path, "1", "k1")
    stop = StopRequest()

    class Requesting(StopRequest):
        """CandidateGroup to stop after the first poll."""

        @property
        def requested(self):
            return None if polls else stop.requested

    stop.request(2)
    polls.append((JobState("RUNNING"),))
    assert isinstance(stop.requested, Stop)
    assert wait(Store(tmp_path), frozenset(["k1"]), Requesting()) == 130
