"""Which batches train, in which order, and, on a GPU, which at the same time with which bits."""

import numpy as np
import pandas as pd
import pytest
import torch
from msgspec.structs import replace

import dlmexp.running.engine as module
from dlmexp.plan.cell import entries_of
from dlmexp.plan.compose import compose
from dlmexp.running.engine import Capacity, Engine, Flight
from dlmexp.running.leases import Leases
from dlmexp.running.run import execute
from tests.support.cells import PLAIN
from tests.support.engines import Sweep
from tests.support.processes import comparable

pytestmark = pytest.mark.slow


@pytest.fixture
def order(monkeypatch):
    """Cells that begin to train, the first of each batch."""
    begun, plain = [], Engine.work

    def noting(self, flight):
        begun.append(flight.batch[0])
        yield from plain(self, flight)

    monkeypatch.setattr(Engine, "work", noting)
    return begun


@pytest.fixture
def two_at_once(monkeypatch):
    monkeypatch.setattr(Capacity, "of", lambda device: Capacity(2, 1e12, 1e12))


def test_a_batch_that_another_process_has_comes_last(tmp_path, tiny, monkeypatch, order):
    sweep, other, waited = Sweep(tmp_path, [*tiny, "method=[elbo,beta_elbo]"], size=3), Leases(tmp_path, print), []
    first = sweep.plan().batches[0]

    def leaves(seconds):
        waited.append(seconds)
        other.__exit__()

    with other:
        assert other.take(cell.key for cell in first) is None
        monkeypatch.setattr(module.time, "sleep", leaves)
        assert len(sweep.run()) == len(sweep.cells)
    assert order[0] != first[0]
    assert order[-1] == first[0]
    assert waited == [module.POLL_SECONDS]


def test_fixed_variants_start_as_soon_as_their_fits_are_there(tmp_path, tiny, two_at_once, order):
    """With batches at once, they are not put behind all larger ones."""
    sweep = Sweep(tmp_path, [*tiny, "seeds=[0]", "sizes=[20,30,40,50]", "method=[elbo,fixed_log_dlm]"])
    assert {record.status for record in sweep.run().values()} == {"done"}
    begun = [(cell.n, cell.variant) for cell in order]
    assert len(begun) == 8
    assert begun.index((20, "fixed")) < begun.index((40, "joint"))


def test_a_batch_that_does_not_fit_beside_another_is_trained_after_it(tmp_path, tiny, monkeypatch, two_at_once):
    sweep, events, plain = Sweep(tmp_path, [*tiny, "sizes=[20,30]", "method=[elbo]"]), [], Engine.work

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


BATCH = (PLAIN,)
REJECTING = (replace(PLAIN, estimator="ups", options={"samples": 2, "sampler": "rejection"}),)
FULL_WITH_TWO = Capacity(3, 1.5 * entries_of(BATCH), 1e9)


@pytest.mark.parametrize(
    ("capacity", "batch", "beside", "room"),
    [
        (Capacity(), BATCH, [], True),
        (Capacity(), BATCH, [BATCH], False),  # a CPU trains one at a time
        (FULL_WITH_TWO, BATCH, [BATCH], True),
        (FULL_WITH_TWO, BATCH, [BATCH, BATCH], False),
        (FULL_WITH_TWO._replace(entries=1e9), BATCH, [BATCH, BATCH], True),
        (FULL_WITH_TWO._replace(entries=1e9), (replace(PLAIN, n=10**6),), [BATCH, BATCH], False),  # memory is short
        (Capacity(4, 1e12, 1e15), REJECTING, [], True),
        (Capacity(4, 1e12, 1e15), REJECTING, [BATCH], False),  # it needs the device for itself
        (Capacity(4, 1e12, 1e15), BATCH, [REJECTING], False),
    ],
)
def test_a_device_is_full_by_entries_memory_or_number(capacity, batch, beside, room):
    flights = [Flight(other, other) for other in beside]
    assert capacity.room(batch, flights) == room
    assert capacity.comes_last(batch, flights) == (capacity.most > 1 and batch == REJECTING and beside != [])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_batches_that_train_together_have_the_bits_they_have_alone(tmp_path, monkeypatch):
    table = tmp_path / "visits.csv"
    rng = np.random.default_rng(0)
    pd.DataFrame({"x": rng.normal(size=300), "y": rng.poisson(3, 300)}).to_csv(table, index=False)
    own = ["dataset=csv", f"csv.path={table}", "csv.target=y", "csv.task=count", "sizes=[50,100]"]
    large = ["dataset=airline_like", "dataset.airline_like.options.rows=9000", "dataset.airline_like.M=20"]
    every = ["seeds=[0,1]", "beta=list", "beta.values=[0.1,1,10]", "training.max_iterations=300"]
    every.append("method=[elbo,joint_log_dlm,fixed_log_dlm]")
    several = (["dataset=ringnorm_drawn", "sizes=[50,100,200]"], [*own, "estimator=[exact,ups]"], large)
    parts = [f"[{','.join(repr(word) for word in part + every)}]" for part in several]
    results = []
    for most in (1, 12):
        monkeypatch.setattr(module, "MOST_AT_ONCE", most)
        words = ["name=together", f"parts=[{','.join(parts)}]", "device=cuda", f"results={tmp_path / str(most)}"]
        assert execute(compose(words)) == 0
        records = comparable(tmp_path / str(most))
        assert all(result.alone for _, _, result, _ in records.values()) == (most == 1)
        same = {key: (cell, replace(result, alone=None), arrays) for key, (_, cell, result, arrays) in records.items()}
        results.append(same)
    assert results[0] == results[1]
