import math

import pytest
import torch

from dlmexp.estimators import BMC, Exact
from dlmexp.gp.likelihoods import Gaussian, Logistic, Poisson, PoissonSoftplus, Probit, StudentT
from tests.support.product_density import draws_for, t

CASES = [
    (Gaussian(t(0.3)), 0.4),
    (Probit(), 0.0),
    (Poisson(), 3.0),
    (PoissonSoftplus(), 3.0),
    (Logistic(), 0.0),
    (StudentT(t(0.5), t(4.0)), 1.5),
]


@pytest.mark.parametrize(("likelihood", "y"), CASES, ids=lambda x: getattr(x, "name", None))
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
    loss = BMC(10)(Probit(), t([-40.0]), t([0.01]), t([1.0]), _fresh())
    assert 700 < loss.item() < 900


def _fresh():
    from dlmexp.estimators import FreshDraws

    return FreshDraws((), torch.Generator().manual_seed(0))


@pytest.mark.slow
@pytest.mark.parametrize(("likelihood", "y"), CASES, ids=lambda x: getattr(x, "name", None))
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
