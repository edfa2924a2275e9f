"""Which numbers are float32 under `dtype=float32`, decided here for all of the core.

What has an entry for every row is of the rows' type: inputs and targets, Kuf and its products with
M x M matrices, marginals, losses per row, samples. What has none is float64: hyperparameters, q and
Adam's moments, Kuu with its Cholesky factor and the inverse of that, the KL, closed forms over q,
sums over rows. So the large work is done in the rows' type, and what would fail in float32 (a
Cholesky factor with a jitter of 1e-6, a spread of 1e-5 in a sum) is not.

Functions meet both types. Those that go on with rows convert everything else by `as_rows`; those
that leave rows behind end with `row_sum`, `row_mean` or `matrix_products.row_gram`. With rows in
float64 `as_rows` does nothing.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from dlmexp.core.gp.kernels import Hyper

PARAMETERS = torch.float64
"""The type of everything without an entry for every row."""


def as_rows(rows: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
    """Return the parameters in the type of the rows that they are about to meet; differentiable."""
    return tuple(parameter.to(rows.dtype) for parameter in parameters)


def hyper_as_rows(rows: Tensor, hyper: Hyper) -> Hyper:
    """Return the hyperparameters by name, in the type of the rows; differentiable."""
    return {name: value.to(rows.dtype) for name, value in hyper.items()}


def row_sum(per_row: Float[Tensor, "*B N"]) -> Float[Tensor, "*B"]:
    """Return the sum over rows [..., N] in float64."""
    return per_row.sum(-1, dtype=PARAMETERS)


def row_mean(per_row: Float[Tensor, "*B N"]) -> Float[Tensor, "*B"]:
    """Return the mean over rows [..., N] in float64."""
    return per_row.mean(-1, dtype=PARAMETERS)


def sum_over_rows(
    f: Callable[[Tensor, Tensor], tuple[Tensor, ...]],
    X: Float[Tensor, "B N D"],
    y: Float[Tensor, "B N"],
    rows_at_once: int | None,
) -> tuple[Tensor, ...]:
    """Return the sum of f(X, y) over consecutive pieces of `rows_at_once` rows (None: all at once).

    f must be additive over rows. Each piece is computed again in the backward pass, where its
    gradient is needed.
    """
    n = X.shape[-2]
    if rows_at_once is None or n <= rows_at_once:
        return f(X, y)
    totals = _value_of_piece(f, X[..., :rows_at_once, :], y[..., :rows_at_once])
    for start in range(rows_at_once, n, rows_at_once):
        rows = slice(start, start + rows_at_once)
        values = _value_of_piece(f, X[..., rows, :], y[..., rows])
        totals = tuple(total + value for total, value in zip(totals, values, strict=True))
    return totals


def _value_of_piece(
    f: Callable[[Tensor, Tensor], tuple[Tensor, ...]], X: Tensor, y: Tensor
) -> tuple[Tensor, ...]:
    """Return f(X, y); with gradients, keeping nothing but X and y for the backward pass."""
    if not torch.is_grad_enabled():
        return f(X, y)
    # Before torch 2.9, a recomputation that stops early in an autograd.Function's save_for_backward
    # leaks it.
    with set_checkpoint_early_stop(False):
        return checkpoint(f, X, y, use_reentrant=False, preserve_rng_state=False)
