"""Samplers against the numerically normalised density, in the open and in the corners; and what
they are made of."""

import mpmath as mp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dlmexp.core.estimators import product_samplers
from dlmexp.core.estimators.envelope import pieces, replace_rejected
from dlmexp.core.estimators.product_samplers import SAMPLERS, truncated_normal, widening
from dlmexp.core.likelihoods import Gaussian, Logistic, Poisson, PoissonSoftplus, Probit, StudentT
from tests.support.product_density import ROWS, SAMPLES, draw, draws_for, grid_and_cdf, p_values, t

pytestmark = pytest.mark.slow


REJECTION = ["gaussian", "probit", "poisson", "softplus zero", "logistic", "student"]


@pytest.mark.parametrize(
    ("sampler", "row"), [*(("auto", row) for row in ROWS), *(("rejection", r) for r in REJECTION)]
)
def test_draws_from_the_product_density(sampler, row):
    samples = draw(SAMPLERS[sampler], *ROWS[row], n=SAMPLES, seed=1 if sampler == "auto" else 2)
    e, cdf = grid_and_cdf(*ROWS[row])
    assert np.isfinite(samples).all()
    assert min(p_values(samples, e, cdf)) > 1e-3


@pytest.mark.parametrize("kind", sorted({row.split()[0] for row in ROWS}))
def test_a_row_draws_the_same_whatever_shares_its_batch(kind):
    rows = [r for name, r in ROWS.items() if name.split()[0] == kind]
    likelihood = rows[0][0]
    mu, v, y = (t([[r[i]] * 6 for r in rows] + [[r[i]] * 6 for r in rows]) for i in (1, 2, 3))
    mu[-1] = torch.nan
    together = SAMPLERS["auto"].draw(likelihood, mu, v, y, 5, draws_for(len(mu))).e
    for b in range(len(rows)):
        alone = (
            SAMPLERS["auto"]
            .draw(likelihood, mu[b : b + 1], v[b : b + 1], y[b : b + 1], 5, draws_for(1, seed=b))
            .e
        )
        torch.testing.assert_close(together[b], alone[0], rtol=1e-10, atol=1e-12)


def test_acceptance_is_high_everywhere():
    rng, n = np.random.default_rng(0), 1000
    v = 10 ** rng.uniform(-12, 4, n)
    mu = rng.normal(size=n) * 2 * (1 + np.sqrt(v))
    counts = np.where(rng.random(n) < 0.3, 0, np.floor(10 ** rng.uniform(0, 4, n)))
    for likelihood, y, worst, mean in (
        (PoissonSoftplus(), counts, 0.7, 0.94),
        (Logistic(), counts % 2, 0.7, 0.94),
        (StudentT(t(0.5), t(4.0)), rng.normal(size=n) * 10 * (1 + np.sqrt(v)), 0.9, 0.94),
        (Poisson(), counts, 0.55, 0.9),
    ):
        sample = SAMPLERS["auto"].draw(
            likelihood, t(mu)[None], t(v)[None], t(y)[None], 400, draws_for(1)
        )
        rate = sample.accepted / sample.proposed
        assert rate.min() > worst, likelihood.name
        assert rate.mean() > mean, likelihood.name
        if likelihood.name == "poisson":
            assert rate[:, t(v) <= 1].mean() > 0.94


@given(rate=st.floats(-16, 6), precision=st.floats(-4, 12))
def test_the_pieces_lie_above_the_density(rate, precision):
    rate, precision = 10**rate, 10**precision
    right, lift, left, c, depth, slope = (part.item() for part in pieces(t(rate), t(precision)))
    width = (rate + precision) ** -0.5
    for x, bound in (
        (grid := width * np.linspace(0, 20, 400), lift - grid**2 / (2 * right**2)),
        (grid := -c * np.linspace(0, 1, 400), -(grid**2) / (2 * left**2)),
        (grid := -c * np.linspace(1, 20, 400), -depth + slope * (grid + c)),
    ):
        with np.errstate(over="ignore"):
            fall = rate * (np.expm1(x) - x) + precision * x**2 / 2
        assert (-fall <= bound + 1e-9 * (1 + np.abs(bound))).all()
    # And not far above: the tail touches at -c.
    assert -depth == pytest.approx(-rate * (np.expm1(-c) + c) - precision * c**2 / 2, rel=1e-6)


def test_rejected_candidates_give_way_to_accepted_ones():
    x = t([10.0, 11.0, 12.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).view(1, 10, 1)
    accepted = torch.tensor([1, 0, 1, 1, 0, 1, 1, 0, 0, 1], dtype=torch.bool).view(1, 10, 1)
    got = replace_rejected(x, accepted, 3).flatten().tolist()
    # Samples are 0..6; stand-ins are the first three accepted of the pool: 10, 12, 0.
    assert got == [0.0, 12.0, 2.0, 3.0, 12.0, 0.0, 6.0]
    # One accepted candidate serves all, and none at all is still a number.
    x = torch.arange(11, dtype=torch.float64).view(1, 11, 1)
    accepted = torch.zeros(1, 11, 1, dtype=torch.bool)
    accepted[0, 4] = True
    assert set(replace_rejected(x, accepted, 3).flatten().tolist()) == {4.0}
    assert replace_rejected(x, torch.zeros_like(accepted), 3).isfinite().all()


def widening_by_search(likelihood, mu, v, y) -> int:
    """The rule as the paper states it, maxima by a dense grid."""

    def best(radius: float) -> float:
        f = t(np.linspace(mu - radius, mu + radius, 20001))
        return likelihood.log_prob(f, t(y)).max().item() - likelihood.log_p_max(t(y)).item()

    if best(np.sqrt(v)) >= np.log(0.5):
        return 1
    fits = [k for k in range(2, 11) if best(np.sqrt(v * np.log(k) / (1 - 1 / k))) <= -np.log(k) / 2]
    return max(fits, default=1)


@pytest.mark.parametrize(
    ("likelihood", "observed"),
    [(Probit(), [0.0, 1.0]), (Poisson(), [0.0, 1.0, 8.0]), (Logistic(), [1.0])],
)
def test_widening_follows_the_papers_rule(likelihood, observed):
    rng = np.random.default_rng(0)
    seen = set()
    for y in observed:
        for mu, v in zip(rng.normal(size=25) * 2, 10 ** rng.uniform(-1.5, 0.7, 25), strict=True):
            k = widening(likelihood, t([mu]), t([v]), t([y])).item()
            assert k == widening_by_search(likelihood, mu, v, y)
            seen.add(k)
    assert len(seen) > 2


@pytest.mark.parametrize(
    ("likelihood", "mu", "v", "y"), [(Gaussian(t(0.5)), 0, 0.4, 0.3), (Probit(), -2, 1, 1)]
)
def test_acceptance_is_samples_over_proposals(likelihood, mu, v, y):
    """The rate is Z / p_max, whether proposals are drawn from q, or wider, with a bound that is k
    times as tight."""
    mu, v, y = (torch.full((1, 20_000), float(x), dtype=torch.float64) for x in (mu, v, y))
    assert (widening(likelihood, mu, v, y)[0, 0] > 1) == isinstance(likelihood, Probit)
    sample = SAMPLERS["rejection"].draw(likelihood, mu, v, y, 5, draws_for(1))
    expected = (-likelihood.log_loss(mu, v, y) - likelihood.log_p_max(y)).exp()[0, 0].item()
    assert sample.acceptance.item() == pytest.approx(expected, rel=0.015)


def test_rows_it_could_never_finish_come_from_the_exact_sampler():
    mu, v, y = t([[-40.0, 0.1]]), t([[0.3, 0.3]]), t([[1.0, 1.0]])
    sample = SAMPLERS["rejection"].draw(Probit(), mu, v, y, 3, draws_for(1))
    exact = SAMPLERS["auto"].draw(Probit(), mu, v, y, 3, draws_for(1))
    torch.testing.assert_close(sample.e[..., 0], exact.e[..., 0], rtol=1e-12, atol=1e-12)
    assert isinstance(sample.proposed, torch.Tensor)
    rate = sample.accepted / sample.proposed
    assert rate[0, 0] < 0.01
    assert rate[0, 1] > 0.1


def test_parameters_per_cell_meet_the_entries_still_open():
    noise = t([[0.05], [2.0]])
    mu = torch.zeros(2, 30_000, dtype=torch.float64)
    e = SAMPLERS["rejection"].draw(Gaussian(noise), mu, mu + 1.0, mu + 1.0, 2, draws_for(2)).e
    mean, var = 1 / (1 + noise), noise / (1 + noise)
    torch.testing.assert_close(e.mean((1, 2)), mean.flatten(), rtol=0, atol=0.03)
    torch.testing.assert_close(e.var((1, 2)), var.flatten(), rtol=0.04, atol=0)


def test_rounds_at_once_are_rounds_one_by_one(monkeypatch):
    rng = np.random.default_rng(1)
    mu, v, y = (
        t(rng.normal(size=(2, 300)) * 2),
        t(10 ** rng.uniform(-1, 1, (2, 300))),
        t(rng.poisson(3, (2, 300))),
    )
    together = SAMPLERS["rejection"].draw(Poisson(), mu, v, y, 4, draws_for(2))
    monkeypatch.setattr(product_samplers, "MAX_ROUNDS_AT_ONCE", 1)
    one_by_one = SAMPLERS["rejection"].draw(Poisson(), mu, v, y, 4, draws_for(2))
    torch.testing.assert_close(together.e, one_by_one.e, rtol=1e-12, atol=1e-12)
    assert torch.equal(torch.as_tensor(together.proposed), torch.as_tensor(one_by_one.proposed))
    assert torch.as_tensor(together.proposed).max() > 40, "rows that need several blocks of rounds"


@pytest.mark.parametrize(
    "alpha", [-1000.0, -60.0, -40.0, -36.5, -35.5, -20.0, -9.5, -3.0, 0.0, 5.0, 40.0]
)
@pytest.mark.parametrize("u", [1e-12, 0.02, 0.5, 0.97, 1 - 1e-12])
def test_quantiles_of_the_truncated_normal(alpha, u):
    got = truncated_normal(t([[u]]), t([alpha])).item()
    with mp.workdps(60):
        # The share of the tail beyond `got` must be u; in the far tail by its asymptotic series.
        def log_tail(x):
            x = mp.mpf(x)
            if x < 100:
                return mp.log(mp.ncdf(-x))
            return (
                -x * x / 2
                - mp.log(x)
                + mp.log1p(-1 / x**2 + 3 / x**4 - 15 / x**6)
                - mp.log(2 * mp.pi) / 2
            )

        share = float(log_tail(got) - log_tail(-alpha) - mp.log(u))
    assert got >= -alpha
    # Beyond -36 the documented error is 1e-6 of log u at worst; on the far right u itself has no
    # more digits.
    assert share == pytest.approx(
        0, abs=3e-5 if alpha < -36 else 1e-9 / min(u, 1 - u) if alpha > 3 else 1e-9
    )
