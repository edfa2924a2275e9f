"""Waiting for jobs, with a made-up SLURM: what is printed, and when waiting ends."""

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dlmexp.cluster.scheduler import SlurmState

from dlmexp.cluster import submission as module
from dlmexp.cluster.submission import PATIENCE, SETUP, THREADS, Block, Submission, job_names, settings, wait

PENDING, RUNNING, ENDED = SlurmState("PENDING", reason="Resources"), SlurmState("RUNNING", "node1"), SlurmState("ENDED")
STUCK = SlurmState("PENDING", reason="PartitionConfig")


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Waits for two jobs whose states change with every query; what was printed, and how often SLURM was asked."""

    def run(*answers: tuple[SlurmState, SlurmState]) -> tuple[list[str], int]:
        asked = 0

        def job_states(jobs: Iterable[str]) -> dict[str, SlurmState]:
            nonlocal asked
            now: dict[str, SlurmState] = dict(zip(("1_0", "1_1"), answers[min(asked, len(answers) - 1)], strict=True))
            asked += 1
            assert asked < 50, "waits for ever"
            return {job: now[job] for job in jobs}

        monkeypatch.setattr(module.scheduler, "job_states", job_states)
        monkeypatch.setattr(module, "POLL_SECONDS", (0.0, 0.0))
        stop: Any = SimpleNamespace(received=None)
        wait(Submission([Block(Path("elsewhere"), "bias", (), False)], ["1_0", "1_1"]), stop)
        return capsys.readouterr().out.splitlines(), asked

    return run


def test_progress_until_the_last_job_has_ended(waited):
    said, asked = waited((PENDING, RUNNING), (RUNNING, ENDED), (ENDED, ENDED))
    assert asked == 3
    assert [line.partition(";")[0] for line in said] == [
        "jobs: 1 pending, 1 running, 0 ended",
        "jobs: 0 pending, 1 running, 1 ended",
        "jobs: 0 pending, 0 running, 2 ended",
    ]


def test_a_job_that_can_not_start_is_named_once_and_not_waited_for_alone(waited):
    said, asked = waited((STUCK, RUNNING), (STUCK, RUNNING), (STUCK, ENDED))
    assert [line for line in said if line.startswith("job 1_0 can't start (PartitionConfig): no node")] == said[:1]
    assert said[1].startswith("jobs: 1 pending (1 can't start), 1 running, 0 ended")
    cancel = "`dlmexp cancel --results elsewhere` takes them back"
    assert said[-1] == f"not waiting for 1 job that can't start: {cancel}"
    assert asked == 2 + PATIENCE


def test_jobs_with_the_same_reason_share_a_line(waited):
    said, _ = waited((STUCK, STUCK))
    (line,) = [line for line in said if "can't start (" in line and line.startswith("job ")]
    assert line.startswith("job 1_0 (and 1 other job) can't start (PartitionConfig): no node")


def test_a_reason_that_passes_after_all_is_waited_out(waited):
    said, asked = waited((STUCK, STUCK), (RUNNING, PENDING), (ENDED, ENDED))
    assert asked == 3
    assert "not waiting" not in said[-1]


PARAMS = {"setup": [], "name": "dlmexp", "signal_delay_s": 120, "timeout_min": 240, "mem_gb": 8}


@pytest.mark.parametrize(
    ("variable", "typed", "expected"),
    [
        ("", None, [THREADS]),
        ("module load cuda", [], [THREADS, "module load cuda"]),
        ("", ["a", "b"], [THREADS, "a", "b"]),
        ("module load cuda", ["a"], [THREADS, "module load cuda", "a"]),
    ],
)
def test_shell_lines_are_added_to_ours(monkeypatch: pytest.MonkeyPatch, variable: str, typed: Any, expected: list[str]):
    monkeypatch.setenv(SETUP, variable)
    assert settings({**PARAMS, "setup": typed}, "mine")["setup"] == expected


def test_jobs_are_named_after_their_experiment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(SETUP, raising=False)
    found = settings(PARAMS, "class-log")
    assert found == {**PARAMS, "setup": [THREADS], "name": "dlmexp-class-log"}


@pytest.mark.parametrize(
    ("experiments", "overrides", "expected"),
    [
        (["class-log"], [["dataset=banana", "seeds=[0]"]], ["dlmexp-class-log"]),
        (
            ["class-log", "class-log"],
            [["dataset=banana", "method=elbo", "seeds=[0]"], ["dataset=ringnorm", "method=elbo", "seeds=[0]"]],
            ["dlmexp-class-log-banana", "dlmexp-class-log-ringnorm"],
        ),
        (
            ["reg-log", "class-log"],
            [["experiment=reg-log", "sizes=[5%,10]"], ["experiment=class-log", "sizes=['5 %']"]],
            ["dlmexp-reg-log-5+10", "dlmexp-class-log-5"],
        ),
        (["mine", "mine"], [["csv.name=" + 200 * "a"], ["csv.name=b"]], ["dlmexp-mine-" + 88 * "a", "dlmexp-mine-b"]),
    ],
)
def test_jobs_of_an_array_are_named_after_their_blocks(
    experiments: list[str], overrides: list[list[str]], expected: list[str]
):
    blocks = [Block(Path(), experiment, (), False) for experiment in experiments]
    assert job_names("dlmexp", blocks, overrides) == expected


@pytest.mark.parametrize(("minutes", "delay"), [(240, 120), (4, 60), (1, 15)])
def test_the_signal_leaves_time_to_train(minutes: int, delay: int):
    assert settings({**PARAMS, "timeout_min": minutes}, "mine")["signal_delay_s"] == delay
