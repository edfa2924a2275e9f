"""The engine with several batches at once, and where memory runs out."""

import time

import pytest
import torch

from dlmexp.errors import UserError
from dlmexp.plan.batches import entries_of
from dlmexp.running import checkpoint
from dlmexp.running import trainer as module
from dlmexp.running.engine import Engine
from dlmexp.running.lanes import Lanes
from dlmexp.running.presence import Presence
from dlmexp.running.schedule import Capacity
from dlmexp.running.trainer import Trainer
from dlmexp.running.writer import Writer
from tests.support.engines import Sweep

pytestmark = pytest.mark.slow


@pytest.fixture
def two_at_once(monkeypatch):
    monkeypatch.setattr("dlmexp.running.lanes.capacity", lambda device: Capacity(2, 1e12, 1e12))


def test_out_of_memory_halves_the_batch(tmp_path, tiny, monkeypatch):
    sweep = Sweep(tmp_path, tiny)
    tried, plain = [], Trainer.work

    def small(self, flight):
        tried.append(len(flight.pending))
        if len(flight.pending) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        yield from plain(self, flight)

    monkeypatch.setattr(Trainer, "work", small)
    found = sweep.run()
    assert {record.status for record in found.values()} == {"done"}
    assert len(found) == len(sweep.cells)
    assert tried[:6] == [6, 3, 1, 2, 3, 1]
    assert sum("going on with half as many" in line for line in sweep.progress.lines) == 9
    assert not list((tmp_path / "checkpoints").glob("*"))


def test_what_the_writer_still_has_to_do_for_a_batch_that_did_not_fit_comes_before_its_halves(
    tmp_path, tiny, monkeypatch
):
    """A save would come after the checkpoint was discarded, a withdrawal after the halves were announced."""
    sweep = Sweep(tmp_path, [*tiny, "method=[elbo]"])
    monkeypatch.setattr("dlmexp.running.engine.Writer", lambda beside: Writer(True))
    tried, plain, withdraw = [], Trainer.work, Presence.withdraw

    def late(self, keys):
        time.sleep(0.05)
        withdraw(self, keys)

    def only_halves(self, flight):
        tried.append(len(flight.pending))
        if len(flight.pending) == 2:
            path, notes = checkpoint.path_of(self.store, flight.batch), checkpoint.Notes([0, 1])
            checkpoint.save(path, flight.batch, notes, {})
            self.writer.do(lambda: (time.sleep(0.05), checkpoint.save(path, flight.batch, notes, {})))
            raise torch.OutOfMemoryError("CUDA out of memory")
        time.sleep(0.15)
        assert {cell.key for cell in flight.pending} <= sweep.presence._about.keys.keys()
        assert not list((tmp_path / "checkpoints").iterdir())
        yield from plain(self, flight)

    monkeypatch.setattr(Presence, "withdraw", late)
    monkeypatch.setattr(Trainer, "work", only_halves)
    assert {record.status for record in sweep.run().values()} == {"done"}
    assert tried == [2, 1, 1]


def test_one_cell_of_a_checkpoint_that_does_not_fit_is_trained_alone(tmp_path, tiny, monkeypatch):
    """What is resumed has all cells of its checkpoint, however few of them want a record."""
    sweep = Sweep(tmp_path, [*tiny, "method=[elbo]"])
    (batch,) = sweep.plan().batches
    sweep.engine.run([batch[:1]])
    checkpoint.save(checkpoint.path_of(sweep.store, batch), batch, checkpoint.Notes([0, 1]), {})
    plain = module.train

    def train(training, settings, between, at_once):
        def short(training):
            between(training)
            if len(training.cells) > 1 and int(training.state.iteration) == 3:
                raise torch.OutOfMemoryError("CUDA out of memory")

        yield from plain(training, settings, short, at_once)

    monkeypatch.setattr(module, "train", train)
    sweep.engine.run([batch])
    assert sweep.store.keys()[0] == {cell.key for cell in batch}
    assert (sweep.progress.done, sweep.progress.skipped_cells) == (2, 1), "it counts as skipped that it had its record"
    assert "  out of memory with 2 cells at once: going on with half as many" in sweep.progress.lines
    assert sweep.progress.so_far().batches == (), "none is shown as in training that was given up"


def test_a_single_cell_out_of_memory_is_a_sentence(tmp_path, tiny, monkeypatch):
    def never(self, flight):
        yield from ()
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Trainer, "work", never)
    with pytest.raises(UserError, match="does not fit into memory, not even alone"):
        Sweep(tmp_path, tiny).run()


def test_fixed_variants_start_as_soon_as_their_fits_are_there(tmp_path, tiny, monkeypatch, two_at_once):
    """With several batches at once, they are not put behind all larger ones."""
    sweep = Sweep(tmp_path, [*tiny, "sizes=[20,30,40,50]", "method=[elbo,fixed_log_dlm]"])
    order, plain = [], Trainer.work

    def noting(self, flight):
        order.append((flight.batch[0].n, flight.batch[0].variant))
        yield from plain(self, flight)

    monkeypatch.setattr(Trainer, "work", noting)
    assert {record.status for record in sweep.run().values()} == {"done"}
    assert len(order) == 8
    assert order.index((20, "fixed")) < order.index((40, "joint"))


def test_a_batch_that_does_not_fit_beside_another_is_trained_after_it(tmp_path, tiny, monkeypatch, two_at_once):
    sweep = Sweep(tmp_path, [*tiny, "sizes=[20,30]", "method=[elbo]"])
    events, plain = [], Trainer.work

    def second_too_large(self, flight):
        n = flight.batch[0].n
        events.append(("begins", n))
        yield from [None] * (3 if n == 20 else 1)  # it is in flight when the other one fails
        if n == 30 and events == [("begins", 20), ("begins", 30)]:
            raise torch.OutOfMemoryError("CUDA out of memory")
        yield from plain(self, flight)
        events.append(("ends", n))

    monkeypatch.setattr(Trainer, "work", second_too_large)
    assert {record.status for record in sweep.run().values()} == {"done"}
    assert events[1:] == [("begins", 30), ("ends", 20), ("begins", 30), ("ends", 30)]
    assert [line for line in sweep.progress.lines if "memory" in line] == [
        "  out of memory with 2 batches at once: going on with fewer of such a size"
    ]


def test_a_batch_starts_when_cells_have_left_another(tmp_path, tiny, monkeypatch):
    sweep = Sweep(tmp_path, [*tiny, "sizes=[20,30]", "method=[elbo]"])
    first, _ = sweep.plan().batches
    monkeypatch.setattr("dlmexp.running.lanes.capacity", lambda device: Capacity(2, entries_of(first), 1e12))
    events, plain = [], Trainer.work

    def shrinking(self, flight):
        events.append(("begins", flight.batch[0].n))
        yield from [None] * 3  # the other one could start by now
        events.append("one leaves")
        self.lanes.hold(flight, len(flight.pending) - 1)
        yield from [None] * 2
        yield from plain(self, flight)
        events.append(("ends", flight.batch[0].n))

    monkeypatch.setattr(Trainer, "work", shrinking)
    assert {record.status for record in sweep.run().values()} == {"done"}
    assert events[:3] == [("begins", 20), "one leaves", ("begins", 30)]


def test_the_engine_notes_which_cells_have_left(tmp_path, tiny, monkeypatch):
    """And looks through the records only where there is room for another batch: once for each, and at the start;
    through the checkpoints only at the start."""
    words = [*tiny, "training.binary.tolerance=0.01", "training.binary.max_iterations=70"]
    sweep = Sweep(tmp_path, words)
    noted, looks, finds, hold, keys, find = [], [], [], Lanes.hold, Engine._keys, checkpoint.find

    def noting(self, flight, inside):
        noted.append((flight.inside, inside))
        hold(self, flight, inside)

    monkeypatch.setattr(Lanes, "hold", noting)
    monkeypatch.setattr(Engine, "_keys", lambda self: looks.append(1) or keys(self))
    monkeypatch.setattr(checkpoint, "find", lambda store: finds.append(1) or find(store))
    found = sweep.run()
    assert len(finds) == 2, "for those of finished batches, and for those to go on from"
    assert len({record.result.iterations for record in found.values()}) > 1
    assert any(0 < inside < before for before, inside in noted)
    assert len(looks) == 1 + len(Sweep(tmp_path / "other", words).plan().batches)
