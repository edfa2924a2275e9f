"""What is written of a cell, and in which order."""

import math
import threading
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from dlmexp.data.dataset import read_spec
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running import recording
from dlmexp.experiment.running.process import Stop
from dlmexp.experiment.running.recording import (
    Recorder,
    SplitFacts,
    Writer,
    gives_hyperparameters,
)
from tests.support.cells import PLAIN, scored

JOINT = replace(PLAIN, variant="joint", objective="elbo", beta=1.0, base=None)


@pytest.mark.parametrize("in_thread", [False, True])
def test_writer_runs_jobs_in_their_order(in_thread):
    done: list[int] = []
    with Writer(in_thread) as writer:
        for i in range(20):
            writer.do(partial(done.append, i))
    assert done == list(range(20))


def fail():
    raise OSError("full")


@pytest.mark.parametrize("in_thread", [False, True])
def test_writer_runs_nothing_after_a_job_that_failed(in_thread):
    done: list[int] = []

    def write():
        with Writer(in_thread) as writer:
            writer.do(fail)
            writer.do(partial(done.append, 1))

    with pytest.raises(OSError, match="full"):
        write()
    assert done == []


@pytest.mark.parametrize("in_thread", [False, True])
def test_error_of_a_job_replaces_a_stop_which_says_that_all_is_saved(in_thread):
    def write():
        with Writer(in_thread) as writer:
            writer.do(fail)
            raise Stop("SIGTERM", 143)

    with pytest.raises(OSError, match="full"):
        write()


def test_error_of_a_job_does_not_hide_another_error():
    def write():
        with Writer(in_thread=True) as writer:
            writer.do(fail)
            raise KeyError("another")

    with pytest.raises(KeyError):
        write()


def test_error_of_a_job_is_raised_by_the_next_call():
    writer = Writer(in_thread=True)
    with pytest.raises(OSError, match="full"):
        writer.do(fail, wait=True)
    with pytest.raises(OSError, match="full"):
        writer.do(lambda: None)
    with pytest.raises(OSError, match="full"):
        writer.__exit__(None)


def test_writer_waits_for_a_job_on_request():
    started, done = threading.Event(), threading.Event()

    def job():
        started.wait(10)
        done.set()

    with Writer(in_thread=True) as writer:
        writer.do(job)
        assert not done.is_set()
        started.set()
        writer.do(lambda: None, wait=True)
        assert done.is_set()


@pytest.fixture
def recorder(tmp_path):
    """A recorder of cells on PLAIN's split; `on_record` collects its records."""
    records: list[Any] = []
    spec = read_spec("banana")
    data = SimpleNamespace(name="banana", schema=None, X=np.zeros((2, 2)))
    sweep: Any = SimpleNamespace(
        datasets={("banana", "counts-v1"): (spec, data)},
        cfg=SimpleNamespace(keep="none"),
        folds_of={},
    )
    recorder = Recorder(sweep, Store(tmp_path), records.append, "cpu")
    facts = SplitFacts(features=None, y_mean=2.0, y_std=3.0, trivial={"test": {"nll": 0.7}})  # pyright: ignore[reportArgumentType]
    for cell in (PLAIN, JOINT):
        recorder._split_facts[recording._split_identity(cell)] = facts
    return recorder


def finished(**changes) -> Any:
    """What training leaves of a cell."""
    values = {
        "stopped": "converged",
        "failed": False,
        "iterations": 250,
        "seconds": 5.0,
        "alone": True,
        "objective": np.linspace(0.0, 1.5, 250),
        "metrics": {"validation": {"nll": 0.5, "ece": 0.1}, "test": {"nll": 0.6}},
        "reliability": {},
        "curve": [],
        "posterior": SimpleNamespace(jitter=np.array([1e-5])),
        "acceptance": None,
        "block_acceptance": np.array([0.25, 0.75]),
        "nll_error": None,
        "ends": np.zeros(0),
        "evidence_gap": 0.25,
        "profile": None,
        "hyperparameters": {"noise": np.array([0.1]), "Z": np.zeros((3, 2))},
    }
    return SimpleNamespace(**values | changes)


def record_of(recorder, cell=PLAIN, **changes):
    recorder.write_fit(cell, finished(**changes))
    (record,) = recorder.store.own_records()
    return record


def test_record_has_the_numbers_of_the_fit(recorder):
    result = record_of(recorder).result
    assert (result.iterations, result.stopped, result.converged) == (250, "converged", True)
    assert (result.seconds, result.objective_value) == (5.0, 1.5)
    assert (result.y_mean, result.y_std, result.jitter) == (2.0, 3.0, 1e-5)
    assert result.validation == {"nll": 0.5, "ece": 0.1}
    assert (result.test, result.trivial) == ({"nll": 0.6}, {"test": {"nll": 0.7}})
    assert result.hyperparameters == {"noise": 0.1}
    assert result.evidence_gap == 0.25


def test_record_says_which_start_ended_lowest_and_what_it_gained(recorder):
    result = record_of(recorder, ends=np.array([1.5, 1.75, 1.25])).result
    assert (result.best_start, result.restart_gain) == (2, 0.25)


def test_fit_of_a_single_start_has_no_best_one(recorder):
    result = record_of(recorder, ends=np.array([1.5])).result
    assert (result.best_start, result.restart_gain) == (None, None)


def test_fit_at_its_limit_has_not_converged(recorder):
    result = record_of(recorder, stopped="limit").result
    assert (result.stopped, result.converged) == ("limit", False)


@pytest.mark.parametrize(
    ("changes", "stopped"),
    [
        ({"window": None}, "iterations"),
        ({"window": None, "epochs": 3, "max_iterations": None}, "epochs"),
    ],
)
def test_fit_without_a_stopping_rule_has_not_converged_at_its_limit(recorder, changes, stopped):
    cell = replace(PLAIN, **changes)
    result = record_of(recorder, cell, stopped="limit").result
    assert (result.stopped, result.converged) == (stopped, False)


@pytest.mark.parametrize(
    ("trained_alone", "device_alone", "alone"),
    [(True, True, True), (True, False, False), (False, True, False)],
)
def test_fit_was_alone_if_neither_batch_nor_process_shared_the_device(
    recorder, trained_alone, device_alone, alone
):
    recorder.alone = device_alone
    assert record_of(recorder, alone=trained_alone).result.alone is alone


def test_failed_training_is_recorded_with_its_reason(recorder):
    record = record_of(recorder, failed=True, stopped="the objective is not finite")
    assert record.status == "failed"
    assert record.result.reason == "the objective is not finite"
    assert record.result.iterations == 250


@pytest.mark.parametrize("name", ["nll", "mse", "error", "mre"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_loss_that_is_not_finite_is_a_failure(recorder, name, value):
    record = record_of(recorder, metrics={"validation": {}, "test": {name: value}})
    assert record.result.reason == f"the test {name} is not finite"


def test_nll_that_more_nodes_change_has_a_warning(recorder):
    result = record_of(recorder, nll_error=0.0123).result
    assert result.note is not None
    assert "the NLL may be wrong by 0.012 per row" in result.note


def test_nll_that_more_nodes_hardly_change_has_no_warning(recorder):
    assert record_of(recorder, nll_error=1e-4).result.note is None


@pytest.mark.parametrize("error", [0.5, math.nan])
def test_fit_whose_nll_is_wrong_has_failed(recorder, error):
    record = record_of(recorder, nll_error=error)
    assert record.status == "failed"
    assert "the NLL may be wrong by" in (record.result.reason or "")


def test_score_of_calibration_may_be_nan(recorder):
    assert record_of(recorder, metrics={"validation": {"ece": math.nan}}).done


def test_objective_that_ends_at_nan_is_a_failure(recorder):
    record = record_of(recorder, objective=np.array([1.0, math.nan]))
    assert record.result.reason == "the objective is not finite"


def test_fit_without_an_objective_curve_has_no_objective_value(recorder):
    record = record_of(recorder, objective=np.zeros(0))
    assert record.result.objective_value is None
    assert "objective" not in recorder.store.arrays(record.key)


def test_arrays_of_a_base_fit_have_its_hyperparameters(recorder):
    record = record_of(recorder, JOINT, acceptance=0.5, reliability={"reliability_p": np.ones(2)})
    arrays = recorder.store.arrays(record.key)
    assert arrays.keys() == {"reliability_p", "objective", "acceptance", "noise", "Z"}
    assert arrays["acceptance"].tolist() == [0.25, 0.75]
    assert recorder.bases.keys() == {JOINT.key}


def test_learning_curve_has_its_epochs(recorder):
    cell = replace(PLAIN, evaluate="epoch", minibatch=25)
    curve = [(0, {"nll": 1.0}), (4, {"nll": 0.5})]
    record = record_of(recorder, cell, curve=curve)
    arrays = recorder.store.arrays(record.key)
    assert arrays["evaluated_at"].tolist() == [0, 4]
    assert arrays["epochs"].tolist() == [0, 1]
    assert arrays["test_nll"].tolist() == [1.0, 0.5]


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (JOINT, True),
        (replace(JOINT, beta=0.1), False),
        (replace(JOINT, variant="fixed"), False),
        (replace(JOINT, objective="sq_dlm"), False),
        (replace(JOINT, objective="log_dlm"), True),
    ],
)
def test_fixed_variants_start_from_joint_base_fits_with_beta_one(cell, expected):
    assert gives_hyperparameters(cell) == expected


def test_keys_include_records_that_wait_for_the_writer(recorder):
    recorder.store.write(scored(PLAIN))
    recorder.written |= {"new": True, "bad": False}
    done, failed = recorder.keys()
    assert (done, failed) == ({PLAIN.key, "new"}, {"bad"})


def test_cell_that_is_trained_again_is_done_once_the_folder_has_its_own_record(recorder):
    recorder.retrained = frozenset([PLAIN])
    recorder.store.packed = {PLAIN.key}
    recorder.store.keys = lambda: ({PLAIN.key}, set())
    assert recorder.keys()[0] == set()
    recorder.store.path(PLAIN.dataset, PLAIN.key).parent.mkdir(parents=True)
    recorder.store.path(PLAIN.dataset, PLAIN.key).touch()
    assert recorder.keys()[0] == {PLAIN.key}


def test_metrics_of_the_trivial_predictor_are_computed_once_per_split(recorder, monkeypatch):
    split = SimpleNamespace(y_train=0, y_val=1, y_test=2, features=None, y_mean=0.0, y_std=1.0)
    calls = []
    monkeypatch.setattr(recording, "trivial_metrics", lambda *call: calls.append(call) or {})
    recorder.prepare_cached = lambda cell: split
    cell = replace(PLAIN, seed=77)
    assert recorder.prepare_split(cell) is recorder.prepare_split(replace(cell, beta=1.0)) is split
    assert calls == [("binary", 0, {"validation": 1, "test": 2})]


@pytest.mark.parametrize(("keep", "has_model"), [("none", False), ("all", True)])
def test_model_is_stored_if_models_are_kept(recorder, monkeypatch, keep, has_model):
    monkeypatch.setattr(recording, "trained_model", lambda *_: "a model")
    monkeypatch.setattr(recording, "encoded", lambda model: model.encode())
    recorder.sweep.cfg.keep = keep
    posterior = SimpleNamespace(jitter=np.array([1e-5]))
    record = record_of(recorder, posterior=posterior)
    assert (record.model is not None) == has_model


def test_record_has_the_spec_of_its_dataset(recorder):
    assert record_of(recorder).dataset_spec["name"] == "banana"
