"""Whether the pieces lie above the density, and how far."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dlmexp.estimators.samplers.half_normals import half_normals, pieces
from dlmexp.gp.likelihoods import Poisson
from tests.support.product_density import draws_for, t


def power_of_ten(k):
    return 10.0**k


@given(rate=st.floats(-16, 6).map(power_of_ten), precision=st.floats(-4, 12).map(power_of_ten))
def test_the_pieces_lie_above_the_density(rate, precision):
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


def test_acceptance_is_high_everywhere():
    mu, v, y = (
        x.flatten()[None]
        for x in torch.meshgrid(
            t([-150.0, -22.0, -15.0, -12.0, -8.0, -2.0, 0.0, 2.0, 8.0]), t([1e-12, 1e-4, 0.1, 1.0, 30.0, 100.0, 1e4]),
            t([0.0, 1.0, 3.0, 50.0, 1e4]), indexing="ij",
        )
    )  # fmt: skip
    sample = half_normals(Poisson(), mu, v, y, 2000, draws_for(1))
    rate = sample.accepted / sample.proposed
    assert rate.min() > 0.55
    assert rate[v <= 100].min() > 0.79
    assert rate[v <= 1].mean() > 0.94


def test_a_row_with_no_rate_left_is_the_gaussian_itself():
    mu, v, y = (torch.full((1, 500), x, dtype=torch.float64) for x in (-800.0, 2.0, 0.0))
    e = half_normals(Poisson(), mu, v, y, 100, draws_for(1)).e
    assert e.isfinite().all()
    assert abs(e.mean().item()) < 4 / np.sqrt(e.numel())
    assert abs(e.var().item() - 1) < 4 * np.sqrt(2 / e.numel())
