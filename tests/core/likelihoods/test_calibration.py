"""Scores of predictive distributions against draws, and by definition."""

import math

import numpy as np
import pytest
import scipy.stats as st
import torch

from dlmexp.core.likelihoods import Gaussian, Poisson, PoissonSoftplus, StudentT
from dlmexp.core.likelihoods.calibration import (
    LEVELS,
    _distribution_at,
    _quantile_by_blocks,
    brier,
    half_width,
)
from tests.support.product_density import t

DRAWS = 200_000
# mu, v, y: narrow and wide q, counts from 0 to thousands (those beyond 512 are tabulated in
# blocks), y in and far out.
REAL = [(0.0, 0.01, 0.1), (1.0, 2.0, -1.0), (-0.5, 0.2, 4.0)]
COUNTS = [
    (2.3, 0.02, 8),
    (2.3, 0.02, 60),
    (-3.0, 0.5, 0),
    (-3.0, 4.0, 1),
    (0.0, 1.0, 3),
    (5.0, 0.01, 160),
    (5.0, 0.01, 20),
    (3.0, 0.5, 10),
    (4.0, 1.0, 30),
    (6.5, 1e-4, 700),
    (8.6, 1e-5, 5400),
    (8.6, 1e-5, 9000),
    (7.5, 0.02, 1500),
]
OF_NUMBERS = [Gaussian(t(0.3)), StudentT(t(0.5), t(4.0))]
OF_COUNTS = [Poisson(), PoissonSoftplus()]


def draws_of_numbers(likelihood, mu, v):
    """Return draws of y from the predictive distribution."""
    rng = np.random.default_rng(1)
    f = mu + np.sqrt(v) * rng.normal(size=DRAWS)
    if isinstance(likelihood, Gaussian):
        return f + np.sqrt(likelihood.noise.item()) * rng.normal(size=DRAWS)
    return f + likelihood.scale.item() * rng.standard_t(likelihood.nu.item(), size=DRAWS)


def draws_of_counts(likelihood, mu, v):
    """Return draws of y from the predictive distribution."""
    rng = np.random.default_rng(1)
    f = mu + np.sqrt(v) * rng.normal(size=DRAWS)
    return rng.poisson(likelihood.conditional_mean(t(f)).numpy()).astype(float)


def scores_of(likelihood, mu, v, y):
    """Return the scores of one row as numbers."""
    scores = likelihood.calibration(t([[mu]]), t([[v]]), t([[y]]))
    return {name: value.item() for name, value in scores.items()}


def crps_of_draws(draws, y):
    """Return E|X - y| - E|X - X'|/2 over pairs of draws, and five standard errors of it."""
    first, second = np.split(draws, 2)
    terms = (np.abs(first - y) + np.abs(second - y) - np.abs(first - second)) / 2
    return terms.mean(), 5 * terms.std() / np.sqrt(len(terms))


def name_of(case):
    """Return the name of a likelihood; None, the default, for other values."""
    return getattr(case, "name", None)


@pytest.mark.parametrize("likelihood", OF_NUMBERS, ids=name_of)
@pytest.mark.parametrize(("mu", "v", "y"), REAL)
def test_crps_of_numbers_is_that_of_draws(likelihood, mu, v, y):
    crps, error = crps_of_draws(draws_of_numbers(likelihood, mu, v), y)
    assert scores_of(likelihood, mu, v, y)["crps"] == pytest.approx(crps, abs=error, rel=1e-9)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("likelihood", OF_NUMBERS, ids=name_of)
@pytest.mark.parametrize(("mu", "v", "y"), REAL)
def test_interval_of_numbers_is_that_of_draws(likelihood, mu, v, y, level):
    draws = draws_of_numbers(likelihood, mu, v)
    scores = scores_of(likelihood, mu, v, y)
    low, high = np.quantile(draws, [(1 - level / 100) / 2, (1 + level / 100) / 2])
    # An empirical quantile's error is sqrt(p (1 - p) / draws) / density: below 1 % of the width.
    assert scores[f"width_{level}"] == pytest.approx(high - low, rel=0.017)
    if min(abs(y - low), abs(y - high)) > 0.02 * (high - low):
        assert scores[f"coverage_{level}"] == float(low <= y <= high)
    inside = np.mean(np.abs(draws - mu) <= scores[f"width_{level}"] / 2)
    assert inside == pytest.approx(level / 100, abs=5 * np.sqrt(0.25 / DRAWS))


@pytest.mark.parametrize("likelihood", OF_COUNTS, ids=name_of)
@pytest.mark.parametrize(("mu", "v", "y"), COUNTS)
def test_scores_of_counts_are_those_of_draws(likelihood, mu, v, y):
    draws = draws_of_counts(likelihood, mu, v)
    scores = scores_of(likelihood, mu, v, y)
    crps, error = crps_of_draws(draws, y)
    # 2e-3: what tabulating in blocks may cost.
    assert scores["crps"] == pytest.approx(crps, abs=error, rel=2e-3)
    low, high = np.quantile(draws, [0.025, 0.975], method="inverted_cdf")
    assert scores["width_95"] == pytest.approx(high - low, rel=0.02, abs=1)
    if min(abs(y - low), abs(y - high)) > 0.02 * (high - low):
        assert scores["coverage_95"] == float(low <= y <= high)


@pytest.mark.parametrize("rate", [0.02, 0.7, 3.0, 40.0, 450.0])
@pytest.mark.parametrize("distance", [-3, 0, 4])
def test_scores_of_a_point_mass_are_those_of_its_poisson(rate, distance):
    """Summed count by count, they are exact."""
    y = max(0.0, round(rate + distance * math.sqrt(rate)))
    poisson = st.poisson(rate)
    k = np.arange(2000)
    crps = ((poisson.cdf(k) - (y <= k)) ** 2).sum()
    low, high = poisson.ppf([0.025, 0.975])
    scores = scores_of(Poisson(), math.log(rate), 1e-14, y)
    assert scores["crps"] == pytest.approx(crps, rel=1e-4, abs=1e-6)
    assert scores["width_95"] == high - low
    assert scores["coverage_95"] == float(low <= y <= high)


def test_interval_of_counts_includes_both_ends():
    mu = t([[math.log(9.0)] * 4])
    v = torch.full_like(mu, 1e-14)
    low, high = st.poisson(9.0).ppf([0.025, 0.975])
    ends = Poisson().interval(mu, v)
    assert ends[0].tolist() == [[low] * 4]
    assert ends[1].tolist() == [[high] * 4]
    y = t([[low - 1, low, high, high + 1]])
    assert Poisson().calibration(mu, v, y)["coverage_95"].tolist() == [[0, 1, 1, 0]]


@pytest.mark.parametrize("rate", [3000.0, 50_000.0])
@pytest.mark.parametrize("distance", [-2.0, 0.0, 1.0])
def test_large_counts_in_blocks_have_the_scores_of_a_normal(rate, distance):
    y = round(rate + distance * math.sqrt(rate))
    scores = scores_of(Poisson(), math.log(rate), 1e-14, float(y))
    normal = scores_of(Gaussian(t(rate)), rate, 1e-14, float(y))
    assert scores["crps"] == pytest.approx(normal["crps"], rel=0.02)
    assert scores["width_95"] == pytest.approx(normal["width_95"], rel=0.02)


@pytest.mark.parametrize("s", [0.5, 2.0, 4.0])
def test_tabulated_distribution_of_counts_is_theirs(s):
    likelihood = Poisson()
    k = torch.arange(0.0, 30, dtype=torch.float64)[None]
    mu = torch.ones_like(k)
    tabulated = _distribution_at(likelihood.conditional_mean, likelihood.peak, mu[:, 0], t([s]), k)
    exact = likelihood.cdf(mu, torch.full_like(k, s * s), k)
    # The first 16 counts are summed.
    torch.testing.assert_close(tabulated[:, :16], exact[:, :16], rtol=0, atol=1e-12)
    torch.testing.assert_close(tabulated, exact, rtol=0, atol=2e-5)


def test_quantile_in_a_block_is_the_first_count_that_reaches_the_share():
    edges = t([[-1.0, 9.0, 19.0]])
    # F(k) = (k + 1) / 20
    F = t([[0.0, 0.5, 1.0]])
    quantiles = [_quantile_by_blocks(edges, F, share).item() for share in (0.01, 0.24, 0.26, 0.74)]
    assert quantiles == [0, 4, 5, 14]


def test_count_without_a_distribution_has_no_scores():
    mu = t([[torch.nan, 0.0]])
    scores = Poisson().calibration(mu, torch.ones_like(mu), torch.ones_like(mu))
    for value in scores.values():
        assert value.isnan().tolist() == [[True, False]]


def test_scores_of_float32_counts_are_float64():
    scores = Poisson().calibration(torch.zeros(3, 2), torch.ones(3, 2), torch.ones(3, 2))
    for value in scores.values():
        assert value.shape == (3, 2)
        assert value.dtype == torch.float64


@pytest.mark.parametrize("level", LEVELS)
def test_half_width_holds_its_share_of_a_normal(level):
    h = half_width(level)
    assert st.norm.cdf(h) - st.norm.cdf(-h) == pytest.approx(level / 100, rel=1e-12)


def test_crps_of_a_normal_has_its_known_closed_form():
    # At the mean, CRPS = s (sqrt(2) - 1) / sqrt(pi).
    crps = scores_of(Gaussian(t(3.0)), 1.0, 1.0, 1.0)["crps"]
    assert crps == pytest.approx(2 * (math.sqrt(2) - 1) / math.sqrt(math.pi), rel=1e-12)


def test_brier_score_is_the_squared_error_of_the_probability():
    assert brier(t([0.2, 0.9]), t([1.0, 1.0]))["brier"].tolist() == pytest.approx([0.64, 0.01])
