"""Objectives whose posterior scales the conditional of f given u (docs/SPEC.md, section 2).

The posterior of the ELBO is q(u) p(f | u), where `p(f | u) = N(A^T w, D)` with `D = Kff - Qff` is
the conditional of the prior. If the posterior may scale D, the bound is tighter, and predictions
cost the same:

- `collapsed_tighter`: one scale per row (Titsias 2025; Bui, Ashman and Turner 2025).
- `collapsed_block_tighter`: one matrix per block of rows (Bui and Titsias 2025).
- `scaled_power_ep`: power EP with one scale for all rows (Bui and Titsias 2025).

Every function is differentiable in the hyperparameters. Matrices are [B, ...], y is the targets
minus their prior mean, and the docstring of `collapsed` has the two identities that turn n x n
matrices into M x M ones.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.core.gp.cholesky import factorise
from dlmexp.core.gp.closed_form import Closed, Problem, gaussian_posterior, row_projection
from dlmexp.core.gp.matrix_products import row_gram
from dlmexp.core.gp.precision import PARAMETER_DTYPE, in_type_of, row_sum, sum_over_rows
from dlmexp.core.gp.row_noise import effective_noise


def collapsed_tighter(problem: Problem, beta: Float[Tensor, "B"]) -> Closed:
    """Return minus the ELBO at its minimum over q and over one scale of the conditional per row.

    The scale `c_i` makes the conditional variance `c_i r_i` and costs `beta/2 (c_i - log c_i - 1)`.
    With t = beta noise, the best scale is `1 / (1 + r_i / t)`, and the result is

        n/2 log(2 pi noise)
            + beta [ -log N(y; 0, Qff + t I) + 1/2 sum_i log(1 + r_i / t) - n/2 log(2 pi t) ]

    The q(u) that attains it is that of the ELBO.
    """
    projection = row_projection(problem)
    beta, t = effective_noise(problem, beta)
    (row_t,) = in_type_of(problem.X, t[..., None])

    def sums_of_piece(X: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        A, r = projection(X)
        # sum_i log(1 + r_i / t)
        log_terms = row_sum(torch.log1p(r / row_t))
        return *_moments_of_piece(A, y), log_terms

    sums = sum_over_rows(sums_of_piece, problem.X, problem.centred_y, problem.rows_at_once)
    closed = _bound_of_scaled_conditional(problem, beta, t, *sums)
    return closed._replace(ok=closed.ok & projection.ok)


def collapsed_block_tighter(problem: Problem, beta: Float[Tensor, "B"], blocks: int = 10) -> Closed:
    """Return minus the ELBO at its minimum over q and over one matrix per block of rows.

    The sum over rows of `collapsed_tighter`, `sum_i log(1 + r_i / t)`, becomes
    `sum_b log |I + D_b / t|`. D_b is the diagonal block of D = Kff - Qff at the rows of block b:
    `ceil(n / blocks)` consecutive ones. Rows that lie close together should share a block
    (`blocks_of_neighbours`). With one row per block this is `collapsed_tighter`.

    It is computed in float64, even from float32 rows: D_b / t is a small difference of kernel
    matrices, divided by a small number.
    """
    problem = problem._replace(X=problem.X.to(PARAMETER_DTYPE), y=problem.y.to(PARAMETER_DTYPE))
    projection = row_projection(problem)
    beta, t = effective_noise(problem, beta)
    rows_per_block = math.ceil(problem.n / blocks)

    def sums_of_block(X: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        A, _ = projection(X)
        # D_b = K_bb - A_b^T A_b
        D_b = problem.kernel(X, X, projection.hyper) - row_gram(A.mT)
        eye = torch.eye(X.shape[-2], dtype=X.dtype, device=X.device)
        factor = factorise(eye + D_b / t[..., None, None], torch.zeros_like(t))
        # log |I + D_b / t|
        log_det = 2 * factor.L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        # A number, as `sum_over_rows` adds up the results: the sum counts the failed blocks.
        failure = (~factor.ok).to(PARAMETER_DTYPE)
        return *_moments_of_piece(A, y), log_det, failure

    *sums, failures = sum_over_rows(sums_of_block, problem.X, problem.centred_y, rows_per_block)
    closed = _bound_of_scaled_conditional(problem, beta, t, *sums)
    return closed._replace(ok=closed.ok & projection.ok & (failures == 0))


def scaled_power_ep(problem: Problem, beta: Float[Tensor, "B"], alpha: float = 0.5) -> Closed:
    """Return the energy of power EP whose conditional of f has the covariance `c D`.

    The scale c, one for all rows, is the hyperparameter `conditional_scale`. With
    Lambda = diag(alpha c r_i + noise) the energy is

        -log N(y; 0, Qff + Lambda)
            + (1 - alpha) / (2 alpha) sum_i log(1 + alpha c r_i / noise)
            + n / (2 alpha) log(1 - alpha + alpha c) - n/2 log c

    At c = 1 it is the energy of `power_ep`. At alpha = 0 the last two lines have their limits,
    `sum_i c r_i / (2 noise)` and `n/2 (c - 1 - log c)`. beta is not used.
    """
    projection = row_projection(problem)
    scale = problem.hyper["conditional_scale"]
    noise = projection.hyper["noise"][..., None]
    row_scale = projection.hyper["conditional_scale"][..., None]

    def sums_of_piece(X: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        A, r = projection(X)
        scaled_r = row_scale * r
        # Lambda = diag(alpha c r_i + noise)
        variance = alpha * scaled_r + noise
        # H = A Lambda^-1 A^T,  b = A Lambda^-1 y,  y^T Lambda^-1 y
        H = row_gram(A / variance.sqrt().unsqueeze(-2))
        b = (A @ (y / variance).unsqueeze(-1)).squeeze(-1).to(PARAMETER_DTYPE)
        yy = row_sum(y.square() / variance)
        # log |Lambda|
        log_variance = row_sum(variance.log())
        # (1 - alpha) / (2 alpha) sum_i log(1 + alpha c r_i / noise)
        if alpha > 0:
            correction = (1 - alpha) / (2 * alpha) * torch.log1p(alpha * scaled_r / noise)
        else:
            correction = scaled_r / (2 * noise)
        return H, b, yy, log_variance, row_sum(correction)

    H, b, yy, log_variance, correction = sum_over_rows(
        sums_of_piece, problem.X, problem.centred_y, problem.rows_at_once
    )
    q = gaussian_posterior(H, b)
    # n / (2 alpha) log(1 - alpha + alpha c) - n/2 log c
    if alpha > 0:
        cost_of_scale = torch.log1p(alpha * (scale - 1)) / alpha - scale.log()
    else:
        cost_of_scale = scale - 1 - scale.log()
    # -log N(y; 0, Qff + Lambda)
    evidence = problem.n * math.log(2 * math.pi) + log_variance + q.log_det + yy - q.explained
    loss = 0.5 * evidence + correction + 0.5 * problem.n * cost_of_scale
    return Closed(loss, q.m, q.L, projection.ok & q.ok)


def _moments_of_piece(
    A: Float[Tensor, "B M N"], y: Float[Tensor, "B N"]
) -> tuple[Float[Tensor, "B M M"], Float[Tensor, "B M"], Float[Tensor, "B"]]:
    """Return A A^T, A y and y.y of some rows."""
    Ay = (A @ y.unsqueeze(-1)).squeeze(-1).to(PARAMETER_DTYPE)
    return row_gram(A), Ay, row_sum(y.square())


def _bound_of_scaled_conditional(
    problem: Problem,
    beta: Float[Tensor, "B"],
    t: Float[Tensor, "B"],
    AA: Float[Tensor, "B M M"],
    Ay: Float[Tensor, "B M"],
    yy: Float[Tensor, "B"],
    log_det_of_conditional: Float[Tensor, "B"],
) -> Closed:
    """Return minus the bound at its minimum over q, from sums over the rows.

    `log_det_of_conditional` is the sum of `log |I + D_b / t|` over all blocks.
    """
    # H = A A^T / t,  b = A y / t
    q = gaussian_posterior(AA / t[..., None, None], Ay / t[..., None])
    # y^T (Qff + t I)^-1 y
    misfit = yy / t - q.explained
    # n/2 log(2 pi noise) + beta/2 ( log |I + H| + misfit + sum_b log |I + D_b / t| );
    # the terms n/2 log(2 pi t) cancel.
    constant = 0.5 * problem.n * torch.log(2 * math.pi * problem.hyper["noise"])
    loss = constant + 0.5 * beta * (q.log_det + misfit + log_det_of_conditional)
    return Closed(loss, q.m, q.L, q.ok)


def blocks_of_neighbours(X: Float[Tensor, "N D"], blocks: int = 10) -> Tensor:
    """Return an order of the rows [N] in which consecutive rows form blocks of close neighbours.

    The rows are halved along the feature with the widest range, then each half again, until there
    are as many parts as blocks (a k-d tree). Blocks have the sizes of `collapsed_block_tighter`:
    `ceil(N / blocks)` rows, and the last block the remaining rows.
    """
    rows_per_block = math.ceil(len(X) / blocks)

    def rows_by_block(rows: Tensor) -> Tensor:
        block_count = math.ceil(len(rows) / rows_per_block)
        if block_count <= 1:
            return rows
        feature_range = X[rows].amax(0) - X[rows].amin(0)
        widest = feature_range.argmax()
        sorted_rows = rows[X[rows, widest].argsort(stable=True)]
        # The first part gets a whole number of blocks.
        middle = block_count // 2 * rows_per_block
        first_part = rows_by_block(sorted_rows[:middle])
        second_part = rows_by_block(sorted_rows[middle:])
        return torch.cat([first_part, second_part])

    return rows_by_block(torch.arange(len(X), device=X.device))
