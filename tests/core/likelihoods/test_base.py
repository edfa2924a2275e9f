"""What holds for every likelihood: densities, losses, moments, batching, and the generic forms."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as hs

from dlmexp.common.errors import UserError
from dlmexp.core.gp.special import expectation
from dlmexp.core.likelihoods import LIKELIHOODS, Gaussian, Likelihood, Probit
from dlmexp.core.likelihoods.base import misclassified, relative_error, squared_error
from tests.support.likelihood_cases import (
    LIKELIHOODS_WITH_DENSITY,
    OBSERVATIONS,
    every_likelihood,
    likelihood_of,
    observations_of,
    with_gradients,
)
from tests.support.product_density import F64, t


@every_likelihood
def test_log_prob_equals_scipys_density(name):
    likelihood, log_p = LIKELIHOODS_WITH_DENSITY[name]
    f = np.linspace(-8, 8, 41)
    for y in observations_of(name):
        log_prob = likelihood.log_prob(t(f), t(y)).numpy()
        np.testing.assert_allclose(log_prob, log_p(f, y), rtol=1e-11, atol=1e-12)


@every_likelihood
def test_log_prob_reaches_log_p_max_at_its_peak(name):
    likelihood = likelihood_of(name)
    y = t(observations_of(name))
    # The peak of classes, and of a count of 0, is infinite.
    highest = torch.inf if name == "poisson_softplus" else 40.0
    at_peak = likelihood.log_prob(likelihood.peak(y).clamp(-40, highest), y)
    torch.testing.assert_close(at_peak, likelihood.log_p_max(y), rtol=1e-12, atol=1e-12)


@every_likelihood
def test_log_prob_stays_below_log_p_max(name):
    likelihood = likelihood_of(name)
    y = t(observations_of(name))
    distance = torch.linspace(-3, 3, 61, dtype=F64).unsqueeze(-1)
    around = likelihood.log_prob(likelihood.peak(y).clamp(-40, 400) + distance, y)
    assert (around <= likelihood.log_p_max(y) + 1e-12).all()


LINKS = {
    "probit": torch.special.ndtr,
    "logistic": torch.sigmoid,
    "poisson": torch.exp,
    "poisson_softplus": lambda f: torch.logaddexp(f, torch.zeros_like(f)),
}


@every_likelihood
def test_mean_is_the_integral_of_the_conditional_mean(name):
    mu = t([-1.0, 0.2, 2.0])
    v = t([0.1, 1.0, 3.0])
    link = LINKS.get(name, lambda f: f)
    expected = expectation(link, mu, v, nodes=120)
    torch.testing.assert_close(likelihood_of(name).mean(mu, v), expected, rtol=1e-8, atol=1e-10)


@every_likelihood
def test_elbo_loss_is_the_integral_of_minus_log_prob(name):
    likelihood = likelihood_of(name)
    mu = torch.linspace(-3, 3, 7, dtype=F64).unsqueeze(-1)
    v = t([0.01, 0.3, 1.0])
    e = torch.linspace(-9, 9, 3601, dtype=F64).view(-1, 1, 1)
    w = torch.exp(-e * e / 2)
    # 20 nodes are exact for smooth terms; student_t has a pole at distance scale sqrt(nu) = 1 from
    # the real line.
    tolerance = 2e-3 if name == "student_t" else 1e-6
    for y in observations_of(name):
        exact = -(w * likelihood.log_prob(mu + v.sqrt() * e, t(y))).sum(0) / w.sum(0)
        loss = likelihood.elbo_loss(mu, v, t([y]))
        torch.testing.assert_close(loss, exact, rtol=tolerance, atol=1e-7)


def rows_with_nan_neighbours(name):
    """Return mu, v, y [3, 40]; cell 1 and every second row of cell 2 are NaN."""
    generator = torch.Generator().manual_seed(0)
    mu = torch.randn(3, 40, generator=generator, dtype=F64)
    v = torch.rand(3, 40, generator=generator, dtype=F64) + 0.01
    observed = t(observations_of(name))
    y = observed[torch.randint(len(observed), (3, 40), generator=generator)]
    mu[1] = torch.nan
    v[2, ::2] = torch.nan
    return mu, v, y


@every_likelihood
@pytest.mark.parametrize("quantity", ["log_loss", "elbo_loss", "scores"])
def test_row_does_not_depend_on_its_neighbours_even_if_they_are_nan(name, quantity):
    def compute(mu, v, y):
        if quantity != "scores":
            return with_gradients(getattr(likelihood_of(name), quantity), mu, v, y)
        noise = torch.full((len(mu),), 0.3, dtype=F64)
        likelihood = LIKELIHOODS[name].from_hyper({"noise": noise})
        return torch.stack(list(likelihood.calibration(mu, v, y).values()))

    mu, v, y = rows_with_nan_neighbours(name)
    together = compute(mu, v, y)
    for cell, row in [(0, 0), (0, 17), (2, 1), (2, 39)]:
        alone = compute(*(part[cell, row].view(1, 1) for part in (mu, v, y)))
        torch.testing.assert_close(together[:, cell, row], alone[:, 0, 0], rtol=1e-10, atol=1e-12)
    assert together[0, 1].isnan().all()


@every_likelihood
@settings(max_examples=40, derandomize=True)
@given(mu=hs.floats(-40, 40), log_v=hs.floats(-12, 4), y=hs.integers(0, 10_000))
def test_log_loss_is_finite_and_between_its_bounds_everywhere(name, mu, log_v, y):
    likelihood = likelihood_of(name)
    observed = {"binary": y % 2, "regression": y / 100, "count": y}[likelihood.task]
    y = t([float(observed)])
    mu = t([mu])
    v = t([10.0**log_v])
    loss_and_gradients = with_gradients(likelihood.log_loss, mu, v, y)
    assert loss_and_gradients.isfinite().all()
    loss = loss_and_gradients[0].item()
    assert loss >= -likelihood.log_p_max(y).item() - max(1e-9 * (1 + abs(loss)), 2e-5)
    # Jensen; where the 20-node ELBO term is itself an approximation (wide q), it is no witness.
    if log_v < 0 and name != "student_t":
        assert loss <= likelihood.elbo_loss(mu, v, y).item() * (1 + 1e-9) + 1e-6


@every_likelihood
@pytest.mark.parametrize("v", [1e-12, 1e-5])
@pytest.mark.parametrize("mu", [-2.0, 6.0])
def test_log_loss_of_a_narrow_q_is_a_taylor_series(name, v, mu):
    """log E p = l + v (l'' + l'^2)/2 + O(v^2), with derivatives l' + v (...) and (l'' + l'^2)/2."""
    likelihood = likelihood_of(name)
    y = t({"count": 40.0, "regression": 1.5, "binary": 1.0}[likelihood.task])
    f = t([mu - 1e-5, mu, mu + 1e-5]).requires_grad_()
    value = likelihood.log_prob(f, y)
    (slopes,) = torch.autograd.grad(value.sum(), f)
    slope = slopes[1].item()
    second_derivative = (slopes[2] - slopes[0]).item() / 2e-5
    half = (second_derivative + slope**2) / 2
    loss, d_mu, d_v = with_gradients(likelihood.log_loss, t([mu]), t([v]), y.view(1)).flatten()
    error = v * (1 + slope**4)
    expected = -(value[1].item() + v * half)
    assert loss.item() == pytest.approx(expected, rel=1e-11, abs=v * error + 1e-10)
    assert d_mu.item() == pytest.approx(-slope, rel=1e-9, abs=10 * error)
    assert d_v.item() == pytest.approx(-half, rel=1e-6, abs=10 * error)


@dataclass(frozen=True)
class Plain(Likelihood):
    """The least that a plugin may write."""

    scale: torch.Tensor = field(default_factory=lambda: t(1.0))
    name = "plain"

    def log_prob(self, f, y):
        return -0.5 * ((y - f) / self.scale).square()


@dataclass(frozen=True)
class PlainCounts(Plain):
    task = "count"


def test_generic_losses_are_the_integrals_of_a_likelihood_with_log_prob_alone():
    mu = t([[0.5, -1.0]])
    v = t([[0.3, 2.0]])
    y = t([[1.0, 0.0]])
    # Up to its constant, Plain is a normal density with variance 1.
    normal = Gaussian(t(1.0))
    constant = 0.5 * np.log(2 * np.pi)
    plain = Plain()
    torch.testing.assert_close(plain.log_loss(mu, v, y), normal.log_loss(mu, v, y) - constant)
    torch.testing.assert_close(plain.elbo_loss(mu, v, y), normal.elbo_loss(mu, v, y) - constant)
    torch.testing.assert_close(plain.mean(mu, v), mu)
    assert plain.std(mu, v) is None
    assert plain.interval(mu, v) is None
    assert plain.calibration(mu, v, y) == {}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: PlainCounts().conditional_mean(t(0.0)), "'plain' has no conditional_mean"),
        (lambda: Plain().cdf(t([0.0]), t([1.0]), t([0.0])), "'plain' has no cdf"),
        (lambda: Plain().peak(t([0.0])), "needs the peak of the likelihood 'plain'"),
    ],
    ids=["conditional_mean", "cdf", "peak"],
)
def test_missing_method_is_named_in_the_error(call, words):
    with pytest.raises(UserError, match=words):
        call()


def test_parameters_meet_samples_in_a_dimension_of_their_own():
    sampled = Plain(t([[0.5], [2.0]])).over_samples()
    assert sampled.scale.shape == (2, 1, 1)
    assert Plain().over_samples().scale.shape == ()


def test_binary_likelihood_is_scored_by_brier():
    mu = t([[0.4, -2.0]])
    v = t([[0.1, 1.0]])
    y = t([[1.0, 1.0]])
    scores = Probit().calibration(mu, v, y)
    assert list(scores) == ["brier"]
    torch.testing.assert_close(scores["brier"], (Probit().mean(mu, v) - y).square())


def test_metrics_measure_the_predicted_mean():
    normal = Gaussian(t(1.0))
    mu = t([[2.0, 0.5, 4.0]])
    v = torch.ones_like(mu)
    y = t([[1.0, 0.0, 8.0]])
    assert squared_error(normal, mu, v, y).tolist() == [[1.0, 0.25, 16.0]]
    # Below one count the error is absolute.
    assert relative_error(normal, mu, v, y).tolist() == [[1.0, 0.5, 0.5]]


def test_classes_are_predicted_where_they_are_more_probable_than_a_half():
    mu = t([[0.1, -0.1, 0.1, -0.1, 0.0]])
    y = t([[1.0, 0.0, 0.0, 1.0, 0.0]])
    wrong = misclassified(Probit(), mu, torch.ones_like(mu), y)
    assert wrong.tolist() == [[0, 0, 1, 1, 0]]


def test_observations_cover_every_task():
    assert {likelihood.task for likelihood in map(likelihood_of, LIKELIHOODS_WITH_DENSITY)} == set(
        OBSERVATIONS
    )
