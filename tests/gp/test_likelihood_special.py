"""log Phi and Lambert's W against high precision, far into their tails."""

import mpmath as mp
import numpy as np
import pytest
import torch
from scipy.special import lambertw

from dlmexp.gp.special import hazard, lambert_w_exp, log_ndtr


@pytest.mark.parametrize("x", [-1e8, -1e4, -100.0, -40.0, -8.0, -1.0, 0.0, 1.0, 5.0, 8.0, 30.0])
def test_log_ndtr_value_and_gradient_against_mpmath(x):
    with mp.workdps(60):
        a = mp.mpf(x)
        if x < -1e3:  # asymptotic series; mpmath's own ncdf underflows
            log_cdf = -a * a / 2 - mp.log(-a * mp.sqrt(2 * mp.pi)) + mp.log1p(-1 / a**2 + 3 / a**4)
            ratio = -a / (1 - 1 / a**2 + 3 / a**4)
        else:
            log_cdf = mp.log1p(-mp.ncdf(-a)) if x > 0 else mp.log(mp.ncdf(a))
            ratio = mp.npdf(a) / mp.ncdf(a)
        exact, slope = float(log_cdf), float(ratio)
    t = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    value = log_ndtr(t)
    value.backward()
    assert value.item() == pytest.approx(exact, rel=1e-12, abs=1e-300)
    assert t.grad is not None
    assert t.grad.item() == pytest.approx(slope, rel=1e-11, abs=1e-300)


def test_log_ndtr_far_right_is_zero_not_nan():
    x = torch.tensor([40.0, 1e10, torch.inf], dtype=torch.float64)
    assert torch.equal(hazard(x), torch.zeros(3, dtype=torch.float64))
    assert torch.equal(log_ndtr(x), torch.zeros(3, dtype=torch.float64))


def test_lambert_w_against_scipy_where_e_to_the_t_is_a_number():
    t = np.linspace(-600, 600, 4001)
    np.testing.assert_allclose(lambert_w_exp(torch.tensor(t)).numpy(), lambertw(np.exp(t)).real, rtol=1e-12)


def test_lambert_w_solves_its_equation_where_it_is_not():
    t = torch.logspace(3, 9, 61, dtype=torch.float64)
    w = lambert_w_exp(t)
    torch.testing.assert_close(w + w.log(), t, rtol=1e-13, atol=0)
    smallest = torch.full_like(t, torch.finfo(t.dtype).tiny)
    torch.testing.assert_close(lambert_w_exp(-t), smallest, rtol=1e-12, atol=0)
