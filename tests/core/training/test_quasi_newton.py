"""Training by L-BFGS through `dlmexp.fit`, against scipy, long Adam runs and cell by cell."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import dlmexp
from dlmexp.common.errors import UserError
from dlmexp.core.folds import row_order
from dlmexp.core.gp.kernels import Parameter
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.core.training.batch import Training
from dlmexp.core.training.collapsed import Collapsed
from dlmexp.core.training.data import BatchData
from dlmexp.core.training.model import Loss
from dlmexp.core.training.parameters import Tensors, constrain
from dlmexp.core.training.quasi_newton import flat_objective, flat_parameters, parameters_from_flat


def rows(n=80):
    random = np.random.default_rng(0)
    X = random.normal(size=(n, 2))
    y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.2 * random.normal(size=n)
    return X, y


MODEL = dlmexp.Model(M=8)
LBFGS = dlmexp.Settings(optimizer="lbfgs", iterations=800, tolerance=1e-9)


def test_positive_parameters_are_moved_by_their_logarithms():
    values: Tensors = {
        "a": torch.randn(3, 2, 4).double(),
        "noise": torch.linspace(-20, 50, 3).double(),
    }
    parameters = {"noise": Parameter(0.1, positive=True, floor=0.01)}
    flat = flat_parameters(values, parameters)
    above_floor = constrain(values, parameters)["noise"] - 0.01
    torch.testing.assert_close(flat[:, -1], above_floor.log(), rtol=1e-6, atol=0)
    back = parameters_from_flat(flat, values, parameters)
    assert all(torch.allclose(back[name], values[name]) for name in values)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["elbo", "tighter"])
def test_objective_is_as_low_as_after_a_long_adam_run(objective):
    X, y = rows()
    adam = dlmexp.Settings(
        lr=0.05, final_lr=1e-3, decay=700, iterations=700, window=None, calibration=False
    )
    (slow,) = dlmexp.fit(X, y, MODEL, objective, settings=adam)
    (fast,) = dlmexp.fit(X, y, MODEL, objective, settings=LBFGS)
    assert fast.stopped == "converged"
    # Both may end in a local minimum; that of L-BFGS is not worse here.
    assert fast.objective[-1] <= slow.objective[-1] + 1e-4
    assert fast.iterations < 800


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "seed"), [("elbo", 0), ("tighter", 3)])
def test_objective_is_as_low_as_by_scipy_from_the_same_start(objective, seed):
    """Of one feature, where both end in the same minimum."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(60, 1))
    y = np.sin(2 * x[:, 0]) + 0.3 * x[:, 0] + 0.2 * random.normal(size=60)
    model = dlmexp.Model(M=6)
    (fit,) = dlmexp.fit(x, y, model, objective, settings=LBFGS)

    ordered = row_order(60, 0)
    data = BatchData(torch.tensor(x[ordered])[None], torch.tensor(y[ordered])[None], {}, [0], [0])
    program = Collapsed(model, Loss(OBJECTIVES[objective]), data, torch.ones(1).double())
    training = Training.start(program, LBFGS)
    start = training.state.values
    evaluate = flat_objective(program, training.state.jitter, start)

    def value_and_gradient(point):
        value, gradient = evaluate(torch.tensor(point)[None])
        return float(value), gradient[0].numpy()

    options = {"maxcor": 20, "maxfun": 3000, "maxiter": 3000, "ftol": 0, "gtol": 1e-8}
    best = minimize(
        value_and_gradient,
        flat_parameters(start, program.parameters)[0].numpy(),
        jac=True,
        method="L-BFGS-B",
        options=options,
    )
    assert fit.objective[0] > best.fun + 0.1
    assert fit.objective[-1] <= best.fun + 1e-6


@pytest.mark.slow
def test_fits_of_a_batch_are_those_of_single_fits():
    X, y = rows()
    betas = [0.3, 1.0, 10.0]
    together = dlmexp.fit(X, y, MODEL, "elbo", betas=betas, settings=LBFGS)
    for fit, beta in zip(together, betas, strict=True):
        (alone,) = dlmexp.fit(X, y, MODEL, "elbo", betas=beta, settings=LBFGS)
        assert alone.objective[-1] == pytest.approx(fit.objective[-1], abs=1e-7)


@pytest.mark.slow
def test_objective_curve_never_rises():
    X, y = rows()
    (fit,) = dlmexp.fit(X, y, MODEL, "tighter", settings=LBFGS)
    assert len(fit.objective) == fit.iterations
    assert (np.diff(fit.objective) <= 0).all()


def test_a_fit_that_is_cut_short_has_reached_its_limit():
    X, y = rows()
    settings = dlmexp.Settings(optimizer="lbfgs", iterations=5, tolerance=0)
    (fit,) = dlmexp.fit(X, y, MODEL, "elbo", settings=settings)
    assert (fit.stopped, fit.iterations, fit.failed) == ("limit", 5, False)


def test_objectives_without_a_closed_form_are_refused():
    X, y = rows()
    with pytest.raises(UserError, match="'log_dlm' has no closed form over q here"):
        dlmexp.fit(X, y, MODEL, "log_dlm", settings=LBFGS)


@pytest.mark.parametrize("restarts", [0, 2])
def test_learning_curves_are_metrics_of_shorter_fits(restarts):
    X, y = rows(40)

    def fits(iterations, **changes):
        settings = with_restarts(restarts, iterations, **changes)
        return dlmexp.fit(
            X, y, MODEL, "elbo", betas=[0.5, 5.0], settings=settings, test=(X[:15], y[:15])
        )

    for fit, short, long in zip(fits(12, evaluate_every=5), fits(5), fits(12), strict=True):
        assert [iteration for iteration, _ in fit.curve] == [0, 5, 10, 12]
        assert fit.curve[1][1]["nll"] == pytest.approx(short.metrics["test"]["nll"], abs=1e-9)
        assert fit.curve[3][1]["nll"] == pytest.approx(long.metrics["test"]["nll"], abs=1e-9)
        np.testing.assert_array_equal(fit.objective, long.objective)


def with_restarts(restarts, iterations=30, **changes):
    return replace(LBFGS, iterations=iterations, restarts=restarts, **changes)


@pytest.mark.slow
def test_best_of_all_starts_is_the_fit():
    X, y = rows(40)
    (plain,) = dlmexp.fit(X, y, MODEL, "elbo", settings=with_restarts(0, 10))
    (fit,) = dlmexp.fit(X, y, MODEL, "elbo", settings=with_restarts(3, 10))
    assert len(fit.ends) == 4
    assert fit.objective[-1] == fit.ends.min() <= plain.objective[-1]
    # The first start is the one that is not perturbed, and the others go other ways.
    assert fit.ends[0] == pytest.approx(plain.objective[-1], abs=1e-9)
    assert len(set(fit.ends.round(6))) == 4
    # Its hyperparameters and its q belong to that end.
    held = dlmexp.fit(X, y, MODEL, "elbo", hyperparameters=fit.hyperparameters)[0]
    assert held.objective[-1] == pytest.approx(fit.ends.min(), abs=1e-6)


@pytest.mark.slow
def test_starts_are_those_of_a_larger_batch_of_cells():
    """Also where starts of other cells stop before, and leave the batch."""
    X, y = rows(40)
    settings = with_restarts(2, iterations=60, tolerance=1e-3)
    together = dlmexp.fit(X, y, MODEL, "elbo", betas=[0.5, 5.0], settings=settings)
    for fit in together:
        (alone,) = dlmexp.fit(X, y, MODEL, "elbo", betas=fit.beta, settings=settings)
        np.testing.assert_allclose(fit.ends, alone.ends, atol=1e-7)
        assert (fit.iterations, fit.stopped) == (alone.iterations, alone.stopped)


def test_inducing_inputs_that_are_the_rows_stay_there_at_every_start():
    X, y = rows(20)
    (fit,) = dlmexp.fit(X, y, dlmexp.Model(), "exact", settings=with_restarts(1, 10))
    np.testing.assert_array_equal(fit.hyperparameters["Z"], X[row_order(20, 0)])
    assert fit.ends[0] != fit.ends[1]


def test_parameters_with_a_floor_start_above_it():
    X, y = rows(20)
    model = dlmexp.Model(M=4, noise_floor=0.09)
    (fit,) = dlmexp.fit(X, y, model, "elbo", settings=with_restarts(4, 1))
    assert np.isfinite(fit.ends).all()
    assert fit.hyperparameters["noise"] > 0.09


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dlmexp.Settings(restarts=2), "give optimizer='lbfgs' too"),
        (dlmexp.Settings(restarts=-1, optimizer="lbfgs"), "restarts=-1"),
    ],
    ids=["adam", "negative"],
)
def test_restarts_that_can_not_be_are_refused(settings, words):
    with pytest.raises(UserError, match=words):
        dlmexp.fit(*rows(20), MODEL, "elbo", settings=settings)
