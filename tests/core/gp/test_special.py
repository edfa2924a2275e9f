"""log Phi, Lambert's W and Gauss-Hermite rules against other libraries."""

import mpmath as mp
import numpy as np
import pytest
import torch
from scipy.special import lambertw

from dlmexp.core.gp.special import (
    expectation,
    gauss_hermite,
    lambert_w_exp,
    log_ndtr,
    quadrature_nodes,
)
from tests.support.product_density import F64, t


def exact_log_ndtr(x: float) -> tuple[float, float]:
    """Return log Phi(x) and its derivative, with 60 digits."""
    with mp.workdps(60):
        a = mp.mpf(x)
        if x < -1e3:  # asymptotic series; mpmath's own ncdf underflows
            log_cdf = -a * a / 2 - mp.log(-a * mp.sqrt(2 * mp.pi)) + mp.log1p(-1 / a**2 + 3 / a**4)
            ratio = -a / (1 - 1 / a**2 + 3 / a**4)
        else:
            log_cdf = mp.log1p(-mp.ncdf(-a)) if x > 0 else mp.log(mp.ncdf(a))
            ratio = mp.npdf(a) / mp.ncdf(a)
        return float(log_cdf), float(ratio)


@pytest.mark.parametrize("x", [-1e8, -1e4, -100.0, -40.0, -8.0, -1.0, 0.0, 1.0, 5.0, 8.0, 30.0])
def test_log_ndtr_and_its_gradient_are_right_in_the_tails(x):
    exact, slope = exact_log_ndtr(x)
    at = t(x).requires_grad_()
    value = log_ndtr(at)
    (gradient,) = torch.autograd.grad(value, at)
    assert value.item() == pytest.approx(exact, rel=1e-12, abs=1e-300)
    assert gradient.item() == pytest.approx(slope, rel=1e-11, abs=1e-300)


def test_lambert_w_equals_scipys():
    x = np.linspace(-600, 600, 4001)
    expected = lambertw(np.exp(x)).real
    np.testing.assert_allclose(lambert_w_exp(t(x)).numpy(), expected, rtol=1e-12)


def test_lambert_w_solves_its_equation_where_e_to_the_t_overflows():
    large = torch.logspace(3, 9, 61, dtype=F64)
    w = lambert_w_exp(large)
    torch.testing.assert_close(w + w.log(), large, rtol=1e-13, atol=0)


def test_lambert_w_is_the_smallest_number_where_e_to_the_t_underflows():
    w = lambert_w_exp(-torch.logspace(3, 9, 61, dtype=F64))
    tiny = torch.full_like(w, torch.finfo(F64).tiny)
    torch.testing.assert_close(w, tiny, rtol=1e-12, atol=0)


def test_gauss_hermite_integrates_polynomials_exactly():
    e, log_w = gauss_hermite(5, F64, torch.device("cpu"))
    moments = [(log_w.exp() * e**power).sum().item() for power in range(10)]
    assert moments == pytest.approx([1, 0, 1, 0, 3, 0, 15, 0, 105, 0], abs=1e-10)


def test_expectation_is_that_of_the_normal_of_each_row():
    mu = t([[0.3, -1.0]])
    v = t([[0.2, 2.0]])
    f, log_w = quadrature_nodes(mu, v, 20)
    assert f.shape == (1, 20, 2)
    assert log_w.shape == (20, 1)
    torch.testing.assert_close(expectation(torch.exp, mu, v), (mu + v / 2).exp())
