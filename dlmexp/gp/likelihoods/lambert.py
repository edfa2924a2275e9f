"""Lambert's W in log space."""

import math

import torch
from torch import Tensor


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
