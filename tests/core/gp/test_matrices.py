"""The batch factorisation, right and differentiable (cells that fail are in test_posterior.py);
types of rows and sums over them, in pieces too; products in strips."""

import pytest
import torch
from torch.autograd import gradcheck

from dlmexp.core.gp import matrix_products
from dlmexp.core.gp.cholesky import FIRST_JITTER, LAST_JITTER, escalate, factorise
from dlmexp.core.gp.matrix_products import row_gram, symmetric_product, triangular_product
from dlmexp.core.gp.precision import row_mean, row_sum, sum_over_rows


@pytest.mark.parametrize("n", [1, 63, 64, 200, 3000])
def test_sums_of_float32_rows(n):
    """float32 loses digits of them."""
    rows = 1 + torch.randn(2, 7, n, generator=torch.Generator().manual_seed(0))
    exact = rows.double() @ rows.double().mT
    gram = row_gram(rows)
    assert gram.dtype == row_sum(rows).dtype == row_mean(rows).dtype == torch.float64
    size = rows.double().square().sum(-1).sqrt()
    assert ((gram - exact).abs() <= 3e-7 * size[..., None] * size[..., None, :]).all()
    torch.testing.assert_close(row_sum(rows), rows.double().sum(-1), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(row_mean(rows), rows.double().mean(-1), rtol=1e-12, atol=1e-12)


def test_the_backward_pass_keeps_nothing_of_a_piece_but_views_of_the_rows():
    w = torch.ones(3, dtype=torch.float64, requires_grad=True)
    X, y = torch.ones(1, 1000, 3, dtype=torch.float64), torch.ones(1, 1000, dtype=torch.float64)
    rows = {t.untyped_storage().data_ptr() for t in (X, y)}
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        sum_over_rows(lambda X, y: (((X @ w).exp() * y).sum(-1),), X, y, 100)
    # Some versions of torch's checkpoint save a tensor without elements beside the arguments.
    kept = [t for t in kept if t.untyped_storage().nbytes() > 0]
    assert kept
    assert all(t.untyped_storage().data_ptr() in rows for t in kept)


@pytest.mark.parametrize(("M", "strips"), [(44, 1), (91, 2), (206, 5), (1, 1)])
@pytest.mark.parametrize("given", [True, False], ids=["into a given array", "into a new one"])
def test_strips_leave_out_nothing_that_counts(M, strips, given, monkeypatch):
    monkeypatch.setattr(matrix_products, "LEAST_WORK", 1)
    g = torch.Generator().manual_seed(M)
    R, K = (torch.randn(2, M, n, generator=g, dtype=torch.float64) for n in (M, 30))
    R, h = R.tril(), torch.randn(2, 1, 30, generator=g, dtype=torch.float64)
    K.requires_grad_()
    assert len(matrix_products._strips(K)) == strips
    out = torch.full_like(K, torch.nan) if given else None
    torch.testing.assert_close(
        triangular_product(R, K.detach(), out), R @ K.detach(), rtol=1e-12, atol=1e-12
    )
    assert out is None or not out.isnan().any()
    found, expected = symmetric_product(K * h, K), (K * h) @ K.mT
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(each.sum(), K)[0] for each in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-11, atol=1e-11)


def positive_definite(B: int, M: int, seed: int = 0) -> torch.Tensor:
    R = torch.randn(B, M, M, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return R @ R.mT + torch.eye(M, dtype=torch.float64)


@pytest.mark.parametrize("part", ["K", "L", "inverse", "all"])
def test_gradient_through_every_part(part):
    """The input is symmetrised on the way in, as a gradient in K is only defined along symmetric
    directions."""
    jitter = torch.tensor([0.0, 0.1], dtype=torch.float64)

    def f(R):
        found = factorise(R + R.mT, jitter)
        return (
            (found.K.sin() + found.L.cos() + found.inverse.sin())
            if part == "all"
            else getattr(found, part)
        )

    assert gradcheck(f, [(positive_definite(2, 4) / 2).requires_grad_()])


def test_escalation_raises_only_the_jitter_of_cells_that_need_it():
    K = torch.stack(
        [
            positive_definite(1, 8)[0],
            torch.ones(8, 8, dtype=torch.float64),
            -torch.eye(8, dtype=torch.float64),
        ]
    )
    # The middle cell misses positive definiteness by 3e-4 of its mean diagonal.
    K[1] -= 3e-4 * torch.eye(8, dtype=torch.float64)
    jitter, ok = escalate(K, torch.full((3,), FIRST_JITTER, dtype=torch.float64))
    assert ok.tolist() == [True, True, False]
    torch.testing.assert_close(
        jitter[:2], torch.tensor([1e-6, 1e-3], dtype=torch.float64), rtol=1e-9, atol=0
    )
    assert jitter[2] == pytest.approx(LAST_JITTER)
