import math
from dataclasses import fields, replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from dlmexp.errors import UserError
from dlmexp.estimators import BMC, UPS, Draws, Exact, Quadrature, SmoothBMC
from dlmexp.estimators.samplers import ProductSample
from dlmexp.gp.likelihoods import Gaussian, Logistic, Poisson, PoissonSoftplus, Probit, StudentT
from tests.support.product_density import draws_for, t

pytestmark = pytest.mark.slow

# y far in the tail, v tiny, v huge, count 0, count 5000: (likelihood, mu, v, y)
CORNERS = {
    "gaussian": (Gaussian(t(0.3)), 0.5, 1.0, 0.0),
    "gaussian tail": (Gaussian(t(0.01)), 0.0, 0.5, 9.0),
    "gaussian tiny": (Gaussian(t(0.3)), 0.0, 1e-10, 1.0),
    "gaussian huge": (Gaussian(t(0.3)), 0.0, 1e4, 1.0),
    "probit": (Probit(), 0.5, 1.0, 0.0),
    "probit tail": (Probit(), -40.0, 1.0, 1.0),
    "probit tiny": (Probit(), -1.0, 1e-10, 1.0),
    "probit huge": (Probit(), -1.0, 1e4, 1.0),
    "poisson": (Poisson(), 0.5, 0.4, 3.0),
    "poisson tail": (Poisson(), -5.0, 0.2, 60.0),
    "poisson tiny": (Poisson(), 1.0, 1e-10, 4.0),
    "poisson huge": (Poisson(), 1.0, 1e4, 4.0),
    "poisson zero": (Poisson(), 3.0, 2.0, 0.0),
    "poisson zero huge": (Poisson(), -150.0, 1e4, 0.0),
    "poisson 5000": (Poisson(), 5.0, 1.0, 5000.0),
    "softplus": (PoissonSoftplus(), 0.5, 1.0, 3.0),
    "softplus tail": (PoissonSoftplus(), -20.0, 2.0, 30.0),
    "softplus tiny": (PoissonSoftplus(), 1.0, 1e-10, 4.0),
    "softplus huge": (PoissonSoftplus(), 1.0, 1e4, 4.0),
    "softplus zero": (PoissonSoftplus(), 9.0, 4.0, 0.0),
    "softplus 5000": (PoissonSoftplus(), 40.0, 900.0, 5000.0),
    "logistic": (Logistic(), 0.5, 1.0, 0.0),
    "logistic tail": (Logistic(), -40.0, 2.0, 1.0),
    "logistic tiny": (Logistic(), -1.0, 1e-10, 1.0),
    "logistic huge": (Logistic(), -1.0, 1e4, 1.0),
    "student": (StudentT(t(0.5), t(4.0)), 0.5, 1.0, 0.0),
    "student tail": (StudentT(t(0.5), t(4.0)), 0.0, 0.2, 40.0),
    "student tiny": (StudentT(t(0.5), t(4.0)), 0.0, 1e-10, 1.0),
    "student huge": (StudentT(t(2.0), t(8.0)), 0.0, 1e4, 30.0),
}
ROWS = 20_000


@pytest.mark.parametrize("corner", CORNERS)
def test_mean_gradient_is_the_exact_one(corner):
    likelihood, *numbers = CORNERS[corner]
    one = [t([x]).requires_grad_() for x in numbers]
    exact = torch.autograd.grad(Exact()(likelihood, *one).sum(), one[:2])  # type: ignore[arg-type]
    mu, v, y = (t([[x]]).repeat(1, ROWS).requires_grad_() for x in numbers)
    loss = UPS(10)(likelihood, mu, v, y, draws_for(1, seed=11))
    got = torch.autograd.grad(loss.sum(), (mu, v))
    # For counts with the exponential link a brisk quadrature stands in for the exact value (test_likelihood_integral).
    rtol, atol = (0, 1e-7 if numbers[1] <= 2 else 1e-3) if isinstance(likelihood, Poisson) else (1e-14, 0)
    torch.testing.assert_close(loss[0, 0], Exact()(likelihood, *one)[0].detach(), rtol=rtol, atol=atol)  # type: ignore[arg-type]
    for estimate, truth in zip(got, exact, strict=True):
        error = estimate.std().item() / math.sqrt(ROWS)
        assert abs(estimate.mean().item() - truth.item()) < 4 * error
        # Guards against a test without teeth: the error bar is small against the gradient's own scale.
        assert error < 0.05 * max(abs(truth.item()), 1 / v[0, 0].item() ** (0.5 if estimate is got[0] else 1.0))


@pytest.mark.parametrize("sampler", ["auto", "rejection"])
def test_gradient_of_one_draw_is_that_of_log_q_at_the_samples(sampler):
    from dlmexp.estimators.samplers import SAMPLERS

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
        torch.zeros(1, ROWS, dtype=torch.float64),
        torch.full((1, ROWS), 0.7, dtype=torch.float64),
        t([[1.2]]).repeat(1, ROWS),
    )

    def gradients(estimator, rows: int) -> list[torch.Tensor]:
        own = [p.repeat(1, rows).requires_grad_() for p in start]
        loss = estimator(build(*own), mu[:, :rows], v[:, :rows], y[:, :rows], draws_for(1, seed=5))
        return list(torch.autograd.grad(loss.sum(), own))

    for exact, got in zip(gradients(Exact(), 1), gradients(UPS(10), ROWS), strict=True):
        error = got.std().item() / math.sqrt(ROWS)
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


def test_unknown_sampler_is_refused_at_once():
    with pytest.raises(UserError, match="auto"):
        UPS(10, "atuo")


@pytest.mark.parametrize("name", ["gaussian", "probit", "poisson", "softplus", "logistic", "student"])
def test_no_estimator_looks_at_a_value_so_a_cuda_graph_can_capture_it(name):
    likelihood = CORNERS[name][0]

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
    likelihood, *numbers = CORNERS[name]
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
