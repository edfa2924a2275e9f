"""Gaussian and Student t: losses in corners, intervals, and parameters per cell."""

import math

import numpy as np
import pytest
import scipy.stats as st
import torch

from dlmexp.core.likelihoods import Gaussian, StudentT
from dlmexp.core.likelihoods.regression import NU
from tests.support.gauss_legendre import assert_log_loss_is_exact
from tests.support.likelihood_cases import LIKELIHOODS_WITH_DENSITY, student
from tests.support.product_density import t

LIKELIHOODS = {
    **LIKELIHOODS_WITH_DENSITY,
    "cauchy": student(1.0, 0.1),
    "nearly_normal": student(60.0, 1.0),
    "sharp": student(3.0, 0.02),
}
# mu, v, y
CORNERS = [
    (0.0, 1.0, 0.3),
    (0.0, 0.01, 30.0),
    (0.0, 1.0, 6.0),
    (0.0, 1e4, 500.0),
    (0.0, 1e4, 0.0),
    (-2.0, 1e-2, 2.0),
]
NAMES = ("gaussian", "student_t", "cauchy", "nearly_normal", "sharp")
CASES = [(name, *corner) for name in NAMES for corner in CORNERS]
# An outlier at six standard deviations: two modes hold mass.
CASES += [("sharp", 0.0, 1.0, 5.6)]


@pytest.mark.parametrize(("name", "mu", "v", "y"), CASES)
def test_log_loss_is_exact_in_every_corner(name, mu, v, y):
    likelihood, log_p = LIKELIHOODS[name]
    assert_log_loss_is_exact(likelihood, log_p, mu, v, y)


MU = t([[0.5, -1.0]])
V = t([[0.3, 2.0]])


def test_gaussian_predicts_a_normal_distribution():
    likelihood = Gaussian(t([[0.2]]))
    s = np.sqrt(V.numpy() + 0.2)
    predicted = st.norm(MU.numpy(), s)
    y = t([[1.0, 0.0]])
    low, high = likelihood.interval(MU, V)
    np.testing.assert_allclose(likelihood.std(MU, V), s, rtol=1e-12)
    np.testing.assert_allclose(low, predicted.ppf(0.025), rtol=1e-9)
    np.testing.assert_allclose(high, predicted.ppf(0.975), rtol=1e-9)
    np.testing.assert_allclose(likelihood.cdf(MU, V, y), predicted.cdf(y.numpy()), rtol=1e-12)


def test_student_without_latent_variance_predicts_a_t_distribution():
    likelihood = StudentT(t([[0.7]]), t([[4.0]]))
    v = torch.full_like(MU, 1e-12)
    predicted = st.t(4.0, MU.numpy(), 0.7)
    y = t([[1.0, 0.0]])
    low, high = likelihood.interval(MU, v)
    np.testing.assert_allclose(likelihood.std(MU, v), np.broadcast_to(predicted.std(), (1, 2)))
    np.testing.assert_allclose(low, predicted.ppf(0.025), rtol=1e-3)
    np.testing.assert_allclose(high, predicted.ppf(0.975), rtol=1e-3)
    np.testing.assert_allclose(likelihood.cdf(MU, v, y), predicted.cdf(y.numpy()), atol=1e-4)


def test_student_has_no_standard_deviation_up_to_two_degrees_of_freedom():
    assert StudentT(t([[0.7]]), t([[1.9]])).std(MU, t([[0.0, 0.0]])).isnan().all()


def test_cells_have_parameters_of_their_own():
    noise = t([0.25, 4.0])
    gaussian = Gaussian.from_hyper({"noise": noise})
    student_t = StudentT.from_hyper({"noise": noise})
    assert gaussian.noise.tolist() == [[0.25], [4.0]]
    assert student_t.scale.tolist() == [[0.5], [2.0]]
    assert student_t.nu.tolist() == [[NU], [NU]]


@pytest.mark.parametrize("drop", [5.0, 12.0, 25.0])
def test_mixture_has_fallen_at_the_ends_of_its_range(drop):
    d2 = t([0.0, 1.0, 100.0, 1e4, 30.0, 0.2])
    v = t([1.0, 1e-6, 0.3, 100.0, 1e-3, 1e4])
    for nu in (1.0, 4.0, 60.0):
        likelihood = StudentT(t(0.3), t(nu))
        low, high = likelihood.mixture_range(d2, v, drop)
        u = low + (high - low) * torch.linspace(0, 1, 4001, dtype=low.dtype).unsqueeze(-1)
        log_density = likelihood.log_mixture(u, d2, v)
        top = log_density.max(0).values
        assert (top - log_density[0] >= drop - 1e-6).all()
        assert (top - log_density[-1] >= 2 / 3 * drop).all()


def test_mixture_density_integrates_to_the_predictive_density():
    likelihood, _ = student(4.0, 0.5)
    u = torch.linspace(-12, 25, 20_001, dtype=torch.float64)
    d2, v = t(1.7), t(0.4)
    log_density = likelihood.log_mixture(u, d2, v) - 0.5 * math.log(2 * math.pi)
    density = torch.trapezoid(log_density.exp(), u)
    loss = likelihood.log_loss(t([0.0]), v.view(1), d2.sqrt().view(1))
    assert -density.log().item() == pytest.approx(loss.item(), rel=1e-8)
