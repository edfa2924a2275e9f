"""Evidences with a scaled conditional, against their dense formulas and against each other."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import MultivariateNormal

from dlmexp.core.gp.collapsed import Problem, collapsed_elbo, exact_evidence, power_ep
from dlmexp.core.gp.kernels import KERNELS, rbf
from dlmexp.core.gp.structured import (
    blocks_of_neighbours,
    collapsed_block_tighter,
    collapsed_tighter,
    scaled_power_ep,
)

LEARNED = ("Z", "lengthscale", "outputscale", "mean", "noise")
ONE = torch.ones(3, dtype=torch.float64)


def problem(c, kernel=rbf, rows_at_once=None):
    return Problem(kernel, c, c["X"], c["y"], c["jitter"], rows_at_once)


def with_leaves(c, names=LEARNED):
    return c | {name: c[name].clone().requires_grad_() for name in names}


def dense_matrices(c, kernel=rbf):
    """Qff and D = Kff - Qff [B, N, N], and y less its prior mean."""
    jitter = 1e-6 * c["outputscale"][:, None, None]
    Kuu = kernel(c["Z"], c["Z"], c)
    Kuu = Kuu + jitter * torch.eye(Kuu.shape[-1], dtype=torch.float64)
    Kuf = kernel(c["Z"], c["X"], c)
    Qff = Kuf.mT @ torch.linalg.solve(Kuu, Kuf)
    return Qff, kernel(c["X"], c["X"], c) - Qff, c["y"] - c["mean"][:, None]


def dense_evidence(Qff, variances, y):
    """-log N(y; 0, Qff + diag(variances)) of every cell."""
    covariance = Qff + torch.diag_embed(variances)
    return -MultivariateNormal(torch.zeros_like(y), covariance).log_prob(y)


def dense_tighter(c, beta, log_det):
    """The bound of docs/SPEC.md, section 2, with this sum of log |I + D_b / t|."""
    Qff, _, y = dense_matrices(c)
    n = y.shape[-1]
    t = beta * c["noise"]
    evidence = dense_evidence(Qff, t[:, None].expand_as(y), y)
    inner = evidence + 0.5 * log_det - n / 2 * torch.log(2 * math.pi * t)
    return n / 2 * torch.log(2 * math.pi * c["noise"]) + beta * inner


def same_with_gradients(actual, expected, ours, theirs, names):
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-8)
    actual_gradients = torch.autograd.grad(actual.sum(), [ours[name] for name in names])
    expected_gradients = torch.autograd.grad(expected.sum(), [theirs[name] for name in names])
    for name, a, b in zip(names, actual_gradients, expected_gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6, msg=lambda s, k=name: f"{k}: {s}")


@pytest.mark.parametrize("rows_at_once", [None, 7])
@pytest.mark.parametrize("beta", [0.2, 1.0, 30.0])
def test_tighter_bound_equals_its_dense_formula(beta, rows_at_once, cells):
    c = cells(3, 6, 40, 2)
    ours, theirs = with_leaves(c), with_leaves(c)
    _, D, _ = dense_matrices(theirs)
    t = beta * theirs["noise"]
    log_det = torch.log1p(D.diagonal(dim1=-2, dim2=-1) / t[:, None]).sum(-1)
    expected = dense_tighter(theirs, beta * ONE, log_det)
    actual = collapsed_tighter(problem(ours, rows_at_once=rows_at_once), beta * ONE).loss
    same_with_gradients(actual, expected, ours, theirs, LEARNED)


@pytest.mark.parametrize("beta", [0.2, 1.0])
def test_block_bound_equals_its_dense_formula(beta, cells):
    c = cells(3, 6, 40, 2)
    ours, theirs = with_leaves(c), with_leaves(c)
    _, D, _ = dense_matrices(theirs)
    t = (beta * theirs["noise"])[:, None, None]
    # 3 blocks of 40 rows: 14, 14 and 12
    log_det = torch.zeros(3, dtype=torch.float64)
    for start in (0, 14, 28):
        rows = slice(start, start + 14)
        block = D[:, rows, rows] / t
        eye = torch.eye(block.shape[-1], dtype=torch.float64)
        log_det = log_det + torch.linalg.slogdet(eye + block)[1]
    expected = dense_tighter(theirs, beta * ONE, log_det)
    actual = collapsed_block_tighter(problem(ours), beta * ONE, blocks=3).loss
    same_with_gradients(actual, expected, ours, theirs, LEARNED)


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), M=st.integers(1, 10), blocks=st.integers(1, 12))
def test_bounds_lie_between_elbo_and_exact_evidence(seed, M, blocks, cells):
    c = cells(3, M, 12, 2, seed=seed)
    c["jitter"] = torch.full((3,), 1e-10, dtype=torch.float64)
    elbo = collapsed_elbo(problem(c), ONE).loss
    tighter = collapsed_tighter(problem(c), ONE).loss
    block_tighter = collapsed_block_tighter(problem(c), ONE, blocks=blocks).loss
    exact = exact_evidence(problem(c | {"Z": c["X"]}), ONE).loss
    slack = 1e-6  # of rounding, where bounds are equal
    assert (exact <= block_tighter + slack).all()
    assert (block_tighter <= tighter + slack).all()
    assert (tighter <= elbo + slack).all()


@pytest.mark.parametrize(
    "bound", [collapsed_elbo, collapsed_tighter, collapsed_block_tighter, scaled_power_ep]
)
def test_every_bound_is_the_exact_evidence_where_all_rows_are_inducing(bound, cells):
    c = cells(3, 12, 12, 2)
    c |= {"Z": c["X"], "conditional_scale": ONE}
    c["jitter"] = torch.full((3,), 1e-14, dtype=torch.float64)
    exact = exact_evidence(problem(c), ONE).loss
    torch.testing.assert_close(bound(problem(c), ONE).loss, exact, rtol=1e-8, atol=1e-8)


def test_bounds_have_the_posterior_of_the_elbo(cells):
    c = cells(3, 6, 40, 2)
    beta = torch.tensor([0.3, 1.0, 5.0], dtype=torch.float64)
    elbo = collapsed_elbo(problem(c), beta)
    for bound in (collapsed_tighter, collapsed_block_tighter):
        closed = bound(problem(c), beta)
        torch.testing.assert_close(closed.m, elbo.m, rtol=1e-9, atol=1e-10)
        torch.testing.assert_close(closed.L, elbo.L, rtol=1e-9, atol=1e-10)


def test_block_bound_with_one_row_per_block_is_the_tighter_bound(cells):
    c = cells(3, 6, 20, 2)
    one_row = collapsed_block_tighter(problem(c), ONE, blocks=20).loss
    torch.testing.assert_close(one_row, collapsed_tighter(problem(c), ONE).loss)


def test_blocks_of_neighbours_give_a_tighter_bound_than_blocks_of_random_rows(cells):
    c = cells(3, 6, 40, 2)
    order = torch.stack([blocks_of_neighbours(X, 4) for X in c["X"]])
    arranged = c | {
        "X": c["X"].take_along_dim(order[..., None], dim=1),
        "y": c["y"].take_along_dim(order, dim=1),
    }
    neighbours = collapsed_block_tighter(problem(arranged), ONE, blocks=4).loss
    assert (neighbours < collapsed_block_tighter(problem(c), ONE, blocks=4).loss).all()


@given(n=st.integers(1, 60), blocks=st.integers(1, 12), seed=st.integers(0, 99))
def test_blocks_of_neighbours_are_a_permutation(n, blocks, seed):
    X = torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    assert sorted(blocks_of_neighbours(X, blocks).tolist()) == list(range(n))


def test_blocks_of_neighbours_part_clusters_that_lie_far_apart():
    X = torch.tensor([[0.0], [10.0], [0.1], [10.1], [20.0], [20.1]], dtype=torch.float64)
    assert blocks_of_neighbours(X, 3).reshape(3, 2).tolist() == [[0, 2], [1, 3], [4, 5]]


@pytest.mark.parametrize("rows_at_once", [None, 7])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_scaled_power_ep_equals_its_dense_formula(alpha, rows_at_once, cells):
    scales = torch.tensor([0.2, 0.9, 1.5], dtype=torch.float64)
    c = cells(3, 6, 40, 2) | {"conditional_scale": scales}
    names = (*LEARNED, "conditional_scale")
    ours, theirs = with_leaves(c, names), with_leaves(c, names)
    Qff, D, y = dense_matrices(theirs)
    n = y.shape[-1]
    scale = theirs["conditional_scale"]
    noise = theirs["noise"][:, None]
    r = scale[:, None] * D.diagonal(dim1=-2, dim2=-1)
    expected = dense_evidence(Qff, alpha * r + noise, y)
    if alpha == 0:
        expected = expected + (r / (2 * noise)).sum(-1) + n / 2 * (scale - 1 - scale.log())
    else:
        weight = (1 - alpha) / (2 * alpha)
        expected = expected + weight * torch.log(1 + alpha * r / noise).sum(-1)
        expected = expected + n / (2 * alpha) * torch.log(1 - alpha + alpha * scale)
        expected = expected - n / 2 * scale.log()
    actual = scaled_power_ep(problem(ours, rows_at_once=rows_at_once), ONE, alpha=alpha).loss
    same_with_gradients(actual, expected, ours, theirs, names)


@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
def test_scaled_power_ep_with_scale_one_is_power_ep(alpha, cells):
    c = cells(3, 6, 40, 2) | {"conditional_scale": ONE}
    scaled = scaled_power_ep(problem(c), ONE, alpha=alpha)
    plain = power_ep(problem(c), alpha * ONE)
    torch.testing.assert_close(scaled.loss, plain.loss, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(scaled.m, plain.m, rtol=1e-10, atol=1e-10)


def test_scaled_power_ep_tends_to_the_bound_with_one_scale_for_all_rows(cells):
    """At the best scale, 1 / (1 + tr(D) / (n noise)), the bound has n/2 log(1 + tr(D) / (n noise)),
    and no other scale is better."""
    c = cells(3, 6, 40, 2)
    Qff, D, y = dense_matrices(c)
    n = y.shape[-1]
    ratio = D.diagonal(dim1=-2, dim2=-1).sum(-1) / (n * c["noise"])
    evidence = dense_evidence(Qff, c["noise"][:, None].expand_as(y), y)
    expected = evidence + n / 2 * torch.log1p(ratio)
    best = 1 / (1 + ratio)

    def energy(scale, alpha):
        return scaled_power_ep(problem(c | {"conditional_scale": scale}), ONE, alpha=alpha).loss

    torch.testing.assert_close(energy(best, 0.0), expected, rtol=1e-9, atol=1e-8)
    torch.testing.assert_close(energy(best, 1e-7), expected, rtol=1e-6, atol=1e-4)
    for factor in (0.9, 1.1):
        assert (energy(factor * best, 0.0) > expected).all()


@pytest.mark.parametrize("bound", [collapsed_tighter, collapsed_block_tighter, scaled_power_ep])
def test_float32_rows_give_the_value_of_float64_rows(bound, cells):
    c = cells(3, 6, 40, 2) | {"conditional_scale": 0.5 * ONE}
    exact = problem(c, KERNELS["matern52"])
    single = exact._replace(X=c["X"].float(), y=c["y"].float())
    torch.testing.assert_close(bound(single, ONE).loss, bound(exact, ONE).loss, rtol=1e-5, atol=0)
    assert bound(single, ONE).loss.dtype == torch.float64


@pytest.mark.parametrize("bound", [collapsed_tighter, collapsed_block_tighter, scaled_power_ep])
def test_a_cell_that_can_not_be_factorised_is_marked_and_harms_no_other(bound, cells):
    c = cells(3, 6, 30, 2) | {"conditional_scale": ONE}
    whole = bound(problem(c), ONE)
    c["X"][1, 0] = float("nan")
    marked = bound(problem(c), ONE)
    assert marked.ok.tolist() == [True, False, True]
    torch.testing.assert_close(marked.loss[[0, 2]], whole.loss[[0, 2]], rtol=1e-12, atol=0)


def test_at_beta_zero_the_tighter_bound_is_finite_and_below_the_elbo(cells):
    c = cells(3, 6, 40, 2)
    tighter = collapsed_tighter(problem(c), 0 * ONE).loss
    assert tighter.isfinite().all()
    assert (tighter < collapsed_elbo(problem(c), 0 * ONE).loss).all()
