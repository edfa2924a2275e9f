"""Cholesky factors of a batch of cells.

Nothing raises or synchronises; a failed cell is marked and harms no other.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dlmexp.core.gp.fused import fused
from dlmexp.core.gp.special import once_differentiable

FIRST_JITTER = 1e-6
LAST_JITTER = 1e-1


class Factor(NamedTuple):
    """`L L^T = K`, where K has its jitter. A failed cell has `ok` False and the identity as L.

    K, L and inverse are differentiable; functions with a backward pass of their own hand their
    gradient straight to K (`pullback`).
    """

    K: Float[Tensor, "B M M"]
    L: Float[Tensor, "B M M"]
    inverse: Float[Tensor, "B M M"]
    """L^-1"""
    ok: Bool[Tensor, "B"]
    """which cells factorised"""


def factorise(K: Float[Tensor, "B M M"], jitter: Float[Tensor, "B"]) -> Factor:
    """Return the Cholesky factor of each cell's `K + jitter * mean(diag K) * I`, and its inverse.

    M is small: one M x M inverse turns every triangular solve with N right-hand sides into a matrix
    product. Going through L^-1 loses about as many digits as solving with L (K^-1 would lose twice
    as many).
    """
    K = _Jitter.apply(K, jitter)  # pyright: ignore[reportAssignmentType]
    L, inverse, ok = _Cholesky.apply(K)  # pyright: ignore[reportGeneralTypeIssues]
    return Factor(K, L, inverse, ok)


@torch.no_grad()
def escalate(
    K: Float[Tensor, "B M M"], jitter: Float[Tensor, "B"]
) -> tuple[Float[Tensor, "B"], Bool[Tensor, "B"]]:
    """Return the jitter with which each cell factorises, and whether there is one [B].

    It is the least among `jitter`, 10 `jitter`, ... up to 1e-1. This synchronises, so it belongs
    between steps: after one that marked a cell as failed, before the next.
    """
    jitter = jitter.clone()
    while True:
        ok = factorise(K, jitter).ok
        retry = ~ok & (jitter * 10 <= LAST_JITTER * (1 + 1e-9))
        if not retry.any():
            return jitter, ok
        jitter = torch.where(retry, jitter * 10, jitter)


def pullback(inverse: Float[Tensor, "B M M"], C: Float[Tensor, "B M M"]) -> Float[Tensor, "B M M"]:
    """Return dK of `L L^T = K` from `C = L^T dL - d(L^-1) L^-T`.

    It is `L^-T sym(Phi(C)) L^-1`, where Phi keeps the lower triangle and halves the diagonal
    (Murray 2016, arXiv:1602.07527).
    """
    if fused(C):
        from dlmexp.core.gp.fused.small import symmetric

        middle = symmetric(C)
    else:
        # 1/2 Phi(C): a half below the diagonal, a quarter on it
        weights = C.new_full(C.shape[-2:], 0.5).tril_().fill_diagonal_(0.25)
        half = C * weights
        middle = half + half.mT
    return torch.bmm(torch.bmm(inverse.mT, middle), inverse)


class _Jitter(torch.autograd.Function):
    """K + jitter * mean(diag K) * I, touching the diagonal alone in both directions."""

    @staticmethod
    def forward(ctx: Any, K: Tensor, jitter: Tensor) -> Tensor:
        ctx.save_for_backward(jitter)
        return add_to_diagonal(K, jitter)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (jitter,) = ctx.saved_tensors
        return add_to_diagonal(grads[0], jitter), None


def add_to_diagonal(
    K: Float[Tensor, "B M M"], jitter: Float[Tensor, "B"]
) -> Float[Tensor, "B M M"]:
    """Return K + jitter * mean(diag K) * I.

    This function of K is its own adjoint.
    """
    if fused(K):
        from dlmexp.core.gp.fused.small import added_to_diagonal

        return added_to_diagonal(K, jitter)
    K = K.clone()
    diagonal = K.diagonal(dim1=-2, dim2=-1)
    diagonal.add_((jitter * diagonal.mean(-1)).unsqueeze(-1))
    return K


def _inverse(L: Float[Tensor, "B M M"], eye: Float[Tensor, "M M"]) -> Float[Tensor, "B M M"]:
    if not fused(L):
        return torch.linalg.solve_triangular(L, eye.expand_as(L), upper=False)
    from dlmexp.core.gp.fused.small import inverse

    return inverse(L)


def cholesky(
    K: Float[Tensor, "B M M"],
) -> tuple[Float[Tensor, "B M M"], Float[Tensor, "B M M"], Bool[Tensor, "B"]]:
    """Return the factor of each cell's K, its inverse, and which cells factorised.

    The factor of the others is the identity.
    """
    eye = torch.eye(K.shape[-1], dtype=K.dtype, device=K.device)
    L, info = torch.linalg.cholesky_ex(K)
    # LAPACK may let a NaN through without complaint; then it reaches the last diagonal entry.
    ok = (info == 0) & (L[..., -1, -1] < torch.inf)
    # On a GPU, looking at `ok` would synchronise.
    if K.is_cuda or not ok.all():
        L = torch.where(ok[..., None, None], L, eye)
    return L, _inverse(L, eye), ok


class _Cholesky(torch.autograd.Function):
    """K -> L, L^-1 and ok."""

    @staticmethod
    def forward(ctx: Any, K: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        L, inverse, ok = cholesky(K)
        ctx.save_for_backward(L, inverse)
        ctx.mark_non_differentiable(ok)
        ctx.set_materialize_grads(False)
        return L, inverse, ok

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Tensor:
        L, inverse = ctx.saved_tensors
        d_L, d_inverse, _ = grads
        # C = L^T dL - d(L^-1) L^-T
        C = torch.zeros_like(L) if d_L is None else L.mT @ d_L
        if d_inverse is not None:
            C = C - d_inverse @ inverse.mT
        return pullback(inverse, C)
