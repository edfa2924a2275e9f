"""The fast form of the posterior with an RBF kernel against the general one."""

import pytest
import torch

from dlmexp.core.gp.kernels import RBF, matern52, rbf
from dlmexp.core.gp.posterior import marginals, projection
from dlmexp.core.gp.rbf_posterior import can_use_rbf_marginals, rbf_marginals
from dlmexp.core.gp.workspace import Workspace

LEARNED = ("Z", "lengthscale", "outputscale", "mean", "m", "L")
SHAPES = {
    "usual": (3, 7, 40, 4, 1),
    "ard": (2, 9, 30, 3, 3),
    "strips": (2, 100, 600, 3, 1),
    "one": (1, 1, 1, 1, 1),
}


def weighted_gradients(outputs, weight, leaves):
    """Return mu and v of `outputs` stacked, and gradients of their weighted sum."""
    stacked = torch.stack(outputs)
    return stacked, torch.autograd.grad((stacked * weight).sum(), leaves)


@pytest.mark.parametrize("shape", SHAPES)
def test_marginals_and_gradients_are_those_of_the_general_form(shape, cells):
    B, M, N, D, P = SHAPES[shape]
    c = cells(B, M, N, D, P > 1)
    weight = cells(2 * B, 1, N, 1, seed=1)["y"].reshape(2, B, N)
    leaves = [c[name].requires_grad_() for name in LEARNED]
    L = c["L"].tril()
    p = projection(rbf, c, c["X"], c["jitter"])
    general = marginals(p, c["mean"], c["m"], L)
    *fast, ok = rbf_marginals(c, c["X"], c["jitter"], c["m"], L, Workspace())
    values, gradients = weighted_gradients(fast, weight, leaves)
    expected, expected_gradients = weighted_gradients(general, weight, leaves)
    torch.testing.assert_close(values, expected, rtol=1e-10, atol=1e-12)
    for gradient, other in zip(gradients, expected_gradients, strict=True):
        atol = 1e-9 * float(other.abs().max())
        torch.testing.assert_close(gradient, other, rtol=1e-8, atol=atol)
    assert ok.tolist() == p.ok.tolist() == [True] * B


def test_steps_that_share_their_memory_compute_the_same(cells):
    c = cells(2, 7, 40, 3)
    memory = Workspace()
    leaves = [c[name].requires_grad_() for name in LEARNED]
    weight = torch.randn(2, 2, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    steps = []
    for _ in range(2):
        *fast, _ = rbf_marginals(c, c["X"], c["jitter"], c["m"], c["L"].tril(), memory)
        steps.append(weighted_gradients(fast, weight, leaves))
    torch.testing.assert_close(steps[0], steps[1], rtol=0, atol=0)


class Doubled(RBF):
    """A kernel derived from the RBF."""


def test_only_the_rbf_kernel_of_float64_rows_on_a_cpu_takes_the_fast_form():
    X = torch.zeros(1, 2, 2, dtype=torch.float64)
    assert can_use_rbf_marginals(rbf, X)
    assert not can_use_rbf_marginals(rbf, X.float())
    assert not can_use_rbf_marginals(rbf, X.to("meta"))
    assert not can_use_rbf_marginals(matern52, X)
    assert not can_use_rbf_marginals(Doubled("doubled"), X)
