"""From cells to the program that trains them, and to its settings; batches sized for the device."""

import dataclasses

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from dlmexp.core.estimators import UPS
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.core.training import sizes
from dlmexp.core.training.collapsed import Collapsed
from dlmexp.core.training.data import Minibatches
from dlmexp.core.training.fixed import Fixed
from dlmexp.core.training.joint import Joint
from dlmexp.core.training.metrics import evaluate
from dlmexp.core.training.mixture import Mixture
from dlmexp.core.training.model import Loss
from dlmexp.data.splits import Prepared, normalisation
from dlmexp.experiment.plan.cell import FIELDS
from dlmexp.experiment.running import programs
from dlmexp.experiment.running.clock import step_seconds
from dlmexp.experiment.running.process import select_target
from dlmexp.experiment.running.programs import (
    bytes_of,
    cells_at_once,
    loss,
    minibatches,
    model,
    program,
    settings,
)
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
        made.data.X,
        made.data.y,
        *(part for pair in made.data.parts.values() for part in pair),
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
    assert torch.equal(hyper["Z"][0], made.data.X[0, rows])
    assert (hyper["lengthscale"].item(), hyper["outputscale"].item()) == pytest.approx((2.0, 1.0))
    assert torch.equal(values["L"][0], torch.eye(4).double()) == whitened


OTHER_VALUES = {
    "kernel": "matern52", "likelihood": "gaussian", "M": 9, "mean": "zero", "ard": True,
    "parameterisation": "unwhitened", "initial": {"lengthscale": 2.0}, "inducing": "last",
    "noise_floor": 0.01, "objective": "elbo", "estimator": "ups", "options": {"samples": 7},
    "lr": 0.3, "max_iterations": 17, "epochs": 3, "window": 7, "tolerance": 0.5, "evaluate": "epoch",
    "criterion": "sum", "final_lr": 1e-3, "decay": 5, "epsilon": 1e-6, "resolution": 0.25,
    "variant": "fixed", "form": "collapsed", "minibatch": 6, "minibatch_rows": "afresh",
    "beta": 0.125, "seed": 3, "components": 4, "split_at": 40, "optimizer": "lbfgs",
    "restarts": 2, "objective_options": {"alpha": 0.25}, "pilot": 7,
}  # fmt: skip


def arguments(cell):
    """All that the core is told of a cell."""
    gp = model(cell)
    kind = (gp.kernel.name, gp.likelihood.name)
    return (kind, {**vars(gp), "kernel": None, "likelihood": None}, loss(cell), settings(cell, CPU))


def test_every_field_of_a_cell_is_an_argument_of_the_core_data_or_identity():
    groups = [
        programs.MODEL_FIELDS,
        programs.LOSS_FIELDS,
        programs.SETTINGS_FIELDS,
        programs.PROGRAM_FIELDS,
        programs.DATA_FIELDS,
        programs.IDENTITY_FIELDS,
    ]
    assert set().union(*groups) == set(FIELDS)
    assert sum(len(group) for group in groups) == len(FIELDS)


@pytest.mark.parametrize(
    "name", sorted(programs.MODEL_FIELDS | programs.LOSS_FIELDS | programs.SETTINGS_FIELDS)
)
def test_a_changed_field_of_a_cell_changes_an_argument_of_the_core(name):
    start = {"options": {"samples": 2}} if name == "estimator" else {}
    cell = replace(PLAIN, noise_floor=None, likelihood="gaussian", **start)
    if name == "likelihood":
        cell = replace(cell, likelihood="probit")
    if name == "objective_options":
        cell = replace(cell, objective="t_pep")
    if name == "split_at":
        cell = replace(cell, components=2)
    changed = replace(cell, **{name: OTHER_VALUES[name]})
    assert arguments(changed) != arguments(cell)


def test_settings_have_the_values_of_the_cell():
    values = {
        "final_lr": 1e-3,
        "decay": 5,
        "epsilon": 1e-6,
        "resolution": 0.25,
        "criterion": "sum",
        "lr": 0.3,
    }
    epochs = {"n": 1050, "minibatch": 100, "epochs": 20, "evaluate": "epoch"}
    cell = replace(PLAIN, window=None, max_iterations=None, tolerance=None, **epochs, **values)
    result = settings(cell, CPU)
    assert (result.iterations, result.window) == (200, None)
    assert (result.evaluate_every, result.tolerance) == (10, 0.0)
    assert (result.check_every, result.calibration) == (20, True)
    assert {name: getattr(result, name) for name in values} == values


def test_model_and_loss_have_the_values_of_the_cell():
    sampler = {"estimator": "ups", "options": {"samples": 2, "sampler": "rejection"}}
    cell = replace(
        PLAIN, parameterisation="unwhitened", ard=True, inducing="last", noise_floor=0.5, **sampler
    )
    gp = model(cell)
    assert (gp.M, gp.whitened, gp.ard, gp.learns_mean) == (53, False, True, True)
    assert (gp.inducing, gp.noise_floor) == ("last", 0.5)
    assert loss(cell) == Loss(OBJECTIVES["log_dlm"], UPS(2, "rejection"))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"minibatch": None}, None),
        ({"minibatch": 100}, Minibatches(100)),
        ({"minibatch": 100, "minibatch_rows": "afresh"}, Minibatches(100, True)),
    ],
)
def test_minibatches_of_a_cell(changes, expected):
    assert minibatches(replace(PLAIN, **changes)) == expected


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, Joint),
        ({"form": "collapsed"}, Collapsed),
        ({"variant": "fixed", "base": "0"}, Fixed),
        ({"objective": "log_dlm", "components": 2}, Mixture),
    ],
)
def test_the_kind_of_program_is_that_of_variant_and_form(changes, kind):
    cell = replace(ELBO, **changes)
    assert type(program((cell,), _prepared, _base, CPU)) is kind


def test_cells_of_a_batch_have_their_own_betas_and_splits():
    cells = (ELBO, replace(ELBO, seed=5, beta=0.5), replace(ELBO, beta=None))
    made = program(cells, _prepared, _base, CPU)
    assert made.beta.tolist() == [0.1, 0.5, 1.0]
    assert made.data.seed_of == [3, 5]
    assert made.data.split_of == [0, 1, 0]
    np.testing.assert_array_equal(made.data.X[1], _prepared(cells[1]).X_train)
    np.testing.assert_array_equal(made.data.parts["test"][0][0], _prepared(ELBO).X_test)
    np.testing.assert_array_equal(made.data.parts["validation"][1][0], _prepared(ELBO).y_val)


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


def _prepared_unevenly(cell):
    """Seed 1 has fewer test rows than the others, seed 2 fewer validation rows."""
    whole = _prepared(cell)
    tested = slice(4) if cell.seed == 1 else slice(None)
    validated = slice(2) if cell.seed == 2 else slice(None)
    return dataclasses.replace(
        whole,
        X_test=whole.X_test[tested],
        y_test=whole.y_test[tested],
        X_val=whole.X_val[validated],
        y_val=whole.y_val[validated],
    )


@pytest.mark.parametrize("cell", [ELBO, FIXED])
def test_splits_with_different_numbers_of_test_rows_are_evaluated_as_if_alone(cell):
    cells = tuple(replace(cell, seed=seed, beta=beta) for seed in (2, 0, 1, 3) for beta in (1.0, 2))
    together = program(cells, _prepared_unevenly, _base, CPU)

    def metrics(made):
        jitter = torch.full_like(made.beta, 1e-6)
        return evaluate(made, made.posterior(made.initial(), jitter)).read()

    for cell_alone, (by_part, bins) in zip(cells, metrics(together), strict=True):
        alone = program((cell_alone,), _prepared_unevenly, _base, CPU)
        assert not alone.data.row_counts
        ((expected, expected_bins),) = metrics(alone)
        for part, values in expected.items():
            assert by_part[part] == pytest.approx(values, rel=1e-9)
        for name, values in expected_bins.items():
            np.testing.assert_allclose(bins[name], values, rtol=1e-6)


def test_padding_is_cut_off_where_all_remaining_splits_have_as_many_rows():
    cells = tuple(replace(ELBO, seed=seed) for seed in (0, 1, 3))
    data = program(cells, _prepared_unevenly, None, CPU).data
    assert data.row_counts == {"test": [5, 4, 5]}
    assert data.cells_by_rows() == [[0, 2], [1]]
    assert data.keep([1]).parts["test"][1].shape == (1, 4)
    assert data.keep([1, 2]).row_counts == {"test": [4, 5]}
    assert data.keep([1, 2]).keep([1]).row_counts == {}
