import math

import pytest
import torch

from dlmexp.estimators import BMC, SmoothBMC
from dlmexp.gp.likelihoods import Poisson, Probit
from tests.support.product_density import draws_for, t


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


def test_without_smoothing_it_is_bmc():
    mu, v, y = t([[0.5, -1.0]]), t([[0.2, 1.0]]), t([[1.0, 0.0]])
    torch.testing.assert_close(
        SmoothBMC(7, nu=1e-300)(Probit(), mu, v, y, draws_for(1)),
        BMC(7)(Probit(), mu, v, y, draws_for(1)),
        rtol=1e-12,
        atol=1e-12,
    )
