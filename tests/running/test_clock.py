"""The clock: a bound from few timed steps, and the time left from what a run has done."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp.records.record import Result
from dlmexp.running import clock as module
from dlmexp.running.clock import Clock, batch_work, bound, is_short, step_work
from tests.support.cells import PLAIN, scored


def batch(cells: int, **values):
    return tuple(replace(PLAIN, seed=seed, **values) for seed in range(cells))


BATCHES = (batch(4, n=50), batch(8, n=400), batch(8, n=900), batch(2, n=900))


@given(seconds_per_unit=st.floats(1e-12, 1e-9), workers=st.integers(1, 4))
def test_a_bound_is_the_time_of_all_steps(seconds_per_unit, workers):
    """Where steps take as long as their work, whichever kinds were timed."""
    found = bound(BATCHES, lambda one: seconds_per_unit * step_work(one[0], len(one)), workers)
    alone = seconds_per_unit * sum(map(batch_work, BATCHES))
    assert alone / workers <= found * (1 + 1e-9)
    assert found <= alone * (1 + 1e-9)
    if workers == 1:
        assert found == pytest.approx(alone)


def test_timing_takes_a_small_share_of_the_run(monkeypatch):
    """The kinds with the most work come first, and no more of them than that allows."""
    now, timed = [0.0], []
    monkeypatch.setattr(module, "perf_counter", lambda: now[0])

    def step_seconds(one):
        timed.append(one[0].n)
        now[0] += 0.1
        return 1e-4

    found = bound(BATCHES, step_seconds)
    assert timed == [900], "timing another kind would be more than a small share"
    assert found > 0
    timed.clear()
    bound(BATCHES, lambda one: step_seconds(one) * 100)
    assert len(timed) > 1


def test_short_runs_are_told_from_long_ones():
    assert is_short([batch(2, n=20, M=5, max_iterations=40)])
    assert not is_short(BATCHES * 9)


def finished(cell, iterations, seconds):
    record = scored(cell)
    return replace(record, result=Result(iterations=iterations, seconds=seconds))


@given(slowness=st.floats(0.1, 10.0), iterations=st.integers(100, 3000), done=st.integers(1, 7))
def test_the_time_left_follows_the_speed_and_the_iterations_of_this_run(slowness, iterations, done):
    """Of 8 cells with equal needs, one after the other: what `done` of them took tells what the others will."""
    cells, now = batch(8), [0.0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
        clock = Clock([cells])
        assert clock.seconds_left() is None
        for cell in cells[:done]:
            now[0] += slowness * iterations
            clock.finished(finished(cell, iterations, slowness * iterations))
        assert clock.seconds_left() == pytest.approx(slowness * iterations * (8 - done))
        clock.skipped(cells[done:])
        assert clock.seconds_left() == 0.0


@given(made=st.integers(0, 900))
def test_cells_in_training_count_as_far_as_they_are(made):
    first, second = batch(2)
    clock = Clock([(first, second)])
    clock.began = 0.0
    clock.finished(finished(first, 1000, 10.0))
    before = clock.seconds_left() or 0.0
    clock.seen([second], made)
    assert 0 < (clock.seconds_left() or 0.0) <= before * 1.01


def test_other_kinds_follow_by_their_work():
    """A kind that nothing is known of takes the share of its limit that others took, and time by its work."""
    small, large = batch(4, n=100), batch(4, n=900)
    left = {}
    for known, other in ((small, large), (large, small)):
        clock = Clock([known, other])
        clock.began = 0.0
        for cell in known:
            clock.finished(finished(cell, 300, 3.0))
        left[known[0].n] = clock.seconds_left()
    assert left[100] > left[900] > 0
