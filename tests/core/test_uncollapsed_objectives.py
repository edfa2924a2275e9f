"""Objectives with an explicit q other than those of the paper: tighter, crps and robust."""

import math
import warnings

import pytest
import torch

with warnings.catch_warnings():
    # torch deprecates its script decorator, which GPyTorch's dependency still uses when it is
    # imported.
    warnings.filterwarnings("ignore", "`torch.jit.script`", DeprecationWarning)
    import gpytorch
from gpytorch.distributions import MultivariateNormal
from gpytorch.mlls import GammaRobustVariationalELBO

from dlmexp.core.estimators import Draws, Exact
from dlmexp.core.gp.posterior import Marginals
from dlmexp.core.likelihoods import Gaussian, Poisson
from dlmexp.core.objectives.crps import predictive_crps
from dlmexp.core.objectives.robust import gamma_divergence_loss
from dlmexp.core.objectives.tighter import cost_of_scale, scaled_expected_loss

MU = torch.tensor([[-1.0, 0.2, 2.0], [0.5, 0.1, -0.3]], dtype=torch.float64)
V = torch.tensor([[0.3, 0.1, 1.0], [0.2, 2.0, 0.7]], dtype=torch.float64)
Y = torch.tensor([[0.0, 1.0, 2.0], [3.0, 1.0, 0.0]], dtype=torch.float64)
DRAWS = Draws.fresh((2,))
NOISE = torch.tensor([[0.3], [0.05]], dtype=torch.float64)


class SparseGP(gpytorch.models.ApproximateGP):
    """Any model: GPyTorch's objective asks for one, and the term under test does not use it."""

    def __init__(self):
        distribution = gpytorch.variational.CholeskyVariationalDistribution(3)
        Z = torch.zeros(3, 1)
        super().__init__(gpytorch.variational.VariationalStrategy(self, Z, distribution))


@pytest.mark.parametrize("gamma", [1.01, 1.03, 1.5])
def test_robust_loss_has_the_value_and_gradient_of_gpytorch(gamma):
    for cell in range(2):
        mu = MU[cell].clone().requires_grad_()
        v = V[cell].clone().requires_grad_()
        likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        likelihood.noise = NOISE[cell]
        objective = GammaRobustVariationalELBO(likelihood, SparseGP(), num_data=3, gamma=gamma)
        theirs = -objective._log_likelihood_term(MultivariateNormal(mu, torch.diag(v)), Y[cell])
        their_gradients = torch.autograd.grad(theirs, [mu, v])
        ours, _ = gamma_divergence_loss(
            Gaussian(NOISE[cell : cell + 1]),
            Exact(),
            Marginals(mu[None], v[None]),
            Y[cell : cell + 1],
            DRAWS,
            gamma=gamma,
        )
        our_gradients = torch.autograd.grad(ours.sum(), [mu, v])
        torch.testing.assert_close(ours.sum(), theirs, rtol=1e-9, atol=1e-10)
        for a, b in zip(our_gradients, their_gradients, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)


def test_crps_loss_equals_the_integral_that_defines_it():
    """CRPS = integral of (F(x) - [x >= y])^2 dx, by the trapezoidal rule on both sides of y."""
    loss, _ = predictive_crps(Gaussian(NOISE), Exact(), Marginals(MU, V), Y, DRAWS)
    std = (V + NOISE).sqrt()
    reach = torch.linspace(0, 1, 20001, dtype=torch.float64)[:, None, None] * 30
    below = torch.special.ndtr((Y - reach - MU) / std).square()
    above = torch.special.ndtr(-(Y + reach - MU) / std).square()
    expected = torch.trapezoid(below, reach, dim=0) + torch.trapezoid(above, reach, dim=0)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)


def test_scale_one_gives_the_loss_and_the_cost_of_the_elbo():
    one = torch.ones(2, 1, dtype=torch.float64)
    q_f = Marginals(MU, V, None, 0.5 * V, {"conditional_scale": one})
    loss, _ = scaled_expected_loss(Poisson(), Exact(), q_f, Y, DRAWS)
    torch.testing.assert_close(loss, Poisson().elbo_loss(MU, V, Y))
    cost = cost_of_scale({"conditional_scale": one[:, 0]})
    torch.testing.assert_close(cost, torch.zeros(2, dtype=torch.float64))


def test_scaled_loss_at_the_best_scale_has_the_bound_of_gaussian_noise():
    """sum_i c r_i / (2 noise) + n/2 (c - log c - 1) is least at c = 1 / (1 + tr(D) / (n noise)),
    where it is n/2 log(1 + tr(D) / (n noise))."""
    r = 0.5 * V
    n = V.shape[-1]
    ratio = (r / NOISE).mean(-1)

    def extra(c):
        """The mean loss per row, less that of f without its residual variance."""
        q_f = Marginals(MU, V, None, r, {"conditional_scale": c[:, None]})
        loss, _ = scaled_expected_loss(Gaussian(NOISE), Exact(), q_f, Y, DRAWS)
        explained = Gaussian(NOISE).elbo_loss(MU, V - r, Y)
        return (loss - explained).mean(-1) + cost_of_scale({"conditional_scale": c})

    best = 1 / (1 + ratio)
    expected = 0.5 * torch.log1p(ratio)
    assert n == 3
    torch.testing.assert_close(extra(best), expected, rtol=1e-10, atol=1e-12)
    assert (extra(0.9 * best) > expected).all()
    assert (extra(1.1 * best) > expected).all()


def test_scaled_loss_never_has_less_than_no_variance():
    zero = torch.zeros(2, 1, dtype=torch.float64)
    q_f = Marginals(MU, V, None, V, {"conditional_scale": zero})
    loss, _ = scaled_expected_loss(Gaussian(NOISE), Exact(), q_f, Y, DRAWS)
    point = 0.5 * (math.log(2 * math.pi) + NOISE.log() + (Y - MU).square() / NOISE)
    torch.testing.assert_close(loss, point)
