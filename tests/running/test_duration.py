"""What is said of a run's time before it starts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp.plan.batches import plan
from dlmexp.running import duration as module
from dlmexp.running.duration import Pace, estimate, foretold, measured
from dlmexp.running.processes import COLLEAGUE
from tests.support.banana import PLAIN

LONG = replace(PLAIN, n=100_000, M=200, max_iterations=3000)


def batches(cell, count):
    return [tuple(replace(cell, seed=seed) for seed in range(count))]


@given(st.floats(1e-6, 1e-2), st.floats(1e-14, 1e-9), st.integers(1, 50))
def test_likely_is_at_most_the_most_and_both_grow_with_the_work(step, unit, cells):
    pace = Pace(step, unit)
    one, more = estimate(batches(PLAIN, cells), pace), estimate(batches(PLAIN, cells + 1), pace)
    assert 0 < one.likely <= one.most < more.most
    assert one.likely < more.likely
    assert estimate(batches(PLAIN, cells) * 2, pace).most == pytest.approx(2 * one.most)
    assert estimate(batches(PLAIN, cells), pace, workers=4).most < one.most


def test_epochs_are_always_run_to_the_end_and_closed_forms_take_one_step():
    pace = Pace(1e-3, 1e-12)
    minibatched = replace(PLAIN, epochs=20, minibatch=1000, n=50_000, max_iterations=None)
    found = estimate(batches(minibatched, 3), pace)
    assert found.likely == found.most > 20 * 50 * 1e-3
    solved = replace(PLAIN, task="regression", objective="sq_dlm", variant="fixed")
    assert estimate(batches(solved, 1), Pace(1.0, 0.0)).most == 1.0


def test_evaluations_on_the_way_take_time():
    pace = Pace(1e-3, 1e-12)
    end, often, seldom = (estimate(batches(replace(PLAIN, evaluate=e), 2), pace).most for e in ("end", "10", "1000"))
    assert end < seldom < often == pytest.approx(end + 0.4e-3 * PLAIN.iterations)


def test_a_long_run_is_foretold_once_and_a_short_one_not_at_all(monkeypatch):
    monkeypatch.setattr(module, "measured", lambda device: Pace(1e-3, 1e-12))
    long, short = (plan([cell], set(), set(), lambda _: 1) for cell in (LONG, replace(PLAIN, n=50, M=10)))
    assert foretold(short, "cpu", 1) is None
    said = foretold(long, "cpu", 1)
    assert said is not None
    assert said.startswith("1 cell in 1 batch: about ")
    monkeypatch.setenv(COLLEAGUE, "1")
    assert foretold(long, "cpu", 2) is None


def test_a_trial_gives_a_pace(monkeypatch):
    monkeypatch.setattr(module, "TRIAL_SECONDS", 0.01)
    step, unit = measured("cpu")
    assert 0 < step < 10
    assert 0 <= unit < 1e-6
