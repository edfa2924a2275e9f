"""The sparse posterior with an RBF kernel on a CPU: what `posterior.projection` and `marginals`
compute, to rounding, as one function with a gradient of its own, in memory that is kept from step
to step. Some hundred small operations of the general way through torch's autograd are left out."""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dlmexp.core.gp.cholesky import add_to_diagonal, cholesky, pullback
from dlmexp.core.gp.kernels import RBF, Hyper, Kernel
from dlmexp.core.gp.matrix_products import symmetric_product, triangular_product
from dlmexp.core.gp.posterior import positive
from dlmexp.core.gp.special import once_differentiable
from dlmexp.core.gp.workspace import Workspace


def applies_to(kernel: Kernel, X: Tensor) -> bool:
    """Whether `rbf_marginals` can take the place of the general functions."""
    return type(kernel) is RBF and X.device.type == "cpu" and X.dtype == torch.float64


def rbf_marginals(
    hyper: Hyper,
    X: Float[Tensor, "B N D"],
    jitter: Float[Tensor, "B"],
    m: Float[Tensor, "B M"],
    L: Float[Tensor, "B M M"],
    memory: Workspace,
) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B N"], Bool[Tensor, "B"]]:
    """mu, v of q(f_i) at X, whitened, and which cells' Kuu factorised; differentiable in `hyper`, m
    and L. A call ends the gradients of earlier calls with the same `memory`. A tensor X given again
    must hold the same values."""
    s = hyper["outputscale"]
    fit, gain, ok = _RBFMarginals.apply(
        hyper["Z"], hyper["lengthscale"], s, m, L, X, jitter, memory
    )  # pyright: ignore[reportGeneralTypeIssues]
    kff = s[..., None]
    return hyper["mean"][..., None] + fit, positive(kff + gain, kff), ok


class _RBFMarginals(torch.autograd.Function):
    """(Z, lengthscale, outputscale, m, L) -> A^T m, `A_i^T S A_i` with S = L L^T - I, and ok. The
    mathematics is that of `posterior._Marginals`, `kernels._Exponential` and `cholesky`, in one
    piece."""

    @staticmethod
    def forward(
        ctx: Any,
        Z: Tensor,
        l: Tensor,
        s: Tensor,
        m: Tensor,
        L: Tensor,
        X: Tensor,
        jitter: Tensor,
        memory: Workspace,
    ) -> tuple[Tensor, Tensor, Tensor]:
        (B, M, _), N = Z.shape, X.shape[-2]
        precision = l.square().reciprocal_().unsqueeze(-2)
        left = _left(Z, precision, s)
        right = _right(Z, l)
        K_raw = torch.bmm(left, right.mT).exp_()
        Kuu = add_to_diagonal(K_raw, jitter)
        _, R, ok = cholesky(Kuu)
        S = torch.bmm(L, L.mT)
        S.diagonal(dim1=-2, dim2=-1).sub_(1.0)
        T = torch.bmm(R.mT, S)
        K, A, V, KV = (memory.array(name, Z, (B, M, N)) for name in ("K", "A", "V", "product"))
        of_rows = memory.derived("rows", X, lambda X: _right(X, l))
        torch.bmm(left, of_rows.mT, out=K).exp_()
        triangular_product(R, K, out=A)
        torch.bmm(T, A, out=V)
        fit = torch.bmm(m.unsqueeze(-2), A)
        gain = torch.bmm(Z.new_ones(1, 1, M).expand(B, 1, M), torch.mul(K, V, out=KV))
        ctx.save_for_backward(Z, l, precision, s, m, L, jitter, left, right, K_raw, R, of_rows)
        ctx.in_memory = K, A, V, KV
        ctx.mark_non_differentiable(ok)
        return fit.squeeze(-2), gain.squeeze(-2), ok

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        Z, l, precision, s, m, L, jitter, left, right, K_raw, R, of_rows = ctx.saved_tensors
        K, A, V, product = ctx.in_memory
        g, h, _ = grads
        h_rows = h.unsqueeze(-2)
        P = symmetric_product(torch.mul(A, h_rows, out=product), A)
        r = torch.bmm(A, g.unsqueeze(-1))
        w = torch.bmm(R.mT, m.unsqueeze(-1)).mul_(0.5)
        half_d_E = torch.mul(V, h_rows, out=product).addcmul_(w, g.unsqueeze(-2)).mul_(K)
        d_left = torch.bmm(half_d_E, of_rows).mul_(2.0)
        d_L = torch.bmm(P, L).mul_(2.0)
        C = torch.bmm(L, d_L.mT).sub_(P, alpha=2).baddbmm_(m.unsqueeze(-1), r.mT)
        d_E = add_to_diagonal(pullback(R, C), jitter).mul_(K_raw).neg_()
        d_left.baddbmm_(d_E, right)
        d_right = torch.bmm(d_E, left)  # d_E is symmetric
        return *_pull(Z, l, precision, s, d_left, d_right), r.squeeze(-1), d_L, None, None, None


def _left(Z: Tensor, precision: Tensor, s: Tensor) -> Tensor:
    """`[z / l^2, -1/(2 l^2), -|z|^2 / (2 l^2) + log s]`: times `_right`, the logarithm of the
    kernel matrix."""
    D, P = Z.shape[-1], precision.shape[-1]
    left = Z.new_empty(*Z.shape[:-1], D + P + 1)
    scaled = torch.mul(Z, precision, out=left[..., :D])
    left[..., D : D + P] = precision.mul(-0.5)
    torch.sum(scaled * Z, -1, out=left[..., -1]).mul_(-0.5).add_(s.log().unsqueeze(-1))
    return left


def _right(X: Tensor, l: Tensor) -> Tensor:
    """`[x, |x|^2, 1]`, or with one lengthscale per feature, `[x, x^2, 1]`."""
    D, P = X.shape[-1], l.shape[-1]
    right = X.new_empty(*X.shape[:-1], D + P + 1)
    right[..., :D] = X
    right[..., -1].fill_(1.0)
    if P == 1:
        torch.sum(X.square(), -1, out=right[..., D])
    else:
        torch.square(X, out=right[..., D : D + P])
    return right


def _pull(
    Z: Tensor, l: Tensor, precision: Tensor, s: Tensor, d_left: Tensor, d_right: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients in Z, l and s from those in `_left` and in the `_right` of Z."""
    D, P = Z.shape[-1], l.shape[-1]
    last = d_left[..., -1:]
    d_scaled = d_left[..., :D] - last * Z  # both of z / l^2 and, twice, of |z|^2 / (2 l^2)
    d_Z = torch.addcmul(d_right[..., :D], Z, d_right[..., D : D + P], value=2).addcmul_(
        d_scaled, precision
    )
    d_precision = (d_left[..., :D] - 0.5 * last * Z).mul_(Z).sum(-2)
    if P == 1:
        d_precision = d_precision.sum(-1, keepdim=True)
    d_precision = d_precision.sub_(d_left[..., D : D + P].sum(-2), alpha=0.5)
    d_l = d_precision.mul_(-2.0).div_(l * l * l)
    return d_Z, d_l, last.sum((-2, -1)).div_(s)
