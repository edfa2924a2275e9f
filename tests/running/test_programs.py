"""From cells to the program that trains them."""

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from dlmexp.data.splits import Prepared, normalisation
from dlmexp.estimators import BMC, UPS, Exact, Quadrature, SmoothBMC
from dlmexp.running.device import select_target
from dlmexp.running.programs import estimator, model, program, settings
from dlmexp.running.schedule import ONE_AT_A_TIME, Capacity
from dlmexp.training.collapsed import Collapsed
from dlmexp.training.fixed import Fixed
from dlmexp.training.joint import Joint
from tests.support.banana import PLAIN

CPU = select_target("cpu", "float64")
ELBO = replace(PLAIN, objective="elbo", variant="joint", estimator="exact", options={}, base=None, M=4)


def _prepared(cell):
    rng = np.random.default_rng(cell.seed)
    X = {name: rng.normal(size=(rows, 2)) for name, rows in (("train", 12), ("val", 3), ("test", 5))}
    y = {name: (x[:, 0] > 0).astype(float) for name, x in X.items()}
    return Prepared(
        X["train"], y["train"], X["val"], y["val"], X["test"], y["test"], 0.0, 1.0, normalisation(X["train"])
    )


def _base(cell):
    return {
        "lengthscale": np.array([1.0 + cell.seed]),
        "outputscale": np.array(2.0),
        "mean": np.array(0.5),
        "Z": np.ones((4, 2)),
    }


def test_cells_share_the_rows_of_their_seed():
    cells = tuple(replace(ELBO, seed=seed, beta=beta) for seed in (5, 2) for beta in (3.0, 1.0))
    made = program(cells, _prepared, _base, CPU)
    assert isinstance(made, Joint)
    assert made.split.seeds.tolist() == [2, 5]
    assert made.split.index.tolist() == [1, 1, 0, 0]
    assert made.beta.tolist() == [3.0, 1.0, 3.0, 1.0]
    assert np.array_equal(made.split.X[1].numpy(), _prepared(cells[0]).X_train)
    assert set(made.split.parts) == {"validation", "test"}


def test_each_seed_has_the_hyperparameters_of_its_own_fit():
    cells = tuple(replace(ELBO, variant="fixed", seed=seed, base=f"{seed}") for seed in (0, 3))
    made = program(cells, _prepared, _base, CPU)
    assert isinstance(made, Fixed)
    assert made.hyper["lengthscale"].tolist() == [[1.0], [4.0]]


def test_collapsed_and_without_beta():
    cell = replace(ELBO, form="collapsed", objective="fitc", beta=None, likelihood="gaussian", task="regression")
    made = program((cell,), _prepared, _base, CPU)
    assert isinstance(made, Collapsed)
    assert made.beta.tolist() == [1.0]


def test_the_program_has_copies_of_the_data():
    data = _prepared(ELBO)
    made = program((ELBO,), lambda _: data, _base, CPU)
    made.split.X.zero_()
    assert data.X_train.any()


def test_float32_is_the_type_of_rows_alone():
    made = None
    for variant, base in (("joint", None), ("fixed", "0")):
        cell = replace(ELBO, dtype="float32", variant=variant, base=base)
        made = program((cell,), _prepared, _base, select_target("cpu", "float32"))
        of_rows = [made.split.X, made.split.y, *(part for pair in made.split.parts.values() for part in pair)]
        assert {tensor.dtype for tensor in of_rows} == {torch.float32}
        assert {tensor.dtype for tensor in (made.beta, *made.initial().values())} == {torch.float64}
    assert isinstance(made, Fixed)
    assert {tensor.dtype for tensor in made.hyper.values()} == {torch.float64}


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("exact", {}, Exact()),
        ("bmc", {"samples": 7}, BMC(7)),
        ("smooth_bmc", {"samples": 7, "nu": 0.1}, SmoothBMC(7, 0.1)),
        ("ups", {"samples": 2, "sampler": "rejection"}, UPS(2, "rejection")),
        ("quadrature", {"nodes": 9}, Quadrature(9)),
    ],
)
def test_estimators(name, options, expected):
    assert estimator(replace(PLAIN, estimator=name, options=options)) == expected


def test_settings_of_a_fit_until_convergence():
    found = settings(PLAIN, CPU)
    assert (found.lr, found.iterations, found.window, found.tolerance) == (0.1, 3000, 20, 1e-4)
    assert found.evaluate_every is None
    assert settings(replace(PLAIN, evaluate="50"), CPU).evaluate_every == 50


def test_settings_of_a_number_of_epochs():
    cell = replace(
        PLAIN, n=1050, minibatch=100, epochs=20, window=None, max_iterations=None, tolerance=None, evaluate="epoch"
    )
    found = settings(cell, CPU)
    assert (found.iterations, found.window, found.evaluate_every) == (200, None, 10)


def test_model():
    made = model(replace(PLAIN, parameterisation="unwhitened", ard=True))
    assert (made.M, made.whitened, made.ard, made.learns_mean) == (53, False, True, True)
    assert "noise" not in made.parameters(2)


def test_the_rejection_sampler_has_a_gpu_to_itself():
    rejecting = (replace(PLAIN, estimator="ups", options={"samples": 2, "sampler": "rejection"}),)
    device = Capacity(most=4, entries=1e12, bytes=1e15)
    assert device.room((PLAIN,), [(PLAIN,)])
    assert device.room(rejecting, [])
    assert not device.room(rejecting, [(PLAIN,)])
    assert not device.room((PLAIN,), [rejecting])
    assert device.comes_last(rejecting, [(PLAIN,)])
    assert not device.comes_last(rejecting, [])
    assert not device.comes_last((PLAIN,), [(PLAIN,)])
    assert not ONE_AT_A_TIME.comes_last(rejecting, [(PLAIN,)])  # a CPU keeps the order
