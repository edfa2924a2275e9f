"""Rejection under envelopes: bounds hold, acceptance is high, rejected candidates are replaced."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dlmexp.core.estimators.envelope import (
    POOL,
    Intervals,
    _propose,
    half_normal_envelope,
    number_of_spares,
    replace_rejected,
    sample_under,
)
from dlmexp.core.estimators.product_samplers import SAMPLERS
from dlmexp.core.likelihoods import Logistic, Poisson, PoissonSoftplus, StudentT
from tests.support.product_density import draws_for, t

pytestmark = pytest.mark.slow

N = 1000


def acceptance_everywhere(likelihood, of_observation):
    """Return v [N] and the acceptance rate of each row, over wide ranges of mu, v and y."""
    rng = np.random.default_rng(0)
    v = 10 ** rng.uniform(-12, 4, N)
    mu = rng.normal(size=N) * 2 * (1 + np.sqrt(v))
    counts = np.where(rng.random(N) < 0.3, 0, np.floor(10 ** rng.uniform(0, 4, N)))
    y = of_observation(counts, rng, v)
    draw = SAMPLERS["auto"].draw
    sample = draw(likelihood, t(mu)[None], t(v)[None], t(y)[None], 400, draws_for(1))
    return t(v), (sample.accepted / sample.proposed)[0]


LIKELIHOODS = {
    "softplus": (PoissonSoftplus(), lambda counts, rng, v: counts, 0.7, 0.94),
    "logistic": (Logistic(), lambda counts, rng, v: counts % 2, 0.7, 0.94),
    "student": (
        StudentT(t(0.5), t(4.0)),
        lambda counts, rng, v: rng.normal(size=N) * 10 * (1 + np.sqrt(v)),
        0.9,
        0.94,
    ),
    "poisson": (Poisson(), lambda counts, rng, v: counts, 0.55, 0.9),
}


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_acceptance_is_high_everywhere(name):
    likelihood, of_observation, worst, mean = LIKELIHOODS[name]
    v, rate = acceptance_everywhere(likelihood, of_observation)
    assert worst < rate.min()
    assert rate.max() <= 1
    assert rate.mean() > mean
    if name == "poisson":
        assert rate[v <= 1].mean() > 0.94


@given(rate=st.floats(-16, 6), precision=st.floats(-4, 12))
def test_pieces_lie_above_the_density(rate, precision):
    rate, precision = 10**rate, 10**precision
    right, lift, left, c, depth, slope = (
        part.item() for part in half_normal_envelope(t(rate), t(precision))
    )

    def fall(x):
        with np.errstate(over="ignore"):
            return rate * (np.expm1(x) - x) + precision * x**2 / 2

    on_the_right = (rate + precision) ** -0.5 * np.linspace(0, 20, 400)
    on_the_left = -c * np.linspace(0, 1, 400)
    in_the_tail = -c * np.linspace(1, 20, 400)
    bounds = [
        (on_the_right, lift - on_the_right**2 / (2 * right**2)),
        (on_the_left, -(on_the_left**2) / (2 * left**2)),
        (in_the_tail, -depth + slope * (in_the_tail + c)),
    ]
    for x, bound in bounds:
        assert (-fall(x) <= bound + 1e-9 * (1 + np.abs(bound))).all()
    # And not far above: the tail touches at -c.
    assert depth == pytest.approx(fall(-c), rel=1e-6)


def test_rejected_candidates_give_way_to_accepted_ones():
    x = t([10.0, 11.0, 12.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).view(1, 10, 1)
    accepted = torch.tensor([1, 0, 1, 1, 0, 1, 1, 0, 0, 1], dtype=torch.bool).view(1, 10, 1)
    samples = replace_rejected(x, accepted, 3).flatten().tolist()
    # Samples are 0..6; stand-ins are the first three accepted of the pool: 10, 12, 0.
    assert samples == [0.0, 12.0, 2.0, 3.0, 12.0, 0.0, 6.0]


def test_single_accepted_candidate_serves_all():
    x = torch.arange(11, dtype=torch.float64).view(1, 11, 1)
    accepted = torch.zeros(1, 11, 1, dtype=torch.bool)
    accepted[0, 4] = True
    assert set(replace_rejected(x, accepted, 3).flatten().tolist()) == {4.0}


def test_samples_are_numbers_even_if_no_candidate_is_accepted():
    x = torch.arange(11, dtype=torch.float64).view(1, 11, 1)
    assert replace_rejected(x, torch.zeros(1, 11, 1, dtype=torch.bool), 3).isfinite().all()


@pytest.mark.parametrize(("samples", "expected"), [(1, 8), (7, 2), (10, 2), (32, 4), (100, 8)])
def test_spares_fill_the_pool_and_grow_with_the_samples(samples, expected):
    assert number_of_spares(samples) == expected
    assert number_of_spares(samples) + samples >= POOL


def exponential_intervals():
    """Return an envelope of two pieces: exp(x) on the left of 0, exp(-2 x) on the right."""
    return Intervals(
        origin=t([[[0.0], [0.0]]]),
        side=t([[[-1.0], [1.0]]]),
        length=t([[[torch.inf], [torch.inf]]]),
        height=t([[[0.0], [0.0]]]),
        rate=t([[[1.0], [2.0]]]),
    )


def test_proposals_invert_the_distribution_of_the_envelope():
    u = t([0.1, 0.5, 0.6, 2 / 3, 0.8, 0.99]).view(1, -1, 1)
    x, log_envelope = _propose(exponential_intervals(), u)
    # Masses are 1 and 1/2; within a piece u runs from its origin outwards.
    on_the_left = (1 - 1.5 * u).log()
    on_the_right = -(1 - 2 * (1.5 * u - 1)).log() / 2
    expected = torch.where(u < 2 / 3, on_the_left, on_the_right)
    torch.testing.assert_close(x[:, [0, 1, 2, 4, 5]], expected[:, [0, 1, 2, 4, 5]])
    torch.testing.assert_close(log_envelope, torch.where(x < 0, x, -2 * x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("rate", [0.0, 1e-9, -1e-6])
def test_nearly_flat_piece_is_bounded_from_above(rate):
    single = t([[[0.0]]])
    flat = Intervals(single, single + 1, single + 2, single, single + rate)
    u = torch.linspace(0.01, 0.99, 99, dtype=torch.float64).view(1, -1, 1)
    x, log_envelope = _propose(flat, u)
    assert (log_envelope >= -rate * x).all()
    assert ((x > 0) & (x < 2)).all()
    torch.testing.assert_close(x, 2 * u, rtol=0, atol=0.01)


def test_candidates_are_accepted_by_density_over_envelope():
    samples, accepted = sample_under(
        exponential_intervals(),
        lambda x: torch.where(x < 0, x, -2 * x) + np.log(0.25),
        4000,
        draws_for(1),
    )
    assert samples.shape == (1, 4000, 1)
    assert accepted.double().mean().item() == pytest.approx(0.25, abs=0.02)
