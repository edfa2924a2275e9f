"""Special functions that torch lacks or gets wrong in the tails: log Phi with its gradient, and Lambert's W."""

import math
from typing import Any

import torch
from torch import Tensor

from dlmexp.gp.autograd import once_differentiable
from dlmexp.gp.fused import fused

INV_SQRT_2 = math.sqrt(0.5)
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def hazard(x: Tensor) -> Tensor:
    """phi(x) / Phi(x), the derivative of log Phi: -x + O(1/x) far on the left, 0 far on the right."""
    return SQRT_2_OVER_PI / torch.special.erfcx(x * -INV_SQRT_2)


class _LogNdtr(torch.autograd.Function):
    # torch's own derivative is exp(-x^2/2 - log Phi(x)): two huge numbers cancel, at x = -1e8 nothing is left. On a GPU
    # torch compiles its log_ndtr and erfcx when they are first used, which takes six seconds.
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.fused = fused(x)
        if ctx.fused:
            from dlmexp.gp.fused.normal import log_ndtr_and_hazard

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
    """W(e^t): the w > 0 with w + log w = t, elementwise, to rounding; below the smallest number, that number.

    Newton on a concave function: from the first step on w is at most the root and grows.
    """
    t = t.clamp_min(math.log(torch.finfo(t.dtype).tiny))
    w = t.clamp_max(30).exp().log1p()
    t = t + 1
    for _ in range(4):
        w = w * (t - w.log()) / (w + 1)
    return w
