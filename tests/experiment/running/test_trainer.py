"""One batch from its start, or its checkpoint, to records."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dlmexp.experiment.plan.compose import compose
from dlmexp.experiment.records.record import Result
from dlmexp.experiment.records.results import collect_packed
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running import trainer
from dlmexp.experiment.running.checkpoints import find_checkpoints
from dlmexp.experiment.running.process import Stop, select_target
from dlmexp.experiment.running.run import execute
from dlmexp.experiment.running.sweep import plan_sweep, prepare_sweep
from dlmexp.experiment.running.trainer import NO_BASE
from tests.support.engine import EngineRun

pytestmark = pytest.mark.slow
ENDLESS = ["training.binary.tolerance=0", "training.binary.max_iterations=100000"]


def test_record_says_what_was_done_with_which_result(tmp_path, tiny):
    run = EngineRun(tmp_path, tiny)
    records = run.run()
    assert records.keys() == {cell.key for cell in run.cells}
    for cell in run.cells:
        record = records[cell.key]
        result = record.result
        arrays = run.store.arrays(record.key)
        assert record.status == "done"
        assert set(result.validation) & set(result.test) >= {"nll", "error", "brier", "ece"}
        assert set(result.trivial) == {"validation", "test"}
        assert result.converged == (result.stopped == "converged")
        assert len(arrays["objective"]) == result.iterations
        assert arrays["objective"][-1] == pytest.approx(result.objective_value, rel=1e-6)
        assert ("Z" in arrays) == (cell.variant == "joint" and cell.beta == 1.0)
        if cell.base:
            assert result.hyperparameters == records[cell.base].result.hyperparameters
    assert run.pending_batches() == []


def test_calibration_error_is_that_of_the_reliability_diagram(tmp_path, tiny):
    run = EngineRun(tmp_path, [*tiny, "method=[elbo]", "seeds=[0]"])
    (record,) = run.run().values()
    arrays = run.store.arrays(record.key)
    predicted = arrays["reliability_p"].astype(float)
    observed = arrays["reliability_y"].astype(float)
    rows = arrays["reliability_rows"].astype(float)
    error = np.nansum(np.abs(predicted - observed) * rows) / rows.sum()
    assert error == pytest.approx(record.result.test["ece"], abs=1e-6)


def test_finished_batch_leaves_no_checkpoint(tmp_path, tiny):
    EngineRun(tmp_path, [*tiny, "method=[elbo]"]).run()
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_split_is_prepared_once_for_a_batch(tmp_path, tiny):
    run = EngineRun(tmp_path, tiny)
    seeds = []
    prepared = run.recorder.prepare_cached

    def counting(cell):
        seeds.append(cell.seed)
        return prepared(cell)

    run.recorder.prepare_cached = counting
    batches = run.pending_batches()
    run.train(batches)
    assert len(batches) == 3
    assert sorted(seeds) == [0] * 3 + [1] * 3


def spoil(run, key, at):
    """The parameters of a cell turn NaN at an iteration, as a wild step may make them."""

    def tick(cells, training):
        keys = [cells[i].key for i in training.cells]
        if key in keys and int(training.state.iteration) == at:
            training.state.values["m"][keys.index(key)] = torch.nan

    run.progress.tick = tick


BASE_AND_FIXED = ["method=[elbo,fixed_log_dlm]", "seeds=[0,1,2]", "beta.values=[1,0.1]"]


@pytest.fixture
def spoilt(tmp_path, tiny):
    """A run in which the base fit of seed 1 has failed, and that fit."""
    run = EngineRun(tmp_path / "spoilt", [*tiny, *BASE_AND_FIXED])
    (victim,) = [cell for cell in run.cells if cell.objective == "elbo" and cell.seed == 1]
    spoil(run, victim.key, at=9)
    run.run()
    return run, victim


def test_failed_cell_takes_only_those_along_that_start_from_it(capsys, spoilt):
    run, victim = spoilt
    records = {record.key: record for record in run.store.own_records()}
    reasons = {}
    for cell in run.cells:
        if not records[cell.key].done:
            assert cell.seed == 1
            reasons[cell.base] = records[cell.key].result
    assert reasons == {
        None: Result(reason="the objective or its gradient is not finite", iterations=10),
        victim.key: Result(reason=NO_BASE, iterations=0),
    }
    printed = capsys.readouterr().out.splitlines()
    assert any("failed:" in line and "seed=1" in line for line in printed)


def test_failed_cells_wait_for_a_request_and_then_equal_undisturbed_ones(tmp_path, tiny, spoilt):
    run, _ = spoilt
    assert run.pending_batches() == []
    words = [*tiny, *BASE_AND_FIXED]
    clean = EngineRun(tmp_path / "clean", words).run()
    again = EngineRun(tmp_path / "spoilt", words).run(retry_failed=True)
    for key, record in clean.items():
        assert again[key].result.iterations == record.result.iterations
        assert again[key].result.test == pytest.approx(record.result.test, rel=1e-9)


def test_packed_fits_are_trained_again_if_fixed_variants_need_them(tmp_path, tiny):
    words = [*tiny, "method=[elbo,fixed_log_dlm]", "seeds=[0]", "evaluate=5", "beta=list"]
    assert execute(compose([*words, "beta.values=[1]", f"results={tmp_path / 'first'}"])) == 0
    root = tmp_path / "second"
    root.mkdir()
    collect_packed(str(tmp_path / "first"), str(root / "records.parquet"))
    more_words = [*words, "beta.values=[1,10]"]
    sweep = prepare_sweep(compose(more_words))
    plan = plan_sweep(sweep, Store(root), select_target("cpu", "float64"))
    planned = {(cell.variant, cell.beta) for batch in plan.batches for cell in batch}
    assert planned == {("joint", 1.0), ("fixed", 10.0)}
    run = EngineRun(root, more_words, again=plan.retrained)
    run.train(plan.batches)
    assert run.store.keys()[0] == {cell.key for cell in sweep.cells}


@pytest.fixture
def stopped_in_the_middle(tmp_path, tiny):
    """A run of a batch of six that was stopped after the first record, and its words."""
    words = [
        *tiny,
        "method=[elbo,beta_elbo]",
        "training.binary.max_iterations=200",
        "training.binary.tolerance=5e-3",
    ]
    run = EngineRun(tmp_path / "part", words, writer_in_thread=True)
    run.recorder.on_record = lambda record: run.stop.request(15)
    with pytest.raises(Stop):
        run.run()
    return run, words


def resume_and_compare(run, words, whole_root):
    """Finish a run, and check that it has the results of an undisturbed one."""
    expected = EngineRun(whole_root, words).run()
    records = EngineRun(run.store.root, words).run()
    assert records.keys() == expected.keys()
    for key, record in records.items():
        assert record.result.iterations == expected[key].result.iterations
        assert record.result.test == pytest.approx(expected[key].result.test, rel=1e-9)


def quarantined(run):
    return len(list((run.store.root / "quarantine").glob("*.why")))


def test_checkpoint_of_a_stopped_batch_has_the_cells_without_a_record(stopped_in_the_middle):
    run, _ = stopped_in_the_middle
    (checkpoint,) = find_checkpoints(run.store).values()
    recorded = run.store.keys()[0]
    assert 0 < len(recorded) < 6
    assert {cell.key for cell in checkpoint.unrecorded_cells} == {
        cell.key for cell in run.cells
    } - recorded


def test_resumed_batch_equals_an_uninterrupted_one(stopped_in_the_middle, tmp_path, capsys):
    run, words = stopped_in_the_middle
    resume_and_compare(run, words, tmp_path / "whole")
    assert "resumes at iteration" in capsys.readouterr().out
    assert quarantined(run) == 0


@pytest.mark.parametrize("stop_at", [10, 20, 30])
def test_resumed_mixture_equals_an_uninterrupted_one(tmp_path, tiny, stop_at, monkeypatch):
    """It is stopped before, at and after the split."""
    words = [*tiny, "method=[mixture_log_dlm]", "K=[2]", "beta=list", "beta.values=[1]"]
    words += ["training.binary.max_iterations=40", "training.binary.window=null"]
    run = EngineRun(tmp_path / "part", words)
    tick = run.progress.tick

    def tick_and_stop(cells, training):
        tick(cells, training)
        if training.iteration >= stop_at:
            run.stop.request(15)

    monkeypatch.setattr(run.progress, "tick", tick_and_stop)
    with pytest.raises(Stop):
        run.run()
    resume_and_compare(run, words, tmp_path / "whole")


def test_torn_checkpoint_is_set_aside_and_its_batch_starts_anew(
    stopped_in_the_middle, tmp_path, capsys
):
    run, words = stopped_in_the_middle
    (path,) = find_checkpoints(run.store)
    content = bytearray(path.read_bytes())
    content[content.index(b"values/m.npy") + 300] ^= 16
    path.write_bytes(content)
    resume_and_compare(run, words, tmp_path / "whole")
    assert "resumes at" not in capsys.readouterr().out
    assert quarantined(run) == 1


def test_torn_records_are_set_aside_and_their_cells_resumed(
    stopped_in_the_middle, tmp_path, capsys
):
    run, words = stopped_in_the_middle
    recorded = run.store.keys()[0]
    for key in recorded:
        run.store.path("ringnorm_drawn", key).write_text("torn")
        assert run.store.verified_arrays("ringnorm_drawn", key) is None
    resume_and_compare(run, words, tmp_path / "whole")
    assert "resumes at" in capsys.readouterr().out
    assert quarantined(run) == len(recorded)


def test_checkpoints_are_saved_at_intervals(tmp_path, tiny, monkeypatch):
    run = EngineRun(tmp_path, [*tiny, "method=[elbo]", "seeds=[0]"])
    run.engine.trainer.checkpoint_seconds = 10.0
    iterations = []
    moment = iter(range(0, 10_000, 4))  # every look at the clock is 4 seconds later
    monkeypatch.setattr(trainer, "time", SimpleNamespace(monotonic=lambda: next(moment)))
    save = trainer.save_checkpoint

    def noting(store, checkpoint, arrays):
        iterations.append(checkpoint.iteration)
        save(store, checkpoint, arrays)

    monkeypatch.setattr(trainer, "save_checkpoint", noting)
    run.run()
    # Looks at the clock: at the start, at every iteration, and after a checkpoint is saved.
    assert iterations[:4] == [None, 3, 6, 9]


def test_failed_heartbeat_stops_the_run_with_its_state_saved(tmp_path, tiny, monkeypatch):
    monkeypatch.setattr("dlmexp.experiment.running.leases.HEARTBEAT_SECONDS", 0.01)
    run = EngineRun(tmp_path, [*tiny, *ENDLESS])
    divisors = iter([1, 0])
    monkeypatch.setattr(run.leases, "progress", lambda: {"settled": 1 // next(divisors)})
    with pytest.raises(Stop, match="division") as stopped:
        run.run()
    assert stopped.value.code == 1
    (checkpoint,) = find_checkpoints(run.store).values()
    assert checkpoint.iteration


def test_gradient_statistics_are_recorded_for_every_estimator(tmp_path, tiny, monkeypatch):
    monkeypatch.setattr("dlmexp.core.training.gradients.DRAWS", 3)
    monkeypatch.setattr("dlmexp.core.training.gradients.TRUTH_SAMPLES", 20)
    words = [
        *tiny,
        "measure=gradient",
        "method=[fixed_log_dlm]",
        "estimator=[bmc]",
        "estimator.bmc.samples=[1,10]",
    ]
    kinds = [record.cell.kind for record in EngineRun(tmp_path, words).run().values()]
    assert sorted(kinds) == ["fit"] * 2 + ["gradient"] * 12


def test_learning_curves_are_recorded_by_epoch(tmp_path):
    dataset = "dataset.twonorm_drawn"
    words = [
        "dataset=twonorm_drawn",
        f"{dataset}.split=airline",
        f"{dataset}.options.rows=420",
        "sizes=['100%']",
        "M=5",
        "seeds=[0]",
        "training.large.minibatch=50",
        "training.large.epochs=3",
        "evaluate=epoch",
        "method=[beta_elbo,joint_log_dlm]",
        "beta=list",
        "beta.values=[1]",
        "device=cpu",
    ]
    run = EngineRun(tmp_path, words)
    records = run.run().values()
    assert len(records) == 2
    for record in records:
        arrays = run.store.arrays(record.key)
        steps = record.cell.n // 50
        assert (record.result.iterations, record.result.stopped) == (3 * steps, "epochs")
        assert arrays["epochs"].tolist() == [0, 1, 2, 3]
        assert arrays["evaluated_at"].tolist() == [0, steps, 2 * steps, 3 * steps]
        assert len(arrays["test_nll"]) == 4
        assert record.result.validation == {}
