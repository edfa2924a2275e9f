"""Gauss-Hermite rules, and special functions that torch lacks or gets wrong in the tails.

The functions are log Phi and Lambert's W; Phi is the distribution function of the standard normal
and phi its density.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import function

from dlmexp.core.gp.fused import uses_triton

Backward = TypeVar("Backward", bound=Callable[..., Any])
INV_SQRT_2 = math.sqrt(0.5)
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def once_differentiable(backward: Backward) -> Backward:
    """Mark a backward pass whose gradients can not be differentiated again.

    This is torch's decorator, with a type annotation that keeps the signature of `backward`.
    """
    return function.once_differentiable(backward)  # pyright: ignore[reportReturnType]


@lru_cache(maxsize=64)
def gauss_hermite(
    nodes: int, dtype: torch.dtype, device: torch.device
) -> tuple[Float[Tensor, "K"], Float[Tensor, "K"]]:
    """Return nodes e_k and log weights log w_k [K] of the Gauss-Hermite rule.

    For e ~ N(0, 1), the mean of g(e) is about `sum_k w_k g(e_k)`. The tensors are cached, since a
    captured CUDA graph can not copy them from the host.
    """
    e, w = np.polynomial.hermite_e.hermegauss(nodes)
    log_w = np.log(w) - np.log(w.sum())
    e_on_device = torch.tensor(e, dtype=dtype, device=device)
    log_w_on_device = torch.tensor(log_w, dtype=dtype, device=device)
    if device.type == "cuda":
        # A later call may use the cached tensors on another stream: their copy must be finished.
        torch.cuda.current_stream(device).synchronize()
    return e_on_device, log_w_on_device


def quadrature_nodes(
    mu: Float[Tensor, "*#B #N"], v: Float[Tensor, "*#B #N"], nodes: int
) -> tuple[Float[Tensor, "*B K N"], Float[Tensor, "K 1"]]:
    """Return the nodes f_k = mu + sqrt(v) e_k [..., K, N] and their log weights [K, 1]."""
    e, log_w = gauss_hermite(nodes, mu.dtype, mu.device)
    f = mu.unsqueeze(-2) + v.sqrt().unsqueeze(-2) * e.unsqueeze(-1)
    return f, log_w.unsqueeze(-1)


def expectation(
    g: Callable[[Tensor], Tensor],
    mu: Float[Tensor, "*#B #N"],
    v: Float[Tensor, "*#B #N"],
    nodes: int = 20,
) -> Float[Tensor, "*B N"]:
    """Return the mean of g(f) for f ~ N(mu, v) [..., N], by Gauss-Hermite quadrature.

    `g` takes f [..., K, N] and returns values of the same shape.
    """
    f, log_w = quadrature_nodes(mu, v, nodes)
    return (log_w.exp() * g(f)).sum(-2)


def hazard(x: Tensor) -> Tensor:
    """Return phi(x) / Phi(x), the derivative of log Phi.

    It is -x + O(1/x) as x goes to minus infinity, and goes to 0 as x goes to infinity.
    """
    # sqrt(2 / pi) / erfcx(-x / sqrt(2)), as Phi(x) = exp(-x^2/2) erfcx(-x / sqrt(2)) / 2
    return SQRT_2_OVER_PI / torch.special.erfcx(x * -INV_SQRT_2)


class _LogNdtr(torch.autograd.Function):
    """log Phi with a derivative that is accurate in the tails.

    torch's own derivative is exp(-x^2/2 - log Phi(x)), where two huge numbers cancel: at x = -1e8
    no digit is right. On a GPU, Triton computes value and derivative: torch would compile its
    log_ndtr and erfcx when they are first used, which takes six seconds.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.fused = uses_triton(x)
        if ctx.fused:
            from dlmexp.core.gp.fused.small import log_ndtr_and_hazard

            value, slope = log_ndtr_and_hazard(x)
            ctx.save_for_backward(slope)
            return value
        ctx.save_for_backward(x)
        return torch.special.log_ndtr(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (saved,) = ctx.saved_tensors
        slope = saved if ctx.fused else hazard(saved)
        return grads[0] * slope


def log_ndtr(x: Tensor) -> Tensor:
    """Return log Phi(x), elementwise, once differentiable."""
    return _LogNdtr.apply(x)  # pyright: ignore[reportReturnType]


def lambert_w_exp(t: Tensor) -> Tensor:
    """Return W(e^t), the w > 0 with w + log w = t, elementwise and to rounding.

    Where w would be below the smallest normal number, that number is returned. As w + log w is
    concave, Newton's iterates stay at or below the root from the first step on, and grow towards
    it.
    """
    t = t.clamp_min(math.log(torch.finfo(t.dtype).tiny))
    # The start is about e^t for small t, about t for larger ones, and at most 30.
    w = t.clamp_max(30).exp().log1p()
    t_plus_1 = t + 1
    for _ in range(4):
        # Newton's step: w - (w + log w - t) / (1 + 1/w)
        w = w * (t_plus_1 - w.log()) / (w + 1)
    return w
