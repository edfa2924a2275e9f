"""Whether the pieces lie above the density, and how far."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from product_density import draws_for, t

from dlmexp.estimators.samplers.half_normals import LIFT, _reach, half_normals
from dlmexp.gp.likelihoods import Poisson


@given(rate=st.floats(-16, 6).map(lambda k: 10.0**k), precision=st.floats(-4, 12).map(lambda k: 10.0**k))
def test_the_parabolas_lie_below_the_exponentials_bend(rate, precision):
    a, c = np.log1p(LIFT / (rate + precision)), _reach(t(rate), t(precision)).item()
    k_right, k_left = np.expm1(a) / a, 2 * (np.expm1(-c) + c) / c**2
    lift = a * np.expm1(a) / 2 - (np.expm1(a) - a)
    right, left = a * np.linspace(0, 5, 400), -c * np.linspace(0, 1, 400)
    for x, bound in ((right, k_right * right**2 / 2 - lift), (left, k_left * left**2 / 2)):
        assert (rate * (bound - (np.expm1(x) - x)) < 1e-9).all()  # in units of log q~
    assert k_right >= 1 >= k_left > 0


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
