"""The pace of a device: measured, remembered, checked, learned. Times are made up; only the last tests take some."""

from concurrent.futures import ThreadPoolExecutor
from time import thread_time

import pytest
from msgspec.structs import replace

from dlmexp.running import pace as module
from dlmexp.running.cost import Costs, Pace, Rows, kind_of, shape_of
from dlmexp.running.pace import Timed, learn, measured_pace, remember, remembered, timed, trial_of
from dlmexp.running.threads import some_threads
from tests.support.cells import ELBO, PLAIN

BASE = Pace(1e-3, 1e-10)
ONE, TWO = (ELBO,), (replace(PLAIN, estimator="exact", options={}),)


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("DLMEXP_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "base_pace", lambda device: BASE)
    return tmp_path


class Timer:
    """Steps that take `factor` times what the model says, on a machine with some load."""

    def __init__(self, factor=1.0, load=1.0):
        self.factor, self.load, self.asked = factor, load, []

    def __call__(self, batch, features):
        self.asked.append((shape_of(batch[0]), features))
        return Timed(self.factor * Costs(BASE).step(batch[0], len(batch)).alone, self.load)


def measure(timer, batches=(ONE, TWO)):
    def expected(costs):
        return [1e6 * costs.step(batch[0], len(batch)).alone for batch in batches]

    return measured_pace(batches, expected, {"banana": Rows(features=2)}, "cpu", timer)


def step(measured, batch=ONE):
    return Costs(measured.pace).step(batch[0], len(batch)).alone / Costs(BASE).step(batch[0], len(batch)).alone


def test_cold_every_kind_is_timed_once_and_warm_only_one_is_checked():
    cold, warm = Timer(2.0), Timer(2.0)
    first = measure(cold)
    assert not first.remembered
    assert first.covered == 1
    assert sorted(cold.asked) == sorted((shape_of(batch[0]), 2) for batch in (ONE, TWO))
    assert step(first) == pytest.approx(2.0)
    second = measure(warm)
    assert second.remembered
    assert len(warm.asked) == 1
    assert step(second) == pytest.approx(2.0)
    assert step(second, TWO) == pytest.approx(2.0)


def test_a_busy_machine_counts_for_this_run_and_is_not_remembered():
    assert step(measure(Timer(1.0, load=3.0))) == pytest.approx(3.0)
    assert step(measure(Timer(1.5, load=2.0))) == pytest.approx(3.0)  # slower now: caches shared with others
    assert step(measure(Timer(1.0))) == pytest.approx(1.0)


def test_what_was_remembered_of_a_busy_machine_is_corrected():
    measure(Timer(4.0))
    assert step(measure(Timer(1.0)), TWO) == pytest.approx(1.0)
    again = Timer(1.0)
    assert step(measure(again)) == pytest.approx(1.0)
    assert len(again.asked) == 1


def test_a_new_kind_is_timed_beside_what_is_remembered():
    measure(Timer(2.0), (ONE,))
    timer = Timer(2.0)
    found = measure(timer, (ONE, TWO))
    assert {shape for shape, _ in timer.asked} <= {shape_of(ONE[0]), shape_of(TWO[0])}
    assert shape_of(TWO[0]) in {shape for shape, _ in timer.asked}
    assert found.covered == 1


def test_a_pace_of_another_division_into_latency_and_work_is_measured_again(monkeypatch):
    assert not measure(Timer(2.0)).remembered
    monkeypatch.setitem(module.CELL_ROWS, "cpu", 7.0)
    assert not measure(Timer(2.0)).remembered


@pytest.mark.parametrize("bound", ["TRIAL_SECONDS", "TRIAL_SHARE"])
def test_time_for_trials_is_bounded(monkeypatch, bound):
    monkeypatch.setattr(module, bound, 0.0)
    timer = Timer(2.0)
    found = measure(timer)
    assert len(timer.asked) == 1
    assert 0 < found.covered < 1


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"x": {"latency": "a"}}'])
def test_a_damaged_file_is_as_none(cache, content):
    (cache / "pace.json").write_bytes(content)
    assert remembered() == {}
    assert not measure(Timer()).remembered
    assert measure(Timer()).remembered


def test_where_nothing_can_be_written_the_next_run_measures_again(cache):
    (cache / "file").write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DLMEXP_CACHE", str(cache / "file" / "below"))
        assert not measure(Timer()).remembered
        assert not measure(Timer()).remembered


def test_other_threads_and_versions_are_other_devices(monkeypatch):
    import torch

    key = module.device_key("cpu")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    assert module.device_key("cpu") != key
    monkeypatch.undo()
    monkeypatch.setattr(module, "__version__", "99")
    assert module.device_key("cpu") != key


def test_a_finished_run_corrects_its_kinds():
    remember("here", BASE)
    kind = kind_of(ELBO)
    learn("here", {kind: (5.0, 2.5)})  # too short to say anything
    assert remembered()["here"].corrections == {}
    learn("here", {kind: (200.0, 100.0), "short": (9.0, 3.0)})
    assert remembered()["here"].corrections == {kind: pytest.approx(2.0)}
    learn("here", {kind: (100.0, 200.0)})  # of several runs no single one decides
    assert 1 < remembered()["here"].corrections[kind] < 2
    for _ in range(12):
        learn("here", {kind: (150.0 / remembered()["here"].corrections[kind], 100.0)})
    assert remembered()["here"].corrections[kind] == pytest.approx(1.5, rel=0.01)
    for _ in range(20):
        learn("here", {kind: (1e6, 10.0)})
    assert remembered()["here"].corrections[kind] == pytest.approx(module.MOST_CORRECTION)
    learn("unknown", {kind: (200.0, 100.0)})
    assert "unknown" not in remembered()


def test_trials_of_large_batches_are_small():
    large = tuple(replace(ELBO, n=10**6, M=200, seed=seed) for seed in range(50))
    cells, rows = module.LARGEST_TRIAL["cpu"]
    trial = trial_of(large, "cpu")
    assert len(trial) == cells
    assert trial[0].n == rows
    assert trial_of(ONE, "cpu") == ONE
    minibatches = tuple(replace(cell, minibatch=5000) for cell in large)
    trial = trial_of(minibatches, "cpu")
    assert shape_of(trial[0]) == f"{kind_of(minibatches[0])} n={rows} M=200", "else it tells nothing of their steps"


def test_real_steps_take_time(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(module, "BASE_SECONDS", 0.01)
    found = timed(lambda: sum(range(1000)), "cpu", 0.01)
    assert 0 < found.seconds < 1
    assert found.load >= 1
    pace = module.base_pace("cpu")
    assert 0 < pace.latency < 10
    assert 0 < pace.per_unit < 1e-6


def test_what_other_threads_of_a_step_compute_is_counted():
    def busy() -> None:
        end = thread_time() + 0.005
        while thread_time() < end:
            pass

    with ThreadPoolExecutor(1) as pool, some_threads(1):
        assert timed(lambda: pool.submit(busy).result(), "cpu", 0.05).seconds >= 0.005
