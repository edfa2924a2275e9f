"""The engine in one process: records, failures, memory, waiting, resuming, and batches at once."""

import time
from collections import deque

import numpy as np
import pandas as pd
import pytest
import torch
from msgspec.structs import replace

import dlmexp.running.engine as module
from dlmexp.plan.batches import entries_of
from dlmexp.plan.compose import compose
from dlmexp.records.record import Result
from dlmexp.records.results import collect_packed
from dlmexp.records.store import Store
from dlmexp.running import checkpoint
from dlmexp.running.engine import Capacity, Engine, Flight
from dlmexp.running.leases import Leases
from dlmexp.running.recording import Writer
from dlmexp.running.run import execute
from dlmexp.running.signals import Stop, StopRequest
from dlmexp.running.sweep import plan_sweep, prepare_sweep
from tests.support.cells import PLAIN
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


def _spoilt(monkeypatch, key, at):
    """The cell's parameters turn NaN at an iteration, as a wild step may make them."""
    plain, original, spoilt = module.train, Engine._program, dict[str, int]()

    def train(training, settings, between, at_once):
        def spoiling(training):
            if int(training.state.iteration) == at and key in spoilt:
                training.state.values["m"][training.cells.index(spoilt[key])] = torch.nan
            between(training)

        yield from plain(training, settings, spoiling, at_once)

    def program(self, cells):
        spoilt.clear()
        spoilt.update({cell.key: i for i, cell in enumerate(cells)})
        return original(self, cells)

    monkeypatch.setattr(Engine, "_program", program)
    monkeypatch.setattr(module, "train", train)


def test_a_cell_that_fails_is_recorded_as_failed_and_its_neighbours_go_on(tmp_path, tiny, monkeypatch):
    words = [*tiny, "method=[elbo,beta_elbo]"]
    clean = Sweep(tmp_path / "clean", words).run()
    sweep = Sweep(tmp_path / "spoilt", words)
    victim = next(cell for cell in sweep.cells if cell.beta == 10.0)
    with monkeypatch.context() as patched:
        _spoilt(patched, victim.key, at=9)
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


def test_fixed_variants_of_a_failed_fit_fail_and_other_seeds_go_on(tmp_path, tiny, monkeypatch):
    sweep = Sweep(tmp_path, [*tiny, "method=[elbo,fixed_log_dlm]", "seeds=[0,1,2]"])
    base = next(cell for cell in sweep.cells if cell.objective == "elbo" and cell.seed == 1)
    _spoilt(monkeypatch, base.key, at=3)
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


@pytest.fixture
def order(monkeypatch):
    """The flights in the order in which they begin."""
    flights, plain = [], Engine.work

    def noting(self, flight):
        flights.append(flight)
        yield from plain(self, flight)

    monkeypatch.setattr(Engine, "work", noting)
    return flights


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
            raise OUT_OF_MEMORY
        yield from plain(self, flight)
        events.append(("ends", n))

    monkeypatch.setattr(Engine, "work", second_too_large)
    assert {record.status for record in sweep.run().values()} == {"done"}
    assert events[1:] == [("begins", 30), ("ends", 20), ("begins", 30), ("ends", 30)]
    assert sweep.engine.capacity.bytes < 1e12


@pytest.mark.parametrize("beside", [False, True])
def test_the_writer_keeps_the_order_and_does_nothing_after_a_failure(beside):
    done: list[int] = []

    def fails():
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
            raise error

    with pytest.raises(OSError, match="full"):  # "everything is saved" would be a lie
        run([fails, lambda: done.append(99)], Stop("SIGTERM", 143))
    with pytest.raises(KeyError):  # another error goes first
        run([fails] if beside else [], KeyError("another"))
    assert 99 not in done


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
    queue = deque((replace(PLAIN, seed=i, max_iterations=limit),) for i, limit in enumerate((10, 30, 20, 30)))
    Capacity(most, 1e9, 1e12).longest_first(queue, [])
    limits = [batch[0].iterations for batch in queue]
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
