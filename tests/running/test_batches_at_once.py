"""Batches that train at the same time, as on a GPU: which of them, in which order, and with which bits."""

from collections import deque

import numpy as np
import pandas as pd
import pytest
import torch
from msgspec.structs import replace

import dlmexp.running.engine as module
from dlmexp.plan.batches import entries_of
from dlmexp.plan.compose import compose
from dlmexp.records.store import Store
from dlmexp.running.engine import Capacity, Engine, Flight
from dlmexp.running.run import execute
from tests.support.cells import PLAIN
from tests.support.engines import Sweep
from tests.support.processes import arrays_of

pytestmark = pytest.mark.slow


@pytest.fixture
def two_at_once(monkeypatch):
    monkeypatch.setattr(Capacity, "of", lambda device: Capacity(2, 1e12, 1e12))


def test_fixed_variants_start_as_soon_as_their_fits_are_there(tmp_path, tiny, two_at_once, order):
    """With batches at once, they are not put behind all larger ones."""
    sweep = Sweep(tmp_path, [*tiny, "seeds=[0]", "sizes=[20,30,40,50]", "method=[elbo,fixed_log_dlm]"])
    assert {record.status for record in sweep.run().values()} == {"done"}
    begun = [(flight.batch[0].n, flight.batch[0].variant) for flight in order]
    assert len(begun) == 8
    assert begun.index((20, "fixed")) < begun.index((40, "joint"))


def test_a_batch_that_does_not_fit_beside_another_is_trained_after_it(tmp_path, tiny, monkeypatch, two_at_once):
    sweep = Sweep(tmp_path, [*tiny, "sizes=[20,30]", "method=[elbo]"])
    events, plain = [], Engine.work

    def second_too_large(self, flight):
        n = flight.batch[0].n
        events.append(("begins", n))
        yield from [None] * (3 if n == 20 else 1)  # it is in flight when the other one fails
        if n == 30 and events == [("begins", 20), ("begins", 30)]:
            raise torch.OutOfMemoryError("CUDA out of memory")
        yield from plain(self, flight)
        events.append(("ends", n))

    monkeypatch.setattr(Engine, "work", second_too_large)
    assert {record.status for record in sweep.run().values()} == {"done"}
    assert events[1:] == [("begins", 30), ("ends", 20), ("begins", 30), ("ends", 30)]
    assert sweep.engine.capacity.bytes < 1e12


def flights(*batches):
    return [Flight(batch, batch) for batch in batches]


def test_a_device_is_full_by_entries_memory_or_number():
    batch = (PLAIN,)
    assert Capacity.of(torch.device("cpu")).room(batch, [])
    assert not Capacity.of(torch.device("cpu")).room(batch, flights(batch))
    device = Capacity(3, 1.5 * entries_of(batch), 1e9)
    assert device.room(batch, flights(batch)), "below the limit: one more"
    assert not device.room(batch, flights(batch, batch))
    shrunk = flights(batch, batch)
    shrunk[0].inside = 0
    assert device.room(batch, shrunk), "room goes by the cells that are left"
    device = device._replace(entries=1e9)
    assert not device.room((replace(PLAIN, n=10**6),), flights(batch, batch)), "memory is short beside them"


def test_the_rejection_sampler_has_a_gpu_to_itself():
    rejecting, plain = (replace(PLAIN, estimator="ups", options={"samples": 2, "sampler": "rejection"}),), (PLAIN,)
    device = Capacity(most=4, entries=1e12, bytes=1e15)
    assert device.room(rejecting, [])
    for batch, beside in ((rejecting, plain), (plain, rejecting)):
        assert not device.room(batch, flights(beside))
    assert device.comes_last(rejecting, flights(plain))
    assert not device.comes_last(plain, flights(plain))
    assert not Capacity().comes_last(rejecting, flights(plain)), "a CPU keeps the order"


@pytest.mark.parametrize("most", [1, 4])
def test_batches_with_most_steps_go_first_where_some_train_at_once(most):
    batches = [(replace(PLAIN, seed=i, max_iterations=limit),) for i, limit in enumerate((10, 30, 20, 30))]
    queue = deque((batch, batch) for batch in batches)
    Capacity(most, 1e9, 1e12).longest_first(queue, [])
    limits = [batch[0].iterations for batch, _ in queue]
    assert limits == ([10, 30, 20, 30] if most == 1 else [30, 30, 10, 20])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_batches_that_train_together_have_the_bits_they_have_alone(tmp_path, monkeypatch):
    table = tmp_path / "visits.csv"
    rng = np.random.default_rng(0)
    pd.DataFrame({"x": rng.normal(size=300), "y": rng.poisson(3, 300)}).to_csv(table, index=False)
    methods = "method=[elbo,joint_log_dlm,fixed_log_dlm]"
    binary = ["dataset=ringnorm_drawn", "sizes=[50,100,200]", methods]
    counts = ["dataset=csv", f"csv.path={table}", "csv.target=y", "csv.task=count", "sizes=[50,100]"]
    counts += ["estimator=[exact,ups]", methods]
    large = ["dataset=airline_like", "dataset.airline_like.options.rows=9000", "dataset.airline_like.M=20"]
    large += ["method=[elbo,joint_log_dlm]"]
    every = ["seeds=[0,1]", "beta=list", "beta.values=[0.1,1,10]", "training.max_iterations=300"]
    parts = [f"[{','.join(repr(word) for word in part + every)}]" for part in (binary, counts, large)]
    results = {}
    for most in (1, 12):
        monkeypatch.setattr(module, "MOST_AT_ONCE", most)
        words = ["name=together", f"parts=[{','.join(parts)}]", "device=cuda", f"results={tmp_path / str(most)}"]
        assert execute(compose(words)) == 0
        store = Store(tmp_path / str(most))
        results[most] = {record.key: (record, arrays_of(store, record)) for record in store.own()}
    assert results[1].keys() == results[12].keys()
    assert not all(record.result.alone for record, _ in results[12].values())
    for key, (alone, arrays) in results[1].items():
        together, other = results[12][key]
        assert alone.result.alone
        for part in ("validation", "test", "iterations", "stopped", "hyperparameters", "objective_value"):
            assert getattr(alone.result, part) == getattr(together.result, part), (part, alone.cell.describe())
        assert all((arrays[name] == other[name]).all() for name in arrays)
