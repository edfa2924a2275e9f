"""Leave-one-out predictions of a sparse Gaussian process, in closed form.

`leave_one_out` is the loss of the objective `loo` (docs/SPEC.md, section 2). `left_out_marginals`
predicts every training row from all others, for any objective with a closed form over q
(docs/SPEC.md, section 6).
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.core.gp.cholesky import Factor, factorise
from dlmexp.core.gp.closed_form import Closed, Problem, gaussian_posterior, row_projection
from dlmexp.core.gp.matrix_products import row_gram
from dlmexp.core.gp.precision import PARAMETER_DTYPE, in_type_of, row_sum, sum_over_rows
from dlmexp.core.gp.row_noise import RowNoise


def leave_one_out(problem: Problem, beta: Float[Tensor, "B"]) -> Closed:
    """Return `-sum_i log p(y_i | y without y_i)` of FITC's model, and the posterior of all rows.

    With C = Qff + diag(r_i + noise), the other rows predict row i with the mean and the variance
    (Rasmussen and Williams 2006, section 5.4.2)

        variance_i = 1 / (C^-1)_ii            y_i - mean_i = (C^-1 y)_i / (C^-1)_ii

    and with `H = A D^-1 A^T`, `b = A D^-1 y`, `D = diag(d_i)`, `d_i = r_i + noise`,
    `m = (I + H)^-1 b`:

        (C^-1)_ii  = ( 1 - A_i^T (I + H)^-1 A_i / d_i ) / d_i
        (C^-1 y)_i = ( y_i - A_i^T m ) / d_i

    beta is not used.
    """
    projection = row_projection(problem)
    noise = projection.hyper["noise"][..., None]

    def sums_of_piece(X: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        A, r = projection(X)
        d = r + noise
        # H = A D^-1 A^T,  b = A D^-1 y
        H = row_gram(A / d.sqrt().unsqueeze(-2))
        b = (A @ (y / d).unsqueeze(-1)).squeeze(-1).to(PARAMETER_DTYPE)
        return H, b

    H, b = sum_over_rows(sums_of_piece, problem.X, problem.centred_y, problem.rows_at_once)
    factor, m = _factor_and_mean(H, b)
    F_inverse, row_m = in_type_of(problem.X, factor.L_inverse, m)

    def loss_of_piece(X: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        A, r = projection(X)
        d = r + noise
        # A_i^T (I + H)^-1 A_i / d_i = |F^-1 A_i|^2 / d_i, the leverage of row i, below 1
        leverage = (F_inverse @ A).square().sum(-2) / d
        # (C^-1)_ii
        precision = (1 - leverage) / d
        # (C^-1 y)_i
        weighted_residual = (y - (A.mT @ row_m).squeeze(-1)) / d
        # (y_i - mean_i)^2 / variance_i = (C^-1 y)_i^2 / (C^-1)_ii
        quadratic = weighted_residual.square() / precision
        # -log N(y_i; mean_i, variance_i)
        return (row_sum(0.5 * (math.log(2 * math.pi) - precision.log() + quadratic)),)

    (loss,) = sum_over_rows(loss_of_piece, problem.X, problem.centred_y, problem.rows_at_once)
    q = gaussian_posterior(H.detach(), b.detach())
    return Closed(loss, q.m, q.L, projection.ok & factor.ok & q.ok)


def _factor_and_mean(
    H: Float[Tensor, "B M M"], b: Float[Tensor, "B M"]
) -> tuple[Factor, Float[Tensor, "B M 1"]]:
    """Return the Cholesky factor F of `I + H`, and `m = (I + H)^-1 b`."""
    eye = torch.eye(H.shape[-1], dtype=H.dtype, device=H.device)
    no_jitter = torch.zeros_like(b[..., 0])
    factor = factorise(H + eye, no_jitter)
    # m = F^-T F^-1 b
    m = factor.L_inverse.mT @ (factor.L_inverse @ b.unsqueeze(-1))
    return factor, m


class LeftOutMarginals(NamedTuple):
    """Mean and variance of f at some training rows, each given all rows but itself, and targets."""

    mu: Float[Tensor, "B n"]
    v: Float[Tensor, "B n"]
    y: Float[Tensor, "B n"]


@torch.no_grad()
def left_out_marginals(
    problem: Problem, beta: Float[Tensor, "B"], row_noise: RowNoise
) -> Iterator[LeftOutMarginals]:
    """Yield predictions of each row from all others, in pieces of rows.

    Hyperparameters are those of all rows: leaving a row out changes q alone.

    With the noise `t_i` of row i, T = diag(t_i), `H = A T^-1 A^T`, `b = A T^-1 y`,
    `m = (I + H)^-1 b` and the leverage `h_i = A_i^T (I + H)^-1 A_i / t_i`, which is below 1, the q
    without row i predicts f_i with

        y_i - mu_i = ( y_i - A_i^T m ) / (1 - h_i)        v_i = r_i + t_i h_i / (1 - h_i)

    where y on the right-hand side, in b and in m is the targets minus their prior mean.
    """
    projection = row_projection(problem)

    def sums_of_piece(X: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        A, r = projection(X)
        t = row_noise(problem, beta, r)
        # H = A T^-1 A^T,  b = A T^-1 y
        H = row_gram(A / t.sqrt().unsqueeze(-2))
        b = (A @ (y / t).unsqueeze(-1)).squeeze(-1).to(PARAMETER_DTYPE)
        return H, b

    H, b = sum_over_rows(sums_of_piece, problem.X, problem.centred_y, problem.rows_at_once)
    factor, m = _factor_and_mean(H, b)
    F_inverse, row_m = in_type_of(problem.X, factor.L_inverse, m)
    rows_at_once = problem.rows_at_once or problem.n
    for first in range(0, problem.n, rows_at_once):
        rows = slice(first, first + rows_at_once)
        y = problem.y[..., rows]
        A, r = projection(problem.X[..., rows, :])
        t = row_noise(problem, beta, r)
        # h_i = |F^-1 A_i|^2 / t_i
        leverage = (F_inverse @ A).square().sum(-2) / t
        # Rounding could make 1 - h_i zero or negative.
        one_minus_leverage = (1 - leverage).clamp_min(torch.finfo(t.dtype).eps)
        # y_i - A_i^T m
        residual = problem.centred_y[..., rows] - (A.mT @ row_m).squeeze(-1)
        mu = y - residual / one_minus_leverage
        v = r + t * leverage / one_minus_leverage
        yield LeftOutMarginals(mu, v, y)
