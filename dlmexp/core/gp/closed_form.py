"""The common parts of objectives whose best q has a closed form: sums over rows, and the best q.

A `Problem` has the rows of B cells and their hyperparameters. There are two ways to compute sums
over rows from it, both differentiable in all hyperparameters:

- `moments` returns A A^T, A y, y.y and tr(Kff - Qff), with `A = Luu^-1 Kuf`. It is the faster way,
  with a backward pass of its own (`adjoints`).
- `row_projection` returns a function from rows to A and their residual variances r_i, for sums that
  are not among the moments, such as `sum_i log(1 + r_i / noise)`. `precision.sum_over_rows` takes
  such sums in pieces.

From `H = A D^-1 A^T` and `b = A D^-1 y`, `gaussian_posterior` then gives q, `log |I + H|` and the
explained sum of squares. `collapsed` has the objectives; each is a `CollapsedObjective`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dlmexp.core.gp.adjoints import moment_gradients, moment_products
from dlmexp.core.gp.cholesky import Factor, factorise
from dlmexp.core.gp.kernels import Hyper, Kernel, fused_parameters
from dlmexp.core.gp.posterior import floored_variance
from dlmexp.core.gp.precision import (
    PARAMETER_DTYPE,
    hyper_in_type_of,
    in_type_of,
    row_sum,
    sum_over_rows,
)
from dlmexp.core.gp.special import once_differentiable

RIDGE_SHARE = 1e-10
"""Where beta = 0, this share of the mean diagonal entry of A A^T is added to the diagonal of A A^T,
which may be singular."""


class Problem(NamedTuple):
    """The rows of B cells and their hyperparameters.

    Attributes:
        kernel: The kernel.
        hyper: Hyperparameters and inducing inputs.
        X: Inputs.
        y: Targets.
        jitter: The relative jitter of Kuu.
        rows_at_once: The number of rows of the pieces in which sums over rows are taken. It bounds
            the memory of the sums and of their backward pass; None: all rows at once.
    """

    kernel: Kernel
    hyper: Hyper
    X: Float[Tensor, "B N D"]
    y: Float[Tensor, "B N"]
    jitter: Float[Tensor, "B"]
    rows_at_once: int | None = None

    @property
    def n(self) -> int:
        """The number of rows of each cell."""
        return self.X.shape[-2]

    @property
    def centred_y(self) -> Float[Tensor, "B N"]:
        """The targets minus their prior mean, in the type of the rows."""
        mean = self.hyper["mean"].to(self.X.dtype)
        return self.y - mean[..., None]

    def factorise_Kuu(self) -> Factor:  # noqa: N802 - the matrix's name in docs/SPEC.md
        """Return the Cholesky factor of Kuu, with the cells' jitter."""
        Z = self.hyper["Z"]
        return factorise(self.kernel(Z, Z, self.hyper), self.jitter)


class Closed(NamedTuple):
    """An objective at its minimum over q, in closed form.

    Attributes:
        loss: The minimum, not divided by n; differentiable in the hyperparameters.
        m: The mean of the q that attains it, in whitened coordinates.
        L: A lower triangular square root of its covariance.
        ok: Which cells' matrices could be factorised.
    """

    loss: Float[Tensor, "B"]
    m: Float[Tensor, "B M"]
    L: Float[Tensor, "B M M"]
    ok: Bool[Tensor, "B"]


CollapsedObjective = Callable[[Problem, Float[Tensor, "B"]], Closed]
"""objective(problem, beta) returns the minimum over q."""


class Moments(NamedTuple):
    """Sums over n rows, with `A = Luu^-1 Kuf` and the targets y minus their prior mean.

    Attributes:
        AA: A A^T.
        Ay: A y.
        yy: y.y
        residual: tr(Kff - Qff) = sum_i r_i, with Qff = A^T A.
        n: The number of rows.
        ok: Which cells' Kuu could be factorised.
    """

    AA: Float[Tensor, "B M M"]
    Ay: Float[Tensor, "B M"]
    yy: Float[Tensor, "B"]
    residual: Float[Tensor, "B"]
    n: int
    ok: Bool[Tensor, "B"]

    @property
    def smallest_ridge(self) -> Float[Tensor, "B"]:
        """The number that is added to the diagonal of A A^T where beta = 0 (`RIDGE_SHARE`)."""
        return RIDGE_SHARE * self.AA.detach().diagonal(dim1=-2, dim2=-1).mean(-1)


def moments(problem: Problem) -> Moments:
    """Return the moments of all rows, differentiable in the hyperparameters."""
    kernel = problem.kernel
    hyper = problem.hyper
    factor = problem.factorise_Kuu()
    X = problem.X
    y = problem.centred_y
    row_hyper = hyper_in_type_of(X, hyper)
    # Luu^-1 is detached: the backward passes below compute the whole gradient in Kuu.
    Kuu, Luu_inv = in_type_of(X, factor.K, factor.L_inverse.detach())

    def moments_of_piece(X_piece: Tensor, y_piece: Tensor) -> tuple[Tensor, ...]:
        if parameters := fused_parameters(kernel, row_hyper, X_piece):
            from dlmexp.core.gp.fused.projected import FusedMoments

            AA, Ay = FusedMoments.apply(*parameters, X_piece, Kuu, Luu_inv, y_piece)  # pyright: ignore[reportGeneralTypeIssues]
        else:
            Kuf = kernel(row_hyper["Z"], X_piece, row_hyper)
            AA, Ay = _ProjectedMoments.apply(Kuf, Kuu, Luu_inv, y_piece)  # pyright: ignore[reportGeneralTypeIssues]
        return AA, Ay.to(PARAMETER_DTYPE)

    AA, Ay = sum_over_rows(moments_of_piece, X, y, problem.rows_at_once)
    # tr(Kff - Qff) = tr(Kff) - tr(A A^T). The trace of Kff is a sum over rows, so it is taken in
    # float64; that of a stationary kernel does not depend on the values of X.
    X_of_trace = X if kernel.stationary else X.to(PARAMETER_DTYPE)
    trace_of_Kff = kernel.trace(X_of_trace, hyper)
    residual = trace_of_Kff - AA.diagonal(dim1=-2, dim2=-1).sum(-1)
    return Moments(AA, Ay, row_sum(y.square()), residual, problem.n, factor.ok)


class _ProjectedMoments(torch.autograd.Function):
    """(Kuf, Kuu, Luu^-1, y) -> A A^T, A y; `adjoints` has the derivation.

    Forward and backward pass take three products of M x M by M x N: A, A A^T, and V of dKuf.
    """

    @staticmethod
    def forward(
        ctx: Any, Kuf: Tensor, Kuu: Tensor, Luu_inv: Tensor, y: Tensor
    ) -> tuple[Tensor, Tensor]:
        A, AA, Ay = moment_products(Kuf, Luu_inv, y)
        ctx.save_for_backward(Luu_inv, y, A, AA, Ay)
        return AA, Ay

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, Tensor | None]:
        Luu_inv, y, A, AA, Ay = ctx.saved_tensors
        d_AA, d_Ay = grads
        V, w, d_Kuu = moment_gradients(Luu_inv, A, AA, Ay, d_AA, d_Ay)
        # dKuf = V + w y^T
        d_Kuf = V.addcmul_(w.unsqueeze(-1), y.unsqueeze(-2))
        d_y = None
        if ctx.needs_input_grad[3]:
            d_y = (d_Ay.unsqueeze(-2) @ A).squeeze(-2)
        return d_Kuf, d_Kuu, None, d_y


class RowProjection(NamedTuple):
    """A function from rows to their A and their residual variances.

    Attributes:
        kernel: The kernel.
        hyper: Hyperparameters and inducing inputs, in the type of the rows (`precision`).
        Luu_inv: Luu^-1.
        stationary_kff: k(x, x) if it is the same at every input, else None.
        ok: Which cells' Kuu could be factorised.
    """

    kernel: Kernel
    hyper: Hyper
    Luu_inv: Float[Tensor, "B M M"]
    stationary_kff: Float[Tensor, "B 1"] | None
    ok: Bool[Tensor, "B"]

    def __call__(
        self, X: Float[Tensor, "B N D"]
    ) -> tuple[Float[Tensor, "B M N"], Float[Tensor, "B N"]]:
        """Return `A = Luu^-1 Kuf` and `r_i = (Kff - A^T A)_ii` of these rows."""
        A = self.Luu_inv @ self.kernel(self.hyper["Z"], X, self.hyper)
        kff = self.stationary_kff
        if kff is None:
            kff = self.kernel.diagonal(X, self.hyper)
        return A, floored_variance(kff - A.square().sum(-2), kff)


def row_projection(problem: Problem) -> RowProjection:
    """Return the projection of rows of a problem; its results have gradients in `hyper`."""
    kernel = problem.kernel
    X = problem.X
    factor = problem.factorise_Kuu()
    row_hyper = hyper_in_type_of(X, problem.hyper)
    (Luu_inv,) = in_type_of(X, factor.L_inverse)
    kff = kernel.diagonal(X[..., :1, :], row_hyper) if kernel.stationary else None
    return RowProjection(kernel, row_hyper, Luu_inv, kff, factor.ok)


class GaussianPosterior(NamedTuple):
    """q(w) = N((I + H)^-1 b, (I + H)^-1), and terms of the evidence.

    Attributes:
        m: The mean.
        L: A lower triangular square root of the covariance.
        log_det: log |I + H|.
        explained: b^T (I + H)^-1 b, the part of y^T D^-1 y that q explains.
        ok: Which cells' I + H could be factorised.
    """

    m: Float[Tensor, "B M"]
    L: Float[Tensor, "B M M"]
    log_det: Float[Tensor, "B"]
    explained: Float[Tensor, "B"]
    ok: Bool[Tensor, "B"]


def gaussian_posterior(H: Float[Tensor, "B M M"], b: Float[Tensor, "B M"]) -> GaussianPosterior:
    """Return the posterior for H and b. Gradients flow through its terms, not through m and L.

    If both axes of `I + H` are flipped before the factorisation, and both axes of the factor after
    it, the factor is an upper triangular U with `U U^T = I + H`. Then `L = U^-T` is the lower
    triangular root of the covariance, without a second factorisation.
    """
    eye = torch.eye(H.shape[-1], dtype=H.dtype, device=H.device)
    # H is positive semi-definite, so I + H needs no jitter. If H is so large that I is lost to
    # rounding, the factorisation can fail, and `ok` is False.
    no_jitter = torch.zeros_like(b[..., 0])
    flipped = factorise(H.flip(-2, -1) + eye, no_jitter)
    L = flipped.L_inverse.flip(-2, -1).mT
    # log |I + H| = -2 log |L|
    log_det = -2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    # b^T (I + H)^-1 b = |L^T b|^2
    LTb = L.mT @ b[..., None]
    explained = LTb.square().sum((-2, -1))
    # m = (I + H)^-1 b = L (L^T b)
    m = (L @ LTb).squeeze(-1)
    return GaussianPosterior(m.detach(), L.detach(), log_det, explained, flipped.ok)
