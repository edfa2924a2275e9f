"""The batched Cholesky factor: its gradients, its jitter, and cells that fail."""

import pytest
import torch
from torch.autograd import gradcheck

from dlmexp.core.gp.cholesky import (
    FIRST_JITTER,
    LAST_JITTER,
    add_to_diagonal,
    factorise,
    sufficient_jitter,
)


def positive_definite(B: int, M: int, seed: int = 0) -> torch.Tensor:
    """Return random matrices R R^T + I."""
    generator = torch.Generator().manual_seed(seed)
    R = torch.randn(B, M, M, dtype=torch.float64, generator=generator)
    return R @ R.mT + torch.eye(M, dtype=torch.float64)


@pytest.mark.parametrize("part", ["K", "L", "L_inverse", "all"])
def test_gradient_flows_through_every_part_of_a_factor(part):
    """The input is symmetrised, as a gradient in K is only defined along symmetric directions."""
    jitter = torch.tensor([0.0, 0.1], dtype=torch.float64)

    def f(R):
        factor = factorise(R + R.mT, jitter)
        if part == "all":
            return factor.K.sin() + factor.L.cos() + factor.L_inverse.sin()
        return getattr(factor, part)

    assert gradcheck(f, [(positive_definite(2, 4) / 2).requires_grad_()])


def test_factor_and_inverse_are_those_of_k_with_its_relative_jitter():
    K = positive_definite(3, 5)
    jitter = torch.tensor([0.0, 1e-3, 1e-1], dtype=torch.float64)
    factor = factorise(K, jitter)
    mean = K.diagonal(dim1=-2, dim2=-1).mean(-1)
    expected = K + (jitter * mean)[:, None, None] * torch.eye(5, dtype=torch.float64)
    torch.testing.assert_close(factor.K, expected, rtol=1e-14, atol=0)
    torch.testing.assert_close(factor.L @ factor.L.mT, expected, rtol=1e-12, atol=1e-12)
    product = factor.L @ factor.L_inverse
    eye = torch.eye(5, dtype=torch.float64).expand(3, 5, 5)
    torch.testing.assert_close(product, eye, rtol=0, atol=1e-12)
    assert torch.equal(factor.L, factor.L.tril())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
def test_failed_cell_has_the_identity_and_its_neighbour_its_own_factor(bad):
    K = positive_definite(2, 4)
    K[1] = bad * torch.eye(4, dtype=torch.float64)
    no_jitter = torch.zeros(2, dtype=torch.float64)
    factor = factorise(K, no_jitter)
    assert factor.ok.tolist() == [True, False]
    assert torch.equal(factor.L[1], torch.eye(4, dtype=torch.float64))
    assert torch.equal(factor.L[0], factorise(K[:1], no_jitter[:1]).L[0])


def test_adding_to_the_diagonal_leaves_its_argument_as_it_is():
    K = positive_definite(1, 3)
    before = K.clone()
    add_to_diagonal(K, torch.ones(1, dtype=torch.float64))
    assert torch.equal(K, before)


def test_escalation_raises_only_the_jitter_of_cells_that_need_it():
    eye = torch.eye(8, dtype=torch.float64)
    # The middle cell misses positive definiteness by 3e-4 of its mean diagonal.
    nearly_singular = torch.ones(8, 8, dtype=torch.float64) - 3e-4 * eye
    K = torch.stack([positive_definite(1, 8)[0], nearly_singular, -eye])
    jitter, ok = sufficient_jitter(K, torch.full((3,), FIRST_JITTER, dtype=torch.float64))
    assert ok.tolist() == [True, True, False]
    expected = torch.tensor([1e-6, 1e-3], dtype=torch.float64)
    torch.testing.assert_close(jitter[:2], expected, rtol=1e-9, atol=0)
    assert jitter[2] == pytest.approx(LAST_JITTER)
