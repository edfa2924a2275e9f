"""The sparse posterior in whitened coordinates: u = Luu w, q(w) = N(m, L L^T) (docs/SPEC.md,
section 1).

With `A = Luu^-1 Kuf` the marginals are `mu = mean + A^T m` and `v = kff - |A_i|^2 + |L^T A_i|^2`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dlmexp.core.gp.cholesky import Factor, factorise
from dlmexp.core.gp.fused import fused
from dlmexp.core.gp.kernels import Hyper, Kernel, fused_parameters
from dlmexp.core.gp.matrix_products import (
    marginal_gradients,
    marginal_products,
    shared_gram,
    spread,
)
from dlmexp.core.gp.precision import as_rows, hyper_as_rows
from dlmexp.core.gp.special import once_differentiable


class Projection(NamedTuple):
    """What the marginals at inputs X need of the kernel and the inducing inputs; `hyper` is of the
    rows' type."""

    kernel: Kernel
    hyper: Hyper
    X: Float[Tensor, "B N D"]
    Kuu: Factor

    @property
    def ok(self) -> Bool[Tensor, "B"]:
        """Which cells' Kuu factorised."""
        return self.Kuu.ok

    @property
    def Kuf(self) -> Float[Tensor, "B M N"]:
        return self.kernel(self.hyper["Z"], self.X, self.hyper)

    @property
    def kff(self) -> Float[Tensor, "B N"]:
        """The diagonal of Kff."""
        return self.kernel.diagonal(self.X, self.hyper)

    @property
    def A(self) -> Float[Tensor, "B M N"]:
        """`Luu^-1 Kuf`, for those who compute it once (the fixed variants)."""
        return as_rows(self.X, self.Kuu.inverse)[0] @ self.Kuf


def projection(
    kernel: Kernel, hyper: Hyper, X: Float[Tensor, "B N D"], jitter: Float[Tensor, "B"]
) -> Projection:
    """What `marginals` needs; Kuu is factorised with a relative jitter."""
    Kuu = factorise(kernel(hyper["Z"], hyper["Z"], hyper), jitter)
    return Projection(kernel, hyper_as_rows(X, hyper), X, Kuu)


def marginals(
    p: Projection, mean: Float[Tensor, "B"], m: Float[Tensor, "B M"], L: Float[Tensor, "B M M"]
) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B N"]]:
    """mu, v of q(f_i) at the projected inputs, differentiable in all. L may be any square root of
    q's covariance."""
    mean, *small = as_rows(p.X, mean, p.Kuu.K, p.Kuu.inverse.detach(), m, L)
    if parameters := fused_parameters(p.kernel, p.hyper, p.X):
        from dlmexp.core.gp.fused.projected import FusedMarginals

        fit, gain = FusedMarginals.apply(*parameters, p.X, *small)  # pyright: ignore[reportGeneralTypeIssues]
    else:
        fit, gain = _Marginals.apply(p.Kuf, *small)  # pyright: ignore[reportGeneralTypeIssues]
    kff = p.kff
    return mean[..., None] + fit, positive(kff + gain, kff)


def kl(m: Float[Tensor, "B M"], L: Float[Tensor, "B M M"]) -> Float[Tensor, "B"]:
    """`KL(N(m, L L^T) || N(0, I)) = 1/2 (|m|^2 + |L|_F^2 - M - 2 sum log |L_jj|)`, L triangular."""
    return _KL.apply(m, L)  # pyright: ignore[reportReturnType]


def to_whitened(
    m: Float[Tensor, "B M"], L: Float[Tensor, "B M M"], Kuu: Factor
) -> tuple[Float[Tensor, "B M"], Float[Tensor, "B M M"]]:
    """The whitened m, L of an unwhitened q(u) = N(m, L L^T), whose KL against N(0, Kuu) is `kl` of
    what is returned."""
    return (Kuu.inverse @ m[..., None]).squeeze(-1), Kuu.inverse @ L


def positive(v: Tensor, kff: Tensor) -> Tensor:
    """In exact arithmetic the jitter keeps v well above 0; this floor is only ever met by rounding
    (in float32). On a CPU a look costs less than the gradient of a maximum."""
    floor = torch.finfo(v.dtype).eps * kff
    return v if not v.is_cuda and bool((v > floor).all()) else torch.maximum(v, floor)


class _Marginals(torch.autograd.Function):
    """(Kuf, Kuu, Luu^-1, m, L) -> A^T m and `A_i^T S A_i`, S = L L^T - I, at three products of M x
    M by M x N in all.

    Forward: `A = Luu^-1 Kuf` and `V = (Luu^-T S) A`, so that `A_i^T S A_i = Kuf_i . V_i`. Backward,
    for cotangents g of A^T m and h of the quadratic form: `dKuf = 2 V diag(h) + Luu^-T m g^T` needs
    no product of that size, and with `P = A diag(h) A^T`, `r = A g` the rest is M x M: `dm = r`,
    `dL = 2 P L` and, since Kuf = Luu A, `Luu^T dLuu = -(2 S P + m r^T)`, which goes straight into
    Kuu. (Luu^-1 gets no gradient: it is a function of Kuu.)

    Going through A keeps the error at eps * cond(Luu), as triangular solves would. `Kuf_i . W
    Kuf_i` with `W = Luu^-T S Luu^-1` would save one product more, but its error is eps * cond(Kuu):
    measured, 3 to 6 digits worse."""

    @staticmethod
    def forward(
        ctx: Any, Kuf: Tensor, Kuu: Tensor, Luu_inv: Tensor, m: Tensor, L: Tensor
    ) -> tuple[Tensor, Tensor]:
        A, V = marginal_products(Kuf, Luu_inv, L)
        ctx.save_for_backward(Luu_inv, m, L, A, V)
        return (m.unsqueeze(-2) @ A).squeeze(-2), _column_sums(Kuf * V)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, None, Tensor, Tensor]:
        Luu_inv, m, L, A, V = ctx.saved_tensors
        g, h = grads
        d_Kuf = None
        if ctx.needs_input_grad[0]:
            w = Luu_inv.mT @ m.unsqueeze(-1)
            d_Kuf = (V * (2 * h).unsqueeze(-2)).addcmul_(w, g.unsqueeze(-2))
        d_Kuu, d_m, d_L = marginal_gradients(Luu_inv, m, L, A, g, h)
        return d_Kuf, d_Kuu, None, d_m, d_L


class _KL(torch.autograd.Function):
    """`kl` and its gradients; on a GPU one kernel each."""

    @staticmethod
    def forward(ctx: Any, m: Tensor, L: Tensor) -> Tensor:
        ctx.save_for_backward(m, L)
        if fused(m):
            from dlmexp.core.gp.fused.small import kl

            return kl(m, L)
        log_det = L.diagonal(dim1=-2, dim2=-1).abs().log().sum(-1)
        return 0.5 * (m.square().sum(-1) + L.square().sum((-2, -1)) - m.shape[-1]) - log_det

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        m, L = ctx.saved_tensors
        if fused(m):
            from dlmexp.core.gp.fused.small import kl_gradients

            return kl_gradients(m, L, grads[0])
        d_L = L * grads[0][..., None, None]
        d_L.diagonal(dim1=-2, dim2=-1).sub_(grads[0][..., None] / L.diagonal(dim1=-2, dim2=-1))
        return m * grads[0][..., None], d_L


def _column_sums(a: Float[Tensor, "B M N"]) -> Float[Tensor, "B N"]:
    # On a CPU a product with ones takes a third of the time.
    return a.sum(-2) if a.is_cuda else (a.new_ones(1, a.shape[-2]) @ a).squeeze(-2)


def shared_marginals(
    A: Float[Tensor, "S M N"],
    kff: Float[Tensor, "S N"],
    mean: Float[Tensor, "S"],
    m: Float[Tensor, "B M"],
    L: Float[Tensor, "B M M"],
    cells: Sequence[int],
) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B N"]]:
    """mu, v of B cells sorted by split, `cells[s]` of them in split s, differentiable in m and L. A
    is never copied: the cells of a split are rows of one product with their split's A."""
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
    """`|L_k^T A_i|^2` for A [.., M, N] and L [.., K, M, M], as [.., K, N]. With cotangent h its
    gradient is `dL_k = 2 A diag(h_k) A^T L_k`, so the [.., K, M, N] array of the forward pass is
    not kept. A is a constant."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, L: Tensor) -> Tensor:
        ctx.save_for_backward(A, L)
        return spread(L, A)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        A, L = ctx.saved_tensors
        return None, 2 * (shared_gram(A, grads[0]) @ L)
