"""The predicted duration of a run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp.plan.batches import plan
from dlmexp.running import duration as module
from dlmexp.running.duration import Pace, estimate, measure_pace, predicted_duration
from dlmexp.running.processes import EXTRA_PROCESS
from tests.support.banana import PLAIN

LONG = replace(PLAIN, n=100_000, M=200, max_iterations=3000)


def batches(cell, count):
    return [tuple(replace(cell, seed=seed) for seed in range(count))]


@given(st.floats(1e-6, 1e-2), st.floats(1e-14, 1e-9), st.integers(1, 50))
def test_likely_is_at_most_the_longest_and_both_grow_with_the_work(step, unit, cells):
    pace = Pace(step, unit)
    one, more = estimate(batches(PLAIN, cells), pace), estimate(batches(PLAIN, cells + 1), pace)
    assert 0 < one.likely <= one.longest < more.longest
    assert one.likely < more.likely
    assert estimate(batches(PLAIN, cells) * 2, pace).longest == pytest.approx(2 * one.longest)
    assert estimate(batches(PLAIN, cells), pace, workers=4).longest < one.longest


def test_epochs_are_always_run_to_the_end_and_closed_forms_take_one_step():
    pace = Pace(1e-3, 1e-12)
    minibatched = replace(PLAIN, epochs=20, minibatch=1000, n=50_000, max_iterations=None)
    found = estimate(batches(minibatched, 3), pace)
    assert found.likely == found.longest > 20 * 50 * 1e-3
    solved = replace(PLAIN, task="regression", objective="sq_dlm", variant="fixed")
    assert estimate(batches(solved, 1), Pace(1.0, 0.0)).longest == 1.0


def test_evaluations_on_the_way_take_time():
    pace = Pace(1e-3, 1e-12)
    end, often, seldom = (estimate(batches(replace(PLAIN, evaluate=e), 2), pace).longest for e in ("end", "10", "1000"))
    assert end < seldom < often == pytest.approx(end + 0.4e-3 * PLAIN.iterations)


def test_a_long_run_is_predicted_once_and_a_short_one_not_at_all(monkeypatch):
    monkeypatch.setattr(module, "measure_pace", lambda device: Pace(1e-3, 1e-12))
    long, short = (plan([cell], set(), set(), lambda _: 1) for cell in (LONG, replace(PLAIN, n=50, M=10)))
    assert predicted_duration(short, "cpu", 1) is None
    message = predicted_duration(long, "cpu", 1)
    assert message is not None
    assert message.startswith("1 cell in 1 batch: about ")
    monkeypatch.setenv(EXTRA_PROCESS, "1")
    assert predicted_duration(long, "cpu", 2) is None


def test_a_trial_gives_a_pace(monkeypatch):
    monkeypatch.setattr(module, "TRIAL_SECONDS", 0.01)
    overhead, per_unit = measure_pace("cpu")
    assert 0 < overhead < 10
    assert 0 <= per_unit < 1e-6
