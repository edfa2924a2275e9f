"""The number of threads: from measured speeds, and only where nobody has chosen."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp.plan.batches import Plan, plan
from dlmexp.running import threads as module
from dlmexp.running.threads import GAIN, fastest, measured_threads, some_threads
from tests.support.banana import PLAIN


def _plan(iterations: int) -> Plan:
    cells = [replace(PLAIN, seed=seed, base=None, max_iterations=iterations) for seed in range(3)]
    return plan(cells, set(), set(), lambda _: 10, False)


@pytest.mark.parametrize(
    ("most", "seconds", "expected"),
    [
        (1, {1: 1.0}, 1),
        (2, {1: 15.0, 2: 14.0}, 1),  # a quiet machine on which the second thread buys nothing
        (2, {1: 106.0, 2: 695.0}, 1),  # a busy one
        (2, {1: 1.0, 2: 0.6}, 2),
        (16, {1: 1.0, 2: 0.5, 4: 0.25, 8: 0.13, 16: 0.07}, 16),
        (16, {1: 1.0, 2: 0.5, 4: 0.25, 8: 0.24}, 4),
        (6, {1: 1.0, 2: 0.5, 4: 0.3, 6: 0.2}, 6),  # no power of two
    ],
)
def test_more_threads_as_long_as_they_pay(most, seconds, expected):
    assert fastest(most, seconds.__getitem__) == expected


@given(most=st.integers(1, 256), parallel=st.floats(0, 1), delay=st.floats(0, 1))
def test_several_threads_only_where_they_are_clearly_faster(most, parallel, delay):
    """For a program of which such a share runs in parallel, with a delay for each further thread."""

    def seconds(threads: int) -> float:
        return 1 - parallel + parallel / threads + delay * (threads - 1)

    threads = fastest(most, seconds)
    assert 1 <= threads <= most
    assert threads == 1 or seconds(threads) * GAIN <= seconds(1)


@pytest.fixture
def two_threads(monkeypatch):
    """The process computes with two threads, and a trial says that one is better."""
    monkeypatch.setattr(module, "_trial", lambda plan: {1: 1.0, 2: 5.0}.__getitem__)
    with some_threads(2):
        yield
        assert torch.get_num_threads() == 2, "as before"


@pytest.mark.parametrize(
    ("iterations", "device", "environment", "expected"),
    [
        (10**9, "cpu", {}, 1),
        (10, "cpu", {}, 1),
        (10**9, "cuda", {}, 2),
        (10**9, "cpu", {"OMP_NUM_THREADS": "2"}, 2),
        (10**9, "cpu", {"MKL_NUM_THREADS": "2"}, 2),
        (10**9, "cpu", {"OMP_NUM_THREADS": ""}, 1),
    ],
)
def test_whose_choice_it_is(two_threads, iterations, device, environment, expected):
    with measured_threads(_plan(iterations), device, environment) as number:
        assert number == torch.get_num_threads() == expected


def test_a_short_run_is_not_measured(monkeypatch):
    monkeypatch.setattr(module, "_trial", lambda plan: pytest.fail("measured"))
    with some_threads(2), measured_threads(_plan(10), "cpu", {}) as number:
        assert number == 1


def test_threads_are_as_before_after_an_error(two_threads):
    with pytest.raises(ValueError, match="training"), measured_threads(_plan(10**9), "cpu", {}):
        raise ValueError("training")


@pytest.mark.slow
def test_the_trial_is_a_step_with_so_many_threads(monkeypatch):
    monkeypatch.setattr(module, "TRIAL_SECONDS", 0.0)
    with some_threads(2):
        seconds = module._trial(_plan(1000))
        for threads in (1, 2):
            assert seconds(threads) > 0
            assert torch.get_num_threads() == threads
