"""The batched core against the plain reference, one model at a time."""

import numpy as np
import pytest
import torch

import dlmexp
from dlmexp import reference

M = 6
SETTINGS = dlmexp.Settings(lr=0.1, iterations=40, window=10, tolerance=5e-3)
PLAIN = {"lr": 0.1, "iterations": 40, "window": 10, "tolerance": 5e-3, "M": M}


def splits(likelihood, S=2, n=40, seed=0):
    """Training and test rows of S splits, of the kind that the likelihood is for."""
    g = torch.Generator().manual_seed(seed)
    X = torch.randn(S, n + 15, 2, generator=g, dtype=torch.float64)
    noise = torch.randn(S, n + 15, generator=g, dtype=torch.float64)
    f = torch.sin(2 * X[..., 0]) + 0.3 * noise
    if likelihood == "probit":
        f = (f > 0).double()
    if likelihood == "poisson":
        f = torch.poisson(f.exp(), generator=g)
    return (X[:, :n], f[:, :n]), (X[:, n:], f[:, n:])


def assert_same(fit, expected, X_test, y_test, rel):
    """Objective curve, hyperparameters and predictions agree."""
    assert fit.stopped == ("converged" if expected.converged else "limit")
    np.testing.assert_allclose(fit.objective, expected.objective, rtol=rel, atol=rel)
    for name, value in expected.hyperparameters.items():
        if name in fit.hyperparameters:
            ours = fit.hyperparameters[name].reshape(value.shape)
            np.testing.assert_allclose(ours, value, rtol=10 * rel, atol=10 * rel)
    prediction = fit.predict(X_test)
    np.testing.assert_allclose(prediction.mean, expected.mean(X_test), rtol=10 * rel, atol=10 * rel)
    if "nll" in fit.metrics["test"]:
        expected_nll = expected.log_loss(X_test, y_test)
        assert fit.metrics["test"]["nll"] == pytest.approx(expected_nll, rel=10 * rel, abs=10 * rel)


CASES = [
    ("gaussian", "log_dlm", False),
    ("gaussian", "elbo", False),
    ("gaussian", "elbo", True),
    ("gaussian", "sq_dlm", True),
    ("gaussian", "fitc", True),
    ("gaussian", "power_ep", True),
    ("probit", "log_dlm", False),
    ("probit", "elbo", False),
    ("poisson", "log_dlm", False),
    ("poisson", "elbo", False),
]


@pytest.mark.slow
@pytest.mark.parametrize(("likelihood", "objective", "collapsed"), CASES)
def test_batched_fits_equal_the_reference(likelihood, objective, collapsed):
    (X, y), (X_test, y_test) = splits(likelihood)
    betas = {"fitc": [1.0], "power_ep": [1.0, 0.3]}.get(objective, [8.0, 0.3])
    fits = dlmexp.fit(
        X, y, dlmexp.Model("rbf", likelihood, M=M), objective, betas, settings=SETTINGS,
        test=(X_test, y_test), collapsed=collapsed, device="cpu",
    )  # fmt: skip
    pairs = [(s, beta) for s in range(len(X)) for beta in betas]
    assert [(fit.seed, fit.beta) for fit in fits] == pairs
    for fit, (s, beta) in zip(fits, pairs, strict=True):
        expected = reference.train(
            X[s], y[s], likelihood, objective, beta,
            learns_mean=likelihood == "probit", collapsed=collapsed, **PLAIN,
        )  # fmt: skip
        assert_same(fit, expected, X_test[s], y_test[s], rel=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("likelihood", "objective"),
    [("gaussian", "log_dlm"), ("probit", "log_dlm"), ("poisson", "elbo")],
)
def test_fits_with_held_hyperparameters_equal_the_reference(likelihood, objective):
    (X, y), (X_test, y_test) = splits(likelihood)
    model = dlmexp.Model("rbf", likelihood, M=M)
    bases = dlmexp.fit(X, y, model, "elbo", settings=SETTINGS, collapsed=False, device="cpu")
    fits = dlmexp.fit(
        X, y, model, objective, [0.5], settings=SETTINGS, test=(X_test, y_test), device="cpu",
        hyperparameters=[base.hyperparameters for base in bases], collapsed=False,
    )  # fmt: skip
    for s, fit in enumerate(fits):
        start = {name: value[0] for name, value in bases[s].posterior.hyper.items()}
        start["lengthscale"] = start["lengthscale"][0]
        start.setdefault("noise", torch.tensor(0.1, dtype=torch.float64))
        expected = reference.train(X[s], y[s], likelihood, objective, 0.5, held=start, **PLAIN)
        assert_same(fit, expected, X_test[s], y_test[s], rel=1e-7)


def test_square_loss_with_held_hyperparameters_is_solved_as_in_the_reference():
    (X, y), (X_test, y_test) = splits("gaussian", S=1)
    model = dlmexp.Model(M=M)
    held = reference.initial_hyperparameters(X[0], M)
    (fit,) = dlmexp.fit(
        X, y, model, "sq_dlm", [0.5], test=(X_test, y_test), device="cpu",
        hyperparameters={**held, "lengthscale": held["lengthscale"][None]},
    )  # fmt: skip
    expected = reference.train(
        X[0], y[0], "gaussian", "sq_dlm", 0.5, collapsed=True, held=held, **PLAIN
    )
    assert fit.stopped == "closed form"
    assert fit.objective == pytest.approx(expected.objective, rel=1e-10)
    error = (expected.mean(X_test[0]) - y_test[0]).square().mean()
    assert fit.metrics["test"] == pytest.approx({"mse": float(error)}, rel=1e-8)


def test_the_reference_imports_nothing_of_the_package():
    with open(reference.__file__, encoding="utf-8") as file:
        lines = [line for line in file if line.startswith(("import ", "from "))]
    assert lines
    assert not [line for line in lines if "dlmexp" in line]
