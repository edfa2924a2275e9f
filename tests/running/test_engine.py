"""The engine in one process: records, failures, memory, waiting, resuming."""

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from dlmexp.plan.compose import compose
from dlmexp.records.collect import collect_pack
from dlmexp.records.schema import Result
from dlmexp.running import checkpoint
from dlmexp.running.presence import Presence
from dlmexp.running.sweep import plan_sweep, prepare_sweep
from dlmexp.running.trainer import Trainer
from tests.support.engines import Sweep
from tests.support.stopping import Late

pytestmark = pytest.mark.slow


@pytest.fixture
def sweep(tmp_path, tiny):
    return Sweep(tmp_path, tiny)


def test_a_record_says_what_was_done_with_what_result(sweep):
    records = sweep.run()
    assert records.keys() == {cell.key for cell in sweep.cells}
    for cell in sweep.cells:
        record = records[cell.key]
        result, arrays = record.result, sweep.store.arrays(record)
        assert record.status == "done"
        assert record.made.experiment == "test"
        assert set(result.validation) == set(result.test) == {"nll", "error", "brier", "ece"}
        assert {part: set(metrics) for part, metrics in result.trivial.items()} == {
            part: set(result.test) for part in ("validation", "test")
        }
        p, y, count = (arrays[f"reliability_{name}"].astype(float) for name in ("p", "y", "rows"))
        some = count > 0
        gap = (np.abs(p - y)[some] * count[some]).sum() / count.sum()
        assert gap == pytest.approx(result.test["ece"], abs=1e-6)
        assert result.stopped in ("converged", "limit")
        assert result.converged == (result.stopped == "converged")
        assert len(arrays["objective"]) == result.iterations
        assert arrays["objective"][-1] == pytest.approx(result.objective_value, rel=1e-6)
        assert ("Z" in arrays) == (cell.objective == "elbo" and cell.beta == 1.0)
        assert result.hyperparameters["lengthscale"] > 0
    assert not (sweep.store.root / "checkpoints").exists() or not list((sweep.store.root / "checkpoints").iterdir())


def test_fixed_variants_take_over_the_hyperparameters(sweep):
    records = sweep.run()
    for record in records.values():
        if base := record.cell.base:
            assert record.result.hyperparameters == records[base].result.hyperparameters


def test_a_split_is_prepared_once_for_a_batch(tmp_path, tiny):
    """Not for every record: that of a large dataset takes longer than many steps."""
    sweep, prepared = Sweep(tmp_path, [*tiny, "method=[elbo,beta_elbo]"]), []
    plain = sweep.engine.prepared
    sweep.engine.prepared = lambda cell: prepared.append(cell.seed) or plain(cell)
    assert len(sweep.run()) == 6
    assert sorted(prepared) == [0, 1]


def test_a_second_run_has_nothing_to_do(sweep, tmp_path, tiny):
    sweep.run()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    again = Sweep(tmp_path, tiny)
    assert again.plan().pending == 0
    again.run()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")} == before


def test_extending_runs_only_what_is_missing(sweep, tmp_path, tiny):
    sweep.run()
    more = [word for word in tiny if not word.startswith(("seeds", "beta.values"))] + [
        "seeds=[0,1,2]",
        "beta.values=[10,1,0.1,5]",
    ]
    wider = Sweep(tmp_path, more)
    # A third seed has 4 ELBO fits and 2 x 4 DLM fits; a fourth beta adds 3 cells to each of the two old seeds.
    assert wider.plan().pending == 12 + 2 * 3
    wider.run()
    assert wider.plan().pending == 0


def test_batches_give_what_cells_alone_give(tmp_path, tiny):
    words = [*tiny, "method=[elbo,fixed_log_dlm]"]
    together, alone = (Sweep(tmp_path / str(size), words, size).run() for size in (100, 1))
    for key, record in together.items():
        assert record.result.iterations == alone[key].result.iterations
        assert record.result.test == pytest.approx(alone[key].result.test, rel=1e-8)


def _spoilt(monkeypatch, key, at):
    """The cell's parameters turn NaN at an iteration, as a wild step may make them."""
    import dlmexp.running.trainer as module

    plain = module.train

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

    spoilt: dict[str, int] = {}
    original = Trainer._program
    monkeypatch.setattr(Trainer, "_program", program)
    monkeypatch.setattr(module, "train", train)


def test_a_cell_that_fails_is_recorded_as_failed_and_its_neighbours_go_on(tmp_path, tiny, monkeypatch):
    words = [*tiny, "method=[elbo,beta_elbo]"]
    clean = Sweep(tmp_path / "clean", words).run()
    sweep = Sweep(tmp_path / "spoilt", words)
    victim = next(cell for cell in sweep.cells if cell.beta == 10.0)
    with monkeypatch.context() as patched:
        _spoilt(patched, victim.key, at=9)
        found = sweep.run()
    failed = found.pop(victim.key)
    assert failed.status == "failed"
    assert failed.result == Result(reason="the objective or its gradient is not finite", iterations=10)
    state = sweep.store.arrays(failed)
    assert np.isfinite(state["Z"]).all()
    assert state["L"].shape == (6, 6)
    assert any("failed:" in line and "beta=10" in line and "(iteration 10)" in line for line in sweep.progress.lines)
    for key, record in found.items():
        assert record.status == "done"
        assert record.result.iterations == clean[key].result.iterations
        assert record.result.validation == pytest.approx(clean[key].result.validation, rel=1e-9)
        assert record.result.test == pytest.approx(clean[key].result.test, rel=1e-9)
    assert sweep.plan().pending == 0, "failed cells wait until they are asked for"
    assert sweep.plan(retry_failed=True).pending == 1
    again = sweep.run(retry_failed=True)
    assert again[victim.key].status == "done"
    assert again[victim.key].result.test == pytest.approx(clean[victim.key].result.test, rel=1e-9)


def test_fixed_variants_of_a_failed_fit_fail_with_that_reason(tmp_path, tiny, monkeypatch):
    sweep = Sweep(tmp_path, [*tiny, "method=[elbo,fixed_log_dlm]", "seeds=[0]"])
    base = next(cell for cell in sweep.cells if cell.objective == "elbo")
    _spoilt(monkeypatch, base.key, at=3)
    found = sweep.run()
    assert {record.status for record in found.values()} == {"failed"}
    reasons = {record.result.reason for record in found.values() if record.cell.base}
    assert reasons == {"the ELBO fit whose hyperparameters it takes has no sound record"}


def test_other_seeds_go_on_without_the_one_whose_fit_failed(tmp_path, tiny, monkeypatch):
    sweep = Sweep(tmp_path, [*tiny, "method=[elbo,fixed_log_dlm]", "seeds=[0,1,2]"])
    base = next(cell for cell in sweep.cells if cell.objective == "elbo" and cell.seed == 1)
    _spoilt(monkeypatch, base.key, at=3)
    found = sweep.run()
    statuses = {(r.cell.seed, r.status) for r in found.values() if r.cell.base}
    assert statuses == {(0, "done"), (1, "failed"), (2, "done")}


@pytest.mark.parametrize("evaluate", ["end", "5"])
def test_fits_of_a_light_pack_are_made_again_where_fixed_variants_need_them(tmp_path, tiny, evaluate):
    words = [*tiny, "method=[elbo,fixed_log_dlm]", "seeds=[0]", f"evaluate={evaluate}", "beta=list"]
    first = Sweep(tmp_path / "first", [*words, "beta.values=[1]"])
    first.run()
    (tmp_path / "second").mkdir()
    collect_pack(str(tmp_path / "first"), str(tmp_path / "second" / "records.tar.xz"), light=True)
    second = prepare_sweep(compose([*words, "beta.values=[1,10]"]))
    sweep = Sweep(tmp_path / "second", [*words, "beta.values=[1,10]"])
    chosen = plan_sweep(second, sweep.store, "cpu", None)
    assert {(cell.variant, cell.beta) for batch in chosen.batches for cell in batch} == {
        ("joint", 1.0),
        ("fixed", 10.0),
    }
    sweep.engine.run(chosen.batches)
    assert {record.status for record in sweep.store.all()} == {"done"}
    assert sweep.store.keys()[0] == {cell.key for cell in second.cells}


def test_a_result_that_is_no_number_is_a_failure(tmp_path, tiny, monkeypatch):
    from dlmexp.training import train

    plain = train.evaluate_finally

    def spoilt(name):
        def evaluate(*given):
            found = plain(*given)
            found.means["validation"][name].fill_(float("nan"))
            return found

        return evaluate

    monkeypatch.setattr(train, "evaluate_finally", spoilt("nll"))
    words = [*tiny, "method=[elbo]", "seeds=[0]"]
    (found,) = Sweep(tmp_path / "nll", words).run().values()
    assert found.status == "failed"
    assert found.result.reason == "the validation nll is not finite"
    # Calibration neither trains nor selects: a score that is no number is kept as such.
    monkeypatch.setattr(train, "evaluate_finally", spoilt("ece"))
    (found,) = Sweep(tmp_path / "ece", words).run().values()
    assert found.status == "done"
    assert np.isnan(found.result.validation["ece"])


def test_a_fit_that_nobody_will_make_is_not_waited_for(tmp_path, tiny):
    """Its record has gone since the plan was made; the cells that need it say so, and a later run makes it."""
    sweep = Sweep(tmp_path, [*tiny, "method=[elbo,fixed_log_dlm]", "seeds=[0]"], size=2)
    base = next(cell for cell in sweep.cells if cell.objective == "elbo")
    sweep.engine.run([batch for batch in sweep.plan().batches if batch[0].base is None])
    batches = sweep.plan().batches
    sweep.store.path(base.dataset, base.key).unlink()
    sweep.engine.run(batches)
    assert sweep.store.keys()[1] == {cell.key for cell in sweep.cells if cell.base}


def test_a_batch_that_another_process_has_comes_last(tmp_path, tiny, monkeypatch):
    import dlmexp.running.engine as module

    sweep = Sweep(tmp_path, tiny, size=3)
    other = Presence(tmp_path)
    other._about = replace(other._about, host="elsewhere", pid=1, machine="")
    other.name = "elsewhere-1-1"
    other.path = other.folder / "elsewhere-1-1.json"
    first = sweep.plan().batches[0]
    other.announce(cell.key for cell in first)
    order, waited, plain = [], [], Trainer.work

    def noting(self, flight):
        order.append(flight.batch)
        yield from plain(self, flight)

    def leaves(seconds):
        assert seconds == module.POLL_SECONDS
        waited.append(sweep.progress.current)
        other.path.unlink(missing_ok=True)

    monkeypatch.setattr(Trainer, "work", noting)
    monkeypatch.setattr(module.time, "sleep", leaves)
    found = sweep.run()
    assert len(found) == len(sweep.cells)
    assert order[0] != first
    assert first in order
    assert waited == ["waiting for cells that elsewhere pid 1 trains"]


def test_records_quarantined_after_a_checkpoint_are_trained_again(tmp_path, tiny):
    """The checkpoint no longer has the cell; it begins anew, beside what is resumed."""
    from dlmexp.running.signals import Stop

    words = [*tiny, "method=[elbo,beta_elbo]", "training.binary.max_iterations=200", "training.binary.tolerance=5e-3"]
    expected = Sweep(tmp_path / "whole", words).run()
    sweep = Sweep(tmp_path / "part", words)
    plain = sweep.progress.finished

    def stop_after_the_first(record):
        plain(record)
        sweep.stop._received = 15

    sweep.progress.finished = stop_after_the_first  # type: ignore[method-assign]
    with pytest.raises(Stop):
        sweep.run()
    sweep.presence.path.unlink()
    (found,) = checkpoint.find(sweep.store)
    recorded = sweep.store.keys()[0]
    assert 0 < len(recorded) < 6
    assert {cell.key for cell in found.open} == {cell.key for cell in sweep.cells} - recorded
    for key in recorded:
        sweep.store.path("ringnorm_drawn", key).write_text("torn")
        assert sweep.store.find("ringnorm_drawn", key) is None
    records = Sweep(tmp_path / "part", words).run()
    assert records.keys() == expected.keys()
    for key, record in records.items():
        assert record.result.test == pytest.approx(expected[key].result.test, rel=1e-9)


def test_gradient_statistics_and_square_loss(tmp_path, data_root, monkeypatch):
    import dlmexp.training.gradients as gradients

    monkeypatch.setattr(gradients, "DRAWS", 3)
    monkeypatch.setattr(gradients, "TRUTH_SAMPLES", 20)
    short = ["device=cpu", f"data_root={data_root}", "seeds=[0,1]"]
    words = ["experiment=bias", "sizes=[40]", "dataset.abalone.M=5", "training.count.max_iterations=10", *short]
    found = Sweep(tmp_path / "bias", words).run()
    kinds = [record.cell.kind for record in found.values()]
    assert sorted(kinds) == ["fit"] * 4 + ["gradient"] * 36
    words = ["dataset=cadata", "sizes=[40]", "dataset.cadata.M=5", "method=[fixed_sq_dlm,fitc]", *short]
    found = Sweep(tmp_path / "square", [*words, "beta=short", "training.regression.max_iterations=10"]).run()
    stops = {(r.cell.objective, r.result.stopped) for r in found.values()}
    assert ("sq_dlm", "closed form") in stops
    for record in found.values():
        if record.cell.objective == "sq_dlm":
            assert set(record.result.test) == {"mse"}
            assert record.result.converged
        assert (record.result.y_std or 0) > 1000  # of house prices, before normalisation


def test_learning_curves_and_epochs(tmp_path):
    words = ["dataset=airline_like", "dataset.airline_like.options.rows=420", "dataset.airline_like.M=5", "seeds=[0]"]
    words += [
        "training.large.minibatch=50",
        "training.large.epochs=3",
        "evaluate=epoch",
        "method=[beta_elbo,joint_log_dlm]",
    ]
    sweep = Sweep(tmp_path, [*words, "beta=list", "beta.values=[1,0.1]", "device=cpu"])
    for record in sweep.run().values():
        arrays = sweep.store.arrays(record)
        n = record.cell.n
        assert record.result.iterations == 3 * (n // 50)
        assert record.result.stopped == "epochs"
        assert arrays["epochs"].tolist() == [0, 1, 2, 3]
        assert arrays["evaluated_at"].tolist() == [e * (n // 50) for e in range(4)]
        assert len(arrays["test_nll"]) == len(arrays["test_error"]) == 4
        assert record.result.validation == {}


def test_a_request_that_comes_just_after_the_look_is_acted_on_at_the_next_one(sweep):
    """Leaving at once would leave without having saved."""
    from dlmexp.running.signals import Stop

    sweep.engine.stop = Late()
    with pytest.raises(Stop):
        sweep.run()
    (found,) = checkpoint.find(sweep.store)
    assert found.notes.iteration == 4
