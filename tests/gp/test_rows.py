"""Sums in pieces are the sums at once, in value and gradient, and hold on to no piece."""

import pytest
import torch

from dlmexp.gp.precision import sum_over_rows


@pytest.mark.parametrize("rows_at_once", [None, 1, 3, 10, 11])
def test_pieces_add_up(rows_at_once):
    X = torch.randn(2, 10, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = X[..., 0].clone()
    w = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64, requires_grad=True)

    def f(X, y):
        return ((X @ w).exp() * y).sum(-1), y.sum(-1)

    total, plain = sum_over_rows(f, X, y, rows_at_once)
    torch.testing.assert_close(total, ((X @ w).exp() * y).sum(-1), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(plain, y.sum(-1), rtol=1e-12, atol=1e-12)
    (gradient,) = torch.autograd.grad(total.sum(), w)
    expected = torch.einsum("bn,bn,bnd->d", (X @ w).exp(), y, X)
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-12)


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
