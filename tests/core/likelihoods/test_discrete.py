"""Classes and counts: probit in corners, moments of counts, and the softplus link."""

import math

import numpy as np
import pytest
import torch

from dlmexp.core.likelihoods import Logistic, Poisson, PoissonSoftplus, Probit
from dlmexp.core.likelihoods.discrete import signs, softplus
from tests.support.gauss_legendre import assert_log_loss_is_exact
from tests.support.likelihood_cases import CORNERS_OF_CLASSES, LIKELIHOODS_WITH_DENSITY
from tests.support.product_density import F64, t


@pytest.mark.parametrize(("mu", "v", "y"), CORNERS_OF_CLASSES)
def test_log_loss_of_probit_is_exact_in_every_corner(mu, v, y):
    likelihood, log_p = LIKELIHOODS_WITH_DENSITY["probit"]
    assert_log_loss_is_exact(likelihood, log_p, mu, v, y)


def test_labels_become_signs():
    assert signs(t([0.0, 1.0])).tolist() == [-1.0, 1.0]


@pytest.mark.parametrize("likelihood", [Probit(), Logistic()], ids=lambda l: l.name)
def test_probabilities_of_both_classes_add_up_to_one(likelihood):
    mu = t([[-3.0, 0.2, 5.0]])
    v = t([[0.1, 2.0, 9.0]])
    losses = [likelihood.log_loss(mu, v, torch.full_like(mu, y)) for y in (0.0, 1.0)]
    total = (-losses[0]).exp() + (-losses[1]).exp()
    torch.testing.assert_close(total, torch.ones_like(total), rtol=1e-9, atol=0)
    torch.testing.assert_close((-losses[1]).exp(), likelihood.mean(mu, v), rtol=1e-9, atol=0)


def test_softplus_has_all_digits_where_torchs_own_has_not():
    f = t([-40.0, -1.0, 0.0, 19.0, 21.0, 30.0, 800.0])
    exact = [x + math.log1p(math.exp(-x)) if x > 0 else math.log1p(math.exp(x)) for x in f.tolist()]
    np.testing.assert_allclose(softplus(f).numpy(), exact, rtol=1e-15)


def test_terms_of_softplus_counts_are_those_of_an_exponential_link_far_on_the_left():
    f = t([-1e4, -800.0, -40.0])
    at = PoissonSoftplus().terms(f, t(3.0))
    torch.testing.assert_close(at.value, 3 * f, rtol=1e-12, atol=0)
    torch.testing.assert_close(at.slope, torch.full_like(f, 3.0), rtol=1e-12, atol=0)
    torch.testing.assert_close(at.curvature, torch.zeros_like(f), rtol=0, atol=1e-12)


def test_standard_deviation_of_counts_adds_the_spread_of_the_rate():
    mu = t([[0.3, 1.0]])
    v = t([[0.2, 0.5]])
    mean = (mu + v / 2).exp()
    variance = mean + (v.exp() - 1) * mean.square()
    torch.testing.assert_close(Poisson().std(mu, v), variance.sqrt(), rtol=1e-9, atol=0)


@pytest.mark.parametrize("likelihood", [Poisson(), PoissonSoftplus()], ids=lambda l: l.name)
def test_distribution_function_of_counts_is_the_sum_of_their_probabilities(likelihood):
    k = torch.arange(0.0, 8, dtype=F64)[None]
    mu = torch.full_like(k, 0.3)
    v = torch.full_like(k, 0.5)
    cdf = likelihood.cdf(mu, v, k)
    probability = (-likelihood.log_loss(mu, v, k)).exp()
    torch.testing.assert_close(cdf, probability.cumsum(-1), rtol=0, atol=1e-6)
    assert (likelihood.cdf(mu, v, torch.full_like(k, -1.0)) == 0).all()
    assert torch.equal(likelihood.cdf(mu, v, k + 0.7), cdf)
