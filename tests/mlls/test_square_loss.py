"""SquareLoss: its definition in both parameterisations, and training to the closed form."""

# GPyTorch gives the result of every call a union of types.
# pyright: reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false

from typing import Any

import gpytorch
import pytest
import torch
from gpytorch.variational import UnwhitenedVariationalStrategy

from dlmexp.mlls import SquareLoss


@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_is_the_square_loss_and_the_squared_norm_of_m(batch, model, data):
    m = model(batch)
    value = SquareLoss(gpytorch.likelihoods.GaussianLikelihood(), m, 100, beta=0.3)(m(data["x"]), data["real"])
    error = (m(data["x"]).mean - data["real"]).square().mean(-1)
    mean = m.variational_strategy._variational_distribution.variational_mean
    torch.testing.assert_close(value, -0.5 * error - 0.3 / 100 * 0.5 * mean.square().sum(-1), rtol=1e-12, atol=1e-12)


def test_unwhitened_norm_is_that_of_the_whitened_mean(model, data):
    m = model((), UnwhitenedVariationalStrategy)
    value = SquareLoss(gpytorch.likelihoods.GaussianLikelihood(), m, 100, beta=0.3)(m(data["x"]), data["real"])
    strategy = m.variational_strategy
    Kuu = strategy.prior_distribution.covariance_matrix
    difference = strategy._variational_distribution.variational_mean - m.mean_module.constant
    norm = difference @ torch.linalg.solve(Kuu, difference)
    error = (m(data["x"]).mean - data["real"]).square().mean(-1)
    torch.testing.assert_close(value, -0.5 * error - 0.3 / 100 * 0.5 * norm, rtol=1e-9, atol=1e-12)


def test_maximum_over_m_is_the_closed_form(model, data):
    """m = (A A^T + beta I)^-1 A y, with A read off the model itself (its mean is linear in m)."""
    m: Any = model()
    mll = SquareLoss(gpytorch.likelihoods.GaussianLikelihood(), m, 30, beta=0.5)
    mean = m.variational_strategy._variational_distribution.variational_mean
    m(data["x"])
    mean.data.zero_()
    base = m(data["x"]).mean.detach()
    A = torch.stack([torch.autograd.grad(m(data["x"]).mean[i], mean)[0] for i in range(30)], -1)
    system = A @ A.mT + 0.5 * torch.eye(6, dtype=torch.float64)
    mean.data.copy_(torch.linalg.solve(system, A @ (data["real"] - base)))
    (gradient,) = torch.autograd.grad(mll(m(data["x"]), data["real"]), mean)
    assert gradient.abs().max() < 1e-12


def test_gradient_leaves_covariance_and_noise_alone(model, data):
    m, likelihood = model(), gpytorch.likelihoods.GaussianLikelihood().double()
    SquareLoss(likelihood, m, 100)(m(data["x"]), data["real"]).backward()
    covariance = m.variational_strategy._variational_distribution.chol_variational_covar.grad
    assert covariance is None or covariance.abs().max() == 0
    assert likelihood.raw_noise.grad is None
