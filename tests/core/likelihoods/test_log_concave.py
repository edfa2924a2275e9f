"""Integrals over q of log-concave likelihoods, in every corner."""

import pytest
import torch

from tests.support.gauss_legendre import assert_log_loss_is_exact
from tests.support.likelihood_cases import (
    CORNERS_OF_CLASSES,
    LIKELIHOODS_WITH_DENSITY,
    likelihood_of,
    log_concave_likelihoods,
    observations_of,
)
from tests.support.product_density import F64, t

# mu, v, y
CORNERS_OF_COUNTS = [
    (0.0, 1.0, 0.0),
    (0.5, 0.3, 3.0),
    (2.0, 1e-2, 5000.0),
    (9.0, 1e-3, 10_000.0),
    (5.0, 2.0, 0.0),
    (-30.0, 9.0, 0.0),
    (-8.0, 9.0, 0.0),
    (3.0, 100.0, 7.0),
    (0.0, 1e4, 0.0),
    (-300.0, 1e4, 0.0),
    (0.0, 1e4, 10_000.0),
]
CORNERS = [
    *(("poisson", *corner) for corner in CORNERS_OF_COUNTS),
    *(("poisson_softplus", *corner) for corner in CORNERS_OF_COUNTS),
    ("poisson_softplus", 1e4, 50.0, 10_000.0),
    *(("logistic", *corner) for corner in CORNERS_OF_CLASSES),
]


@pytest.mark.parametrize(("name", "mu", "v", "y"), CORNERS)
def test_log_loss_is_exact_in_every_corner(name, mu, v, y):
    likelihood, log_p = LIKELIHOODS_WITH_DENSITY[name]
    assert_log_loss_is_exact(likelihood, log_p, mu, v, y)


@log_concave_likelihoods
def test_terms_are_the_derivatives_of_log_prob(name):
    likelihood = likelihood_of(name)
    f = torch.linspace(-12, 6, 181, dtype=F64, requires_grad=True)
    for y in observations_of(name):
        at = likelihood.terms(f, t(y))
        (slope,) = torch.autograd.grad(likelihood.log_prob(f, t(y)).sum(), f)
        (second_derivative,) = torch.autograd.grad(at.slope.sum(), f)
        torch.testing.assert_close(at.slope.detach(), slope, rtol=1e-11, atol=1e-12)
        curvature = at.curvature.detach()
        torch.testing.assert_close(curvature, -second_derivative, rtol=1e-9, atol=1e-12 * (1 + y))


def grid_of_corners(name):
    """Return mu, v, y [R] of every combination of corners."""
    mu = t([-150.0, -8.0, -2.0, 0.0, 1.0, 4.0, 8.0])
    v = t([1e-12, 1e-4, 0.1, 0.5, 2.0, 10.0, 100.0, 1e4])
    y = t([0.0, 1.0, 5.0, 60.0, 1e4])
    grid = torch.meshgrid(mu, v, y, indexing="ij")
    mu, v, y = (part.flatten() for part in grid)
    return mu, v, y.clamp_max(1) if name == "logistic" else y


@log_concave_likelihoods
def test_loss_around_a_known_mode_is_the_log_loss(name):
    likelihood = likelihood_of(name)
    mu, v, y = grid_of_corners(name)
    around = likelihood.log_loss_around(likelihood.mode(mu, v, y))
    error = (around - likelihood.log_loss(mu, v, y)).abs()
    assert error[v <= 2].max() < 1e-7
    assert error[(v <= 100) & (mu.abs() <= 8)].max() < 2e-6
    if name == "poisson":  # the only one that it is used for
        assert error.max() < 5e-4


@log_concave_likelihoods
def test_mode_is_where_the_product_density_has_no_slope(name):
    likelihood = likelihood_of(name)
    mu, v, y = grid_of_corners(name)
    mode = likelihood.mode(mu, v, y)
    slope = mode.terms.slope - mode.precision * mode.shift
    # In units of the width of the product density.
    deviation = (mode.terms.curvature + mode.precision).rsqrt()
    moderate = v <= 100
    assert (slope * deviation).abs()[moderate].max() < 1e-4
    if name == "poisson":  # in closed form
        assert (slope * deviation).abs().max() < 1e-11
    torch.testing.assert_close(mode.f, mu + mode.shift, rtol=1e-14, atol=0)


@log_concave_likelihoods
@pytest.mark.parametrize("drop", [1.0, 8.0, 23.0])
def test_density_has_fallen_at_the_reach(name, drop):
    likelihood = likelihood_of(name)
    mu, v, y = grid_of_corners(name)
    mode = likelihood.mode(mu, v, y)
    left, right = likelihood.reach(mode, drop)
    assert (left > 0).all()
    assert (right > 0).all()
    # Rounding of log p is up to 1e-11 of its size, 1e5 for the largest counts.
    assert likelihood.fall(-left, mode).min() > drop * (1 - 1e-4) - 1e-5
    assert likelihood.fall(right, mode).min() > drop * (1 - 1e-4) - 1e-5


@log_concave_likelihoods
def test_fall_is_the_difference_of_log_densities(name):
    likelihood = likelihood_of(name)
    mu, v, y = t([0.3, -1.0]), t([0.5, 2.0]), t([1.0, 0.0])
    mode = likelihood.mode(mu, v, y)
    x = t([0.4, -0.7])

    def log_density(f):
        return likelihood.log_prob(f, y) - (f - mu).square() / (2 * v)

    expected = log_density(mode.f) - log_density(mode.f + x)
    # The mode is close, not exact: `fall` of counts leaves out what the slopes there add up to.
    torch.testing.assert_close(likelihood.fall(x, mode), expected, rtol=1e-6, atol=1e-6)
    height = log_density(mode.f) - likelihood.log_constant(y)
    torch.testing.assert_close(mode.height, height, rtol=1e-12, atol=1e-12)


@log_concave_likelihoods
def test_mode_meets_samples_in_a_dimension_of_their_own(name):
    likelihood = likelihood_of(name)
    mode = likelihood.mode(t([0.3, -1.0]), t([0.5, 2.0]), t([1.0, 0.0]))
    over = mode.over_samples()
    for part, lifted in zip(
        (*mode.terms, *mode[:3], mode.y), (*over.terms, *over[:3], over.y), strict=True
    ):
        assert torch.equal(lifted, part.unsqueeze(-2))
