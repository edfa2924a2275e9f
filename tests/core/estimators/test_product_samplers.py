"""Samplers against the numerically normalised density, and the paper's own sampler in detail."""

import mpmath as mp
import numpy as np
import pytest
import torch

from dlmexp.common.errors import UserError
from dlmexp.core.estimators import product_samplers
from dlmexp.core.estimators.product_samplers import (
    SAMPLERS,
    ProductSample,
    truncated_normal,
    widening,
)
from dlmexp.core.likelihoods import Gaussian, Likelihood, Logistic, Poisson, Probit
from tests.support.product_density import ROWS, SAMPLES, draw, draws_for, grid_and_cdf, p_values, t

pytestmark = pytest.mark.slow

REJECTION_ROWS = ["gaussian", "probit", "poisson", "softplus zero", "logistic", "student"]


@pytest.mark.parametrize(
    ("sampler", "row"),
    [*(("auto", row) for row in ROWS), *(("rejection", row) for row in REJECTION_ROWS)],
)
def test_samples_have_the_product_density(sampler, row):
    samples = draw(SAMPLERS[sampler], *ROWS[row], n=SAMPLES, seed=1 if sampler == "auto" else 2)
    e, cdf = grid_and_cdf(*ROWS[row])
    assert np.isfinite(samples).all()
    assert min(p_values(samples, e, cdf)) > 1e-3


@pytest.mark.parametrize("kind", sorted({row.split()[0] for row in ROWS}))
def test_row_draws_the_same_whatever_shares_its_batch(kind):
    rows = [row for name, row in ROWS.items() if name.split()[0] == kind]
    likelihood = rows[0][0]
    mu, v, y = (t([[row[i]] * 6 for row in rows + rows]) for i in (1, 2, 3))
    mu[-1] = torch.nan
    sampler = SAMPLERS["auto"]
    together = sampler.draw(likelihood, mu, v, y, 5, draws_for(len(mu))).e
    for b in range(len(rows)):
        cell = slice(b, b + 1)
        alone = sampler.draw(likelihood, mu[cell], v[cell], y[cell], 5, draws_for(1, seed=b)).e
        torch.testing.assert_close(together[b], alone[0], rtol=1e-10, atol=1e-12)


def test_acceptance_is_accepted_over_proposed_all_rows_together():
    e = torch.zeros(2, 3, 2)
    accepted = torch.ones(2, 2)
    # One and two proposals for one accepted sample each: 2 of 3; four and four: 2 of 8.
    sample = ProductSample(e, accepted, t([[1, 2], [4, 4]]))
    assert sample.acceptance.tolist() == [2 / 3, 1 / 4]
    # Three proposals in every row, whether any was accepted or not.
    assert ProductSample(e, t([[3, 0], [1, 2]]), 3).acceptance.tolist() == [1 / 2, 1 / 2]


class Undrawable(Likelihood):
    """A likelihood that names no sampler."""

    name = "undrawable"


@pytest.mark.parametrize(
    ("sampler", "likelihood", "words"),
    [
        ("auto", Undrawable, "'undrawable' has no product sampler; use estimator=exact"),
        ("gaussian", Probit, "sampler=gaussian can't draw for .*'probit': use sampler=auto"),
        ("gaussian", Undrawable, "use estimator=exact"),
    ],
)
def test_sampler_that_can_not_draw_for_a_likelihood_is_refused(sampler, likelihood, words):
    with pytest.raises(UserError, match=words):
        SAMPLERS[sampler].sampler_for(likelihood)


def test_auto_is_the_sampler_that_the_likelihood_names():
    assert SAMPLERS["auto"].sampler_for(Probit).name == "skew_normal"
    assert SAMPLERS["rejection"].sampler_for(Probit).name == "rejection"


def widening_by_search(likelihood, mu, v, y) -> int:
    """Return k by the rule as the paper states it, maxima by a dense grid."""

    def log_best(radius: float) -> float:
        f = t(np.linspace(mu - radius, mu + radius, 20001))
        return likelihood.log_prob(f, t(y)).max().item() - likelihood.log_p_max(t(y)).item()

    if log_best(np.sqrt(v)) >= np.log(0.5):
        return 1
    fits = [
        k for k in range(2, 11) if log_best(np.sqrt(v * np.log(k) / (1 - 1 / k))) <= -np.log(k) / 2
    ]
    return max(fits, default=1)


@pytest.mark.parametrize(
    ("likelihood", "observed"),
    [(Probit(), [0.0, 1.0]), (Poisson(), [0.0, 1.0, 8.0]), (Logistic(), [1.0])],
)
def test_widening_follows_the_papers_rule(likelihood, observed):
    rng = np.random.default_rng(0)
    results = set()
    for y in observed:
        for mu, v in zip(rng.normal(size=25) * 2, 10 ** rng.uniform(-1.5, 0.7, 25), strict=True):
            k = widening(likelihood, t([mu]), t([v]), t([y])).item()
            assert k == widening_by_search(likelihood, mu, v, y)
            results.add(k)
    assert len(results) > 2


@pytest.mark.parametrize(
    ("likelihood", "mu", "v", "y", "widened"),
    [(Gaussian(t(0.5)), 0, 0.4, 0.3, False), (Probit(), -2, 1, 1, True)],
)
def test_acceptance_of_rejection_is_the_evidence_over_p_max(likelihood, mu, v, y, widened):
    """Whether proposals are drawn from q, or wider, with a bound that is as much tighter."""
    mu, v, y = (torch.full((1, 20_000), float(x), dtype=torch.float64) for x in (mu, v, y))
    assert (widening(likelihood, mu, v, y)[0, 0] > 1) == widened
    sample = SAMPLERS["rejection"].draw(likelihood, mu, v, y, 5, draws_for(1))
    expected = (-likelihood.log_loss(mu, v, y) - likelihood.log_p_max(y)).exp()[0, 0].item()
    assert sample.acceptance.item() == pytest.approx(expected, rel=0.015)


def test_rows_that_rejection_could_never_finish_come_from_the_exact_sampler():
    mu, v, y = t([[-40.0, 0.1]]), t([[0.3, 0.3]]), t([[1.0, 1.0]])
    sample = SAMPLERS["rejection"].draw(Probit(), mu, v, y, 3, draws_for(1))
    exact = SAMPLERS["auto"].draw(Probit(), mu, v, y, 3, draws_for(1))
    torch.testing.assert_close(sample.e[..., 0], exact.e[..., 0], rtol=1e-12, atol=1e-12)
    assert isinstance(sample.proposed, torch.Tensor)
    assert sample.proposed[0, 0] == 3 * product_samplers.ROUNDS
    rate = sample.accepted / sample.proposed
    assert rate[0, 1] > 0.1


def test_rejection_takes_the_parameters_of_each_cell_at_the_open_entries():
    noise = t([[0.05], [2.0]])
    mu = torch.zeros(2, 30_000, dtype=torch.float64)
    e = SAMPLERS["rejection"].draw(Gaussian(noise), mu, mu + 1.0, mu + 1.0, 2, draws_for(2)).e
    mean = 1 / (1 + noise)
    variance = noise / (1 + noise)
    torch.testing.assert_close(e.mean((1, 2)), mean.flatten(), rtol=0, atol=0.03)
    torch.testing.assert_close(e.var((1, 2)), variance.flatten(), rtol=0.04, atol=0)


def test_rounds_at_once_are_rounds_one_by_one(monkeypatch):
    rng = np.random.default_rng(1)
    mu = t(rng.normal(size=(2, 300)) * 2)
    v = t(10 ** rng.uniform(-1, 1, (2, 300)))
    y = t(rng.poisson(3, (2, 300)))
    together = SAMPLERS["rejection"].draw(Poisson(), mu, v, y, 4, draws_for(2))
    monkeypatch.setattr(product_samplers, "MAX_ROUNDS_AT_ONCE", 1)
    one_by_one = SAMPLERS["rejection"].draw(Poisson(), mu, v, y, 4, draws_for(2))
    torch.testing.assert_close(together.e, one_by_one.e, rtol=1e-12, atol=1e-12)
    assert torch.equal(torch.as_tensor(together.proposed), torch.as_tensor(one_by_one.proposed))
    assert torch.as_tensor(together.proposed).max() > 40, "rows that need several blocks of rounds"


@pytest.mark.parametrize("sampler", ["hybrid", "individual"])
def test_samplers_that_go_through_entries_one_by_one_draw_the_samples_of_rejection(sampler):
    rng = np.random.default_rng(2)
    mu = t(rng.normal(size=(2, 6)) * 2)
    v = t(10 ** rng.uniform(-1, 0.5, (2, 6)))
    y = t(rng.poisson(3, (2, 6)))
    together = SAMPLERS["rejection"].draw(Poisson(), mu, v, y, 3, draws_for(2))
    apart = SAMPLERS[sampler].draw(Poisson(), mu, v, y, 3, draws_for(2))
    torch.testing.assert_close(apart.e, together.e, rtol=1e-10, atol=1e-12)
    assert torch.equal(torch.as_tensor(apart.proposed), torch.as_tensor(together.proposed))
    assert torch.as_tensor(together.proposed).max() > 6, "entries open after two rounds"


def log_normal_tail(x):
    """Return log of the share of N(0, 1) beyond x; in the far tail by its asymptotic series."""
    x = mp.mpf(x)
    if x < 100:
        return mp.log(mp.ncdf(-x))
    series = mp.log1p(-1 / x**2 + 3 / x**4 - 15 / x**6)
    return -x * x / 2 - mp.log(x) + series - mp.log(2 * mp.pi) / 2


@pytest.mark.parametrize(
    "alpha", [-1000.0, -60.0, -40.0, -36.5, -35.5, -20.0, -9.5, -3.0, 0.0, 5.0, 40.0]
)
@pytest.mark.parametrize("u", [1e-12, 0.02, 0.5, 0.97, 1 - 1e-12])
def test_quantile_of_the_truncated_normal_leaves_the_share_u_beyond(alpha, u):
    quantile = truncated_normal(t([[u]]), t([alpha])).item()
    with mp.workdps(60):
        share = float(log_normal_tail(quantile) - log_normal_tail(-alpha) - mp.log(u))
    # Beyond -36 the documented error is 1e-6 of log u at worst; on the far right u itself has no
    # more digits.
    if alpha < -36:
        error = 3e-5
    elif alpha > 3:
        error = 1e-9 / min(u, 1 - u)
    else:
        error = 1e-9
    assert quantile >= -alpha
    assert share == pytest.approx(0, abs=error)
