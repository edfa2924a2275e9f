"""Closed forms over q (ELBO, square loss, FITC, power EP, the exact process) against explicit
objectives and dense matrices: values, gradients and predictions."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import MultivariateNormal

from dlmexp.core.gp.collapsed import (
    Problem,
    collapsed_elbo,
    collapsed_square,
    exact_evidence,
    moments,
    power_ep,
    square_path,
)
from dlmexp.core.gp.kernels import KERNELS, rbf
from dlmexp.core.gp.posterior import kl, marginals, projection

BETA = torch.tensor([0.01, 1.0, 40.0], dtype=torch.float64)
LATENT = ("Z", "lengthscale", "outputscale", "mean")
LEARNED = (*LATENT, "noise")


def elbo(kernel, c, m, L):
    mu, v = marginals(projection(kernel, c, c["X"], c["jitter"]), c["mean"], m, L)
    noise = c["noise"][:, None]
    loss = 0.5 * (torch.log(2 * math.pi * noise) + ((c["y"] - mu).square() + v) / noise)
    return loss.sum(-1) + BETA * kl(m, L)


def square_loss(kernel, c, m, L):
    mu, _ = marginals(projection(kernel, c, c["X"], c["jitter"]), c["mean"], m, L)
    return 0.5 * (c["y"] - mu).square().sum(-1) + 0.5 * BETA * m.square().sum(-1)


def problem(kernel, c, rows_at_once=None):
    return Problem(kernel, c, c["X"], c["y"], c["jitter"], rows_at_once)


def with_leaves(c, learned):
    return c | {name: c[name].clone().requires_grad_() for name in learned}


def same_gradients(ours, theirs, learned):
    for k in learned:
        torch.testing.assert_close(
            ours[k].grad, theirs[k].grad, rtol=1e-7, atol=1e-7, msg=lambda s, k=k: f"{k}: {s}"
        )


@pytest.mark.parametrize(("kernel", "rows_at_once"), [("rbf", None), ("matern52", 7)])
@pytest.mark.parametrize(
    ("collapsed", "objective", "learned"),
    [(collapsed_elbo, elbo, LEARNED), (collapsed_square, square_loss, LATENT)],
)
def test_is_the_objective_at_a_stationary_q(
    collapsed, objective, learned, kernel, rows_at_once, cells
):
    """Same value, same gradient in every hyperparameter (envelope theorem), no gradient left in
    q."""
    c, kernel = cells(3, 6, 50, 2), KERNELS[kernel]
    ours, explicit = (with_leaves(c, learned) for _ in range(2))
    closed = collapsed(problem(kernel, ours, rows_at_once), BETA)
    closed.loss.sum().backward()
    m, L = closed.m.detach().clone().requires_grad_(), closed.L.detach().clone().requires_grad_()
    value = objective(kernel, explicit, m, L)
    value.sum().backward()
    torch.testing.assert_close(closed.loss, value, rtol=1e-9, atol=1e-9)
    assert m.grad is not None
    # The terms that cancel at the optimum are of the size of n/noise, about 1e3.
    assert m.grad.abs().max() < 1e-8
    assert L.grad is None or collapsed is collapsed_square or L.grad.tril().abs().max() < 1e-8
    same_gradients(ours, explicit, learned)
    assert torch.equal(closed.L, closed.L.tril())
    assert (objective(kernel, c, closed.m + 0.01, closed.L) > value).all()


@pytest.mark.parametrize("collapsed", [collapsed_elbo, collapsed_square, power_ep])
def test_a_loss_without_a_factor_is_not_taken_for_one(cells, collapsed):
    """Where A A^T is not finite, the cell is marked; its neighbour is as it is alone."""
    c = cells(2, 6, 30, 2)
    c["X"][1, 0] = float("nan")
    found = collapsed(problem(rbf, c), BETA[:2])
    assert found.ok.tolist() == [True, False]
    one = {name: value[:1] for name, value in c.items()}
    alone = collapsed(problem(rbf, one), BETA[:1]).loss
    torch.testing.assert_close(found.loss[:1], alone, rtol=1e-12, atol=0)


@settings(max_examples=20)
@given(M=st.integers(1, 12), N=st.integers(1, 20), seed=st.integers(0, 10**6))
def test_path_is_a_direct_solve_at_every_beta(M, N, seed, cells):
    """Also where A A^T has not full rank (N < M)."""
    c = cells(2, M, N, 2, seed=seed)
    s = moments(problem(rbf, c))
    betas = torch.tensor([float(N) / 2**k for k in range(8)], dtype=torch.float64)
    m, loss = square_path(s, betas)
    for k, beta in enumerate(betas):
        system = s.AA + beta * torch.eye(M, dtype=torch.float64)
        direct = torch.linalg.solve(system, s.Ay[..., None])[..., 0]
        torch.testing.assert_close(m[:, k], direct, rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(
            loss[:, k], 0.5 * (s.yy - (s.Ay * direct).sum(-1)), rtol=1e-9, atol=1e-10
        )


def dense(c, X_new, alpha):
    """The energy of y and the predictive mean and variance at X_new from the covariance of power
    EP, or of the exact process where alpha is None, written out."""
    noise, s = c["noise"][:, None], c["outputscale"][:, None]
    if alpha is None:
        C = rbf(c["X"], c["X"], c) + torch.diag_embed(noise.expand_as(c["y"]))
        Csf, correction = rbf(X_new, c["X"], c), 0
    else:
        Kuu = rbf(c["Z"], c["Z"], c) + 1e-6 * s[..., None] * torch.eye(
            c["Z"].shape[1], dtype=torch.float64
        )
        Kuf, Kus = (rbf(c["Z"], X, c) for X in (c["X"], X_new))
        Qff, Csf = (a.mT @ torch.linalg.solve(Kuu, Kuf) for a in (Kuf, Kus))
        rest = s - Qff.diagonal(dim1=-2, dim2=-1)
        C = Qff + torch.diag_embed(alpha * rest + noise)
        correction = (1 - alpha) / (2 * alpha) * torch.log(1 + alpha * rest / noise).sum(-1)
    mean = c["mean"][:, None].expand_as(c["y"])
    gain = torch.linalg.solve(C, Csf.mT).mT
    mu = c["mean"][:, None] + (gain @ (c["y"] - mean)[..., None])[..., 0]
    v = s - (gain @ Csf.mT).diagonal(dim1=-2, dim2=-1)
    return correction - MultivariateNormal(mean, C).log_prob(c["y"]), mu, v


@pytest.mark.parametrize(
    ("rows_at_once", "alpha"), [(None, 1.0), (13, 1.0), (None, 0.3), (13, 0.01), (None, None)]
)
def test_equals_dense_computation(rows_at_once, alpha, cells):
    c, X_new = cells(3, 5, 40, 2), cells(3, 1, 12, 2, seed=5)["X"]
    exact, learned = alpha is None, LEARNED
    if exact:
        c["Z"], learned = c["X"], LEARNED[1:]
    ours, theirs = (with_leaves(c, learned) for _ in range(2))
    loss, mu, v = dense(theirs, X_new, alpha)
    loss.sum().backward()
    powers = torch.full((3,), 1.0 if exact else alpha, dtype=torch.float64)
    form = exact_evidence if exact else power_ep
    closed = form(problem(rbf, ours, rows_at_once), powers)
    closed.loss.sum().backward()
    torch.testing.assert_close(closed.loss, loss, rtol=1e-9, atol=1e-9)
    same_gradients(ours, theirs, learned)
    tolerance = 1e-6 if exact else 1e-8  # of what the jitter adds to the variance
    predicted = marginals(projection(rbf, c, X_new, c["jitter"]), c["mean"], closed.m, closed.L)
    for mine, other in zip(predicted, (mu, v), strict=True):
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("alpha", [0.0, 1e-9])
def test_power_ep_has_the_elbo_as_its_limit(alpha, cells):
    """The other end, alpha = 1, is FITC, whose covariance is written out above."""
    c = cells(3, 5, 40, 2)
    ours, theirs = (
        form(problem(rbf, c), torch.full((3,), power, dtype=torch.float64))
        for form, power in ((power_ep, alpha), (collapsed_elbo, 1.0))
    )
    tolerance = 1e-6 if alpha else 1e-8  # the error of a small alpha is of its order
    for a, b in zip(ours[:3], theirs[:3], strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
