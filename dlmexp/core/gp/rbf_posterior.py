"""The marginals of the sparse posterior with an RBF kernel on a CPU, as one autograd function.

It computes what `posterior.projection` and `posterior.marginals` compute, to rounding. Its arrays
are reused from step to step, and it saves a hundred small operations of autograd. On one x86-64
core, value and gradients of mu and v are faster than by those two functions: 1.5 times at n = 1000,
M = 74, D = 20 (1.3 times in a batch of four), and 1.6 times at n = 100, M = 53, D = 2 in a batch of
four.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dlmexp.core.gp.cholesky import add_to_diagonal, cholesky, pullback
from dlmexp.core.gp.kernels import RBF, Hyper, Kernel
from dlmexp.core.gp.matrix_products import symmetric_product, triangular_product
from dlmexp.core.gp.posterior import floored_variance
from dlmexp.core.gp.special import once_differentiable
from dlmexp.core.gp.workspace import Workspace


def can_use_rbf_marginals(kernel: Kernel, X: Tensor) -> bool:
    """Return whether `rbf_marginals` can take the place of `projection` and `marginals`."""
    return type(kernel) is RBF and X.device.type == "cpu" and X.dtype == torch.float64


def rbf_marginals(
    hyper: Hyper,
    X: Float[Tensor, "B N D"],
    jitter: Float[Tensor, "B"],
    m: Float[Tensor, "B M"],
    L: Float[Tensor, "B M M"],
    memory: Workspace,
) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B N"], Bool[Tensor, "B"]]:
    """Return mean and variance [B, N] of q(f_i) at X, and which cells' Kuu could be factorised [B].

    Differentiable in `hyper`, m and L.

    Args:
        hyper: Hyperparameters and inducing inputs.
        X: Inputs. Their values must not change between calls with the same tensor and `memory`.
        jitter: The relative jitter of Kuu.
        m: Mean of q(w) in whitened coordinates.
        L: Square root of its covariance.
        memory: Arrays that every call overwrites: only the last call can be differentiated.
    """
    Z = hyper["Z"]
    lengthscale = hyper["lengthscale"]
    outputscale = hyper["outputscale"]
    fit, gain, ok = _RBFMarginals.apply(Z, lengthscale, outputscale, m, L, X, jitter, memory)  # pyright: ignore[reportGeneralTypeIssues]
    kff = outputscale[..., None]
    return hyper["mean"][..., None] + fit, floored_variance(kff + gain, kff), ok


class _RBFMarginals(torch.autograd.Function):
    """(Z, lengthscale l, outputscale s, m, L) -> fit, gain and ok.

    `adjoints` derives the gradients; the step numbers in the comments are those of its derivation.
    Kernel matrices are `K = exp(left right^T)`, as in `kernels`.
    """

    @staticmethod
    def forward(  # noqa: PLR0913 - an autograd function takes its tensors one by one
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
        B, M, _ = Z.shape
        N = X.shape[-2]
        precision = l.square().reciprocal_().unsqueeze(-2)
        left = _left(Z, precision, s)
        right = _right(Z, l)
        # Kuu + jitter = Luu Luu^T
        Kuu_without_jitter = torch.bmm(left, right.mT).exp_()
        Kuu = add_to_diagonal(Kuu_without_jitter, jitter)
        _, Luu_inv, ok = cholesky(Kuu)
        # Luu^-T S  with S = L L^T - I
        S = torch.bmm(L, L.mT)
        S.diagonal(dim1=-2, dim2=-1).sub_(1.0)
        Luu_invT_S = torch.bmm(Luu_inv.mT, S)
        # Kuf,  A = Luu^-1 Kuf,  V = Luu^-T S A
        Kuf = memory.array("Kuf", Z, (B, M, N))
        A = memory.array("A", Z, (B, M, N))
        V = memory.array("V", Z, (B, M, N))
        product = memory.array("product", Z, (B, M, N))
        right_of_rows = memory.derived("right", X, lambda X: _right(X, l))
        torch.bmm(left, right_of_rows.mT, out=Kuf).exp_()
        triangular_product(Luu_inv, Kuf, out=A)
        torch.bmm(Luu_invT_S, A, out=V)
        # Step 1: fit_i = A_i . m,  gain_i = Kuf_i . V_i
        fit = torch.bmm(m.unsqueeze(-2), A)
        ones = Z.new_ones(1, 1, M).expand(B, 1, M)
        gain = torch.bmm(ones, torch.mul(Kuf, V, out=product))
        ctx.save_for_backward(
            Z, l, precision, s, m, L, jitter, left, right, Kuu_without_jitter, Luu_inv,
            right_of_rows,
        )  # fmt: skip
        # Not saved by autograd, which refuses saved tensors that have changed: the backward pass
        # overwrites these.
        ctx.in_memory = (Kuf, A, V, product)
        ctx.mark_non_differentiable(ok)
        return fit.squeeze(-2), gain.squeeze(-2), ok

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (
            Z, l, precision, s, m, L, jitter, left, right, Kuu_without_jitter, Luu_inv,
            right_of_rows,
        ) = ctx.saved_tensors  # fmt: skip
        Kuf, A, V, product = ctx.in_memory
        g, h, _ = grads
        h_rows = h.unsqueeze(-2)
        # Step 4: P = A diag(h) A^T,  r = A g,  dm = r,  dL = 2 P L
        P = symmetric_product(torch.mul(A, h_rows, out=product), A)
        r = torch.bmm(A, g.unsqueeze(-1))
        d_L = torch.bmm(P, L).mul_(2.0)
        # Step 3, halved, so that the 2 is multiplied into the smaller d_left:
        # dKuf / 2 = V diag(h) + 1/2 Luu^-T m g^T;  dE = dKuf * Kuf
        half_w = torch.bmm(Luu_inv.mT, m.unsqueeze(-1)).mul_(0.5)
        half_d_Kuf = torch.mul(V, h_rows, out=product).addcmul_(half_w, g.unsqueeze(-2))
        half_d_E = half_d_Kuf.mul_(Kuf)
        # E = left right^T, here of Kuf
        d_left = torch.bmm(half_d_E, right_of_rows).mul_(2.0)
        # Step 5: -Luu^T dLuu = 2 S P + m r^T = L dL^T - 2 P + m r^T
        C = torch.bmm(L, d_L.mT).sub_(P, alpha=2).baddbmm_(m.unsqueeze(-1), r.mT)
        minus_d_Kuu = add_to_diagonal(pullback(Luu_inv, C), jitter)
        # E = left right^T, now of Kuu, where Z is on both sides
        d_E = minus_d_Kuu.mul_(Kuu_without_jitter).neg_()
        d_left.baddbmm_(d_E, right)
        # d_E is symmetric, so it is not transposed.
        d_right = torch.bmm(d_E, left)
        d_Z, d_l, d_s = _parameter_gradients(Z, l, precision, s, d_left, d_right)
        return d_Z, d_l, d_s, r.squeeze(-1), d_L, None, None, None


def _left(
    Z: Float[Tensor, "B M D"], precision: Float[Tensor, "B 1 P"], s: Float[Tensor, "B"]
) -> Float[Tensor, "B M F"]:
    """Return `[z / l^2, -1/(2 l^2), -|z|^2 / (2 l^2) + log s]`, where `precision` is 1 / l^2.

    Its product with `_right` is the logarithm of the kernel matrix.
    """
    D = Z.shape[-1]
    P = precision.shape[-1]
    left = Z.new_empty(*Z.shape[:-1], D + P + 1)
    scaled = torch.mul(Z, precision, out=left[..., :D])
    left[..., D : D + P] = precision.mul(-0.5)
    torch.sum(scaled * Z, -1, out=left[..., -1]).mul_(-0.5).add_(s.log().unsqueeze(-1))
    return left


def _right(X: Float[Tensor, "B N D"], l: Float[Tensor, "B P"]) -> Float[Tensor, "B N F"]:
    """Return `[x, |x|^2, 1]`, or with one lengthscale per feature, `[x, x^2, 1]`.

    Of the lengthscales l, only their number matters.
    """
    D = X.shape[-1]
    P = l.shape[-1]
    right = X.new_empty(*X.shape[:-1], D + P + 1)
    right[..., :D] = X
    right[..., -1].fill_(1.0)
    if P == 1:
        torch.sum(X.square(), -1, out=right[..., D])
    else:
        torch.square(X, out=right[..., D : D + P])
    return right


def _parameter_gradients(
    Z: Float[Tensor, "B M D"],
    l: Float[Tensor, "B P"],
    precision: Float[Tensor, "B 1 P"],
    s: Float[Tensor, "B"],
    d_left: Float[Tensor, "B M F"],
    d_right: Float[Tensor, "B M F"],
) -> tuple[Float[Tensor, "B M D"], Float[Tensor, "B P"], Float[Tensor, "B"]]:
    """Return the gradients in Z, l and s from those in `_left` and in the `_right` of Z."""
    D = Z.shape[-1]
    P = l.shape[-1]
    d_scaled_Z = d_left[..., :D]
    d_half_precision = d_left[..., D : D + P]
    d_last = d_left[..., -1:]
    # Z from the right factor, and from z / l^2 and -|z|^2 / (2 l^2) of the left one:
    #   dZ = d_right_x + 2 z d_right_square + (d_scaled_Z - d_last z) / l^2
    d_right_square = d_right[..., D : D + P]
    d_Z = torch.addcmul(d_right[..., :D], Z, d_right_square, value=2)
    d_Z.addcmul_(d_scaled_Z - d_last * Z, precision)
    # 1/l^2 from all three parts of the left factor: the sum over inducing inputs of
    #   z (d_scaled_Z - d_last z / 2) - d_half_precision / 2
    d_precision = (d_scaled_Z - 0.5 * d_last * Z).mul_(Z).sum(-2)
    if P == 1:
        d_precision = d_precision.sum(-1, keepdim=True)
    d_precision = d_precision.sub_(d_half_precision.sum(-2), alpha=0.5)
    # dl = -2 / l^3 d(1/l^2)
    d_l = d_precision.mul_(-2.0).div_(l * l * l)
    # log s stands in the last column of the left factor.
    d_s = d_last.sum((-2, -1)).div_(s)
    return d_Z, d_l, d_s
