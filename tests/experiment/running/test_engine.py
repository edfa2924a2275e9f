"""The engine in one process: records, failures, memory, waiting, resuming; which batches train, in
which order, and, on a GPU, which at the same time with which bits."""

import dataclasses
import time
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from msgspec.structs import replace

from dlmexp.experiment.plan.cell import batches
from dlmexp.experiment.plan.compose import compose
from dlmexp.experiment.records.record import Result
from dlmexp.experiment.records.results import collect_packed
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running import capacity as capacity_module
from dlmexp.experiment.running import engine as engine_module
from dlmexp.experiment.running.capacity import BatchJob, Capacity
from dlmexp.experiment.running.checkpoints import (
    Checkpoint,
    checkpoint_path,
    find_checkpoints,
    resumed_first,
    save_checkpoint,
)
from dlmexp.experiment.running.clock import Clock
from dlmexp.experiment.running.engine import Engine
from dlmexp.experiment.running.leases import Leases
from dlmexp.experiment.running.process import Stop, StopRequest, select_target
from dlmexp.experiment.running.programs import entries_of
from dlmexp.experiment.running.progress import Progress
from dlmexp.experiment.running.recording import Recorder, Writer
from dlmexp.experiment.running.run import execute
from dlmexp.experiment.running.sweep import plan_sweep, prepare_sweep
from dlmexp.experiment.running.trainer import NO_BASE, BatchTrainer
from tests.support.cells import PLAIN
from tests.support.processes import comparable

pytestmark = pytest.mark.slow
DRAWN = "dataset.twonorm_drawn"
LARGE = [
    "dataset=twonorm_drawn",
    f"{DRAWN}.split=airline",
    "sizes=['100%']",
]  # trained in minibatches


class Sweep:
    """A job and an engine for it."""

    def __init__(self, root, words, size=100, beside=False, again=()):
        found = prepare_sweep(compose([*words, "keep=none"]))
        self.cells, self.store, self.size = found.cells, Store(root), size
        self.stop, self.prepared = StopRequest(), []
        self.progress = Progress(Clock([]), self.stop)
        self.leases = Leases(self.store.root, self.stop.fail)
        (self.store.root / "running").mkdir(parents=True, exist_ok=True)
        recorder = Recorder(found, self.store, self.progress.finished, "cpu", frozenset(again))
        recorder.writer, plain = Writer(beside), recorder.prepared

        def split(cell):
            self.prepared.append(cell.seed)
            return plain(cell)

        recorder.prepared = split
        self.engine = Engine(
            select_target("cpu", "float64"), recorder, self.progress, self.stop, self.leases, 1e9
        )

    def plan(self, retry_failed=False):
        done, failed = self.store.keys()
        return batches(self.cells, done if retry_failed else done | failed, lambda _: self.size)

    def train(self, batches):
        with self.leases:
            self.engine.run(resumed_first(self.store, batches))

    def run(self, **how):
        self.train(self.plan(**how))
        return {record.key: record for record in self.store.own()}


def test_a_record_says_what_was_done_with_what_result(tmp_path, tiny):
    sweep = Sweep(tmp_path, tiny)
    records = sweep.run()
    assert records.keys() == {cell.key for cell in sweep.cells}
    for cell in sweep.cells:
        record = records[cell.key]
        result, arrays = record.result, sweep.store.arrays(record.key)
        assert record.status == "done"
        assert set(result.validation) & set(result.test) >= {"nll", "error", "brier", "ece"}
        assert set(result.trivial) == {"validation", "test"}
        p, y, count = (arrays[f"reliability_{name}"].astype(float) for name in ("p", "y", "rows"))
        assert np.nansum(np.abs(p - y) * count) / count.sum() == pytest.approx(
            result.test["ece"], abs=1e-6
        )
        assert result.converged == (result.stopped == "converged")
        assert len(arrays["objective"]) == result.iterations
        assert arrays["objective"][-1] == pytest.approx(result.objective_value, rel=1e-6)
        assert ("Z" in arrays) == (cell.variant == "joint" and cell.beta == 1.0)
        if cell.base:
            assert result.hyperparameters == records[cell.base].result.hyperparameters
    assert not list((tmp_path / "checkpoints").iterdir())
    assert sweep.prepared.count(0) == sweep.prepared.count(1) == 3, (
        "a split is prepared once for a batch"
    )
    assert Sweep(tmp_path, tiny).plan() == []


def _spoil(sweep, key, at):
    """The cell's parameters turn NaN at an iteration, as a wild step may make them."""

    def tick(cells, training):
        keys = [cells[i].key for i in training.cells]
        if key in keys and int(training.state.iteration) == at:
            training.state.values["m"][keys.index(key)] = torch.nan

    sweep.progress.tick = tick


def test_a_cell_that_fails_takes_what_needs_it_along_and_its_neighbours_go_on(
    tmp_path, tiny, capsys
):
    words = [*tiny, "method=[elbo,fixed_log_dlm]", "seeds=[0,1,2]", "beta.values=[1,0.1]"]
    clean = Sweep(tmp_path / "clean", words).run()
    sweep = Sweep(tmp_path / "spoilt", words)
    victim = next(cell for cell in sweep.cells if cell.objective == "elbo" and cell.seed == 1)
    _spoil(sweep, victim.key, at=9)
    records = sweep.run()
    failed = {record.cell.base: record for record in records.values() if not record.done}
    assert failed[None].result == Result(
        reason="the objective or its gradient is not finite", iterations=10
    )
    assert any(
        "failed:" in line and "seed=1" in line for line in capsys.readouterr().out.splitlines()
    )
    assert (failed.keys(), failed[victim.key].result.reason) == ({None, victim.key}, NO_BASE)
    assert {cell.seed for cell in sweep.cells if not records[cell.key].done} == {1}
    assert sweep.plan() == [], "failed cells wait until they are asked for"
    again = Sweep(tmp_path / "spoilt", words).run(retry_failed=True)
    for key, record in clean.items():
        assert again[key].result.iterations == record.result.iterations
        assert again[key].result.test == pytest.approx(record.result.test, rel=1e-9)


def test_packed_fits_are_made_again_where_fixed_variants_need_them(tmp_path, tiny):
    words = [*tiny, "method=[elbo,fixed_log_dlm]", "seeds=[0]", "evaluate=5", "beta=list"]
    assert execute(compose([*words, "beta.values=[1]", f"results={tmp_path / 'first'}"])) == 0
    (tmp_path / "second").mkdir()
    collect_packed(str(tmp_path / "first"), str(tmp_path / "second" / "records.parquet"))
    second = prepare_sweep(compose([*words, "beta.values=[1,10]"]))
    chosen = plan_sweep(second, Store(tmp_path / "second"), select_target("cpu", "float64"))
    sweep = Sweep(tmp_path / "second", [*words, "beta.values=[1,10]"], again=chosen.again)
    planned = {(cell.variant, cell.beta) for batch in chosen.batches for cell in batch}
    assert planned == {("joint", 1.0), ("fixed", 10.0)}
    sweep.train(chosen.batches)
    assert sweep.store.keys()[0] == {cell.key for cell in second.cells}


@pytest.mark.parametrize(("name", "status"), [("nll", "failed"), ("ece", "done")])
def test_a_result_that_is_no_number_is_a_failure_unless_it_is_of_calibration(
    tmp_path, tiny, monkeypatch, name, status
):
    from dlmexp.core.training import train

    plain = train.evaluate

    def spoilt(*given):
        evaluated = plain(*given)
        evaluated.means["validation"][name].fill_(float("nan"))
        return evaluated

    monkeypatch.setattr(train, "evaluate", spoilt)
    (record,) = Sweep(tmp_path, [*tiny, "method=[elbo]", "seeds=[0]"]).run().values()
    assert record.status == status


@pytest.mark.parametrize("torn", ["records", "checkpoint"])
def test_a_stopped_batch_goes_on_where_it_was(tmp_path, tiny, capsys, torn):
    """After the first record, in the middle of its batch; what is torn is set aside and trained
    again."""
    words = [
        *tiny,
        "method=[elbo,beta_elbo]",
        "training.binary.max_iterations=200",
        "training.binary.tolerance=5e-3",
    ]
    expected = Sweep(tmp_path / "whole", words).run()
    sweep = Sweep(tmp_path / "part", words, beside=True)
    sweep.engine.recorder.finished = lambda record: sweep.stop.request(15)
    with pytest.raises(Stop):
        sweep.run()
    ((path, saved),) = find_checkpoints(sweep.store).items()
    recorded = sweep.store.keys()[0]
    assert 0 < len(recorded) < 6
    assert {cell.key for cell in saved.open} == {cell.key for cell in sweep.cells} - recorded
    if torn == "checkpoint":
        content = path.read_bytes()
        place = content.index(b"values/m.npy") + 300
        path.write_bytes(content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :])
    for key in recorded if torn == "records" else ():
        sweep.store.path("ringnorm_drawn", key).write_text("torn")
        assert sweep.store.find("ringnorm_drawn", key) is None
    records = Sweep(tmp_path / "part", words).run()
    assert ("resumes at" in capsys.readouterr().out) == (torn == "records")
    assert records.keys() == expected.keys()
    for key, record in records.items():
        assert record.result.test == pytest.approx(expected[key].result.test, rel=1e-9)
    assert len(list((tmp_path / "part" / "quarantine").glob("*.why"))) == (
        1 if torn == "checkpoint" else len(recorded)
    )


@pytest.mark.parametrize(
    ("of", "wrong"), [(3, {}), (2, {}), (3, {"unrecorded": [3]}), (3, {"seconds": [1.0]})]
)
def test_a_checkpoint_that_is_not_of_its_cells_is_quarantined(tmp_path, of, wrong):
    store, cells = Store(tmp_path), tuple(replace(PLAIN, seed=seed) for seed in range(3))
    saved = Checkpoint(
        cells, [0, 2], inside=[0, 2], seconds=[1.0, 2.0], curves=[[], []], iteration=7
    )
    save_checkpoint(store, replace(saved, **wrong), {})
    path = checkpoint_path(store, cells).rename(checkpoint_path(store, cells[:of]))
    sound = of == 3 and not wrong
    assert find_checkpoints(store) == ({path: saved} if sound else {})
    assert path.exists() == sound


def test_a_heartbeat_that_fails_stops_the_run_with_its_state_saved(tmp_path, tiny, monkeypatch):
    monkeypatch.setattr("dlmexp.experiment.running.leases.HEARTBEAT_SECONDS", 0.01)
    sweep = Sweep(
        tmp_path, [*tiny, "training.binary.tolerance=0", "training.binary.max_iterations=100000"]
    )
    done = iter([1, 0])
    monkeypatch.setattr(sweep.leases, "progress", lambda: {"settled": 1 // next(done)})
    with pytest.raises(Stop, match="division") as stopped:
        sweep.run()
    assert stopped.value.code == 1
    (saved,) = find_checkpoints(sweep.store).values()
    assert saved.iteration


def test_gradient_statistics(tmp_path, tiny, monkeypatch):
    monkeypatch.setattr("dlmexp.core.training.gradients.DRAWS", 3)
    monkeypatch.setattr("dlmexp.core.training.gradients.TRUTH_SAMPLES", 20)
    words = [
        *tiny,
        "measure=gradient",
        "method=[fixed_log_dlm]",
        "estimator=[bmc]",
        "estimator.bmc.samples=[1,10]",
    ]
    kinds = [record.cell.kind for record in Sweep(tmp_path, words).run().values() if record.done]
    assert sorted(kinds) == ["fit"] * 2 + ["gradient"] * 12


def test_learning_curves_and_epochs(tmp_path):
    words = [*LARGE, f"{DRAWN}.options.rows=420", "M=5", "seeds=[0]"]
    words += [
        "training.large.minibatch=50",
        "training.large.epochs=3",
        "evaluate=epoch",
        "beta=[1,0.1]",
    ]
    sweep = Sweep(
        tmp_path,
        [*words, "method=[beta_elbo,joint_log_dlm]", "beta=list", "beta.values=[1]", "device=cpu"],
    )
    for record in sweep.run().values():
        arrays, n = sweep.store.arrays(record.key), record.cell.n
        assert (record.result.iterations, record.result.stopped) == (3 * (n // 50), "epochs")
        assert arrays["epochs"].tolist() == [0, 1, 2, 3]
        assert arrays["evaluated_at"].tolist() == [e * (n // 50) for e in range(4)]
        assert len(arrays["test_nll"]) == 4
        assert record.result.validation == {}


def test_out_of_memory_halves_the_batch(tmp_path, tiny, monkeypatch):
    """What the writer still has to do for the batch, such as a late checkpoint, comes before its
    halves."""
    sweep, tried, plain = (
        Sweep(tmp_path, [*tiny, "method=[elbo,beta_elbo]"], beside=True),
        [],
        BatchTrainer.work,
    )

    def small(self, flight):
        tried.append(len(flight.pending))
        if len(flight.pending) > 2:
            saved = Checkpoint(flight.batch, [0])
            self.recorder.writer.do(
                lambda: (time.sleep(0.01), save_checkpoint(sweep.store, saved, {}))
            )
            raise torch.OutOfMemoryError("CUDA out of memory")
        yield from plain(self, flight)

    monkeypatch.setattr(BatchTrainer, "work", small)
    assert [record.status for record in sweep.run().values()] == ["done"] * len(sweep.cells)
    assert tried == [6, 3, 1, 2, 3, 1, 2]
    assert not list((tmp_path / "checkpoints").glob("*"))


@pytest.mark.parametrize("beside", [False, True])
def test_the_writer_keeps_the_order_and_does_nothing_after_a_failure(beside):
    done = list[int]()

    def fails():
        raise OSError("full")

    def run(*jobs, error=None):
        with Writer(beside) as writer:
            for job in jobs:
                writer.do(job)
            if error:
                raise error

    run(*(partial(done.append, i) for i in range(20)))
    with pytest.raises(OSError, match="full"):
        run(fails, partial(done.append, 99))
    assert done == list(range(20))
    with pytest.raises(OSError, match="full"):  # "everything is saved" would be a lie
        run(fails, error=Stop("SIGTERM", 143))
    with pytest.raises(KeyError):  # another error goes first
        run(*[fails] * beside, error=KeyError("another"))


@pytest.fixture
def order(monkeypatch):
    """Cells that begin to train, the first of each batch."""
    begun, plain = [], BatchTrainer.work

    def noting(self, flight):
        begun.append(flight.batch[0])
        yield from plain(self, flight)

    monkeypatch.setattr(BatchTrainer, "work", noting)
    return begun


@pytest.fixture
def two_at_once(monkeypatch):
    monkeypatch.setattr(Capacity, "of", lambda device: Capacity(2, 1e12, 1e12))


def test_a_batch_that_another_process_has_comes_last(tmp_path, tiny, monkeypatch, order):
    sweep, other, waited = (
        Sweep(tmp_path, [*tiny, "method=[elbo,beta_elbo]"], size=3),
        Leases(tmp_path, print),
        [],
    )
    first = sweep.plan()[0]

    def leaves(seconds):
        waited.append(seconds)
        other.__exit__()

    with other:
        assert other.take(cell.key for cell in first) is None
        monkeypatch.setattr(engine_module.time, "sleep", leaves)
        assert len(sweep.run()) == len(sweep.cells)
    assert order[0] != first[0]
    assert order[-1] == first[0]
    assert waited == [engine_module.POLL_SECONDS]


def test_fixed_variants_start_as_soon_as_their_fits_are_there(tmp_path, tiny, two_at_once, order):
    """With batches at once, they are not put behind all larger ones."""
    sweep = Sweep(
        tmp_path, [*tiny, "seeds=[0]", "sizes=[20,30,40,50]", "method=[elbo,fixed_log_dlm]"]
    )
    assert {record.status for record in sweep.run().values()} == {"done"}
    begun = [(cell.n, cell.variant) for cell in order]
    assert len(begun) == 8
    assert begun.index((20, "fixed")) < begun.index((40, "joint"))


def test_batches_that_need_the_device_for_themselves_come_after_the_others(
    tmp_path, tiny, two_at_once, order, monkeypatch
):
    monkeypatch.setattr(engine_module, "needs_the_device", lambda cell: cell.n == 20)
    monkeypatch.setattr(Capacity, "move_longest_forward", lambda *_: None)
    Sweep(tmp_path, [*tiny, "seeds=[0]", "sizes=[20,30,40]", "method=[elbo]"]).run()
    assert [cell.n for cell in order] == [30, 40, 20]


def test_a_batch_that_does_not_fit_beside_another_is_trained_after_it(
    tmp_path, tiny, monkeypatch, two_at_once
):
    sweep, events, plain = (
        Sweep(tmp_path, [*tiny, "sizes=[20,30]", "method=[elbo]"]),
        [],
        BatchTrainer.work,
    )

    def second_too_large(self, flight):
        n = flight.batch[0].n
        events.append(("begins", n))
        yield from [None] * (3 if n == 20 else 1)  # it is in flight when the other one fails
        if n == 30 and events == [("begins", 20), ("begins", 30)]:
            raise torch.OutOfMemoryError("CUDA out of memory")
        yield from plain(self, flight)
        events.append(("ends", n))

    monkeypatch.setattr(BatchTrainer, "work", second_too_large)
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
        (dataclasses.replace(FULL_WITH_TWO, entries=1e9), BATCH, [BATCH, BATCH], True),
        (
            dataclasses.replace(FULL_WITH_TWO, entries=1e9),
            (replace(PLAIN, n=10**6),),
            [BATCH, BATCH],
            False,
        ),  # memory is short
        (Capacity(4, 1e12, 1e15), REJECTING, [], True),
        (Capacity(4, 1e12, 1e15), REJECTING, [BATCH], False),  # it needs the device for itself
        (Capacity(4, 1e12, 1e15), BATCH, [REJECTING], False),
    ],
)
def test_a_device_is_full_by_entries_memory_or_number(capacity, batch, beside, room):
    assert capacity.admits(batch, [BatchJob(other, other, len(other)) for other in beside]) == room


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_batches_that_train_together_have_the_bits_they_have_alone(tmp_path, monkeypatch):
    table = tmp_path / "visits.csv"
    rng = np.random.default_rng(0)
    pd.DataFrame({"x": rng.normal(size=300), "y": rng.poisson(3, 300)}).to_csv(table, index=False)
    own = ["dataset=csv", f"csv.path={table}", "csv.target=y", "csv.task=count", "sizes=[50,100]"]
    large = [*LARGE, f"{DRAWN}.options.rows=9000", f"{DRAWN}.M=20"]
    every = ["seeds=[0,1]", "beta=list", "beta.values=[0.1,1,10]", "training.max_iterations=300"]
    every.append("method=[elbo,joint_log_dlm,fixed_log_dlm]")
    several = (
        ["dataset=ringnorm_drawn", "sizes=[50,100,200]"],
        [*own, "estimator=[exact,ups]"],
        large,
    )
    parts = [f"[{','.join(repr(word) for word in part + every)}]" for part in several]
    results = []
    for most in (1, 12):
        monkeypatch.setattr(capacity_module, "MAX_CONCURRENT_BATCHES", most)
        folder = tmp_path / str(most)
        words = ["name=together", f"parts=[{','.join(parts)}]", "device=cuda", f"results={folder}"]
        assert execute(compose(words)) == 0
        assert all(record.result.alone for record in Store(folder).own()) == (most == 1)
        results.append(comparable(folder))
    assert results[0] == results[1]
