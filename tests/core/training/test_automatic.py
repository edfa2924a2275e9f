"""M is the smallest one that leaves little to gain."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import dlmexp
from dlmexp.common.errors import UserError
from dlmexp.core.training import automatic
from dlmexp.core.training.automatic import AutoM, chosen_inducing_count

SMOOTH = dlmexp.Model("rbf", inducing="kmeans")
QUICK = replace(automatic.PILOT, iterations=25)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(automatic, "PILOT", QUICK)
    monkeypatch.setattr(automatic, "MIN_M", 5)


def rows(D, n=150):
    random = np.random.default_rng(0)
    X = torch.from_numpy(random.normal(size=(n, D)))
    y = torch.sin(2 * X).sum(-1) + 0.2 * torch.from_numpy(random.normal(size=n))
    return X, y


def chosen(D=1, **auto):
    return chosen_inducing_count(SMOOTH, *rows(D), AutoM(**auto), seed=0)


@pytest.mark.slow
def test_a_function_of_more_inputs_gets_a_larger_m():
    assert chosen(D=1, most=60) < chosen(D=3, most=60)


@pytest.mark.slow
def test_a_smaller_tolerance_gives_a_larger_m():
    numbers = [chosen(D=1, tolerance=tolerance) for tolerance in (10.0, 0.1, 1e-3)]
    assert numbers[0] == 5
    assert numbers == sorted(numbers)
    assert numbers[0] < numbers[2]


def test_limit_is_taken_where_no_smaller_m_is_within_the_tolerance():
    assert chosen(D=3, tolerance=1e-9, most=23) == 23


def test_there_are_no_more_inducing_inputs_than_rows():
    X, y = rows(3, n=9)
    assert chosen_inducing_count(SMOOTH, X, y, AutoM(tolerance=1e-9), seed=0) == 9


def test_choice_is_the_smallest_that_is_tried_whose_gap_is_within_the_tolerance(monkeypatch):
    gaps = {5: 0.5, 7: 0.2, 10: 0.05, 14: 0.01}
    monkeypatch.setattr(
        automatic, "_gap", lambda model, X, y, hyper, seed: gaps[hyper["Z"].shape[1]]
    )
    assert chosen(tolerance=0.05, most=60) == 10


def test_gap_at_the_choice_is_that_of_dense_matrices():
    """The ELBO with the greedy inducing inputs, against the exact evidence."""
    X, y = rows(1)
    M = chosen_inducing_count(SMOOTH, X, y, AutoM(tolerance=0.02), seed=0)
    hyper = automatic._pilot_hyperparameters(SMOOTH, X, y, len(y), 0)
    kernel = SMOOTH.kernel
    K = kernel(X[None], X[None], hyper)[0] + hyper["noise"] * torch.eye(len(y)).double()
    zeros = torch.zeros_like(y)
    evidence = torch.distributions.MultivariateNormal(zeros, K).log_prob(y) / len(y)
    start = automatic.InducingRequest(X, M, 0, kernel, hyper)
    held = {name: value[0].numpy() for name, value in hyper.items()}
    held["Z"] = automatic.greedy(start).numpy()
    (fit,) = dlmexp.fit(X, y, dlmexp.Model("rbf", M=M), "elbo", hyperparameters=held)
    assert -0.02 <= -fit.objective[-1] - evidence <= 1e-6


def test_other_likelihoods_are_refused():
    with pytest.raises(UserError, match="M=auto is for Gaussian noise"):
        chosen_inducing_count(dlmexp.Model("rbf", "poisson"), *rows(1), AutoM(), seed=0)


@pytest.mark.slow
def test_fit_with_an_automatic_m_is_the_fit_with_that_number():
    X, y = rows(1)
    settings = dlmexp.Settings(iterations=3)
    auto = AutoM(tolerance=0.5, most=40)
    (fit,) = dlmexp.fit(X, y, replace_M(SMOOTH, auto), "elbo", settings=settings)
    M = fit.posterior.hyper["Z"].shape[1]
    assert 5 <= M < 40
    (same,) = dlmexp.fit(X, y, replace_M(SMOOTH, M), "elbo", settings=settings)
    np.testing.assert_array_equal(fit.objective, same.objective)
    assert fit.model.M == M


@pytest.mark.slow
def test_word_auto_has_the_default_tolerance_and_limit():
    X, y = rows(1)
    settings = dlmexp.Settings(iterations=2)
    by_word, by_object = (
        dlmexp.fit(X, y, replace_M(SMOOTH, M), "elbo", settings=settings)[0].model.M
        for M in ("auto", AutoM())
    )
    assert by_word == by_object


@pytest.mark.parametrize("M", ["many", AutoM(tolerance=0), AutoM(most=0)], ids=str)
def test_values_that_choose_nothing_are_refused(M):
    with pytest.raises(UserError, match="M"):
        dlmexp.fit(*rows(1), replace_M(SMOOTH, M), "elbo")


def replace_M(model, M):  # noqa: N802 - the name of the field
    return dlmexp.Model(**{**vars(model), "M": M})
