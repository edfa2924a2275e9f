"""Regression: y ~ N(f, noise)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from dlmexp.gp.hyperparameters import Parameter
from dlmexp.gp.likelihoods.base import LIKELIHOODS, Bounds, Likelihood, squared_error
from dlmexp.gp.likelihoods.calibration import Scores, half_width, normal_scores

LOG_2PI = math.log(2 * math.pi)


@LIKELIHOODS.register("gaussian")
@dataclass(frozen=True)
class Gaussian(Likelihood):
    """p(y|f) = N(y; f, noise); `noise` is the variance sigma^2, broadcastable against [..., N] (e.g. [B, 1])."""

    parameters: ClassVar = {"noise": Parameter(0.1, positive=True)}
    metrics: ClassVar = {"mse": squared_error}
    conjugate: ClassVar[bool] = True
    product_sampler: ClassVar[str | None] = "gaussian"
    noise: Tensor

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        return -0.5 * (LOG_2PI + self.noise.log() + (y - f).square() / self.noise)

    def log_loss(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        total = v + self.noise
        return 0.5 * (LOG_2PI + total.log() + (y - mu).square() / total)

    def elbo_loss(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        return 0.5 * (LOG_2PI + self.noise.log() + ((y - mu).square() + v) / self.noise)

    def mean(self, mu: Tensor, v: Tensor) -> Tensor:
        return mu

    def std(self, mu: Tensor, v: Tensor) -> Tensor:
        return (v + self.noise).sqrt()

    def interval(self, mu: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        half = half_width(95) * self.std(mu, v)
        return mu - half, mu + half

    def cdf(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        return torch.special.ndtr((y - mu) / self.std(mu, v))

    def calibration(self, mu: Tensor, v: Tensor, y: Tensor) -> Scores:
        return normal_scores(mu, v + self.noise, y)

    def log_p_max(self, y: Tensor) -> Tensor:
        return (-0.5 * (LOG_2PI + self.noise.log())).expand_as(y)

    def peak(self, y: Tensor) -> Tensor:
        return y

    def bounds(self, y: Tensor) -> Bounds:
        c = torch.exp(self.log_p_max(y))
        slope = c / (math.e * self.noise).sqrt()
        return Bounds(c, -slope, slope, -c / self.noise, 2 * c / (self.noise * math.exp(1.5)))
