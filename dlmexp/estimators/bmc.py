"""Biased Monte Carlo (bMC, section 3): the log of a sample mean; and smooth-bMC, which keeps that mean from zero."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.estimators.base import ESTIMATORS, Estimator
from dlmexp.estimators.draws import RandomNumbers
from dlmexp.gp.likelihoods import Likelihood


def log_mean_prob(
    likelihood: Likelihood,
    mu: Float[Tensor, "*B N"],
    v: Float[Tensor, "*B N"],
    y: Float[Tensor, "*B N"],
    e: Float[Tensor, "*B L N"],
) -> Float[Tensor, "*B N"]:
    """log 1/L sum_l p(y|f_l) with f_l = mu + sqrt(v) e_l."""
    f = torch.addcmul(mu.unsqueeze(-2), v.sqrt().unsqueeze(-2), e)
    log_p = likelihood.over_samples().log_prob(f, y.unsqueeze(-2))
    return torch.logsumexp(log_p, -2) - math.log(e.shape[-2])


@ESTIMATORS.register("bmc")
@dataclass(frozen=True)
class BMC(Estimator):
    """-log 1/L sum_l p(y|mu + sqrt(v) e_l); value and gradient are biased, both by O(1/L)."""

    samples: int
    sampled: ClassVar[bool] = True

    def __call__(self, likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, draws: RandomNumbers) -> Tensor:
        return -log_mean_prob(likelihood, mu, v, y, draws.normal(self.samples, mu.shape[-1]))


@ESTIMATORS.register("smooth_bmc")
@dataclass(frozen=True)
class SmoothBMC(Estimator):
    """-log(1/L sum_l p(y|f_l) + nu). The paper writes the sum once and the mean once; this is the mean."""

    samples: int
    nu: float = 1e-4
    sampled: ClassVar[bool] = True

    def __call__(self, likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, draws: RandomNumbers) -> Tensor:
        log_mean = log_mean_prob(likelihood, mu, v, y, draws.normal(self.samples, mu.shape[-1]))
        return -torch.logaddexp(log_mean, torch.full_like(log_mean, math.log(self.nu)))
