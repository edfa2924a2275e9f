"""Counts with the softplus link: y ~ Poisson(log(1 + e^f))."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from dlmexp.gp.likelihoods.base import LIKELIHOODS, Bounds
from dlmexp.gp.likelihoods.counts import Counts
from dlmexp.gp.likelihoods.log_concave import Mode, Terms
from dlmexp.gp.likelihoods.special import lambert_w_exp


def softplus(f: Tensor) -> Tensor:
    """log(1 + e^f) to rounding everywhere (torch's own is f from 20 on, wrong in the ninth digit)."""
    return -logsigmoid(-f)


@LIKELIHOODS.register("poisson_softplus")
@dataclass(frozen=True)
class PoissonSoftplus(Counts):
    """p(y|f) = rate^y e^-rate / y! with rate = log(1 + e^f)."""

    def terms(self, f: Tensor, y: Tensor) -> Terms:
        # Below -30 the log of the rate is f to rounding; the clamp keeps log and quotient away from 0.
        g = f.clamp_min(-30)
        rate, sigma = softplus(g), torch.sigmoid(f)
        log_rate = rate.log() + (f - g)
        relative = torch.sigmoid(g) / rate  # d log rate / df, 1 on the far left
        value = y * log_rate - softplus(f)
        slope = y * relative - sigma
        return Terms(value, slope, y * relative * (relative + sigma - 1) + sigma * (1 - sigma))

    def shift(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        # Where the rate is f itself the mode solves a quadratic, where it is e^f it is Lambert's W; Newton does the
        # rest inside [0, v slope(mu)], which holds the root because the slope falls.
        gap = mu - v
        linear = (gap + torch.hypot(gap, 2 * (y * v).sqrt())) / 2
        t = mu + v * y
        exponential = t - lambert_w_exp(t + (v * (1 + y / 2)).log())
        end = v * self.terms(mu, y).slope
        low, high = end.clamp_max(0), end.clamp_min(0)
        s = torch.where(linear > 1, linear, exponential) - mu
        for _ in range(5):
            s = torch.minimum(torch.maximum(s, low), high)
            at = self.terms(mu + s, y)
            s = s - (s - v * at.slope) / (1 + v * at.curvature)
        return torch.minimum(torch.maximum(s, low), high)

    def knee(self, mode: Mode) -> Tensor:
        return 1.5 - mode.f

    def conditional_mean(self, f: Tensor) -> Tensor:
        return softplus(f)

    def peak(self, y: Tensor) -> Tensor:
        return y + torch.log(-torch.expm1(-y))  # log(e^y - 1)

    def bounds(self, y: Tensor) -> Bounds:
        one = torch.ones_like(y)
        return Bounds(one, -one, one, -2.25 * one, 2.25 * one)
