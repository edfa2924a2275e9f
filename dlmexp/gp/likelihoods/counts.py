"""Counts: y ~ Poisson(rate(f)), what is the same for every link."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from dlmexp.gp.likelihoods.base import relative_error
from dlmexp.gp.likelihoods.calibration import Scores
from dlmexp.gp.likelihoods.count_calibration import count_cdf, count_interval, count_scores
from dlmexp.gp.likelihoods.log_concave import LogConcave


@dataclass(frozen=True)
class Counts(LogConcave):
    """p(y|f) = rate^y e^-rate / y!, with rate = `conditional_mean`(f)."""

    task: ClassVar[str] = "count"
    metrics: ClassVar = {"mre": relative_error}

    def log_constant(self, y: Tensor) -> Tensor:
        return -torch.lgamma(y + 1)

    def interval(self, mu: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return count_interval(self.log_prob, self.conditional_mean, self.peak, mu, v)

    def cdf(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        return count_cdf(self.conditional_mean, mu, v, y)

    def calibration(self, mu: Tensor, v: Tensor, y: Tensor) -> Scores:
        return count_scores(self.log_prob, self.conditional_mean, self.peak, mu, v, y)

    def log_p_max(self, y: Tensor) -> Tensor:
        return torch.xlogy(y, y) - y + self.log_constant(y)
