"""Gauss-Hermite rules, and special functions that torch lacks or gets wrong in the tails: log Phi
and Lambert's W."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import function

from dlmexp.core.gp.fused import fused

Backward = TypeVar("Backward", bound=Callable[..., Any])


def once_differentiable(backward: Backward) -> Backward:
    """torch's decorator for gradients that are not differentiated again, with a type under which a
    decorated `backward` still overrides `Function.backward`."""
    return function.once_differentiable(backward)  # pyright: ignore[reportReturnType]


@lru_cache(maxsize=64)
def gauss_hermite(nodes: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Nodes and log weights of `E_{e ~ N(0,1)} g(e) ~ sum_k exp(logw_k) g(e_k)`. Shapes: [K], [K].

    Kept per device, so that a captured CUDA graph never copies them from the host.
    """
    e, w = np.polynomial.hermite_e.hermegauss(nodes)
    log_w = np.log(w) - np.log(w.sum())
    rule = (
        torch.tensor(e, dtype=dtype, device=device),
        torch.tensor(log_w, dtype=dtype, device=device),
    )
    if device.type == "cuda":
        torch.cuda.current_stream(
            device
        ).synchronize()  # the next to use them may be on another stream
    return rule


def at_nodes(
    mu: Float[Tensor, "*#B #N"], v: Float[Tensor, "*#B #N"], nodes: int
) -> tuple[Float[Tensor, "*B K N"], Float[Tensor, "K 1"]]:
    """f_k = mu + sqrt(v) e_k and the log weights, sample dimension at -2."""
    e, log_w = gauss_hermite(nodes, mu.dtype, mu.device)
    return mu.unsqueeze(-2) + v.sqrt().unsqueeze(-2) * e.unsqueeze(-1), log_w.unsqueeze(-1)


def expectation(
    g: Callable[[Tensor], Tensor],
    mu: Float[Tensor, "*#B #N"],
    v: Float[Tensor, "*#B #N"],
    nodes: int = 20,
) -> Float[Tensor, "*B N"]:
    """E_{f ~ N(mu, v)} g(f) by Gauss-Hermite; `g` maps [..., K, N] to [..., K, N]."""
    f, log_w = at_nodes(mu, v, nodes)
    return (log_w.exp() * g(f)).sum(-2)


INV_SQRT_2 = math.sqrt(0.5)
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def hazard(x: Tensor) -> Tensor:
    """phi(x) / Phi(x), the derivative of log Phi: -x + O(1/x) far on the left, 0 far on the
    right."""
    return SQRT_2_OVER_PI / torch.special.erfcx(x * -INV_SQRT_2)


class _LogNdtr(torch.autograd.Function):
    # torch's own derivative is exp(-x^2/2 - log Phi(x)): two huge numbers cancel, at x = -1e8
    # nothing is left. On a GPU torch compiles its log_ndtr and erfcx when they are first used,
    # which takes six seconds.
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.fused = fused(x)
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
        return grads[0] * (saved if ctx.fused else hazard(saved))


def log_ndtr(x: Tensor) -> Tensor:
    """log Phi(x), elementwise, once differentiable."""
    return _LogNdtr.apply(x)  # pyright: ignore[reportReturnType]


def lambert_w_exp(t: Tensor) -> Tensor:
    """W(e^t): the w > 0 with w + log w = t, elementwise, to rounding; below the smallest number,
    that number.

    Newton on a concave function: from the first step on w is at most the root and grows.
    """
    t = t.clamp_min(math.log(torch.finfo(t.dtype).tiny))
    w = t.clamp_max(30).exp().log1p()
    t = t + 1
    for _ in range(4):
        w = w * (t - w.log()) / (w + 1)
    return w
