"""Marginals and moments of stationary kernels as functions of Z, lengthscale and outputscale: Kuf's
gradient goes from the tiles in which it is computed straight into theirs, and is never written."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.core.gp.fused.stationary import Outer, covariance, pull, right_factor
from dlmexp.core.gp.fused.tile_products import column_sums
from dlmexp.core.gp.matrix_products import (
    columns,
    marginal_gradients,
    marginal_products,
    moment_gradients,
    moments_of_rows,
)
from dlmexp.core.gp.special import once_differentiable


class FusedMarginals(torch.autograd.Function):
    """(Z, lengthscale, outputscale, matern, X, Kuu, Luu^-1, m, L) -> A^T m, `A_i^T S A_i` of
    `posterior._Marginals`."""

    @staticmethod
    def forward(
        ctx: Any, Z: Tensor, l: Tensor, s: Tensor, matern: bool, X: Tensor,
        Kuu: Tensor, Luu_inv: Tensor, m: Tensor, L: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        N = X.shape[-2]
        right = right_factor(X, l, columns(Z, N))
        K = covariance(Z, right, l, s, matern)
        A, V = marginal_products(K, Luu_inv, L)
        w = (Luu_inv.mT @ m.unsqueeze(-1)).squeeze(-1)
        fit, gain = column_sums(w, K, V)
        ctx.save_for_backward(Z, l, s, right, Luu_inv, m, L, K, A, V, w)
        ctx.matern = matern
        return fit[:, :N], gain[:, :N]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        Z, l, s, right, Luu_inv, m, L, K, A, V, w = ctx.saved_tensors
        g, h = (_widened(part, K) for part in grads)
        d_Z, d_l, d_s = pull(V, K, Z, right, l, s, ctx.matern, outer=Outer(2 * h, w, g))
        d_Kuu, d_m, d_L = marginal_gradients(Luu_inv, m, L, A, g, h)
        return d_Z, d_l, d_s, None, None, d_Kuu, None, d_m, d_L


class FusedMoments(torch.autograd.Function):
    """(Z, lengthscale, outputscale, matern, X, Kuu, Luu^-1, y) -> A A^T, A y of
    `collapsed._Moments`."""

    @staticmethod
    def forward(
        ctx: Any,
        Z: Tensor,
        l: Tensor,
        s: Tensor,
        matern: bool,
        X: Tensor,
        Kuu: Tensor,
        Luu_inv: Tensor,
        y: Tensor,
    ) -> tuple[Tensor, Tensor]:
        right = right_factor(X, l, columns(Z, X.shape[-2]))
        K = covariance(Z, right, l, s, matern)
        y = _widened(y, K)
        A, AA, Ay = moments_of_rows(K, Luu_inv, y)
        ctx.save_for_backward(Z, l, s, right, Luu_inv, y, K, A, AA, Ay)
        ctx.matern, ctx.rows = matern, X.shape[-2]
        return AA, Ay

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        Z, l, s, right, Luu_inv, y, K, A, AA, Ay = ctx.saved_tensors
        V, w, d_Kuu = moment_gradients(Luu_inv, A, AA, Ay, *grads)
        d_y = (
            (grads[1].unsqueeze(-2) @ A).squeeze(-2)[:, : ctx.rows]
            if ctx.needs_input_grad[7]
            else None
        )
        d_Z, d_l, d_s = pull(V, K, Z, right, l, s, ctx.matern, outer=Outer(None, w, y))
        return d_Z, d_l, d_s, None, None, d_Kuu, None, d_y


def _widened(
    of_rows: Float[Tensor, "B N"], K: Float[Tensor, "B M wide"]
) -> Float[Tensor, "B wide"]:
    """With zeros for the columns of K that were added (see `right_factor`), where K is 0."""
    more = K.shape[-1] - of_rows.shape[-1]
    return torch.nn.functional.pad(of_rows, (0, more)) if more else of_rows
