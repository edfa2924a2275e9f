"""The engine in one process: records, failures, memory, waiting, resuming."""

import threading
import time

import numpy as np
import pytest
import torch

import dlmexp.running.engine as module
from dlmexp.plan.compose import compose
from dlmexp.records.record import Result
from dlmexp.records.results import collect_packed
from dlmexp.records.store import Store
from dlmexp.running import checkpoint
from dlmexp.running.engine import Engine
from dlmexp.running.leases import Leases
from dlmexp.running.recording import Writer
from dlmexp.running.run import execute
from dlmexp.running.signals import Stop, StopRequest
from dlmexp.running.sweep import plan_sweep, prepare_sweep
from tests.support.engines import Sweep
from tests.support.processes import arrays_of

pytestmark = pytest.mark.slow
OUT_OF_MEMORY = torch.OutOfMemoryError("CUDA out of memory")


def test_a_record_says_what_was_done_with_what_result(tmp_path, tiny):
    sweep = Sweep(tmp_path, tiny)
    records = sweep.run()
    assert records.keys() == {cell.key for cell in sweep.cells}
    for cell in sweep.cells:
        record = records[cell.key]
        result, arrays = record.result, arrays_of(sweep.store, record)
        assert record.status == "done"
        assert set(result.validation) & set(result.test) >= {"nll", "error", "brier", "ece"}
        assert set(result.trivial) == {"validation", "test"}
        p, y, count = (arrays[f"reliability_{name}"].astype(float) for name in ("p", "y", "rows"))
        some = count > 0
        gap = (np.abs(p - y)[some] * count[some]).sum() / count.sum()
        assert gap == pytest.approx(result.test["ece"], abs=1e-6)
        assert result.converged == (result.stopped == "converged")
        assert len(arrays["objective"]) == result.iterations
        assert arrays["objective"][-1] == pytest.approx(result.objective_value, rel=1e-6)
        assert ("Z" in arrays) == (cell.variant == "joint" and cell.beta == 1.0)
        if cell.base:
            assert result.hyperparameters == records[cell.base].result.hyperparameters
    assert not list((tmp_path / "checkpoints").iterdir())
    assert sweep.prepared.count(0) == sweep.prepared.count(1) == 3, "a split is prepared once for a batch"
    assert Sweep(tmp_path, tiny).plan().pending == 0
    wider = Sweep(tmp_path, [*tiny, "seeds=[0,1,2]", "beta.values=[10,1,0.1,5]"])
    # A third seed has 4 ELBO fits and 2 x 4 DLM fits; a fourth beta adds 3 cells to each of the two old seeds.
    assert wider.plan().pending == 12 + 2 * 3


def test_batches_give_what_cells_alone_give(tmp_path, tiny):
    words = [*tiny, "method=[elbo,fixed_log_dlm]"]
    together, alone = (Sweep(tmp_path / str(size), words, size).run() for size in (100, 1))
    for key, record in together.items():
        assert record.result.iterations == alone[key].result.iterations
        assert record.result.test == pytest.approx(alone[key].result.test, rel=1e-8)


def _spoil(sweep, key, at):
    """The cell's parameters turn NaN at an iteration, as a wild step may make them."""

    def tick(cells, training):
        keys = [cells[i].key for i in training.cells]
        if key in keys and int(training.state.iteration) == at:
            training.state.values["m"][keys.index(key)] = torch.nan

    sweep.progress.tick = tick


def test_a_cell_that_fails_is_recorded_as_failed_and_its_neighbours_go_on(tmp_path, tiny):
    words = [*tiny, "method=[elbo,beta_elbo]"]
    clean = Sweep(tmp_path / "clean", words).run()
    sweep = Sweep(tmp_path / "spoilt", words)
    victim = next(cell for cell in sweep.cells if cell.beta == 10.0)
    _spoil(sweep, victim.key, at=9)
    records = sweep.run()
    failed = records.pop(victim.key)
    assert failed.status == "failed"
    assert failed.result == Result(reason="the objective or its gradient is not finite", iterations=10)
    assert np.isfinite(arrays_of(sweep.store, failed)["Z"]).all()
    assert any("failed:" in line and "beta=10" in line for line in sweep.progress.lines)
    for key, record in records.items():
        assert record.result.iterations == clean[key].result.iterations
        assert record.result.test == pytest.approx(clean[key].result.test, rel=1e-9)
    assert sweep.plan().pending == 0, "failed cells wait until they are asked for"
    again = Sweep(tmp_path / "spoilt", words).run(retry_failed=True)
    assert again[victim.key].result.test == pytest.approx(clean[victim.key].result.test, rel=1e-9)


def test_fixed_variants_of_a_failed_fit_fail_and_other_seeds_go_on(tmp_path, tiny):
    sweep = Sweep(tmp_path, [*tiny, "method=[elbo,fixed_log_dlm]", "seeds=[0,1,2]"])
    base = next(cell for cell in sweep.cells if cell.objective == "elbo" and cell.seed == 1)
    _spoil(sweep, base.key, at=3)
    records = [record for record in sweep.run().values() if record.cell.base]
    assert {(r.cell.seed, r.status) for r in records} == {(0, "done"), (1, "failed"), (2, "done")}
    assert {r.result.reason for r in records if not r.done} == {module.NO_BASE}


def test_a_fit_that_nobody_will_make_is_not_waited_for(tmp_path, tiny):
    """Its record has gone since the plan was made; the cells that need it say so, and a later run makes it."""
    words = [*tiny, "method=[elbo,fixed_log_dlm]", "seeds=[0]"]
    sweep = Sweep(tmp_path, words, size=2)
    base = next(cell for cell in sweep.cells if cell.objective == "elbo")
    sweep.train([batch for batch in sweep.plan().batches if batch[0].base is None])
    batches = sweep.plan().batches
    sweep.store.path(base.dataset, base.key).unlink()
    again = Sweep(tmp_path, words, size=2)
    again.train(batches)
    assert again.store.keys()[1] == {cell.key for cell in sweep.cells if cell.base}


def test_packed_fits_are_made_again_where_fixed_variants_need_them(tmp_path, tiny):
    words = [*tiny, "method=[elbo,fixed_log_dlm]", "seeds=[0]", "evaluate=5", "beta=list"]
    assert execute(compose([*words, "beta.values=[1]", f"results={tmp_path / 'first'}"])) == 0
    (tmp_path / "second").mkdir()
    collect_packed(str(tmp_path / "first"), str(tmp_path / "second" / "records.parquet"))
    second = prepare_sweep(compose([*words, "beta.values=[1,10]"]))
    chosen, again = plan_sweep(second, Store(tmp_path / "second"), "cpu", None)
    sweep = Sweep(tmp_path / "second", [*words, "beta.values=[1,10]"], again=again)
    planned = {(cell.variant, cell.beta) for batch in chosen.batches for cell in batch}
    assert planned == {("joint", 1.0), ("fixed", 10.0)}
    sweep.train(chosen.batches)
    assert sweep.store.keys()[0] == {cell.key for cell in second.cells}


@pytest.mark.parametrize(("name", "status"), [("nll", "failed"), ("ece", "done")])
def test_a_result_that_is_no_number_is_a_failure_unless_it_is_of_calibration(tmp_path, tiny, monkeypatch, name, status):
    from dlmexp.training import train

    plain = train.evaluate_finally

    def spoilt(*given):
        evaluated = plain(*given)
        evaluated.means["validation"][name].fill_(float("nan"))
        return evaluated

    monkeypatch.setattr(train, "evaluate_finally", spoilt)
    (record,) = Sweep(tmp_path, [*tiny, "method=[elbo]", "seeds=[0]"]).run().values()
    assert record.status == status


def test_a_batch_that_another_process_has_comes_last(tmp_path, tiny, monkeypatch, order):
    sweep = Sweep(tmp_path, [*tiny, "method=[elbo,beta_elbo]"], size=3)
    first, waited = sweep.plan().batches[0], []

    def leaves(seconds):
        waited.append(seconds)
        other.__exit__()

    other = Leases(tmp_path, print)
    with other:
        assert other.take(cell.key for cell in first) is None
        monkeypatch.setattr(module.time, "sleep", leaves)
        assert len(sweep.run()) == len(sweep.cells)
    assert order[0].batch != first
    assert order[-1].batch == first
    assert waited == [module.POLL_SECONDS]


@pytest.mark.parametrize("torn", ["records", "checkpoint"])
def test_a_stopped_batch_goes_on_where_it_was(tmp_path, tiny, torn):
    """After the first record, in the middle of its batch; what is torn is set aside and trained again."""
    words = [*tiny, "method=[elbo,beta_elbo]", "training.binary.max_iterations=200", "training.binary.tolerance=5e-3"]
    expected = Sweep(tmp_path / "whole", words).run()
    sweep = Sweep(tmp_path / "part", words, beside=True)
    sweep.engine.recorder.finished = lambda record: sweep.stop.request(15)
    with pytest.raises(Stop):
        sweep.run()
    ((path, saved),) = checkpoint.find(sweep.store).items()
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
    again = Sweep(tmp_path / "part", words)
    records = again.run()
    assert any("resumes at" in line for line in again.progress.lines) == (torn == "records")
    assert records.keys() == expected.keys()
    for key, record in records.items():
        assert record.result.test == pytest.approx(expected[key].result.test, rel=1e-9)
    assert len(list((tmp_path / "part" / "quarantine").glob("*.why"))) == (1 if torn == "checkpoint" else len(recorded))


def test_a_request_that_comes_just_after_the_look_is_acted_on_at_the_next_one(tmp_path, tiny):
    """Leaving at once would leave without having saved."""

    class Late(StopRequest):
        looks = 0

        @property
        def stop(self):
            self.looks += 1
            return Stop("SIGTERM", 143) if self.looks >= 5 else None

    sweep = Sweep(tmp_path, tiny, stop=Late())
    with pytest.raises(Stop):
        sweep.run()
    (saved,) = checkpoint.find(sweep.store).values()
    assert saved.iteration == 4


def test_a_heartbeat_that_fails_stops_the_run_with_its_state_saved(tmp_path, tiny, monkeypatch):
    monkeypatch.setattr("dlmexp.running.leases.HEARTBEAT_SECONDS", 0.01)
    sweep = Sweep(tmp_path, [*tiny, "training.binary.tolerance=0", "training.binary.max_iterations=100000"])
    monkeypatch.setattr(sweep.leases, "progress", lambda: 1 / 0)
    with pytest.raises(Stop, match="division") as stopped:
        sweep.run()
    assert stopped.value.code == 1
    (saved,) = checkpoint.find(sweep.store).values()
    assert saved.iteration


def test_gradient_statistics_and_square_loss(tmp_path, data_root, monkeypatch):
    import dlmexp.training.gradients as gradients

    monkeypatch.setattr(gradients, "DRAWS", 3)
    monkeypatch.setattr(gradients, "TRUTH_SAMPLES", 20)
    short = ["device=cpu", f"data_root={data_root}", "seeds=[0,1]"]
    words = ["experiment=bias", "sizes=[40]", "dataset.abalone.M=5", "training.count.max_iterations=10", *short]
    kinds = [record.cell.kind for record in Sweep(tmp_path / "bias", words).run().values()]
    assert sorted(kinds) == ["fit"] * 4 + ["gradient"] * 36
    words = ["dataset=cadata", "sizes=[40]", "dataset.cadata.M=5", "method=[fixed_sq_dlm,fitc]", *short]
    records = Sweep(tmp_path / "square", [*words, "beta=short", "training.regression.max_iterations=10"]).run()
    assert ("sq_dlm", "closed form") in {(r.cell.objective, r.result.stopped) for r in records.values()}
    assert {tuple(r.result.test) for r in records.values() if r.cell.objective == "sq_dlm"} == {("mse",)}
    assert all((r.result.y_std or 0) > 1000 for r in records.values()), "of house prices, before normalisation"


def test_learning_curves_and_epochs(tmp_path):
    words = ["dataset=airline_like", "dataset.airline_like.options.rows=420", "dataset.airline_like.M=5", "seeds=[0]"]
    words += ["training.large.minibatch=50", "training.large.epochs=3", "evaluate=epoch", "beta=[1,0.1]"]
    sweep = Sweep(tmp_path, [*words, "method=[beta_elbo,joint_log_dlm]", "beta=list", "beta.values=[1]", "device=cpu"])
    for record in sweep.run().values():
        arrays, n = arrays_of(sweep.store, record), record.cell.n
        assert (record.result.iterations, record.result.stopped) == (3 * (n // 50), "epochs")
        assert arrays["epochs"].tolist() == [0, 1, 2, 3]
        assert arrays["evaluated_at"].tolist() == [e * (n // 50) for e in range(4)]
        assert len(arrays["test_nll"]) == 4
        assert record.result.validation == {}


def test_out_of_memory_halves_the_batch(tmp_path, tiny, monkeypatch):
    """What the writer still has to do for the batch, such as a late checkpoint, comes before its halves."""
    sweep, tried, plain = Sweep(tmp_path, [*tiny, "method=[elbo,beta_elbo]"], beside=True), [], Engine.work

    def small(self, flight):
        tried.append(len(flight.pending))
        if len(flight.pending) > 2:
            path, saved = checkpoint.path_of(sweep.store, flight.batch), checkpoint.Checkpoint(flight.batch, [0])
            self.writer.do(lambda: (time.sleep(0.01), checkpoint.save(path, saved, {})))
            raise OUT_OF_MEMORY
        yield from plain(self, flight)

    monkeypatch.setattr(Engine, "work", small)
    records = sweep.run()
    assert {record.status for record in records.values()} == {"done"}
    assert len(records) == len(sweep.cells)
    assert tried == [6, 3, 1, 2, 3, 1, 2]
    assert not list((tmp_path / "checkpoints").glob("*"))


@pytest.mark.parametrize("beside", [False, True])
def test_the_writer_keeps_the_order_and_does_nothing_after_a_failure(beside):
    done, all_given = list[int](), threading.Event()

    def fails():
        assert all_given.wait(10 if beside else 0) == beside
        raise OSError("full")

    with Writer(beside) as writer:
        for i in range(20):
            writer.do(lambda i=i: done.append(i))
        writer.do(lambda: None, wait=True)
        assert done == list(range(20))

    def run(jobs, error):
        with Writer(beside) as writer:
            for job in jobs:
                writer.do(job)
            all_given.set()
            raise error

    with pytest.raises(OSError, match="full"):  # "everything is saved" would be a lie
        run([fails, lambda: done.append(99)], Stop("SIGTERM", 143))
    with pytest.raises(KeyError):  # another error goes first
        run([fails] if beside else [], KeyError("another"))
    assert 99 not in done
