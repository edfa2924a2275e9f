"""Sums over training rows in pieces, so that memory is bounded by a piece and not by n (song has 345 000 rows)."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop


def sum_over_rows(
    f: Callable[[Tensor, Tensor], tuple[Tensor, ...]], X: Tensor, y: Tensor, rows_at_once: int | None
) -> tuple[Tensor, ...]:
    """The sum of f(X [B,N',D], y [B,N']) over consecutive pieces of `rows_at_once` rows (None: all rows at once).

    f must be additive over rows. Each piece is computed again in the backward pass, where its gradient is needed."""
    n = X.shape[-2]
    if rows_at_once is None or n <= rows_at_once:
        return f(X, y)
    total: tuple[Tensor, ...] | None = None
    for start in range(0, n, rows_at_once):
        rows = slice(start, start + rows_at_once)
        args = (X[..., rows, :], y[..., rows])
        if torch.is_grad_enabled():
            # Before torch 2.9, a recomputation that stops early in an autograd.Function's save_for_backward leaks it.
            with set_checkpoint_early_stop(False):
                piece = checkpoint(f, *args, use_reentrant=False, preserve_rng_state=False)
        else:
            piece = f(*args)
        total = piece if total is None else tuple(a + b for a, b in zip(total, piece, strict=True))
    assert total is not None
    return total
