"""The sufficient statistics of a Gaussian or square loss in whitened coordinates: A A^T, A y, y.y and tr(Kff - Qff).

The closed forms of `collapsed` and `square` are functions of these few numbers alone, whatever the number of rows.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dlmexp.gp.autograd import once_differentiable
from dlmexp.gp.cholesky import factorise
from dlmexp.gp.hyperparameters import Hyper
from dlmexp.gp.kernels import Kernel, has_fused
from dlmexp.gp.precision import PARAMETERS, as_rows, hyper_as_rows, row_sum
from dlmexp.gp.projected import moment_gradients, moments_of_rows
from dlmexp.gp.rows import sum_over_rows

SINGULAR = 1e-10  # relative to the mean of the diagonal


class Moments(NamedTuple):
    """Of n rows, with `A = Luu^-1 Kuf` and y less its prior mean. `ok` marks the cells whose Kuu factorised."""

    AA: Float[Tensor, "B M M"]
    Ay: Float[Tensor, "B M"]
    yy: Float[Tensor, "B"]
    residual: Float[Tensor, "B"]
    """tr(Kff - Qff), Qff = A^T A"""
    n: int
    ok: Bool[Tensor, "B"]

    @property
    def least_ridge(self) -> Float[Tensor, "B"]:
        """What is added to the diagonal of A A^T, which may be singular, where beta = 0."""
        return SINGULAR * self.AA.detach().diagonal(dim1=-2, dim2=-1).mean(-1)


def moments(
    kernel: Kernel,
    hyper: Hyper,
    X: Float[Tensor, "B N D"],
    y: Float[Tensor, "B N"],
    jitter: Float[Tensor, "B"],
    rows_at_once: int | None = None,
) -> Moments:
    """The moments of all N rows, differentiable; with `rows_at_once`, memory is that of so many rows in both passes."""
    Kuu = factorise(kernel(hyper["Z"], hyper["Z"], hyper), jitter)
    of_rows, (K, inverse) = hyper_as_rows(X, hyper), as_rows(X, Kuu.K, Kuu.inverse.detach())
    y = y - of_rows["mean"][..., None]

    def piece(X: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        if has_fused(kernel, of_rows["Z"], X):
            from dlmexp.gp.fused.projected import moments_of_stationary

            AA, Ay = moments_of_stationary(kernel, of_rows, X, K, inverse, y)
        else:
            AA, Ay = _Moments.apply(kernel(of_rows["Z"], X, of_rows), K, inverse, y)  # pyright: ignore[reportGeneralTypeIssues]
        return AA, Ay.to(PARAMETERS)

    AA, Ay = sum_over_rows(piece, X, y, rows_at_once)
    trace = kernel.trace(X if kernel.stationary else X.to(PARAMETERS), hyper)
    residual = trace - AA.diagonal(dim1=-2, dim2=-1).sum(-1)
    return Moments(AA, Ay, row_sum(y.square()), residual, X.shape[-2], Kuu.ok)


class _Moments(torch.autograd.Function):
    """(Kuf, Kuu, Luu^-1, y) -> A A^T, A y at three products of M x M by M x N in all.

    For cotangents G (plus its transpose) of A A^T and g of A y: `dA = G A + g y^T`, so `dKuf = Luu^-T dA` and, since
    Kuf = Luu A, `Luu^T dLuu = -dA A^T = -(G AA + g Ay^T)`, which is M x M and goes straight into Kuu."""

    @staticmethod
    def forward(ctx: Any, Kuf: Tensor, Kuu: Tensor, Luu_inv: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        A, AA, Ay = moments_of_rows(Kuf, Luu_inv, y)
        ctx.save_for_backward(Luu_inv, y, A, AA, Ay)
        return AA, Ay

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, Tensor | None]:
        Luu_inv, y, A, AA, Ay = ctx.saved_tensors
        V, w, d_Kuu = moment_gradients(Luu_inv, A, AA, Ay, *grads)
        d_y = (grads[1].unsqueeze(-2) @ A).squeeze(-2) if ctx.needs_input_grad[3] else None
        return V.addcmul_(w.unsqueeze(-1), y.unsqueeze(-2)), d_Kuu, None, d_y
