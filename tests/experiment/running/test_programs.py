"""From cells to the program that trains them, and to its settings; batches sized for the device."""

import numpy as np
import pytest
import torch
from msgspec.structs import replace

import dlmexp.experiment.running.programs as sizes
from dlmexp.core.estimators import UPS
from dlmexp.core.training.variants import Joint
from dlmexp.data.splits import Prepared, normalisation
from dlmexp.experiment.running.clock import step_seconds
from dlmexp.experiment.running.process import select_target
from dlmexp.experiment.running.programs import bytes_of, cells_at_once, model, program, settings
from tests.support.cells import ELBO as ELBO_53
from tests.support.cells import PLAIN

CPU = select_target("cpu", "float64")
ELBO = replace(ELBO_53, M=4)
FIXED = replace(ELBO, variant="fixed", base="0")
CELL = replace(PLAIN, n=1000, M=74, options={}, estimator="exact")


def _prepared(cell):
    rng = np.random.default_rng(cell.seed)
    X, X_val, X_test = (rng.normal(size=(rows, 2)) for rows in (12, 3, 5))
    y, y_val, y_test = ((x[:, 0] > 0).astype(float) for x in (X, X_val, X_test))
    return Prepared(X, y, X_val, y_val, X_test, y_test, 0.0, 1.0, normalisation(X))


def _base(cell):
    hyper = {
        "lengthscale": [1.0 + cell.seed],
        "outputscale": 2.0,
        "mean": 0.5,
        "Z": np.ones((4, 2)),
    }
    return {name: np.array(value) for name, value in hyper.items()}


def test_steps_of_a_fixed_variant_are_timed_before_there_is_its_base():
    assert step_seconds((FIXED,), _prepared, CPU, seconds=0.0) > 0


@pytest.mark.parametrize("cell", [ELBO, FIXED])
def test_float32_is_the_type_of_rows_alone(cell):
    made = program(
        (replace(cell, dtype="float32"),), _prepared, _base, select_target("cpu", "float32")
    )
    of_rows = [
        made.split.X,
        made.split.y,
        *(part for pair in made.split.parts.values() for part in pair),
    ]
    assert {tensor.dtype for tensor in of_rows} == {torch.float32}
    assert {tensor.dtype for tensor in (made.beta, *made.initial().values())} == {torch.float64}


@pytest.mark.parametrize("whitened", [True, False])
@pytest.mark.parametrize(("inducing", "rows"), [("first", slice(4)), ("last", slice(-4, None))])
def test_where_training_starts(inducing, rows, whitened):
    cell = replace(ELBO, inducing=inducing, initial={"lengthscale": 2.0})
    made = program(
        (cell if whitened else replace(cell, parameterisation="unwhitened"),), _prepared, None, CPU
    )
    assert isinstance(made, Joint)
    values = made.initial()
    hyper = made.hyperparameters(values)
    assert torch.equal(hyper["Z"][0], made.split.X[0, rows])
    assert (hyper["lengthscale"].item(), hyper["outputscale"].item()) == pytest.approx((2.0, 1.0))
    assert torch.equal(values["L"][0], torch.eye(4).double()) == whitened


def test_settings_and_model_have_the_values_of_the_cell():
    given = {
        "final_lr": 1e-3,
        "decay": 5,
        "epsilon": 1e-6,
        "resolution": 0.25,
        "criterion": "sum",
        "lr": 0.3,
    }
    epochs = {"n": 1050, "minibatch": 100, "epochs": 20, "evaluate": "epoch"}
    cell = replace(PLAIN, window=None, max_iterations=None, tolerance=None, **epochs, **given)
    how = settings(cell, CPU)
    assert (how.iterations, how.window, how.evaluate_every, how.tolerance) == (200, None, 10, 0.0)
    assert {name: getattr(how, name) for name in given} == given
    sampler = {"estimator": "ups", "options": {"samples": 2, "sampler": "rejection"}}
    made = model(
        replace(cell, parameterisation="unwhitened", ard=True, minibatch_rows="afresh", **sampler)
    )
    assert (made.M, made.whitened, made.ard, made.learns_mean) == (53, False, True, True)
    assert (made.minibatch, made.afresh) == (100, True)
    assert made.estimator == UPS(2, "rejection")


def test_a_cpu_gets_as_many_as_its_caches_hold_and_several_cores_a_large_cell_each():
    at_once = cells_at_once(CELL, None)
    assert at_once * 8 * 1000 * 74 <= sizes.CPU_BYTES < (at_once + 1) * 8 * 1000 * 74
    assert cells_at_once(replace(CELL, n=10**6), None) == 1
    assert cells_at_once(replace(CELL, n=10**6, minibatch=1000), None) == at_once
    assert cells_at_once(replace(CELL, dtype="float32"), None) == 2 * at_once
    assert cells_at_once(replace(CELL, n=9000, M=206), None) == sizes.CPU_CELLS


def test_a_gpu_gets_as_many_as_its_memory_holds():
    free = 50e9
    at_once = cells_at_once(CELL, free)
    assert at_once * sizes.ARRAYS * 8 * 1000 * 74 <= sizes.GPU_SHARE * free
    assert cells_at_once(CELL, free / 2) == at_once // 2
    assert cells_at_once(CELL, 1.0) == 1
    assert cells_at_once(replace(CELL, options={"samples": 74}), free) < 0.6 * at_once
    limited = replace(CELL, n=10**5, minibatch=100, max_iterations=30_000)
    epochs = replace(limited, max_iterations=None, epochs=30)
    assert (
        bytes_of((epochs,))
        == bytes_of((limited,))
        == bytes_of((replace(epochs, epochs=1),)) + 8 * 29_000
    )


def test_a_path_over_beta_is_never_cut():
    square = replace(CELL, objective="sq_dlm", variant="fixed", form="collapsed", n=10**6)
    assert min(cells_at_once(square, None), cells_at_once(square, 1e9)) >= 1000
