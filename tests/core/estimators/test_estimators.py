"""Estimators of the log loss, and what they state about themselves.

Exact is compared with many nodes, bMC and smooth-bMC with the sample mean, and uPS with the exact
gradient in every corner.
"""

import math
from dataclasses import fields, replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from dlmexp.common.errors import UserError
from dlmexp.core.estimators import BMC, UPS, Draws, Exact, Quadrature, SmoothBMC
from dlmexp.core.estimators.product_samplers import SAMPLERS
from dlmexp.core.likelihoods import (
    LIKELIHOODS,
    Gaussian,
    Logistic,
    Poisson,
    PoissonSoftplus,
    Probit,
    StudentT,
)
from tests.support.product_density import ROWS, draws_for, t

pytestmark = pytest.mark.slow

CASES = [
    (Gaussian(t(0.3)), [0.4, -1.0]),
    (Probit(), [0.0, 1.0]),
    (Poisson(), [0.0, 6.0]),
    (PoissonSoftplus(), [0.0, 6.0]),
    (Logistic(), [0.0, 1.0]),
    (StudentT(t(1.5), t(5.0)), [0.4, -4.0]),
]
SINGLE_CASES = [
    (likelihood, observed[0] if likelihood.task == "binary" else observed[-1])
    for likelihood, observed in CASES
]


def name_of(case):
    return getattr(case, "name", None)


@pytest.mark.parametrize(
    ("likelihood", "observed"), [*CASES, (Gaussian(t([[0.1], [0.9]])), [0.4])], ids=name_of
)
def test_exact_equals_autograd_through_many_hermite_nodes(likelihood, observed):
    mu = torch.linspace(-2, 2, 9, dtype=torch.float64).view(1, 9).repeat(2, 1).requires_grad_()
    v = t([[0.01], [0.4]]).repeat(1, 9).requires_grad_()
    for y in observed:
        targets = t(y).expand(2, 9)
        exact = Exact()(likelihood, mu, v, targets)
        many_nodes = Quadrature(200)(likelihood, mu, v, targets)
        torch.testing.assert_close(exact, many_nodes, rtol=1e-9, atol=1e-9)
        gradients = torch.autograd.grad(exact.sum(), (mu, v))
        expected = torch.autograd.grad(many_nodes.sum(), (mu, v))
        torch.testing.assert_close(gradients, expected, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(
    ("estimator", "nu"), [(BMC(6), 0.0), (SmoothBMC(6), 1e-4), (SmoothBMC(6, 0.3), 0.3)], ids=str
)
@pytest.mark.parametrize(("likelihood", "y"), SINGLE_CASES, ids=name_of)
def test_bmc_is_the_log_of_the_shifted_sample_mean(likelihood, y, estimator, nu):
    mu = t([[0.5, -1.0, 2.0]]).requires_grad_()
    v = t([[0.2, 1.0, 3.0]]).requires_grad_()
    targets = torch.full_like(mu, y)
    draws = draws_for(1)
    loss = estimator(likelihood, mu, v, targets, draws)
    gradients = torch.autograd.grad(loss.sum(), (mu, v))
    f = mu + v.sqrt() * draws.normal(6, 3)[0]
    plain = -(likelihood.log_prob(f, targets).exp().mean(0) + nu).log()
    expected = torch.autograd.grad(plain.sum(), (mu, v))
    torch.testing.assert_close(loss[0], plain, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradients, expected, rtol=1e-10, atol=1e-12)


def test_bmc_is_a_number_far_in_the_tail():
    loss = BMC(10)(Probit(), t([[-40.0]]), t([[0.01]]), t([[1.0]]), draws_for(1))
    assert 700 < loss.item() < 900


def test_smooth_bmc_is_capped_far_in_the_tail_with_a_gradient_that_vanishes():
    mu = t([[-40.0]]).requires_grad_()
    loss = SmoothBMC(10)(Probit(), mu, t([[0.01]]), t([[1.0]]), draws_for(1))
    assert loss.item() == pytest.approx(-math.log(1e-4), rel=1e-12)
    assert torch.autograd.grad(loss.sum(), mu)[0].item() == 0


REPLICATES = 20_000


@pytest.mark.parametrize("corner", ROWS)
def test_mean_gradient_of_ups_is_the_exact_one(corner):
    likelihood, *numbers = ROWS[corner]
    single = [t([x]).requires_grad_() for x in numbers]
    exact_loss = Exact()(likelihood, *single)
    exact = torch.autograd.grad(exact_loss.sum(), single[:2])
    mu, v, y = (t([[x]]).repeat(1, REPLICATES).requires_grad_() for x in numbers)
    loss = UPS(10)(likelihood, mu, v, y, draws_for(1, seed=11))
    gradients = torch.autograd.grad(loss.sum(), (mu, v))
    # For counts with the exponential link a brisk quadrature stands in for the exact value.
    rtol, atol = 1e-14, 0.0
    if isinstance(likelihood, Poisson):
        rtol, atol = 0.0, 1e-7 if numbers[1] <= 2 else 1e-3
    torch.testing.assert_close(loss[0, 0], exact_loss[0].detach(), rtol=rtol, atol=atol)
    scales = (numbers[1] ** -0.5, 1 / numbers[1])
    for estimate, truth, scale in zip(gradients, exact, scales, strict=True):
        error = estimate.std().item() / math.sqrt(REPLICATES)
        assert abs(estimate.mean().item() - truth.item()) < 4 * error
        # Guards against a test without teeth: the error bar is small against the gradient's own
        # scale.
        assert error < 0.05 * max(abs(truth.item()), scale)


@pytest.mark.parametrize("sampler", ["auto", "rejection"])
def test_gradient_of_ups_is_that_of_log_q_at_its_samples(sampler):
    mu = t([[0.4, -1.0]]).requires_grad_()
    v = t([[0.3, 2.0]]).requires_grad_()
    y = t([[1.0, 3.0]])
    loss = UPS(6, sampler)(Poisson(), mu, v, y, draws_for(1))
    gradients = torch.autograd.grad(loss.sum(), (mu, v))
    e = SAMPLERS[sampler].draw(Poisson(), mu.detach(), v.detach(), y, 6, draws_for(1)).e
    f = (mu + v.sqrt() * e).detach()
    log_q = -0.5 * ((f - mu) ** 2 / v + v.log())
    expected = torch.autograd.grad(-log_q.mean(-2).sum(), (mu, v))
    torch.testing.assert_close(gradients, expected, rtol=1e-10, atol=1e-12)


def test_value_of_ups_in_a_learned_likelihood_is_the_exact_loss():
    noise = t([[0.3]]).requires_grad_()
    mu, v, y = t([[0.4, -1.0]]), t([[0.3, 2.0]]), t([[1.0, 3.0]])
    loss = UPS(3)(Gaussian(noise), mu, v, y, draws_for(1))
    torch.testing.assert_close(loss, Gaussian(noise).log_loss(mu, v, y), rtol=1e-12, atol=1e-12)


OWN_PARAMETERS = {
    Gaussian: [t([[0.3]])],
    StudentT: [t([[0.5]]), t([[4.0]])],
}


@pytest.mark.parametrize("likelihood", list(OWN_PARAMETERS))
def test_gradient_of_ups_in_the_likelihoods_own_parameters_is_unbiased(likelihood):
    def gradients(estimator, rows):
        own = [
            parameter.repeat(1, rows).requires_grad_() for parameter in OWN_PARAMETERS[likelihood]
        ]
        mu, v, y = (torch.full((1, rows), x, dtype=torch.float64) for x in (0.0, 0.7, 1.2))
        loss = estimator(likelihood(*own), mu, v, y, draws_for(1, seed=5))
        return torch.autograd.grad(loss.sum(), own)

    exact = gradients(Exact(), 1)
    estimates = gradients(UPS(10), REPLICATES)
    for truth, estimate in zip(exact, estimates, strict=True):
        error = estimate.std().item() / math.sqrt(REPLICATES)
        assert abs(estimate.mean().item() - truth.item()) < 4 * error
        assert error < 0.05 * abs(truth.item())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "name", ["gaussian", "probit", "poisson", "softplus", "logistic", "student"]
)
def test_no_estimator_looks_at_a_value_so_a_cuda_graph_can_capture_it(name, dtype):
    likelihood = ROWS[name][0]
    own = {field.name: getattr(likelihood, field.name).to(dtype) for field in fields(likelihood)}
    likelihood = replace(likelihood, **own)

    def step() -> None:
        mu = torch.full((2, 5), 0.3, dtype=dtype, requires_grad=True)
        v = torch.full((2, 5), 0.5, dtype=dtype, requires_grad=True)
        y = torch.ones(2, 5, dtype=dtype)
        iteration = torch.zeros((), dtype=torch.int64)
        draws = Draws(torch.arange(2), torch.arange(2), iteration, dtype)
        for estimator in (Exact(), Quadrature(), BMC(3), SmoothBMC(3), UPS(3)):
            loss = estimator(likelihood, mu, v, y, draws)
            assert loss.dtype == dtype
            loss.sum().backward()

    step()  # fills the caches of constants
    # Fake tensors have shapes but no values: .item(), nonzero and their like raise.
    with FakeTensorMode(allow_non_fake_inputs=True):
        step()


@pytest.mark.parametrize("name", list(LIKELIHOODS))
def test_every_likelihood_can_be_drawn_for(name):
    UPS(2).check(LIKELIHOODS[name])
    UPS(2, "rejection").check(LIKELIHOODS[name])


def test_only_the_papers_rejection_sampler_can_not_be_captured():
    assert UPS(2).capturable(Poisson)
    assert not UPS(2, "rejection").capturable(Poisson)
    assert BMC(2).capturable(Poisson)


def test_quadrature_takes_up_to_200_nodes():
    Quadrature(200).check(Probit)
    with pytest.raises(UserError, match="nodes=201: give at most 200"):
        Quadrature(201).check(Probit)


def test_unknown_sampler_is_refused_at_once():
    with pytest.raises(UserError, match="autto"):
        UPS(2, "autto")
