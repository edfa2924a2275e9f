"""Which numbers `dtype=float32` makes float32, and which are float64 all the same: decided here, for all of the core.

What has an entry for every row is of the rows' type: inputs and targets, Kuf and its products with M x M matrices,
marginals, losses per row, samples. What has none is float64: hyperparameters, q and Adam's moments, Kuu with its
Cholesky factor and the inverse of that, the KL, closed forms over q, sums over rows. So the large work is done in the
rows' type, and what would fail in float32 (a Cholesky factor with a jitter of 1e-6, a spread of 1e-5 in a sum) is not.

Functions meet both kinds. Those that go on with rows take the small ones in `as_rows`; those that leave rows behind
take `row_sum`, `row_mean` or `row_gram`. With rows in float64 these are what their names say, and `as_rows` is nothing.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from dlmexp.gp.kernels import Hyper
from dlmexp.gp.products import gram

PARAMETERS = torch.float64
"""The type of everything without an entry for every row."""
ROWS_OF_A_PIECE = 64


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


def row_gram(A: Float[Tensor, "B M N"]) -> Float[Tensor, "B M M"]:
    """`A A^T`, of float32 rows in pieces whose products are summed in float64.

    A product of n float32 rows adds them up one after the other, and its error grows with n: `log |I + A A^T / t|` with
    a small t (a small beta or noise) was wrong by 1e-4 a row, in pieces by 2e-6 (cadata, n = 691). A piece has at least
    M / 2 rows, so that all of their products take no more than twice the memory of A."""
    if A.dtype == PARAMETERS:
        return gram(A)
    rows = max(ROWS_OF_A_PIECE, A.shape[-2] // 2)
    whole = A.shape[-1] // rows * rows
    pieces, rest = A[..., :whole].unflatten(-1, (-1, rows)).transpose(-3, -2), A[..., whole:]
    return (pieces @ pieces.mT).sum(-3, dtype=PARAMETERS) + rest @ rest.mT


def symmetrised(P: Float[Tensor, "*B M M"]) -> Float[Tensor, "*B M M"]:
    """P, which is symmetric but for rounding; of float32 rows without that. At the start, where q is the prior, the
    gradient of the inducing inputs is a multiple of `P - P^T`: Adam would make a step of what float32 leaves of it."""
    return P if P.dtype == PARAMETERS else 0.5 * (P + P.mT)


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
