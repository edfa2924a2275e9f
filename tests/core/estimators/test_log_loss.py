"""Estimators of the log loss: exact against many nodes, bMC and smooth-bMC against the sample mean,
uPS by its mean gradient in every corner; what they state about themselves."""

import math
from dataclasses import fields, replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from dlmexp.core.estimators import BMC, UPS, Draws, Exact, Quadrature, SmoothBMC
from dlmexp.core.estimators.product_samplers import SAMPLERS, ProductSample
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
ONE = [
    (likelihood, observed[0] if likelihood.task == "binary" else observed[-1])
    for likelihood, observed in CASES
]


@pytest.mark.parametrize(
    ("likelihood", "observed"),
    [*CASES, (Gaussian(t([[0.1], [0.9]])), [0.4])],
    ids=lambda x: getattr(x, "name", None),
)
def test_exact_equals_autograd_through_many_hermite_nodes(likelihood, observed):
    mu = torch.linspace(-2, 2, 9, dtype=torch.float64).view(1, 9).repeat(2, 1).requires_grad_()
    v = t([[0.01], [0.4]]).repeat(1, 9).requires_grad_()
    for y in observed:
        obs = t(y).expand(2, 9)
        exact, many = (
            estimator(likelihood, mu, v, obs) for estimator in (Exact(), Quadrature(200))
        )
        torch.testing.assert_close(exact, many, rtol=1e-9, atol=1e-9)
        for a, b in zip(
            *(torch.autograd.grad(x.sum(), (mu, v)) for x in (exact, many)), strict=True
        ):
            torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(
    ("estimator", "nu"), [(BMC(6), 0.0), (SmoothBMC(6), 1e-4), (SmoothBMC(6, 0.3), 0.3)], ids=str
)
@pytest.mark.parametrize(("likelihood", "y"), ONE, ids=lambda x: getattr(x, "name", None))
def test_value_and_gradient_are_those_of_the_log_of_the_shifted_mean(likelihood, y, estimator, nu):
    mu, v = t([[0.5, -1.0, 2.0]]).requires_grad_(), t([[0.2, 1.0, 3.0]]).requires_grad_()
    obs, draws = torch.full_like(mu, y), draws_for(1)
    loss = estimator(likelihood, mu, v, obs, draws)
    got = torch.autograd.grad(loss.sum(), (mu, v))
    f = mu + v.sqrt() * draws.normal(6, 3)[0]
    plain = -(likelihood.log_prob(f, obs).exp().mean(0) + nu).log()
    torch.testing.assert_close(loss[0], plain, rtol=1e-12, atol=1e-12)
    for a, b in zip(got, torch.autograd.grad(plain.sum(), (mu, v)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_a_far_tail_is_a_number_and_smooth_bmc_is_capped_with_a_gradient_that_vanishes():
    mu = t([[-40.0]]).requires_grad_()
    plain, smooth = (
        each(Probit(), mu, t([[0.01]]), t([[1.0]]), draws_for(1))
        for each in (BMC(10), SmoothBMC(10))
    )
    assert 700 < plain.item() < 900
    assert smooth.item() == pytest.approx(-math.log(1e-4), rel=1e-12)
    assert torch.autograd.grad(smooth.sum(), mu)[0].item() == 0


MANY = 20_000


@pytest.mark.parametrize("corner", ROWS)
def test_mean_gradient_is_the_exact_one(corner):
    likelihood, *numbers = ROWS[corner]
    one = [t([x]).requires_grad_() for x in numbers]
    exact = torch.autograd.grad(Exact()(likelihood, *one).sum(), one[:2])  # type: ignore[arg-type]
    mu, v, y = (t([[x]]).repeat(1, MANY).requires_grad_() for x in numbers)
    loss = UPS(10)(likelihood, mu, v, y, draws_for(1, seed=11))
    got = torch.autograd.grad(loss.sum(), (mu, v))
    # For counts with the exponential link a brisk quadrature stands in for the exact value.
    rtol, atol = (
        (0, 1e-7 if numbers[1] <= 2 else 1e-3) if isinstance(likelihood, Poisson) else (1e-14, 0)
    )
    torch.testing.assert_close(
        loss[0, 0], Exact()(likelihood, *one)[0].detach(), rtol=rtol, atol=atol
    )  # type: ignore[arg-type]
    for estimate, truth in zip(got, exact, strict=True):
        error = estimate.std().item() / math.sqrt(MANY)
        assert abs(estimate.mean().item() - truth.item()) < 4 * error
        # Guards against a test without teeth: the error bar is small against the gradient's own
        # scale.
        assert error < 0.05 * max(
            abs(truth.item()), 1 / v[0, 0].item() ** (0.5 if estimate is got[0] else 1.0)
        )


@pytest.mark.parametrize("sampler", ["auto", "rejection"])
def test_gradient_of_one_draw_is_that_of_log_q_at_the_samples(sampler):
    mu, v, y = t([[0.4, -1.0]]).requires_grad_(), t([[0.3, 2.0]]).requires_grad_(), t([[1.0, 3.0]])
    got = torch.autograd.grad(UPS(6, sampler)(Poisson(), mu, v, y, draws_for(1)).sum(), (mu, v))
    e = SAMPLERS[sampler].draw(Poisson(), mu.detach(), v.detach(), y, 6, draws_for(1)).e
    f = (mu + v.sqrt() * e).detach()
    log_q = -0.5 * ((f - mu) ** 2 / v + v.log())
    expected = torch.autograd.grad(-log_q.mean(-2).sum(), (mu, v))
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", ["gaussian", "student_t"])
def test_gradient_in_the_likelihoods_own_parameters_is_unbiased(kind):
    start = [t([[0.3]])] if kind == "gaussian" else [t([[0.5]]), t([[4.0]])]
    build = {"gaussian": Gaussian, "student_t": StudentT}[kind]
    mu, v, y = (t([[x]]).repeat(1, MANY) for x in (0.0, 0.7, 1.2))

    def gradients(estimator, rows: int) -> list[torch.Tensor]:
        own = [p.repeat(1, rows).requires_grad_() for p in start]
        loss = estimator(build(*own), mu[:, :rows], v[:, :rows], y[:, :rows], draws_for(1, seed=5))
        return list(torch.autograd.grad(loss.sum(), own))

    for exact, got in zip(gradients(Exact(), 1), gradients(UPS(10), MANY), strict=True):
        error = got.std().item() / math.sqrt(MANY)
        assert abs(got.mean().item() - exact.item()) < 4 * error
        assert error < 0.05 * abs(exact.item())


def test_acceptance_is_accepted_over_proposed_all_rows_together():
    e, one = torch.zeros(2, 3, 2), torch.ones(2, 2)
    # One and two proposals for one accepted sample each: 2 of 3; four and four: 2 of 8.
    assert ProductSample(e, one, t([[1, 2], [4, 4]])).acceptance.tolist() == [2 / 3, 1 / 4]
    # Three proposals in every row, whether any was accepted or not.
    assert ProductSample(e, t([[3, 0], [1, 2]]), 3).acceptance.tolist() == [1 / 2, 1 / 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "name", ["gaussian", "probit", "poisson", "softplus", "logistic", "student"]
)
def test_no_estimator_looks_at_a_value_so_a_cuda_graph_can_capture_it(name, dtype):
    known = ROWS[name][0]
    likelihood = replace(known, **{p.name: getattr(known, p.name).to(dtype) for p in fields(known)})

    def step() -> None:
        mu, v = (torch.full((2, 5), x, dtype=dtype, requires_grad=True) for x in (0.3, 0.5))
        y = torch.ones(2, 5, dtype=dtype)
        draws = Draws(torch.arange(2), torch.arange(2), torch.zeros((), dtype=torch.int64), dtype)
        for estimator in (Exact(), Quadrature(), BMC(3), SmoothBMC(3), UPS(3)):
            loss = estimator(likelihood, mu, v, y, draws)
            assert loss.dtype == dtype
            loss.sum().backward()

    step()  # fills the caches of constants
    # Fake tensors have shapes but no values: .item(), nonzero and their like raise.
    with FakeTensorMode(allow_non_fake_inputs=True):
        step()


def test_every_likelihood_of_ours_has_a_sampler():
    for name in LIKELIHOODS:
        UPS(2).check(LIKELIHOODS[name])
        UPS(2, "rejection").check(LIKELIHOODS[name])
