"""How long a run takes and how far it is: a bound, the time left, counts that add up, and what
others are told."""

from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from rich.console import Console

from dlmexp.experiment.records.record import Result
from dlmexp.experiment.running import clock, progress
from dlmexp.experiment.running.clock import Clock
from dlmexp.experiment.running.leases import BatchProgress
from dlmexp.experiment.running.process import StopRequest, select_target
from dlmexp.experiment.running.progress import Progress, describe_batch
from tests.support.cells import PLAIN, scored


def look(shown, cells, iteration, objective=1.0, training: Any = None):
    """A batch in training is seen at this iteration."""
    training = training or SimpleNamespace()
    training.cells, training.iteration, training.live = (
        range(len(cells)),
        iteration,
        lambda: torch.ones(len(cells)),
    )
    training.state = SimpleNamespace(history=torch.full((len(cells), iteration), objective))
    shown.tick(cells, training)


def batch(cells: int, **values):
    return tuple(replace(PLAIN, seed=seed, **values) for seed in range(cells))


CELLS = batch(9)
BATCHES = (batch(4, n=50), batch(8, n=400), batch(8, n=900), batch(2, n=900))


@pytest.fixture
def now(monkeypatch):
    """The time, in its only element."""
    moment = [0.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: moment[0]))
    monkeypatch.setattr(clock, "perf_counter", lambda: moment[0])
    return moment


def _bound(monkeypatch, step_seconds, workers=1):
    monkeypatch.setattr(
        clock, "step_seconds", lambda cells, prepared, target, threads: step_seconds(cells)
    )
    return Clock(BATCHES).bound(
        lambda _: pytest.fail("no data is needed"), select_target("cpu", "float64"), workers, 1
    )


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_bound_is_the_time_of_all_steps(now, monkeypatch, workers):
    """Each kind of batch at its own pace: seconds for each cell in a step. The longest may train
    while others wait."""
    seconds = _bound(monkeypatch, lambda cells: len(cells) * cells[0].n, workers)
    alone = sum(len(cells) * cells[0].n * cells[0].iterations for cells in BATCHES)
    longest = len(BATCHES[2]) * 900 * PLAIN.iterations
    assert seconds == pytest.approx(alone / workers + longest * (1 - 1 / workers))


@pytest.mark.parametrize(("step", "kinds"), [(1e-4, [900]), (1e-2, [900, 400, 50])])
def test_timing_takes_a_small_share_of_the_run(now, monkeypatch, step, kinds):
    """The kinds with the most work come first, and no more of them than that allows."""
    timed = []

    def step_seconds(cells):
        timed.append(cells[0].n)
        now[0] += 0.1
        return step

    assert _bound(monkeypatch, step_seconds) > 0
    assert timed == kinds


def test_short_runs_are_told_from_long_ones():
    assert Clock([batch(2, n=20, M=5, max_iterations=40)]).is_short("cpu")
    assert not Clock(BATCHES * 9).is_short("cpu")


@pytest.mark.parametrize("pace", [0.1, 3.0])
@pytest.mark.parametrize(("iterations", "done"), [(100, 1), (400, 7), (3000, 3)])
def test_the_time_left_follows_the_speed_and_the_iterations_of_this_run(
    now, pace, iterations, done
):
    """9 cells with equal needs, one after the other: what `done` of them took tells what the others
    will."""
    followed = Progress(Clock([CELLS]), StopRequest())
    assert followed.seconds_left() is None
    for cell in CELLS[:done]:
        now[0] += pace * iterations
        followed.finished(
            replace(scored(cell), result=Result(iterations=iterations, seconds=pace * iterations))
        )
    assert followed.seconds_left() == pytest.approx(pace * iterations * (9 - done))
    followed.skipped(CELLS[8:])  # what another process has done in that time counts
    left = pace * iterations * done * (8 - done) / (done + 1)
    assert followed.seconds_left() == pytest.approx(left)
    look(followed, CELLS[done : done + 1], iterations // 2)
    assert 0 < (followed.seconds_left() or 0.0) < left, "a cell in training counts as far as it is"
    followed.skipped(CELLS[done:8])
    assert followed.seconds_left() == 0.0


def test_other_kinds_follow_by_their_work(now):
    """A kind that nothing is known of takes the share of its limit that others took, and time by
    its work."""
    small, large = batch(4, n=100), batch(4, n=900)
    left = {}
    for known, other in ((small, large), (large, small)):
        followed = Progress(Clock([known, other]), StopRequest())
        now[0] += 12.0
        for cell in known:
            followed.finished(replace(scored(cell), result=Result(iterations=300, seconds=3.0)))
        left[known[0].n] = followed.seconds_left()
    assert left[100] > 12.0 > left[900] > 0


def _progress(console=None):
    return Progress(Clock([CELLS[:2], CELLS[2:]]), StopRequest(), console)


def test_counts_and_messages(capsys):
    shown = _progress()
    shown.started(CELLS[:2])
    shown.finished(scored(CELLS[0]))
    shown.finished(scored(CELLS[1], "failed"))
    shown.skipped(CELLS[2:4])
    said = capsys.readouterr().out
    assert "batch 1/2  banana n=100 fixed log_dlm bmc-10: 2 cells (2 seeds, 1 beta)" in said
    assert (
        "failed: banana n=100 seed=1 fixed log_dlm bmc-10 beta=0.1: no reason (iteration 3)" in said
    )
    assert (shown.failed, shown.settled, shown.total) == (1, 4, 9)
    shown.started(CELLS[2:])
    for memory in (("2 batches", 1), ("4 cells", 2)):
        shown.out_of_memory(*memory)
        shown.started(CELLS[2:])
    shown.started(CELLS[2:])
    numbers = [
        line.split()[1] for line in capsys.readouterr().out.splitlines() if line.startswith("batch")
    ]
    assert numbers == ["2/2", "2/2", "2/3", "3/3"], "a batch that starts again is not counted twice"


def test_batches_at_once_and_what_others_are_told(now):
    """Batches at once are looked at every few seconds: it is a wait for the device."""
    shown = _progress()
    assert shown.so_far() == {
        "settled": 0,
        "total": 9,
        "failed": 0,
        "seconds_left": None,
        "batches": (),
    }

    first: Any = SimpleNamespace()
    second: Any = SimpleNamespace()
    for now[0], iteration, objective in ((0, 1, 3.0), (4, 5, 2.0), (8, 17, 1.0)):
        look(shown, CELLS[:2], iteration, objective, first)
        look(shown, CELLS[:5], iteration, objective, second)
    assert shown.numbers == "; 2 batches at once, 7 live, 14 model-steps/s"
    numbers = {"cells": 2, "live": 2, "iteration": 17, "limit": 3000, "rate": 2.0, "objective": 1.0}
    expected = BatchProgress(what=describe_batch(CELLS[:2]), **numbers)
    assert shown.so_far()["batches"][0] == expected
    shown.ended(second)
    now[0] = 9
    look(shown, CELLS[:2], 19, 2.0, first)
    assert shown.numbers == "; iteration 19 of 3000, 2 live, 2 it/s, objective 2.0000"


def test_a_bar_on_a_terminal():
    out = StringIO()
    with _progress(Console(file=out, force_terminal=True, width=120)) as shown:
        shown.finished(scored(PLAIN, "failed"))
        shown.waiting("another process")
    for words in ("no reason", "waiting for cells that another process trains", "1/9"):
        assert words in out.getvalue()
