"""Which tensors are float32 with `dtype=float32`, for all of the core.

Tensors with an entry for every row have the rows' type, float32 or float64: inputs and targets, Kuf
and its products with M x M matrices, marginals, losses per row, samples. All other tensors are
float64: hyperparameters, q and Adam's moments, Kuu with its Cholesky factor and the factor's
inverse, the KL, closed forms over q, sums over rows. So the large work is done in the rows' type.
The parts that would fail in float32 are done in float64, such as a Cholesky factor with a jitter of
1e-6, or a sum in which changes of 1e-5 matter.

Some functions take tensors of both types. A function that computes something per row first converts
its float64 tensors by `in_type_of`. A function that sums over rows ends with `row_sum`, `row_mean`
or `matrix_products.row_gram`. If the rows are float64, `in_type_of` does nothing.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from dlmexp.core.gp.kernels import Hyper

PARAMETER_DTYPE = torch.float64
"""The type of tensors without an entry for every row."""


def in_type_of(rows: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
    """Return the parameters converted to the dtype of `rows`; differentiable."""
    return tuple(parameter.to(rows.dtype) for parameter in parameters)


def hyper_in_type_of(rows: Tensor, hyper: Hyper) -> Hyper:
    """Return the hyperparameters by name, converted to the dtype of `rows`; differentiable."""
    return {name: value.to(rows.dtype) for name, value in hyper.items()}


def row_sum(per_row: Float[Tensor, "*B N"]) -> Float[Tensor, "*B"]:
    """Return the sum over rows [..., N] in float64."""
    return per_row.sum(-1, dtype=PARAMETER_DTYPE)


def row_mean(per_row: Float[Tensor, "*B N"]) -> Float[Tensor, "*B"]:
    """Return the mean over rows [..., N] in float64."""
    return per_row.mean(-1, dtype=PARAMETER_DTYPE)


def sum_over_rows(
    f: Callable[[Tensor, Tensor], tuple[Tensor, ...]],
    X: Float[Tensor, "B N D"],
    y: Float[Tensor, "B N"],
    rows_at_once: int | None,
) -> tuple[Tensor, ...]:
    """Return the sum of f(X, y) over consecutive pieces of `rows_at_once` rows (None: one piece).

    f must itself be a sum over the rows that it gets, so that the pieces add up to f of all rows.
    To save memory, f of each piece is computed a second time in the backward pass, instead of
    keeping its intermediate results.
    """
    n = X.shape[-2]
    if rows_at_once is None or n <= rows_at_once:
        return f(X, y)
    totals = _values_of_piece(f, X[..., :rows_at_once, :], y[..., :rows_at_once])
    for start in range(rows_at_once, n, rows_at_once):
        rows = slice(start, start + rows_at_once)
        values = _values_of_piece(f, X[..., rows, :], y[..., rows])
        totals = tuple(total + value for total, value in zip(totals, values, strict=True))
    return totals


def _values_of_piece(
    f: Callable[[Tensor, Tensor], tuple[Tensor, ...]], X: Tensor, y: Tensor
) -> tuple[Tensor, ...]:
    """Return f(X, y); of all tensors, only X and y are kept for the backward pass."""
    if not torch.is_grad_enabled():
        return f(X, y)
    # The second computation must not stop early: before torch 2.9, one that stops in the
    # save_for_backward of an autograd.Function leaks memory.
    with set_checkpoint_early_stop(False):
        return checkpoint(f, X, y, use_reentrant=False, preserve_rng_state=False)
