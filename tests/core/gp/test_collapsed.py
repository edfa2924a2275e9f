"""Objectives with a closed form over q against explicit objectives and dense matrices.

These are values, gradients and predictions of the ELBO, the square loss, FITC, power EP and the
exact process.
"""

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
    """Return the negative ELBO at q = N(m, L L^T)."""
    mu, v = marginals(projection(kernel, c, c["X"], c["jitter"]), c["mean"], m, L)
    noise = c["noise"][:, None]
    loss = 0.5 * (torch.log(2 * math.pi * noise) + ((c["y"] - mu).square() + v) / noise)
    return loss.sum(-1) + BETA * kl(m, L)


def square_loss(kernel, c, m, L):
    """Return the penalised square loss at q = N(m, L L^T)."""
    mu, _ = marginals(projection(kernel, c, c["X"], c["jitter"]), c["mean"], m, L)
    return 0.5 * (c["y"] - mu).square().sum(-1) + 0.5 * BETA * m.square().sum(-1)


def problem(kernel, c, rows_at_once=None):
    return Problem(kernel, c, c["X"], c["y"], c["jitter"], rows_at_once)


def with_leaves(c, learned):
    return c | {name: c[name].clone().requires_grad_() for name in learned}


def assert_same_gradients(c, other, learned):
    for name in learned:
        torch.testing.assert_close(
            c[name].grad, other[name].grad, rtol=1e-7, atol=1e-7, msg=lambda s, n=name: f"{n}: {s}"
        )


every_collapsed = pytest.mark.parametrize(
    ("collapsed", "objective", "learned"),
    [(collapsed_elbo, elbo, LEARNED), (collapsed_square, square_loss, LATENT)],
)


@every_collapsed
@pytest.mark.parametrize(("kernel", "rows_at_once"), [("rbf", None), ("matern52", 7)])
def test_value_and_gradients_are_those_of_the_objective_at_its_q(
    collapsed, objective, learned, kernel, rows_at_once, cells
):
    """By the envelope theorem, the gradient through q vanishes."""
    c = cells(3, 6, 50, 2)
    kernel = KERNELS[kernel]
    implicit = with_leaves(c, learned)
    closed = collapsed(problem(kernel, implicit, rows_at_once), BETA)
    closed.loss.sum().backward()
    explicit = with_leaves(c, learned)
    value = objective(kernel, explicit, closed.m, closed.L)
    value.sum().backward()
    torch.testing.assert_close(closed.loss, value, rtol=1e-9, atol=1e-9)
    assert_same_gradients(implicit, explicit, learned)


@every_collapsed
def test_q_is_a_minimum_of_the_objective(collapsed, objective, learned, cells):
    c = cells(3, 6, 50, 2)
    closed = collapsed(problem(rbf, c), BETA)
    m = closed.m.clone().requires_grad_()
    L = closed.L.clone().requires_grad_()
    value = objective(rbf, c, m, L)
    d_m, d_L = torch.autograd.grad(value.sum(), (m, L), allow_unused=True, materialize_grads=True)
    # The terms that cancel at the optimum are of the size of n/noise, about 1e3.
    assert d_m.abs().max() < 1e-8
    if collapsed is not collapsed_square:
        assert d_L.tril().abs().max() < 1e-8
    assert (objective(rbf, c, closed.m + 0.01, closed.L) > value).all()
    assert torch.equal(closed.L, closed.L.tril())


@pytest.mark.parametrize("collapsed", [collapsed_elbo, collapsed_square, power_ep])
def test_cell_without_a_factor_is_marked_and_its_neighbour_is_as_it_is_alone(cells, collapsed):
    c = cells(2, 6, 30, 2)
    c["X"][1, 0] = float("nan")
    closed = collapsed(problem(rbf, c), BETA[:2])
    first = {name: value[:1] for name, value in c.items()}
    alone = collapsed(problem(rbf, first), BETA[:1])
    assert closed.ok.tolist() == [True, False]
    torch.testing.assert_close(closed.loss[:1], alone.loss, rtol=1e-12, atol=0)


@pytest.mark.parametrize("collapsed", [collapsed_elbo, collapsed_square])
def test_beta_of_zero_is_the_limit_of_small_betas(collapsed, cells):
    c = cells(1, 4, 30, 2)
    none = collapsed(problem(rbf, c), torch.zeros(1, dtype=torch.float64))
    small = collapsed(problem(rbf, c), torch.full((1,), 1e-7, dtype=torch.float64))
    assert none.ok.all()
    torch.testing.assert_close(none.loss, small.loss, rtol=0, atol=1e-3)
    torch.testing.assert_close(none.m, small.m, rtol=0, atol=1e-3)


def test_elbo_at_beta_zero_has_the_least_ridge_as_its_noise(cells):
    c = cells(2, 4, 30, 2)
    s = moments(problem(rbf, c))
    closed = collapsed_elbo(problem(rbf, c), torch.zeros(2, dtype=torch.float64))
    eye = torch.eye(4, dtype=torch.float64)
    covariance = torch.linalg.inv(eye + s.AA / s.smallest_ridge[:, None, None])
    torch.testing.assert_close(closed.L @ closed.L.mT, covariance, rtol=1e-5, atol=0)


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
        direct_loss = 0.5 * (s.yy - (s.Ay * direct).sum(-1))
        torch.testing.assert_close(m[:, k], direct, rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(loss[:, k], direct_loss, rtol=1e-9, atol=1e-10)


def test_path_at_one_beta_is_the_collapsed_square_loss(cells):
    c = cells(3, 5, 40, 2)
    betas = torch.tensor([0.0, 2.0], dtype=torch.float64)
    m, loss = square_path(moments(problem(rbf, c)), betas)
    for k in range(2):
        closed = collapsed_square(problem(rbf, c), betas[k].expand(3))
        torch.testing.assert_close(m[:, k], closed.m, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(loss[:, k], closed.loss, rtol=1e-8, atol=1e-8)


def dense_power_ep(c, X_new, alpha):
    """Return the energy of y, and the predictive mean and variance at X_new, written out."""
    noise = c["noise"][:, None]
    s = c["outputscale"][:, None]
    eye = torch.eye(c["Z"].shape[1], dtype=torch.float64)
    Kuu = rbf(c["Z"], c["Z"], c) + 1e-6 * s[..., None] * eye
    Kuf = rbf(c["Z"], c["X"], c)
    Kus = rbf(c["Z"], X_new, c)
    Qff = Kuf.mT @ torch.linalg.solve(Kuu, Kuf)
    Qsf = Kus.mT @ torch.linalg.solve(Kuu, Kuf)
    r = s - Qff.diagonal(dim1=-2, dim2=-1)
    C = Qff + torch.diag_embed(alpha * r + noise)
    correction = (1 - alpha) / (2 * alpha) * torch.log(1 + alpha * r / noise).sum(-1)
    loss, mu, v = dense_process(c, C, Qsf)
    return loss + correction, mu, v


def dense_exact(c, X_new, alpha):
    """Return the same of the exact process."""
    C = rbf(c["X"], c["X"], c) + torch.diag_embed(c["noise"][:, None].expand_as(c["y"]))
    return dense_process(c, C, rbf(X_new, c["X"], c))


def dense_process(c, C, Csf):
    """Return -log N(y; mean, C), and the predictive mean and variance with covariances Csf."""
    mean = c["mean"][:, None].expand_as(c["y"])
    gain = torch.linalg.solve(C, Csf.mT).mT
    mu = c["mean"][:, None] + (gain @ (c["y"] - mean)[..., None])[..., 0]
    v = c["outputscale"][:, None] - (gain @ Csf.mT).diagonal(dim1=-2, dim2=-1)
    return -MultivariateNormal(mean, C).log_prob(c["y"]), mu, v


def assert_equals_dense(collapsed, dense, c, learned, alpha, rows_at_once, tolerance, X_new):
    implicit = with_leaves(c, learned)
    explicit = with_leaves(c, learned)
    loss, mu, v = dense(explicit, X_new, alpha)
    loss.sum().backward()
    powers = torch.full((3,), alpha, dtype=torch.float64)
    closed = collapsed(problem(rbf, implicit, rows_at_once), powers)
    closed.loss.sum().backward()
    torch.testing.assert_close(closed.loss, loss, rtol=1e-9, atol=1e-9)
    assert_same_gradients(implicit, explicit, learned)
    predicted = marginals(projection(rbf, c, X_new, c["jitter"]), c["mean"], closed.m, closed.L)
    torch.testing.assert_close(predicted, (mu, v), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("rows_at_once", "alpha"), [(None, 1.0), (13, 1.0), (None, 0.3), (13, 0.01)]
)
def test_power_ep_equals_the_dense_computation(rows_at_once, alpha, cells):
    c = cells(3, 5, 40, 2)
    X_new = cells(3, 1, 12, 2, seed=5)["X"]
    assert_equals_dense(power_ep, dense_power_ep, c, LEARNED, alpha, rows_at_once, 1e-8, X_new)


def test_exact_evidence_equals_the_dense_computation(cells):
    c = cells(3, 5, 40, 2)
    c["Z"] = c["X"]
    X_new = cells(3, 1, 12, 2, seed=5)["X"]
    tolerance = 1e-6  # of what the jitter adds to the variance
    assert_equals_dense(exact_evidence, dense_exact, c, LEARNED[1:], 1.0, None, tolerance, X_new)


def test_exact_evidence_does_not_depend_on_the_jitter(cells):
    c = cells(3, 5, 40, 2)
    c["Z"] = c["X"]
    beta = torch.ones(3, dtype=torch.float64)
    losses = [
        exact_evidence(problem(rbf, c | {"jitter": jitter * beta}), beta).loss
        for jitter in (1e-6, 1e-2)
    ]
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("alpha", [0.0, 1e-9])
def test_power_ep_has_the_elbo_as_its_limit(alpha, cells):
    """The other end, alpha = 1, is FITC, whose covariance is written out above."""
    c = cells(3, 5, 40, 2)
    ones = torch.ones(3, dtype=torch.float64)
    limit = power_ep(problem(rbf, c), alpha * ones)
    elbo = collapsed_elbo(problem(rbf, c), ones)
    tolerance = 1e-6 if alpha else 1e-8  # the error of a small alpha is of its order
    torch.testing.assert_close(limit[:3], elbo[:3], rtol=tolerance, atol=tolerance)
