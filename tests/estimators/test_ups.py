"""uPS: its mean gradient is the exact one, in every corner; what estimators state about themselves."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from dlmexp.errors import UserError
from dlmexp.estimators import BMC, ESTIMATORS, UPS, Draws, Estimator, Exact, FreshDraws, Quadrature, SmoothBMC
from dlmexp.estimators.samplers import SAMPLERS, ProductSample
from dlmexp.gp.likelihoods import (
    LIKELIHOODS,
    Gaussian,
    Likelihood,
    Poisson,
    Probit,
    StudentT,
)
from dlmexp.objectives import OBJECTIVES
from tests.support.product_density import ROWS, draws_for, t

pytestmark = pytest.mark.slow

MANY = 20_000


@pytest.mark.parametrize("corner", ROWS)
def test_mean_gradient_is_the_exact_one(corner):
    likelihood, *numbers = ROWS[corner]
    one = [t([x]).requires_grad_() for x in numbers]
    exact = torch.autograd.grad(Exact()(likelihood, *one).sum(), one[:2])  # type: ignore[arg-type]
    mu, v, y = (t([[x]]).repeat(1, MANY).requires_grad_() for x in numbers)
    loss = UPS(10)(likelihood, mu, v, y, draws_for(1, seed=11))
    got = torch.autograd.grad(loss.sum(), (mu, v))
    # For counts with the exponential link a brisk quadrature stands in for the exact value (test_likelihood_integral).
    rtol, atol = (0, 1e-7 if numbers[1] <= 2 else 1e-3) if isinstance(likelihood, Poisson) else (1e-14, 0)
    torch.testing.assert_close(loss[0, 0], Exact()(likelihood, *one)[0].detach(), rtol=rtol, atol=atol)  # type: ignore[arg-type]
    for estimate, truth in zip(got, exact, strict=True):
        error = estimate.std().item() / math.sqrt(MANY)
        assert abs(estimate.mean().item() - truth.item()) < 4 * error
        # Guards against a test without teeth: the error bar is small against the gradient's own scale.
        assert error < 0.05 * max(abs(truth.item()), 1 / v[0, 0].item() ** (0.5 if estimate is got[0] else 1.0))


@pytest.mark.parametrize("sampler", ["auto", "rejection"])
def test_gradient_of_one_draw_is_that_of_log_q_at_the_samples(sampler):
    mu, v, y = t([[0.4, -1.0]]).requires_grad_(), t([[0.3, 2.0]]).requires_grad_(), t([[1.0, 3.0]])
    got = torch.autograd.grad(UPS(6, sampler)(Poisson(), mu, v, y, draws_for(1)).sum(), (mu, v))
    e = SAMPLERS[sampler](Poisson(), mu.detach(), v.detach(), y, 6, draws_for(1)).e
    f = (mu + v.sqrt() * e).detach()
    log_q = -0.5 * ((f - mu) ** 2 / v + v.log())
    expected = torch.autograd.grad(-log_q.mean(-2).sum(), (mu, v))
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", ["gaussian", "student_t"])
def test_gradient_in_the_likelihoods_own_parameters_is_unbiased(kind):
    start = [t([[0.3]])] if kind == "gaussian" else [t([[0.5]]), t([[4.0]])]
    build = {"gaussian": Gaussian, "student_t": StudentT}[kind]
    mu, v, y = (
        torch.zeros(1, MANY, dtype=torch.float64),
        torch.full((1, MANY), 0.7, dtype=torch.float64),
        t([[1.2]]).repeat(1, MANY),
    )

    def gradients(estimator, rows: int) -> list[torch.Tensor]:
        own = [p.repeat(1, rows).requires_grad_() for p in start]
        loss = estimator(build(*own), mu[:, :rows], v[:, :rows], y[:, :rows], draws_for(1, seed=5))
        return list(torch.autograd.grad(loss.sum(), own))

    for exact, got in zip(gradients(Exact(), 1), gradients(UPS(10), MANY), strict=True):
        error = got.std().item() / math.sqrt(MANY)
        assert abs(got.mean().item() - exact.item()) < 4 * error
        assert error < 0.05 * abs(exact.item())


def test_parameters_and_marginals_share_one_backward_pass():
    noise = t([[0.2], [0.8]]).requires_grad_()
    mu, v = (
        torch.zeros(2, 5, dtype=torch.float64, requires_grad=True),
        torch.ones(2, 5, dtype=torch.float64, requires_grad=True),
    )
    loss = UPS(4)(Gaussian(noise), mu, v, torch.ones(5, dtype=torch.float64), draws_for(2))
    torch.testing.assert_close(
        loss, Gaussian(noise).log_loss(mu, v, torch.ones(5, dtype=torch.float64)), rtol=1e-12, atol=1e-12
    )
    loss.sum().backward()
    assert all(x.grad is not None and x.grad.abs().min() > 0 for x in (noise, mu, v))


def test_acceptance_comes_beside_the_loss():
    mu, v, y = (
        torch.zeros(1, 50, dtype=torch.float64),
        torch.ones(1, 50, dtype=torch.float64),
        torch.ones(1, 50, dtype=torch.float64),
    )
    for likelihood, sampler, low, high in [
        (Probit(), "auto", 1.0, 1.0),
        (Poisson(), "auto", 0.9, 1.0),
        (Poisson(), "rejection", 0.2, 0.9),
    ]:
        loss, rate = UPS(10, sampler).loss_and_acceptance(likelihood, mu, v, y, draws_for(1))
        assert loss.shape == (1, 50)
        assert low <= rate.item() <= high


def test_acceptance_is_accepted_over_proposed_all_rows_together():
    e, one = torch.zeros(2, 3, 2), torch.ones(2, 2)
    # One and two proposals for one accepted sample each: 2 of 3; four and four: 2 of 8.
    assert ProductSample(e, one, t([[1, 2], [4, 4]])).acceptance.tolist() == [2 / 3, 1 / 4]
    # Three proposals in every row, whether any was accepted or not.
    assert ProductSample(e, t([[3, 0], [1, 2]]), 3).acceptance.tolist() == [1 / 2, 1 / 2]


@pytest.mark.parametrize("name", ["gaussian", "probit", "poisson", "softplus", "logistic", "student"])
def test_no_estimator_looks_at_a_value_so_a_cuda_graph_can_capture_it(name):
    likelihood = ROWS[name][0]

    def step() -> None:
        mu, v = (torch.full((2, 5), x, dtype=torch.float64, requires_grad=True) for x in (0.3, 0.5))
        y = torch.ones(2, 5, dtype=torch.float64)
        draws = Draws(torch.arange(2), torch.arange(2), torch.zeros((), dtype=torch.int64))
        for estimator in (Exact(), Quadrature(), BMC(3), SmoothBMC(3), UPS(3)):
            estimator(likelihood, mu, v, y, draws).sum().backward()

    step()  # fills the caches of constants
    # Fake tensors have shapes but no values: .item(), nonzero and their like raise.
    with FakeTensorMode(allow_non_fake_inputs=True):
        step()


@pytest.mark.parametrize("name", ["gaussian", "probit", "poisson", "softplus", "logistic", "student"])
def test_float32_marginals_give_float32_losses_close_to_float64(name):
    likelihood, *numbers = ROWS[name]
    results = []
    for dtype in (torch.float32, torch.float64):
        own = replace(likelihood, **{p.name: getattr(likelihood, p.name).to(dtype) for p in fields(likelihood)})
        mu, v, y = (torch.full((1, 500), x, dtype=dtype) for x in numbers)
        mu.requires_grad_()
        draws = Draws(torch.tensor([0]), torch.tensor([0]), torch.tensor(0), dtype)
        loss = UPS(10)(own, mu, v, y, draws)
        (slope,) = torch.autograd.grad(loss.sum(), mu)
        assert loss.dtype == slope.dtype == dtype
        results.append((loss.double().mean(), slope.double().mean()))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-5, atol=1e-5)
    # The uniforms of the two precisions differ in their last digits only, so do the samples.
    torch.testing.assert_close(results[0][1], results[1][1], rtol=0, atol=0.01)


MU, V, Y = (torch.full((2, 5), value, dtype=torch.float64) for value in (0.3, 0.5, 1.0))


def test_options_are_the_fields():
    options = ESTIMATORS["smooth_bmc"].options()
    assert list(options) == ["samples", "nu"]
    assert options["samples"] == (int, True)
    assert options["nu"] == (float, False)
    assert ESTIMATORS["exact"].options() == {}


def test_every_likelihood_of_ours_has_a_sampler():
    for name in LIKELIHOODS:
        UPS(2).check(LIKELIHOODS[name])
        UPS(2, "rejection").check(LIKELIHOODS[name])


@pytest.fixture
def shifted() -> Iterator[type[Estimator]]:
    @ESTIMATORS.register("shifted")
    @dataclass(frozen=True)
    class Shifted(Estimator):
        by: float = 1.0

        def __call__(self, likelihood: Likelihood, mu, v, y, draws):
            return likelihood.log_loss(mu, v, y) + self.by

    yield Shifted
    del ESTIMATORS._found["shifted"]


def test_one_from_outside(shifted):
    assert ESTIMATORS["shifted"] is shifted
    assert shifted.name == "shifted"
    row_loss = OBJECTIVES["log_dlm"].row_loss
    assert row_loss is not None
    loss, acceptance = row_loss(Probit(), ESTIMATORS["shifted"](by=2.0), MU, V, Y, FreshDraws((2,)))  # pyright: ignore
    assert acceptance is None
    torch.testing.assert_close(loss, Probit().log_loss(MU, V, Y) + 2)
    with pytest.raises(UserError, match="there is no estimator 'shiftet': did you mean shifted"):
        ESTIMATORS["shiftet"]
