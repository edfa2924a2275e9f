"""The leave-one-out loss against refits without each row."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dlmexp.core.gp.collapsed import Problem, power_ep
from dlmexp.core.gp.kernels import rbf
from dlmexp.core.gp.leave_one_out import leave_one_out

LEARNED = ("Z", "lengthscale", "outputscale", "mean", "noise")
BETA = torch.ones(2, dtype=torch.float64)


def problem(c, rows_at_once=None):
    return Problem(rbf, c, c["X"], c["y"], c["jitter"], rows_at_once)


def refitted_loss(c):
    """-sum_i log p(y_i | all others) of FITC's model: one dense regression per row."""
    Kuu = rbf(c["Z"], c["Z"], c)
    Kuu = Kuu + 1e-6 * c["outputscale"][:, None, None] * torch.eye(Kuu.shape[-1]).double()
    Kuf = rbf(c["Z"], c["X"], c)
    Qff = Kuf.mT @ torch.linalg.solve(Kuu, Kuf)
    prior = rbf(c["X"], c["X"], c).diagonal(dim1=-2, dim2=-1)
    residual = prior - Qff.diagonal(dim1=-2, dim2=-1)
    C = Qff + torch.diag_embed(residual + c["noise"][:, None])
    y = c["y"] - c["mean"][:, None]
    total = torch.zeros(len(y), dtype=torch.float64)
    for i in range(y.shape[-1]):
        others = [j for j in range(y.shape[-1]) if j != i]
        weights = torch.linalg.solve(C[:, others][:, :, others], C[:, others, i])
        mean = (weights * y[:, others]).sum(-1)
        variance = C[:, i, i] - (weights * C[:, others, i]).sum(-1)
        misfit = (y[:, i] - mean).square() / variance
        total = total + 0.5 * (torch.log(2 * math.pi * variance) + misfit)
    return total


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), M=st.integers(1, 12))
def test_loss_equals_refits_without_each_row(seed, M, cells):
    c = cells(2, M, 15, 2, seed=seed)
    torch.testing.assert_close(
        leave_one_out(problem(c), BETA).loss, refitted_loss(c), rtol=1e-8, atol=1e-8
    )


@pytest.mark.parametrize("rows_at_once", [None, 4])
def test_gradients_equal_those_of_refits(rows_at_once, cells):
    c = cells(2, 5, 15, 2)
    ours = c | {name: c[name].clone().requires_grad_() for name in LEARNED}
    theirs = c | {name: c[name].clone().requires_grad_() for name in LEARNED}
    actual = leave_one_out(problem(ours, rows_at_once), BETA).loss
    actual_gradients = torch.autograd.grad(actual.sum(), [ours[name] for name in LEARNED])
    expected = refitted_loss(theirs)
    expected_gradients = torch.autograd.grad(expected.sum(), [theirs[name] for name in LEARNED])
    for a, b in zip(actual_gradients, expected_gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)


def test_posterior_is_that_of_fitc(cells):
    c = cells(2, 5, 15, 2)
    loo, fitc = leave_one_out(problem(c), BETA), power_ep(problem(c), BETA)
    torch.testing.assert_close(loo.m, fitc.m, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(loo.L, fitc.L, rtol=1e-9, atol=1e-10)


def test_float32_rows_give_the_value_of_float64_rows(cells):
    c = cells(2, 5, 40, 2)
    exact = problem(c)
    single = exact._replace(X=c["X"].float(), y=c["y"].float())
    torch.testing.assert_close(
        leave_one_out(single, BETA).loss, leave_one_out(exact, BETA).loss, rtol=1e-5, atol=0
    )
