import pytest
import torch

from dlmexp.estimators import ESTIMATORS, Exact, Quadrature
from dlmexp.gp.likelihoods import Gaussian, Logistic, Poisson, PoissonSoftplus, Probit, StudentT
from tests.support.product_density import draws_for, t

CASES = [
    (Gaussian(t(0.3)), [0.4, -1.0]),
    (Probit(), [0.0, 1.0]),
    (Poisson(), [0.0, 6.0]),
    (PoissonSoftplus(), [0.0, 6.0]),
    (Logistic(), [0.0, 1.0]),
    (StudentT(t(1.5), t(5.0)), [0.4, -4.0]),
]


def test_registry_names_all_five():
    assert sorted(ESTIMATORS) == ["bmc", "exact", "quadrature", "smooth_bmc", "ups"]
    assert all(ESTIMATORS[name].name == name for name in ESTIMATORS)


@pytest.mark.parametrize(("likelihood", "observed"), CASES, ids=lambda x: getattr(x, "name", None))
def test_exact_equals_autograd_through_many_hermite_nodes(likelihood, observed):
    mu = torch.linspace(-2, 2, 9, dtype=torch.float64).view(1, 9).repeat(2, 1).requires_grad_()
    v = t([[0.01], [0.4]]).repeat(1, 9).requires_grad_()
    for y in observed:
        obs = t(y).expand(2, 9)
        exact, many = (
            Exact()(likelihood, mu, v, obs, draws_for(2)),
            Quadrature(200)(likelihood, mu, v, obs, draws_for(2)),
        )
        torch.testing.assert_close(exact, many, rtol=1e-9, atol=1e-9)
        for a, b in zip(*(torch.autograd.grad(x.sum(), (mu, v)) for x in (exact, many)), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-8)


def test_twenty_nodes_are_the_default_and_good_for_moderate_q():
    mu, v, y = t([[0.5, -1.0]]), t([[0.2, 1.0]]), t([[1.0, 0.0]])
    assert Quadrature().nodes == 20
    torch.testing.assert_close(Quadrature()(Probit(), mu, v, y), Exact()(Probit(), mu, v, y), rtol=1e-6, atol=0)


def test_parameters_per_cell_meet_the_nodes():
    noise = t([[0.1], [0.9]])
    mu, v, y = (
        torch.zeros(2, 4, dtype=torch.float64),
        torch.full((2, 4), 0.05, dtype=torch.float64),
        t([0.1, 0.2, 0.3, 0.4]),
    )
    torch.testing.assert_close(
        Quadrature(40)(Gaussian(noise), mu, v, y), Exact()(Gaussian(noise), mu, v, y), rtol=1e-10, atol=1e-12
    )
