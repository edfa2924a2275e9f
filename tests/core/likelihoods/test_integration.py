"""Log losses of likelihoods that have a kink, or are much narrower than q."""

import pytest
import torch

from dlmexp.core.likelihoods import Gaussian, Likelihood
from dlmexp.core.likelihoods.integration import hermite_log_loss, panel_log_loss
from tests.support.laplace import Laplace, LaplaceWithoutKinks, exact_log_loss
from tests.support.likelihood_cases import with_gradients
from tests.support.product_density import F64, t

NOISE = t([[1e-4], [1e-3], [0.01], [0.1], [1.0]])


def rows(count: int = 40):
    """Return mu, v, y [5, count] with variances of q between 1e-4 and 1e3."""
    generator = torch.Generator().manual_seed(0)
    mu, log_v, y = torch.randn(3, 5, count, generator=generator, dtype=F64)
    return mu, (2 * log_v).exp(), y


def test_narrow_laplace_likelihood_is_integrated():
    mu, v, y = t([0.0]), t([1.0]), t([2.0])
    likelihood = Laplace(t(0.001))
    assert hermite_log_loss(likelihood, mu, v, y, 64).item() > 8
    assert likelihood.log_loss(mu, v, y).item() == pytest.approx(2.9174, abs=1e-4)


@pytest.mark.parametrize("kind", [Laplace, LaplaceWithoutKinks])
def test_log_loss_with_a_kink_equals_its_closed_form(kind):
    mu, v, y = rows()
    actual = kind(NOISE).log_loss(mu, v, y)
    torch.testing.assert_close(actual, exact_log_loss(NOISE, mu, v, y), rtol=2e-5, atol=2e-4)


def test_gradients_in_mu_and_v_are_those_of_the_closed_form():
    mu, v, y = rows()
    actual = with_gradients(Laplace(NOISE).log_loss, mu, v, y)
    expected = with_gradients(lambda *row: exact_log_loss(NOISE, *row), mu, v, y)
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-3)


def test_gradient_in_a_parameter_of_the_likelihood_is_that_of_the_closed_form():
    mu, v, y = rows()
    noise = NOISE.clone().requires_grad_()
    (actual,) = torch.autograd.grad(Laplace(noise).log_loss(mu, v, y).sum(), noise)
    (expected,) = torch.autograd.grad(exact_log_loss(noise, mu, v, y).sum(), noise)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_many_rows_in_pieces_equal_all_at_once(monkeypatch):
    mu, v, y = rows()
    together = with_gradients(Laplace(NOISE).log_loss, mu, v, y)
    monkeypatch.setattr("dlmexp.core.likelihoods.integration.ROWS_AT_ONCE", 7)
    in_pieces = with_gradients(Laplace(NOISE).log_loss, mu, v, y)
    torch.testing.assert_close(in_pieces, together, rtol=1e-12, atol=1e-12)


def test_row_does_not_depend_on_its_neighbours():
    mu, v, y = rows()
    together = Laplace(NOISE).log_loss(mu, v, y)
    alone = Laplace(NOISE[3]).log_loss(mu[3, 5:6], v[3, 5:6], y[3, 5:6])
    torch.testing.assert_close(together[3, 5], alone[0], rtol=1e-12, atol=1e-12)


def test_likelihood_that_can_not_be_cut_into_rows_is_integrated_too():
    class Whole(Laplace):
        def at_rows(self, rows):
            return None

    mu, v, y = rows()
    expected = Laplace(NOISE).log_loss(mu, v, y)
    torch.testing.assert_close(Whole(NOISE).log_loss(mu, v, y), expected, rtol=1e-12, atol=1e-12)


class NarrowGaussian(Gaussian):
    """Gaussian noise whose author knows no closed form."""

    log_loss = Likelihood.log_loss


@pytest.mark.parametrize("distance", [0.0, 3.0, 40.0])
@pytest.mark.parametrize("noise", [1e-8, 1e-4, 1.0])
def test_narrow_peak_is_found_wherever_it_is(noise, distance):
    mu, v, y = t([0.0]), t([1.0]), t([distance])
    expected = Gaussian(t(noise)).log_loss(mu, v, y)
    actual = NarrowGaussian(t(noise)).log_loss(mu, v, y)
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)


def test_single_precision_is_good_to_its_rounding():
    mu, v, y = rows()
    expected = exact_log_loss(NOISE, mu, v, y)
    single = [part.float() for part in (mu, v, y)]
    actual = Laplace(NOISE.float()).log_loss(*single)
    torch.testing.assert_close(actual.double(), expected, rtol=1e-3, atol=1e-2)


def test_more_effort_brings_the_panels_closer_to_the_closed_form():
    mu, v, y = rows()
    mu, v, y = mu[0], v[0], y[0]
    likelihood = LaplaceWithoutKinks(NOISE[0])
    expected = exact_log_loss(NOISE[0], mu, v, y)
    errors = [
        (panel_log_loss(likelihood, mu, v, y, effort) - expected).abs().max() for effort in (1, 2)
    ]
    assert errors[1] < errors[0]


def test_error_of_a_log_loss_by_few_nodes_is_measured():
    class ByHermite(Laplace):
        def log_loss(self, mu, v, y):
            return hermite_log_loss(self, mu, v, y, 64)

    row = (t([0.0]), t([1.0]), t([2.0]))
    assert ByHermite(t(0.001)).log_loss_error(*row).item() == pytest.approx(5.152, abs=1e-3)
    assert Laplace(t(0.001)).log_loss_error(*row).item() < 1e-4
