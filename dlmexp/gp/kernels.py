"""Kernels over batches of cells (docs/SPEC.md, section 1), the stationary ones at one exponential per entry.

Each of those is a function of `E = -|x - z|^2 / (2 l^2)`, and `E` is a single matrix product: with
`left = [z / l^2, -1/(2 l^2), -|z|^2 / (2 l^2)]` and `right = [x, |x|^2, 1]`, `E = left right^T` (with ARD, `|x|^2` is
one column per feature). So all parameters enter through `left`, which has M rows, and the one product `dE right` brings
every gradient back to it. Of shape [B, M, N], only K itself is kept for the backward pass (Matern: and its slope).
"""

import warnings
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.gp.fused import fused
from dlmexp.gp.kernel import Hyper, Kernel, Parameter
from dlmexp.gp.special import once_differentiable
from dlmexp.registry import Registry

KERNELS: Registry[Kernel] = Registry("kernel", "dlmexp.gp.kernels")


def kernel_named(name: str, typed: bool = False) -> Kernel:
    """The kernel registered under that name, or the GPyTorch kernel class with that dotted path (`package.Class`).
    `typed`: by the user, whose word imports the package; a name in a record or a model does not."""
    if "." not in name:
        return KERNELS[name]
    with warnings.catch_warnings():  # importing GPyTorch takes seconds, and warns of what it uses itself
        warnings.simplefilter("ignore", DeprecationWarning)
        from dlmexp.gp.gpytorch_kernel import gpytorch_kernel
    return gpytorch_kernel(name, typed)


class Stationary(Kernel):
    """A function of `E = -|x - x'|^2 / (2 l^2)` times the outputscale: lengthscale [B,1] or [B,D], outputscale [B]."""

    stationary: ClassVar[bool] = True

    def parameters(self, D: int, ard: bool) -> dict[str, Parameter]:
        return {
            "lengthscale": Parameter(1.0, positive=True, shape=(D if ard else 1,)),
            "outputscale": Parameter(1.0, positive=True),
        }

    def diagonal(self, X: Float[Tensor, "B N D"], hyper: Hyper) -> Float[Tensor, "B N"]:
        return hyper["outputscale"][..., None].expand(*X.shape[:-1])


class RBF(Stationary):
    """`s exp(-|x - x'|^2 / 2 l^2)`."""

    def __call__(self, X1: Tensor, X2: Tensor, hyper: Hyper) -> Float[Tensor, "B M N"]:
        if fused(X1) and (X1 is X2 or not X2.requires_grad):
            return _fused(X1, X2, hyper, matern=False)
        left, right = _factors(X1, X2, hyper["lengthscale"])
        # s joins the exponent, in the column of left that meets right's ones: its gradient then comes with the others.
        s = torch.nn.functional.pad(hyper["outputscale"].log()[..., None, None], (left.shape[-1] - 1, 0))
        return _Exponential.apply(left + s, right)  # pyright: ignore[reportReturnType]


class Matern52(Stationary):
    """`s (1 + u + u^2 / 3) exp(-u)` with `u = sqrt(5) |x - x'| / l`."""

    def __call__(self, X1: Tensor, X2: Tensor, hyper: Hyper) -> Float[Tensor, "B M N"]:
        if fused(X1) and (X1 is X2 or not X2.requires_grad):
            return _fused(X1, X2, hyper, matern=True)
        left, right = _factors(X1, X2, hyper["lengthscale"])
        return _Matern52.apply(left, right, hyper["outputscale"])  # pyright: ignore[reportReturnType]


def has_fused(kernel: Kernel, Z: Tensor, X: Tensor) -> bool:
    """Whether the functions of `fused.projected` compute this kernel between Z and constant inputs X."""
    return type(kernel) in (RBF, Matern52) and fused(Z) and not X.requires_grad


rbf = KERNELS.add("rbf", RBF("rbf"))
matern52 = KERNELS.add("matern52", Matern52("matern52"))


def _factors(X1: Tensor, X2: Tensor, lengthscale: Tensor) -> tuple[Tensor, Tensor]:
    """left [B, M, F] and right [B, N, F] with `left right^T = -|x1 - x2|^2 / (2 l^2)`."""
    precision = lengthscale.square().reciprocal().unsqueeze(-2)
    scaled = X1 * precision
    size = (scaled * X1).sum(-1, keepdim=True)
    left = torch.cat([scaled, (-0.5 * precision).expand(*X1.shape[:-1], -1), -0.5 * size], -1)
    square = X2.square()
    if lengthscale.shape[-1] == 1:
        square = square.sum(-1, keepdim=True)
    return left, torch.cat([X2, square, torch.ones_like(X2[..., :1])], -1)


def _fused(Z: Tensor, X: Tensor, hyper: Hyper, matern: bool) -> Float[Tensor, "B M N"]:
    return _Fused.apply(Z, None if Z is X else X, hyper["lengthscale"], hyper["outputscale"], matern)  # pyright: ignore[reportReturnType]


class _Fused(torch.autograd.Function):
    """The kernel matrix between Z and X (None: Z itself) in one pass, and its gradients in another."""

    @staticmethod
    def forward(
        ctx: Any, Z: Tensor, X: Tensor | None, lengthscale: Tensor, outputscale: Tensor, matern: bool
    ) -> Tensor:
        from dlmexp.gp.fused.stationary import covariance, right_factor

        right = right_factor(Z if X is None else X, lengthscale)
        K = covariance(Z, right, lengthscale, outputscale, matern)
        ctx.save_for_backward(Z, right, lengthscale, outputscale, K)
        ctx.matern, ctx.gram = matern, X is None
        return K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, Tensor, Tensor, None]:
        from dlmexp.gp.fused.stationary import pull

        Z, right, l, s, K = ctx.saved_tensors
        d_Z, d_l, d_s = pull(grads[0], K, Z, right, l, s, ctx.matern, ctx.gram)
        return d_Z, None, d_l, d_s, None


class _Exponential(torch.autograd.Function):
    """exp(left right^T), keeping its result and nothing else of that size."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor) -> Tensor:
        K = torch.matmul(left, right.mT).exp_()
        ctx.save_for_backward(left, right, K)
        return K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None]:
        left, right, K = ctx.saved_tensors
        G = grads[0] * K
        d_left = G @ right if ctx.needs_input_grad[0] else None
        d_right = G.mT @ left if ctx.needs_input_grad[1] else None
        return d_left, d_right


class _Matern52(torch.autograd.Function):
    """The Matern-5/2 kernel of E = left right^T. Its slope dK/dE = 5/3 s (1 + u) exp(-u) is finite at distance 0, where
    differentiating through the square root would give NaN."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, outputscale: Tensor) -> Tensor:
        # Rounding can leave E a little above 0 where the distance is 0.
        u = torch.matmul(left, right.mT).clamp_(max=0).mul_(-10).sqrt_()
        decay = torch.exp(-u).mul_(outputscale[..., None, None])
        slope = decay * (5 / 3)
        slope.addcmul_(u, slope)
        K = decay.mul_(u.square().mul_(1 / 3).add_(u).add_(1))
        ctx.save_for_backward(left, right, outputscale, K, slope)
        return K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        left, right, outputscale, K, slope = ctx.saved_tensors
        d_scale = (grads[0] * K).sum((-2, -1)) / outputscale if ctx.needs_input_grad[2] else None
        G = grads[0] * slope
        d_left = G @ right if ctx.needs_input_grad[0] else None
        d_right = G.mT @ left if ctx.needs_input_grad[1] else None
        return d_left, d_right, d_scale
