"""Binary classification: p(y = 1|f) = Phi(f), or 1 / (1 + e^-f)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from dlmexp.gp.likelihoods.base import LIKELIHOODS, Likelihood, misclassified
from dlmexp.gp.likelihoods.log_concave import LogConcave, Mode, Terms, log_product_integral
from dlmexp.gp.special import lambert_w_exp, log_ndtr


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


@LIKELIHOODS.register("logistic")
@dataclass(frozen=True)
class Logistic(LogConcave):
    """p(y|f) = sigmoid((2y-1) f), y in {0, 1}."""

    task: ClassVar[str] = "binary"
    metrics: ClassVar = {"error": misclassified}

    def terms(self, f: Tensor, y: Tensor) -> Terms:
        s = signs(y)
        sf = s * f
        wrong = torch.sigmoid(-sf)
        return Terms(logsigmoid(sf), s * wrong, wrong * torch.sigmoid(sf))

    def log_constant(self, y: Tensor) -> Tensor:
        return torch.zeros_like(y)

    def shift(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        # With m = (2y-1) mu and r >= 0 the shift towards the label: r = v sigmoid(-(m + r)). Far on either side the
        # sigmoid is an exponential and r Lambert's W; Newton does the rest (the derivative is at least 1).
        m = signs(y) * mu
        right = m + v / 2 > 0
        w = lambert_w_exp(v.log() + torch.where(right, -m, m + v))
        r = torch.minimum(torch.where(right, w, (v - w).clamp_min(0)), v)
        for _ in range(3):
            wrong = torch.sigmoid(-(m + r))
            r = torch.minimum((r - (r - v * wrong) / (1 + v * wrong * (1 - wrong))).clamp_min(0), v)
        return signs(y) * r

    def knee(self, mode: Mode) -> Tensor:
        return -mode.f

    def mean(self, mu: Tensor, v: Tensor) -> Tensor:
        return log_product_integral(self, mu, v, torch.ones_like(mu)).exp()

    def log_p_max(self, y: Tensor) -> Tensor:
        return torch.zeros_like(y)

    def peak(self, y: Tensor) -> Tensor:
        return signs(y) * torch.inf
