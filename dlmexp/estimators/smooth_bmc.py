"""Smoothed biased Monte Carlo (smooth-bMC): the sample mean kept away from zero."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.estimators.bmc import log_mean_prob
from dlmexp.estimators.draws import RandomNumbers
from dlmexp.gp.likelihoods import Likelihood


@dataclass(frozen=True)
class SmoothBMC:
    """-log(1/L sum_l p(y|f_l) + nu). The paper writes the sum once and the mean once; this is the mean."""

    samples: int
    nu: float = 1e-4
    name: ClassVar[str] = "smooth_bmc"

    def __call__(
        self,
        likelihood: Likelihood,
        mu: Float[Tensor, "*B N"],
        v: Float[Tensor, "*B N"],
        y: Float[Tensor, "*B N"],
        draws: RandomNumbers,
    ) -> Float[Tensor, "*B N"]:
        log_mean = log_mean_prob(likelihood, mu, v, y, draws.normal(self.samples, mu.shape[-1]))
        return -torch.logaddexp(log_mean, torch.full_like(log_mean, math.log(self.nu)))
