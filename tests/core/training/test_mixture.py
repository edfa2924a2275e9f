"""A q of several Gaussians: its objective, its split, its predictions."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from dlmexp.core.likelihoods import LIKELIHOODS, Gaussian, Poisson
from dlmexp.core.likelihoods.mixture import (
    Mixture,
    log_mean_loss,
    normal_components_scores,
    predictive_likelihood,
)
from dlmexp.core.objectives import LOG_DLM
from dlmexp.core.training.batch import Training
from dlmexp.core.training.data import BatchData, Minibatches
from dlmexp.core.training.joint import Joint
from dlmexp.core.training.metrics import evaluate
from dlmexp.core.training.mixture import Mixture as MixtureProgram
from dlmexp.core.training.model import Loss, Model
from dlmexp.core.training.settings import Settings
from dlmexp.core.training.train import train

BETAS = torch.tensor([0.3, 1.0, 3.0], dtype=torch.float64)


def data(task="regression", n=60, dtype=torch.float64):
    """Rows whose noise is one of two shifts, so that one Gaussian can not describe them."""
    g = torch.Generator().manual_seed(0)
    X = torch.randn(1, n, 2, generator=g, dtype=torch.float64)
    y = torch.sin(2 * X[..., 0])
    if task == "regression":
        shift = torch.randint(2, y.shape, generator=g) * 2 - 1
        y = y + shift + 0.05 * torch.randn(y.shape, generator=g, dtype=torch.float64)
    elif task == "binary":
        y = (y > 0).double()
    else:
        y = torch.poisson(y.exp(), generator=g)
    X, y = X.to(dtype), y.to(dtype)
    test = {"test": (X[:, :20], y[:, :20]), "validation": (X[:, 20:40], y[:, 20:40])}
    return BatchData(X, y, test, [0], [0, 0, 0])


def programs(likelihood="gaussian", components=4, dtype=torch.float64, minibatches=None):
    model = Model("rbf", likelihood, M=6, components=components)
    rows = data(model.likelihood.task, dtype=dtype)
    loss = Loss(LOG_DLM)
    single = Joint(model, loss, rows, BETAS, minibatches=minibatches)
    mixture = MixtureProgram(model, loss, rows, BETAS, minibatches=minibatches)
    return single, mixture


def some_values(program):
    """Parameters that are not at their initial values."""
    g = torch.Generator().manual_seed(1)
    values = program.initial()
    for name, value in values.items():
        values[name] = value + 0.1 * torch.randn(value.shape, generator=g, dtype=value.dtype)
    return values


JITTER = torch.full((3,), 1e-6, dtype=torch.float64)
FIRST = torch.zeros((), dtype=torch.int64)


@pytest.mark.parametrize("likelihood", ["gaussian", "probit", "poisson", "student_t"])
def test_equal_components_give_the_loss_and_gradient_of_one_gaussian(likelihood):
    single, mixture = programs(likelihood)
    values = some_values(single)
    copies = dict(values)
    copies["m"] = values["m"].unsqueeze(1).repeat(1, 4, 1)
    copies["L"] = values["L"].unsqueeze(1).repeat(1, 4, 1, 1)
    mixture.is_split = True
    single_leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
    leaves = {name: value.clone().requires_grad_() for name, value in copies.items()}
    expected = single.objective(single_leaves, JITTER, FIRST).per_row
    actual = mixture.objective(leaves, JITTER, FIRST).per_row
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    expected_gradients = torch.autograd.grad(expected.sum(), list(single_leaves.values()))
    gradients = torch.autograd.grad(actual.sum(), list(leaves.values()))
    for name, a, b in zip(leaves, gradients, expected_gradients, strict=True):
        a = a.sum(1) if name in ("m", "L") else a
        b = b.tril() if name == "L" else b
        a = a.tril() if name == "L" else a
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10, msg=lambda s, k=name: f"{k}: {s}")


def test_objective_is_that_of_the_components_written_out():
    _, mixture = programs(components=3)
    mixture.is_split = True
    values = some_values(mixture)
    hyper = mixture.hyperparameters(values)
    kernel = mixture.model.kernel
    X = mixture.data.X[[0, 0, 0]]
    y = mixture.data.y[0]
    Kuu = kernel(hyper["Z"], hyper["Z"], hyper)
    Kuu = Kuu + 1e-6 * hyper["outputscale"][:, None, None] * torch.eye(6, dtype=torch.float64)
    A = torch.linalg.solve_triangular(
        torch.linalg.cholesky(Kuu), kernel(hyper["Z"], X, hyper), upper=False
    )
    for cell in range(3):
        densities = torch.zeros_like(y)
        penalty = 0.0
        for k in range(3):
            m, L = values["m"][cell, k], values["L"][cell, k].tril()
            spread = (L.T @ A[cell]).square().sum(0) - A[cell].square().sum(0)
            v = hyper["outputscale"][cell] + spread + hyper["noise"][cell]
            residual = y - m @ A[cell]
            densities = densities + (-0.5 * residual.square() / v).exp() / (2 * math.pi * v).sqrt()
            log_det = L.diagonal().abs().log().sum()
            penalty += 0.5 * (m @ m + L.square().sum() - 6) - log_det
        expected = -(densities / 3).log().mean() + BETAS[cell] * penalty / 3 / len(y)
        actual = mixture.objective(values, JITTER, FIRST).per_row[cell]
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-10)


def trained(program, settings):
    fits = [fit for fit in train(Training.start(program, settings), settings) if fit is not None]
    return sorted(fits, key=lambda fit: fit.cell)


@pytest.mark.slow
def test_before_the_split_training_is_that_of_one_gaussian():
    single, mixture = programs()
    settings = Settings(lr=0.05, iterations=30, window=None)
    alone = trained(single, settings)
    before = trained(mixture, replace(settings, split_at=30))
    for fit, expected in zip(before, alone, strict=True):
        torch.testing.assert_close(torch.tensor(fit.objective), torch.tensor(expected.objective))


def test_split_keeps_factors_and_draws_means_by_seed():
    _, mixture = programs()
    settings = Settings(iterations=10, window=None, split_at=5)
    training = Training.start(mixture, settings)
    state = training.state
    state.values["m"][:, 0] = 1.5
    state.values["L"][:, 0] *= 0.1
    mixture.split_gaussian(state)
    m = state.values["m"]
    assert torch.equal(state.values["L"], state.values["L"][:, :1].expand_as(state.values["L"]))
    assert (m.std(1) > 0).all(), "components differ"
    assert (m - 1.5).abs().max() < 0.1 * 5, "means are drawn with the factor of q"
    assert torch.equal(m[0], m[1]), "cells of one seed share their draws"


@pytest.mark.slow
def test_a_split_mixture_does_not_collapse_and_beats_one_gaussian():
    """Targets with two branches: the mixture finds both, one Gaussian spans them."""
    single, mixture = programs(components=4)
    settings = Settings(lr=0.05, iterations=600, window=None)
    one = trained(single, settings)
    several = trained(mixture, replace(settings, split_at=200))
    for fit, gaussian in zip(several, one, strict=True):
        assert fit.metrics["test"]["nll"] < gaussian.metrics["test"]["nll"] - 0.2
        distances = torch.pdist(fit.posterior.m[0])
        assert distances.max() > 0.5


@pytest.mark.slow
def test_resumed_training_equals_uninterrupted_training():
    settings = Settings(lr=0.05, iterations=40, window=None, split_at=15, check_every=7)
    whole = trained(programs()[1], settings)
    for stop in (10, 15, 22):
        training = Training.start(programs()[1], settings)
        saved = {}

        def save(current, stop=stop, saved=saved):
            if int(current.state.iteration) == stop:
                saved["state"] = current.state.clone()

        for _ in train(training, settings, after_step=save):
            pass
        resumed = Training(
            programs()[1], saved["state"], [0, 1, 2], [0.0] * 3, [[] for _ in range(3)]
        )
        fits = [fit for fit in train(resumed, settings) if fit is not None]
        for fit in fits:
            expected = torch.tensor(whole[fit.cell].objective)
            torch.testing.assert_close(torch.tensor(fit.objective), expected, rtol=0, atol=0)


@pytest.mark.slow
def test_a_cell_alone_trains_as_in_its_batch():
    settings = Settings(lr=0.05, iterations=40, window=None, split_at=15)
    together = trained(programs()[1], settings)
    alone = trained(programs()[1].keep([1]), settings)
    torch.testing.assert_close(
        torch.tensor(alone[0].objective), torch.tensor(together[1].objective), rtol=1e-9, atol=1e-10
    )


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_minibatches_and_float32_train(dtype):
    _, mixture = programs(dtype=dtype, minibatches=Minibatches(20))
    settings = Settings(lr=0.05, iterations=40, window=None, split_at=15)
    for fit in trained(mixture, settings):
        assert math.isfinite(fit.metrics["test"]["nll"])
        assert fit.objective[-1] < fit.objective[0]


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["gaussian", "probit", "poisson", "student_t"])
def test_metrics_of_equal_components_are_those_of_one_gaussian(likelihood):
    single, mixture = programs(likelihood)
    values = some_values(single)
    mixture.is_split = True
    copies = dict(values)
    copies["m"] = values["m"].unsqueeze(1).repeat(1, 4, 1)
    copies["L"] = values["L"].unsqueeze(1).repeat(1, 4, 1, 1)
    expected = evaluate(single, single.posterior(values, JITTER)).read()
    actual = evaluate(mixture, mixture.posterior(copies, JITTER)).read()
    for (metrics, _), (single_metrics, _) in zip(actual, expected, strict=True):
        for name, value in metrics["test"].items():
            assert value == pytest.approx(single_metrics["test"][name], rel=1e-3, abs=1e-6), name


def test_scores_of_two_distant_components_are_their_integrals():
    """CRPS = integral of (F(x) - [x >= y])^2 dx; widths are between quantiles of F."""
    mu = torch.tensor([[[-2.0, 0.0], [3.0, 0.5]]], dtype=torch.float64)
    variance = torch.tensor([[[0.2, 1.0], [0.7, 0.1]]], dtype=torch.float64)
    y = torch.tensor([[2.5, -3.5]], dtype=torch.float64)
    scores = normal_components_scores(mu, variance, y)
    x = torch.linspace(-20, 20, 400_001, dtype=torch.float64)
    z = (x - mu.unsqueeze(-1)) / variance.sqrt().unsqueeze(-1)
    F = torch.special.ndtr(z).mean(1)
    crps = torch.trapezoid((F - (x >= y.unsqueeze(-1)).double()).square(), x)
    torch.testing.assert_close(scores["crps"], crps, rtol=1e-3, atol=1e-4)
    for level in (50, 90, 95):
        tail = (1 - level / 100) / 2
        lower = x[torch.searchsorted(F, torch.full((1, 2, 1), tail, dtype=torch.float64))[..., 0]]
        upper = x[
            torch.searchsorted(F, torch.full((1, 2, 1), 1 - tail, dtype=torch.float64))[..., 0]
        ]
        torch.testing.assert_close(scores[f"width_{level}"], upper - lower, rtol=1e-3, atol=1e-3)
        covered = ((lower <= y) & (y <= upper)).double()
        torch.testing.assert_close(scores[f"coverage_{level}"], covered)


def test_scores_with_student_t_noise_are_those_of_draws():
    """A large sample of every component stands for the predictive distribution (nu = 4)."""
    hyper = {"noise": torch.tensor([0.16], dtype=torch.float64)}
    mixture = predictive_likelihood(LIKELIHOODS["student_t"], hyper, is_mixture=True)
    mu = torch.tensor([[[-1.0], [2.0]]], dtype=torch.float64)
    v = torch.tensor([[[0.3], [0.8]]], dtype=torch.float64)
    y = torch.tensor([[0.5]], dtype=torch.float64)
    scores = mixture.calibration(mu, v, y)
    random = np.random.default_rng(0)
    f = np.array([-1.0, 2.0]) + np.sqrt([0.3, 0.8]) * random.normal(size=(400_000, 2))
    draws = np.sort((f + 0.4 * random.standard_t(4, size=f.shape)).ravel())
    # 1/2 E|X - X'| of a sorted sample: sum_i (2 i - n - 1) x_i / n^2
    n = len(draws)
    half_distance = ((2 * np.arange(1, n + 1) - n - 1) * draws).sum() / n**2
    crps = np.abs(draws - 0.5).mean() - half_distance
    assert float(scores["crps"]) == pytest.approx(crps, rel=0.02)
    for level in (50, 90, 95):
        ends = np.quantile(draws, [(1 - level / 100) / 2, (1 + level / 100) / 2])
        assert float(scores[f"width_{level}"]) == pytest.approx(np.ptp(ends), rel=0.02)
        assert float(scores[f"coverage_{level}"]) == (ends[0] <= 0.5 <= ends[1])


def test_coverage_and_width_of_counts_are_those_of_the_interval():
    mu = torch.tensor([[[0.0, 1.0], [2.0, 4.0]]], dtype=torch.float64)
    v = torch.full_like(mu, 0.2)
    mixture = Mixture(Poisson())
    ends = mixture.interval(mu, v)
    assert ends is not None
    lower, upper = ends
    at_end = mixture.calibration(mu, v, upper)
    beyond = mixture.calibration(mu, v, upper + 1)
    torch.testing.assert_close(at_end["width_95"], upper - lower)
    assert at_end["coverage_95"].tolist() == [[1, 1]]
    assert beyond["coverage_95"].tolist() == [[0, 0]]


def test_distribution_function_is_the_mean_of_the_components():
    hyper = {"noise": torch.tensor([0.1], dtype=torch.float64)}
    mixture = predictive_likelihood(LIKELIHOODS["gaussian"], hyper, is_mixture=True)
    assert isinstance(mixture, Mixture)
    mu = torch.tensor([[[-1.0, 0.0], [1.0, 0.5]]], dtype=torch.float64)
    v = torch.full_like(mu, 0.3)
    y = torch.tensor([[0.2, 0.4]], dtype=torch.float64)
    single = Gaussian(torch.tensor([[0.1]], dtype=torch.float64))
    expected = 0.5 * (single.cdf(mu[:, 0], v[:, 0], y) + single.cdf(mu[:, 1], v[:, 1], y))
    torch.testing.assert_close(mixture.cdf(mu, v, y), expected)


def test_log_loss_of_a_mixture_is_the_log_of_the_mean_density():
    losses = torch.tensor([[[1.0], [2.0], [800.0]]], dtype=torch.float64)
    expected = -math.log((math.exp(-1) + math.exp(-2)) / 3)
    assert float(log_mean_loss(losses)) == pytest.approx(expected, rel=1e-12)


def test_mean_of_a_mixture_of_counts_is_the_mean_of_its_components():
    mu = torch.tensor([[[0.0, 1.0], [1.0, 2.0]]], dtype=torch.float64)
    v = torch.full_like(mu, 0.2)
    expected = (mu + 0.1).exp().mean(1)
    torch.testing.assert_close(Mixture(Poisson()).mean(mu, v), expected)


def test_ends_of_an_interval_hold_their_share_of_the_mixture():
    hyper = {"noise": torch.tensor([0.1], dtype=torch.float64)}
    mixture = predictive_likelihood(LIKELIHOODS["gaussian"], hyper, is_mixture=True)
    assert isinstance(mixture, Mixture)
    mu = torch.tensor([[[-3.0, 0.0], [1.0, 0.5]]], dtype=torch.float64)
    v = torch.full_like(mu, 0.3)
    ends = mixture.interval(mu, v)
    assert ends is not None
    lower, upper = ends
    share = torch.tensor([[0.025, 0.025]], dtype=torch.float64)
    torch.testing.assert_close(mixture.cdf(mu, v, lower), share)
    torch.testing.assert_close(mixture.cdf(mu, v, upper), 1 - share)


def test_ends_of_an_interval_of_counts_are_the_least_that_hold_their_share():
    mixture = Mixture(Poisson())
    mu = torch.tensor([[[0.0, 1.0], [2.0, 4.0]]], dtype=torch.float64)
    v = torch.full_like(mu, 0.2)
    ends = mixture.interval(mu, v)
    assert ends is not None
    lower, upper = ends
    for end, share in ((lower, 0.025), (upper, 0.975)):
        assert torch.equal(end, end.round())
        assert (mixture.cdf(mu, v, end) >= share).all()
        assert (mixture.cdf(mu, v, end - 1) < share).all()


def test_std_of_a_mixture_adds_the_spread_of_the_means():
    mixture = Mixture(Gaussian(torch.tensor([[[0.5]]], dtype=torch.float64)))
    mu = torch.tensor([[[-1.0], [3.0]]], dtype=torch.float64)
    v = torch.tensor([[[0.5], [1.5]]], dtype=torch.float64)
    # Within: (1 + 2) / 2. Between: the variance of -1 and 3, 4.
    std = mixture.std(mu, v)
    assert std is not None
    assert float(std) == pytest.approx((1.5 + 4) ** 0.5)
