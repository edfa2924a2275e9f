"""Marginals of the fixed variants: kernel and inducing inputs are fixed, so `A = Luu^-1 Kuf` is computed once per split
and shared by all cells (betas) of that split; only q = N(m, L L^T) is learned."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.gp.autograd import once_differentiable
from dlmexp.gp.posterior import positive
from dlmexp.gp.precision import as_rows
from dlmexp.gp.products import shared_gram, spread


def shared_marginals(
    A: Float[Tensor, "S M N"],
    kff: Float[Tensor, "S N"],
    mean: Float[Tensor, "S"],
    m: Float[Tensor, "B M"],
    L: Float[Tensor, "B M M"],
    cells: Sequence[int],
) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B N"]]:
    """mu, v of B cells sorted by split, `cells[s]` of them in split s, differentiable in m and L. A is never copied:
    the cells of a split are rows of one product with their split's A."""
    mean, m, L = as_rows(A, mean, m, L)
    if len(set(cells)) == 1:
        K = cells[0]
        mu, v = _together(A, kff, mean, m.unflatten(0, (-1, K)), L.unflatten(0, (-1, K)))
        return mu.flatten(0, 1), v.flatten(0, 1)
    pieces = [
        _together(A[s], kff[s], mean[s], m_s, L_s)
        for s, (m_s, L_s) in enumerate(zip(m.split(list(cells)), L.split(list(cells)), strict=True))
        if cells[s]
    ]
    mu, v = zip(*pieces, strict=True)
    return torch.cat(mu), torch.cat(v)


def _together(A: Tensor, kff: Tensor, mean: Tensor, m: Tensor, L: Tensor) -> tuple[Tensor, Tensor]:
    prior = kff.unsqueeze(-2)
    unexplained = (kff - A.square().sum(-2)).unsqueeze(-2)
    v = unexplained + _Spread.apply(A, L)  # pyright: ignore[reportOperatorIssue]
    return mean[..., None, None] + m @ A, positive(v, prior)


class _Spread(torch.autograd.Function):
    """`|L_k^T A_i|^2` for A [.., M, N] and L [.., K, M, M], as [.., K, N]. With cotangent h its gradient is
    `dL_k = 2 A diag(h_k) A^T L_k`, so the [.., K, M, N] array of the forward pass is not kept. A is a constant."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, L: Tensor) -> Tensor:
        ctx.save_for_backward(A, L)
        return spread(L, A)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        A, L = ctx.saved_tensors
        return None, 2 * (shared_gram(A, grads[0]) @ L)
