"""The engine with several batches at once, and where memory runs out."""

import pytest
import torch

from dlmexp.errors import UserError
from dlmexp.running.engine import Engine
from dlmexp.running.schedule import Capacity
from tests.support.engines import Sweep

pytestmark = pytest.mark.slow


@pytest.fixture
def two_at_once(monkeypatch):
    monkeypatch.setattr("dlmexp.running.lanes.capacity", lambda device: Capacity(2, 1e12, 1e12))


def test_out_of_memory_halves_the_batch(tmp_path, tiny, monkeypatch):
    sweep = Sweep(tmp_path, tiny)
    tried, plain = [], Engine._batch

    def small(self, batch, pending):
        tried.append(len(pending))
        if len(pending) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        yield from plain(self, batch, pending)

    monkeypatch.setattr(Engine, "_batch", small)
    found = sweep.run()
    assert {record.status for record in found.values()} == {"done"}
    assert len(found) == len(sweep.cells)
    assert tried[:6] == [6, 3, 1, 2, 3, 1]
    assert sum("going on with half as many" in line for line in sweep.progress.lines) == 9
    assert not list((tmp_path / "checkpoints").glob("*"))


def test_a_single_cell_out_of_memory_is_a_sentence(tmp_path, tiny, monkeypatch):
    def never(self, batch, pending):
        yield from ()
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Engine, "_batch", never)
    with pytest.raises(UserError, match="does not fit into memory, not even alone"):
        Sweep(tmp_path, tiny).run()


def test_fixed_variants_start_as_soon_as_their_fits_are_there(tmp_path, tiny, monkeypatch, two_at_once):
    """With several batches at once, they are not put behind all larger ones."""
    sweep = Sweep(tmp_path, [*tiny, "sizes=[20,30,40,50]", "method=[elbo,fixed_log_dlm]"])
    order, plain = [], Engine._batch

    def noting(self, batch, pending):
        order.append((batch[0].n, batch[0].variant))
        yield from plain(self, batch, pending)

    monkeypatch.setattr(Engine, "_batch", noting)
    assert {record.status for record in sweep.run().values()} == {"done"}
    assert len(order) == 8
    assert order.index((20, "fixed")) < order.index((40, "joint"))


def test_a_batch_that_does_not_fit_beside_another_is_trained_after_it(tmp_path, tiny, monkeypatch, two_at_once):
    sweep = Sweep(tmp_path, [*tiny, "sizes=[20,30]", "method=[elbo]"])
    events, plain = [], Engine._batch

    def second_too_large(self, batch, pending):
        n = batch[0].n
        events.append(("begins", n))
        yield from [None] * (3 if n == 20 else 1)  # it is in flight when the other one fails
        if n == 30 and events == [("begins", 20), ("begins", 30)]:
            raise torch.OutOfMemoryError("CUDA out of memory")
        yield from plain(self, batch, pending)
        events.append(("ends", n))

    monkeypatch.setattr(Engine, "_batch", second_too_large)
    assert {record.status for record in sweep.run().values()} == {"done"}
    assert events[1:] == [("begins", 30), ("ends", 20), ("begins", 30), ("ends", 30)]
    assert [line for line in sweep.progress.lines if "memory" in line] == [
        "  out of memory with 2 batches at once: going on with fewer of such a size"
    ]
