"""Lambert's W in log space."""

import torch
from torch import Tensor


def lambert_w_exp(t: Tensor) -> Tensor:
    """W(e^t): the w > 0 with w + log w = t, elementwise, for any t; Newton from softplus(t), good to rounding."""
    # Below -30 the answer is e^t to rounding; the clamp only keeps log(w) finite where e^t underflows.
    w = torch.nn.functional.softplus(t).clamp_min(1e-300)
    for _ in range(4):
        w = w * (1 + t - w.log()).clamp_min(0.1) / (1 + w)
    return torch.where(t < -30, t.clamp_max(0).exp(), w)
