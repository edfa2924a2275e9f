"""Which numbers `dtype=float32` makes float32, and which are float64 all the same: decided here,
for all of the core.

What has an entry for every row is of the rows' type: inputs and targets, Kuf and its products with
M x M matrices, marginals, losses per row, samples. What has none is float64: hyperparameters, q and
Adam's moments, Kuu with its Cholesky factor and the inverse of that, the KL, closed forms over q,
sums over rows. So the large work is done in the rows' type, and what would fail in float32 (a
Cholesky factor with a jitter of 1e-6, a spread of 1e-5 in a sum) is not.

Functions meet both kinds. Those that go on with rows take the small ones in `as_rows`; those that
leave rows behind take `row_sum`, `row_mean` or `products.row_gram`. With rows in float64 these are
what their names say, and `as_rows` is nothing."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from dlmexp.core.gp.kernels import Hyper

PARAMETERS = torch.float64
"""The type of everything without an entry for every row."""


def as_rows(rows: Tensor, *small: Tensor) -> tuple[Tensor, ...]:
    """The small tensors in the type of the rows that they are about to meet; differentiable."""
    return tuple(each.to(rows.dtype) for each in small)


def hyper_as_rows(rows: Tensor, hyper: Hyper) -> Hyper:
    """The same for hyperparameters by name."""
    return {name: value.to(rows.dtype) for name, value in hyper.items()}


def row_sum(each: Float[Tensor, "*B N"]) -> Float[Tensor, "*B"]:
    """The sum over rows [..., N], of float32 ones in float64."""
    return each.sum(-1, dtype=PARAMETERS)


def row_mean(each: Float[Tensor, "*B N"]) -> Float[Tensor, "*B"]:
    """The mean over rows [..., N], of float32 ones in float64."""
    return each.mean(-1, dtype=PARAMETERS)


def sum_over_rows(
    f: Callable[[Tensor, Tensor], tuple[Tensor, ...]],
    X: Tensor,
    y: Tensor,
    rows_at_once: int | None,
) -> tuple[Tensor, ...]:
    """The sum of f(X [B,N',D], y [B,N']) over consecutive pieces of `rows_at_once` rows (None: all
    rows at once).

    f must be additive over rows. Each piece is computed again in the backward pass, where its
    gradient is needed."""
    n = X.shape[-2]
    if rows_at_once is None or n <= rows_at_once:
        return f(X, y)
    total: tuple[Tensor, ...] | None = None
    for start in range(0, n, rows_at_once):
        rows = slice(start, start + rows_at_once)
        args = (X[..., rows, :], y[..., rows])
        if torch.is_grad_enabled():
            # Before torch 2.9, a recomputation that stops early in an autograd.Function's
            # save_for_backward leaks it.
            with set_checkpoint_early_stop(False):
                piece = checkpoint(f, *args, use_reentrant=False, preserve_rng_state=False)
        else:
            piece = f(*args)
        total = piece if total is None else tuple(a + b for a, b in zip(total, piece, strict=True))
    assert total is not None
    return total
