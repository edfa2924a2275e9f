"""Binary classification with the probit link: p(y = 1|f) = Phi(f)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from dlmexp.gp.likelihoods.base import LIKELIHOODS, Bounds, Likelihood, misclassified
from dlmexp.gp.likelihoods.special import log_ndtr


def signs(y: Tensor) -> Tensor:
    """Labels {0, 1} as {-1, +1}."""
    return 2 * y - 1


@LIKELIHOODS.register("probit")
@dataclass(frozen=True)
class Probit(Likelihood):
    """p(y|f) = Phi((2y-1) f), y in {0, 1}."""

    task: ClassVar[str] = "binary"
    metrics: ClassVar = {"error": misclassified}
    product_sampler: ClassVar[str | None] = "skew_normal"

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        return log_ndtr(signs(y) * f)

    def log_loss(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        return -log_ndtr(signs(y) * mu * (1 + v).rsqrt())

    def mean(self, mu: Tensor, v: Tensor) -> Tensor:
        return torch.special.ndtr(mu * (1 + v).rsqrt())

    def log_p_max(self, y: Tensor) -> Tensor:
        return torch.zeros_like(y)

    def peak(self, y: Tensor) -> Tensor:
        return signs(y) * torch.inf

    def bounds(self, y: Tensor) -> Bounds:
        one = torch.ones_like(y)
        slope, curve = one / math.sqrt(2 * math.pi), one / math.sqrt(2 * math.pi * math.e)
        return Bounds(one, -slope, slope, -curve, curve)
