"""Estimators that autograd differentiates: exact against many nodes, bMC and smooth-bMC against the sample mean."""

import math

import pytest
import torch

from dlmexp.estimators import BMC, Exact, Quadrature, SmoothBMC
from dlmexp.gp.likelihoods import Gaussian, Logistic, Poisson, PoissonSoftplus, Probit, StudentT
from tests.support.product_density import draws_for, t

CASES = [
    (Gaussian(t(0.3)), [0.4, -1.0]),
    (Probit(), [0.0, 1.0]),
    (Poisson(), [0.0, 6.0]),
    (PoissonSoftplus(), [0.0, 6.0]),
    (Logistic(), [0.0, 1.0]),
    (StudentT(t(1.5), t(5.0)), [0.4, -4.0]),
]


ONE = [(likelihood, observed[0] if likelihood.task == "binary" else observed[-1]) for likelihood, observed in CASES]


@pytest.mark.parametrize(("likelihood", "observed"), CASES, ids=lambda x: getattr(x, "name", None))
def test_exact_equals_autograd_through_many_hermite_nodes(likelihood, observed):
    mu = torch.linspace(-2, 2, 9, dtype=torch.float64).view(1, 9).repeat(2, 1).requires_grad_()
    v = t([[0.01], [0.4]]).repeat(1, 9).requires_grad_()
    for y in observed:
        obs = t(y).expand(2, 9)
        exact, many = (
            Exact()(likelihood, mu, v, obs, draws_for(2)),
            Quadrature(200)(likelihood, mu, v, obs, draws_for(2)),
        )
        torch.testing.assert_close(exact, many, rtol=1e-9, atol=1e-9)
        for a, b in zip(*(torch.autograd.grad(x.sum(), (mu, v)) for x in (exact, many)), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-8)


def test_twenty_nodes_are_the_default_and_good_for_moderate_q():
    mu, v, y = t([[0.5, -1.0]]), t([[0.2, 1.0]]), t([[1.0, 0.0]])
    assert Quadrature().nodes == 20
    torch.testing.assert_close(Quadrature()(Probit(), mu, v, y), Exact()(Probit(), mu, v, y), rtol=1e-6, atol=0)


def test_parameters_per_cell_meet_the_nodes():
    noise = t([[0.1], [0.9]])
    mu, v, y = (
        torch.zeros(2, 4, dtype=torch.float64),
        torch.full((2, 4), 0.05, dtype=torch.float64),
        t([0.1, 0.2, 0.3, 0.4]),
    )
    torch.testing.assert_close(
        Quadrature(40)(Gaussian(noise), mu, v, y), Exact()(Gaussian(noise), mu, v, y), rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize(("likelihood", "y"), ONE, ids=lambda x: getattr(x, "name", None))
def test_value_and_gradient_are_those_of_the_log_of_the_sample_mean(likelihood, y):
    mu, v = t([[0.5, -1.0, 2.0]]).requires_grad_(), t([[0.2, 1.0, 3.0]]).requires_grad_()
    obs = torch.full_like(mu, y)
    draws = draws_for(1)
    loss = BMC(6)(likelihood, mu, v, obs, draws)
    got = torch.autograd.grad(loss.sum(), (mu, v))
    f = mu + v.sqrt() * draws.normal(6, 3)[0]
    plain = -(likelihood.log_prob(f, obs).exp().mean(0)).log()
    expected = torch.autograd.grad(plain.sum(), (mu, v))
    torch.testing.assert_close(loss[0], plain, rtol=1e-12, atol=1e-12)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_far_tail_is_a_number():
    loss = BMC(10)(Probit(), t([[-40.0]]), t([[0.01]]), t([[1.0]]), draws_for(1))
    assert 700 < loss.item() < 900


@pytest.mark.slow
@pytest.mark.parametrize(("likelihood", "y"), ONE, ids=lambda x: getattr(x, "name", None))
def test_bias_of_the_value_falls_as_one_over_the_samples(likelihood, y):
    # E[-log mean] = -log Z + relative variance / (2 L) + O(L^-2): with the known constant, L times the bias is the same
    # at L = 8 and L = 32. 400 000 rows make its standard error a few per cent.
    n = 400_000
    mu, v, obs = t(0.3).expand(1, n), t(0.15).expand(1, n), t(y).expand(1, n)
    exact = Exact()(likelihood, mu[:, :1], v[:, :1], obs[:, :1])
    e = torch.linspace(-9, 9, 20001, dtype=torch.float64)
    p = likelihood.log_prob(0.3 + math.sqrt(0.15) * e, t(y)).exp()
    w = torch.exp(-e * e / 2)
    w = w / w.sum()
    relative_variance = ((w * p * p).sum() / (w * p).sum() ** 2 - 1).item()
    for samples in (8, 32):
        loss = BMC(samples)(
            likelihood, mu[:, : n // samples * 4], v[:, : n // samples * 4], obs[:, : n // samples * 4], draws_for(1)
        )
        bias, error = (loss - exact).mean().item(), loss.std().item() / math.sqrt(loss.numel())
        predicted = relative_variance / (2 * samples)
        assert abs(bias - predicted) < 4 * error + 0.6 * predicted * relative_variance + 3 * predicted / samples
        # Where the prediction is 9 standard errors, a bias within 4 of zero would be 5 off: never by chance.
        assert bias > 4 * error or predicted < 9 * error


@pytest.mark.parametrize("nu", [1e-4, 0.3])
def test_value_and_gradient_are_those_of_the_shifted_mean(nu):
    mu, v = t([[0.5, -1.0, 2.0]]).requires_grad_(), t([[0.2, 1.0, 3.0]]).requires_grad_()
    y = t([[0.0, 1.0, 4.0]])
    draws = draws_for(1, seed=3)
    loss = SmoothBMC(5, nu)(Poisson(), mu, v, y, draws)
    got = torch.autograd.grad(loss.sum(), (mu, v))
    p = Poisson().log_prob(mu + v.sqrt() * draws.normal(5, 3)[0], y).exp()
    plain = -(p.mean(0) + nu).log()
    expected = torch.autograd.grad(plain.sum(), (mu, v))
    torch.testing.assert_close(loss[0], plain, rtol=1e-12, atol=1e-12)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_loss_is_capped_and_its_gradient_vanishes_where_every_sample_misses():
    mu = t([[-40.0]]).requires_grad_()
    loss = SmoothBMC(10)(Probit(), mu, t([[0.01]]), t([[1.0]]), draws_for(1))
    (slope,) = torch.autograd.grad(loss.sum(), mu)
    assert loss.item() == pytest.approx(-math.log(1e-4), rel=1e-12)
    assert slope.item() == 0
