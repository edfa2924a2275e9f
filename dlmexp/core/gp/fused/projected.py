"""Marginals and moments of stationary kernels as functions of Z, lengthscale and outputscale.

The gradient in Kuf is computed tile by tile and used at once for the gradients in Z, lengthscale
and outputscale; it is never written to memory. The formulas are those of `gp.adjoints`.

`python -m scripts.benchmark gpu shapes` measures what this saves, if it is run once as it is and
once with a `kernels.fused_parameters` that returns None, so that `posterior` and `closed_form` use
`stationary.StationaryMatrix`: marginals are in its first two and last rows, moments in its third.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.core.gp.adjoints import (
    marginal_gradients,
    marginal_products,
    moment_gradients,
    moment_products,
)
from dlmexp.core.gp.fused.stationary import Outer, covariance, parameter_gradients, right_factor
from dlmexp.core.gp.fused.tile_products import fit_and_gain
from dlmexp.core.gp.matrix_products import padded_columns
from dlmexp.core.gp.special import once_differentiable


class FusedMarginals(torch.autograd.Function):
    """(Z, lengthscale, outputscale, matern, X, Kuu, Luu^-1, m, L) -> fit, gain [B, N]."""

    @staticmethod
    def forward(  # noqa: PLR0913 - an autograd function takes its tensors one by one
        ctx: Any,
        Z: Tensor,
        l: Tensor,
        s: Tensor,
        matern: int,
        X: Tensor,
        Kuu: Tensor,
        Luu_inv: Tensor,
        m: Tensor,
        L: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return fit and gain [B, N]."""
        N = X.shape[-2]
        right = right_factor(X, l, padded_columns(Z, N))
        Kuf = covariance(Z, right, l, s, matern)
        # Step 1 of `adjoints`: fit = Kuf^T w with w = Luu^-T m,  gain_i = Kuf_i . V_i
        A, V = marginal_products(Kuf, Luu_inv, L)
        w = (Luu_inv.mT @ m.unsqueeze(-1)).squeeze(-1)
        fit, gain = fit_and_gain(w, Kuf, V)
        ctx.save_for_backward(Z, l, s, right, Luu_inv, m, L, Kuf, A, V, w)
        ctx.matern = matern
        return fit[:, :N], gain[:, :N]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients in Z, lengthscale, outputscale, Kuu, m and L, at their places."""
        Z, l, s, right, Luu_inv, m, L, Kuf, A, V, w = ctx.saved_tensors
        g = _widened(grads[0], Kuf)
        h = _widened(grads[1], Kuf)
        # Step 3: dKuf = 2 V diag(h) + w g^T
        d_Z, d_l, d_s = parameter_gradients(
            V, Kuf, Z, right, l, s, ctx.matern, outer=Outer(2 * h, w, g)
        )
        # Steps 4 and 5
        d_Kuu, d_m, d_L = marginal_gradients(Luu_inv, m, L, A, g, h)
        return d_Z, d_l, d_s, None, None, d_Kuu, None, d_m, d_L


class FusedMoments(torch.autograd.Function):
    """(Z, lengthscale, outputscale, matern, X, Kuu, Luu^-1, y) -> A A^T [B, M, M], A y [B, M]."""

    @staticmethod
    def forward(  # noqa: PLR0913 - an autograd function takes its tensors one by one
        ctx: Any,
        Z: Tensor,
        l: Tensor,
        s: Tensor,
        matern: int,
        X: Tensor,
        Kuu: Tensor,
        Luu_inv: Tensor,
        y: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return A A^T [B, M, M] and A y [B, M]."""
        N = X.shape[-2]
        right = right_factor(X, l, padded_columns(Z, N))
        Kuf = covariance(Z, right, l, s, matern)
        y = _widened(y, Kuf)
        A, AA, Ay = moment_products(Kuf, Luu_inv, y)
        ctx.save_for_backward(Z, l, s, right, Luu_inv, y, Kuf, A, AA, Ay)
        ctx.matern = matern
        ctx.N = N
        return AA, Ay

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients in Z, lengthscale, outputscale, Kuu and y, at their places."""
        Z, l, s, right, Luu_inv, y, Kuf, A, AA, Ay = ctx.saved_tensors
        d_AA, d_Ay = grads
        V, w, d_Kuu = moment_gradients(Luu_inv, A, AA, Ay, d_AA, d_Ay)
        d_y = None
        if ctx.needs_input_grad[7]:
            d_y = (d_Ay.unsqueeze(-2) @ A).squeeze(-2)[:, : ctx.N]
        # dKuf = V + w y^T
        d_Z, d_l, d_s = parameter_gradients(
            V, Kuf, Z, right, l, s, ctx.matern, outer=Outer(None, w, y)
        )
        return d_Z, d_l, d_s, None, None, d_Kuu, None, d_y


def _widened(
    per_row: Float[Tensor, "B N"], Kuf: Float[Tensor, "B M wide"]
) -> Float[Tensor, "B wide"]:
    """Return `per_row` with zeros for the columns of Kuf that `right_factor` added."""
    added_columns = Kuf.shape[-1] - per_row.shape[-1]
    if added_columns == 0:
        return per_row
    return torch.nn.functional.pad(per_row, (0, added_columns))
