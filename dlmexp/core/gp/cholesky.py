"""Cholesky factors of a batch of cells.

If the matrix of a cell can not be factorised, nothing raises: its `ok` is False, and the other
cells are not affected. On a GPU only `sufficient_jitter` waits for the device.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dlmexp.core.gp.fused import uses_triton
from dlmexp.core.gp.special import once_differentiable

FIRST_JITTER = 1e-6
"""The jitter that is tried first, relative to the mean of the diagonal."""
LAST_JITTER = 1e-1
"""The largest jitter that is tried; each jitter is ten times the one before."""


class Factor(NamedTuple):
    """The Cholesky factor of a matrix with jitter, `L L^T = K`, and L^-1.

    K, L and L^-1 are differentiable. A function with a backward pass of its own that computes the
    whole gradient in K (`pullback`) takes K as an argument with a gradient, and L^-1 as a constant.

    Attributes:
        K: The matrix with its jitter on the diagonal.
        L: The lower triangular factor; the identity where K could not be factorised.
        L_inverse: L^-1.
        ok: Which cells' K could be factorised.
    """

    K: Float[Tensor, "B M M"]
    L: Float[Tensor, "B M M"]
    L_inverse: Float[Tensor, "B M M"]
    ok: Bool[Tensor, "B"]


def factorise(K: Float[Tensor, "B M M"], jitter: Float[Tensor, "B"]) -> Factor:
    """Return the Cholesky factor L of each cell's `K + jitter * mean(diag K) * I`, and L^-1.

    L^-1 turns every triangular solve with N right-hand sides into a matrix product, which is
    faster, and M is small. Products with L^-1 lose about as many digits as solving with L (with
    K^-1 they would lose twice as many).
    """
    K = _Jitter.apply(K, jitter)  # pyright: ignore[reportAssignmentType]
    L, L_inverse, ok = _Cholesky.apply(K)  # pyright: ignore[reportGeneralTypeIssues]
    return Factor(K, L, L_inverse, ok)


@torch.no_grad()
def sufficient_jitter(
    K: Float[Tensor, "B M M"], jitter: Float[Tensor, "B"]
) -> tuple[Float[Tensor, "B"], Bool[Tensor, "B"]]:
    """Return the jitter with which each cell factorises, and whether there is one [B].

    It is the least among `jitter`, 10 `jitter`, ... up to `LAST_JITTER`. This waits for a GPU, so
    it must not be called within a training step.
    """
    # The product of several tens may exceed LAST_JITTER by rounding.
    limit = LAST_JITTER * (1 + 1e-9)
    jitter = jitter.clone()
    while True:
        ok = factorise(K, jitter).ok
        can_retry = ~ok & (jitter * 10 <= limit)
        if not can_retry.any():
            return jitter, ok
        jitter = torch.where(can_retry, jitter * 10, jitter)


def pullback(
    L_inverse: Float[Tensor, "B M M"], C: Float[Tensor, "B M M"]
) -> Float[Tensor, "B M M"]:
    """Return the gradient dK in `K = L L^T` from `C = L^T dL - d(L^-1) L^-T`.

    dL and d(L^-1) are the gradients in L and L^-1. The result is `L^-T sym(Phi(C)) L^-1`, where Phi
    keeps the lower triangle and halves the diagonal, and `sym(P) = (P + P^T) / 2` (Murray 2016,
    arXiv:1602.07527).
    """
    if uses_triton(C):
        from dlmexp.core.gp.fused.small import symmetric_middle

        middle = symmetric_middle(C)
    else:
        # 1/2 Phi(C): a half below the diagonal, a quarter on it
        weights = C.new_full(C.shape[-2:], 0.5).tril_().fill_diagonal_(0.25)
        half_phi = C * weights
        # sym(Phi(C))
        middle = half_phi + half_phi.mT
    return torch.bmm(torch.bmm(L_inverse.mT, middle), L_inverse)


class _Jitter(torch.autograd.Function):
    """K + jitter * mean(diag K) * I.

    Forward and backward change the diagonal alone, where autograd would make M x M arrays.
    """

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

    This linear function of K is its own adjoint, so it serves as its own backward pass.
    """
    if uses_triton(K):
        from dlmexp.core.gp.fused.small import added_to_diagonal

        return added_to_diagonal(K, jitter)
    K = K.clone()
    diagonal = K.diagonal(dim1=-2, dim2=-1)
    diagonal.add_((jitter * diagonal.mean(-1)).unsqueeze(-1))
    return K


def _inverse(L: Float[Tensor, "B M M"], eye: Float[Tensor, "M M"]) -> Float[Tensor, "B M M"]:
    """Return L^-1 of lower triangles; `eye` is the identity."""
    if not uses_triton(L):
        return torch.linalg.solve_triangular(L, eye.expand_as(L), upper=False)
    from dlmexp.core.gp.fused.small import inverse

    return inverse(L)


def cholesky(
    K: Float[Tensor, "B M M"],
) -> tuple[Float[Tensor, "B M M"], Float[Tensor, "B M M"], Bool[Tensor, "B"]]:
    """Return the factor L of each cell's K, L^-1, and which cells could be factorised.

    Where K could not be factorised, L is the identity.
    """
    eye = torch.eye(K.shape[-1], dtype=K.dtype, device=K.device)
    L, info = torch.linalg.cholesky_ex(K)
    # LAPACK may report success for a K with NaN. Then the last diagonal entry of L is NaN, for
    # which this comparison is false.
    ok = (info == 0) & (L[..., -1, -1] < torch.inf)
    # On a GPU, looking at `ok` would wait for the device.
    if K.is_cuda or not ok.all():
        L = torch.where(ok[..., None, None], L, eye)
    return L, _inverse(L, eye), ok


class _Cholesky(torch.autograd.Function):
    """K -> L, L^-1 and ok."""

    @staticmethod
    def forward(ctx: Any, K: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        L, L_inverse, ok = cholesky(K)
        ctx.save_for_backward(L, L_inverse)
        ctx.mark_non_differentiable(ok)
        ctx.set_materialize_grads(False)
        return L, L_inverse, ok

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> Tensor:
        L, L_inverse = ctx.saved_tensors
        d_L, d_L_inverse, _ = grads
        # C = L^T dL - d(L^-1) L^-T
        C = torch.zeros_like(L) if d_L is None else L.mT @ d_L
        if d_L_inverse is not None:
            C = C - d_L_inverse @ L_inverse.mT
        return pullback(L_inverse, C)
