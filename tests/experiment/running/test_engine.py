"""The scheduler: which batches train, in which order, and what follows if memory runs out."""

import time

import numpy as np
import pandas as pd
import pytest
import torch

from dlmexp.common.errors import UserError
from dlmexp.experiment.plan.compose import compose
from dlmexp.experiment.plan.overrides import expand_shorthand
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running import capacity as capacity_module
from dlmexp.experiment.running import engine as engine_module
from dlmexp.experiment.running.capacity import Capacity
from dlmexp.experiment.running.checkpoints import Checkpoint, checkpoint_path, save_checkpoint
from dlmexp.experiment.running.leases import Leases
from dlmexp.experiment.running.process import Stop
from dlmexp.experiment.running.programs import bytes_of
from dlmexp.experiment.running.run import execute
from dlmexp.experiment.running.trainer import BatchTrainer
from tests.support.engine import EngineRun
from tests.support.processes import comparable

pytestmark = pytest.mark.slow
WORK = BatchTrainer.work


@pytest.fixture
def started(monkeypatch):
    """The first cell of each batch that starts, in order."""
    cells = []

    def noting(self, job):
        cells.append(job.batch[0])
        yield from WORK(self, job)

    monkeypatch.setattr(BatchTrainer, "work", noting)
    return cells


@pytest.fixture
def two_at_once(monkeypatch):
    """A device on which two batches train at the same time."""
    monkeypatch.setattr(Capacity, "of", lambda device: Capacity(2, 1e12, 1e12))


def statuses(records):
    return {record.status for record in records.values()}


def test_batch_that_another_process_trains_comes_last(tmp_path, tiny, monkeypatch, started):
    run = EngineRun(tmp_path, [*tiny, "method=[elbo,beta_elbo]"], batch_size=3)
    other = Leases(tmp_path, print)
    first = run.pending_batches()[0]
    waited = []

    def leave(seconds):
        waited.append(seconds)
        other.__exit__()

    with other:
        assert other.take(cell.key for cell in first) is None
        monkeypatch.setattr(engine_module.time, "sleep", leave)
        assert len(run.run()) == len(run.cells)
    assert started[0] != first[0]
    assert started[-1] == first[0]
    assert waited == [engine_module.POLL_SECONDS]


def test_cells_that_another_process_recorded_meanwhile_are_skipped(tmp_path, tiny, started):
    run = EngineRun(tmp_path, [*tiny, "method=[elbo]"], batch_size=1)
    batches = run.pending_batches()
    EngineRun(tmp_path, [*tiny, "method=[elbo]", "seeds=[0]"]).run()
    started.clear()
    skipped = []
    run.progress.note_records_elsewhere = lambda cells: skipped.extend(cells)
    run.train(batches)
    assert [cell.seed for cell in started] == [1]
    assert [cell.seed for cell in skipped] == [0]


def test_fixed_variants_start_as_soon_as_their_base_fits_are_there(
    tmp_path, tiny, two_at_once, started
):
    """They keep their place in the queue: larger batches do not go first."""
    words = [*tiny, "seeds=[0]", "sizes=[20,30,40,50]", "method=[elbo,fixed_log_dlm]"]
    assert statuses(EngineRun(tmp_path, words).run()) == {"done"}
    order = [(cell.n, cell.variant) for cell in started]
    assert len(order) == 8
    assert order.index((20, "fixed")) < order.index((40, "joint"))


def test_batches_that_need_the_whole_device_come_after_the_others(
    tmp_path, tiny, two_at_once, started, monkeypatch
):
    monkeypatch.setattr(capacity_module, "must_train_alone", lambda cell: cell.n == 20)
    monkeypatch.setattr(Capacity, "move_longest_forward", lambda *_: None)
    EngineRun(tmp_path, [*tiny, "seeds=[0]", "sizes=[20,30,40]", "method=[elbo]"]).run()
    assert [cell.n for cell in started] == [30, 40, 20]


def test_request_to_stop_starts_no_other_batch(tmp_path, tiny, started):
    run = EngineRun(tmp_path, [*tiny, "method=[elbo]"], batch_size=1)
    run.recorder.on_record = lambda record: run.stop.request(15)
    with pytest.raises(Stop) as stopped:
        run.run()
    assert stopped.value.code == 143
    assert len(started) == 1


def test_batches_that_train_together_all_save_their_state_before_a_stop(
    tmp_path, tiny, two_at_once, monkeypatch
):
    saved = []

    def endless(self, job):
        while not self.stop.requested:
            if len(self.recorder.written) == 0 and len(run.engine.training) == 2:
                self.stop.request(15)
            yield
        yield  # it waits for the device once more
        saved.append(job.batch[0].n)
        raise self.stop.requested

    monkeypatch.setattr(BatchTrainer, "work", endless)
    run = EngineRun(tmp_path, [*tiny, "sizes=[20,30]", "method=[elbo]"])
    with pytest.raises(Stop):
        run.run()
    assert sorted(saved) == [20, 30]


def test_out_of_memory_halves_the_batch(tmp_path, tiny, monkeypatch):
    """The writer's late checkpoint of the batch is written, and deleted, before its halves."""
    run = EngineRun(tmp_path, [*tiny, "method=[elbo,beta_elbo]"], writer_in_thread=True)
    sizes = []

    def fits_two_cells(self, job):
        sizes.append(len(job.pending))
        if len(job.pending) > 2:
            checkpoint = Checkpoint(job.batch, [0])

            def save_late():
                time.sleep(0.01)
                save_checkpoint(run.store, checkpoint, {})

            self.recorder.writer.do(save_late)
            raise torch.OutOfMemoryError("CUDA out of memory")
        yield from WORK(self, job)

    monkeypatch.setattr(BatchTrainer, "work", fits_two_cells)
    assert [record.status for record in run.run().values()] == ["done"] * 6
    assert sizes == [6, 3, 1, 2, 3, 1, 2]
    assert not list((tmp_path / "checkpoints").glob("*"))


def test_cell_that_does_not_fit_alone_is_an_error(tmp_path, tiny, monkeypatch):
    def fits_nothing(self, job):
        raise torch.OutOfMemoryError("CUDA out of memory")
        yield

    monkeypatch.setattr(BatchTrainer, "work", fits_nothing)
    run = EngineRun(tmp_path, [*tiny, "method=[elbo]", "seeds=[0]"])
    with pytest.raises(UserError, match="does not fit into memory, not even alone"):
        run.run()


def test_resumed_batch_with_recorded_cells_is_halved_too(tmp_path, tiny, monkeypatch):
    """One pending cell of a checkpoint of two trains with both of them, so that it can be alone."""
    run = EngineRun(tmp_path, [*tiny, "method=[elbo]"])
    (batch,) = run.pending_batches()
    EngineRun(tmp_path, [*tiny, "method=[elbo]", "seeds=[0]"]).run()
    save_checkpoint(run.store, Checkpoint(batch, [0, 1]), {})
    sizes = []

    def fits_one_cell(self, job):
        sizes.append((len(job.batch), len(job.pending)))
        if len(job.batch) > 1:
            raise MemoryError
        yield from WORK(self, job)

    monkeypatch.setattr(BatchTrainer, "work", fits_one_cell)
    assert statuses(run.run()) == {"done"}
    assert sizes == [(2, 1), (1, 1)]
    assert not checkpoint_path(run.store, batch).exists()


def test_error_that_is_not_about_memory_is_raised(tmp_path, tiny, monkeypatch):
    def broken(self, job):
        raise RuntimeError("another error")
        yield

    monkeypatch.setattr(BatchTrainer, "work", broken)
    with pytest.raises(RuntimeError, match="another error"):
        EngineRun(tmp_path, [*tiny, "method=[elbo]"]).run()


def test_batch_that_does_not_fit_next_to_another_is_trained_after_it(
    tmp_path, tiny, monkeypatch, two_at_once
):
    run = EngineRun(tmp_path, [*tiny, "sizes=[20,30]", "method=[elbo]"])
    events = []

    def second_is_too_large(self, job):
        n = job.batch[0].n
        events.append(("begins", n))
        yield from [None] * (3 if n == 20 else 1)  # it trains when the other one fails
        if n == 30 and events == [("begins", 20), ("begins", 30)]:
            raise torch.OutOfMemoryError("CUDA out of memory")
        yield from WORK(self, job)
        events.append(("ends", n))

    monkeypatch.setattr(BatchTrainer, "work", second_is_too_large)
    batches = run.pending_batches()
    run.train(batches)
    assert statuses({record.key: record for record in run.store.own_records()}) == {"done"}
    assert events[1:] == [("begins", 30), ("ends", 20), ("begins", 30), ("ends", 30)]
    expected = sum(bytes_of(batch) for batch in batches)
    assert run.engine.capacity.bytes == pytest.approx(0.8 * expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_batches_that_train_together_have_the_bits_they_have_alone(tmp_path, monkeypatch):
    table = tmp_path / "visits.csv"
    rng = np.random.default_rng(0)
    pd.DataFrame({"x": rng.normal(size=300), "y": rng.poisson(3, 300)}).to_csv(table, index=False)
    own = ["dataset=csv", f"csv.path={table}", "csv.target=y", "csv.task=count", "sizes=[50,100]"]
    large = [
        "dataset=twonorm_drawn",
        "dataset.twonorm_drawn.split=airline",
        "dataset.twonorm_drawn.options.rows=9000",
        "dataset.twonorm_drawn.M=20",
        "sizes=['100%']",
    ]
    common = [
        "seeds=[0,1]",
        "beta=list",
        "beta.values=[0.1,1,10]",
        "training.max_iterations=300",
        "method=[elbo,joint_log_dlm,fixed_log_dlm]",
    ]
    small = ["dataset=ringnorm_drawn", "sizes=[50,100,200]"]
    parts = []
    for words in (small, [*own, "estimator=[exact,ups]"], large):
        quoted = [repr(word) for word in words + common]
        parts.append(f"[{','.join(quoted)}]")
    results = []
    for batches in (1, 12):
        monkeypatch.setattr(capacity_module, "MAX_CONCURRENT_BATCHES", batches)
        folder = tmp_path / str(batches)
        words = ["name=together", f"parts=[{','.join(parts)}]", "device=cuda", f"results={folder}"]
        assert execute(compose(words)) == 0
        assert all(record.result.alone for record in Store(folder).own_records()) == (batches == 1)
        results.append(comparable(folder))
    assert results[0] == results[1]


def test_exact_process_has_all_rows_as_inducing_inputs_with_those_for_validation(tmp_path):
    words = ["dataset=gp_constant", "method=[exact]", "sizes=[20]", "seeds=[0]", "device=cpu"]
    rows = ["dataset.gp_constant.options.rows=100", "dataset.gp_constant.validation=train"]
    limits = ["training.max_iterations=5", f"results={tmp_path}"]
    assert execute(compose(expand_shorthand([*words, *rows, *limits]))) == 0
    (record,) = Store(tmp_path).own_records()
    # 8 of 100 rows are for validation.
    assert (record.cell.n, record.cell.M) == (20, 28)
    assert record.status == "done"
