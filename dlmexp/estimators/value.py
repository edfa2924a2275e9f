"""Estimators of the log loss that autograd differentiates: exact, quadrature, biased Monte Carlo (bMC, section 3: the
log of a sample mean), and smooth-bMC, which keeps that mean from zero."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.errors import UserError
from dlmexp.estimators.base import ESTIMATORS, Estimator
from dlmexp.estimators.draws import RandomNumbers
from dlmexp.gp.likelihoods import Likelihood
from dlmexp.gp.likelihoods.base import quadrature_log_loss

MOST_NODES = 200  # beyond, weights of the rule underflow


@ESTIMATORS.register("exact")
@dataclass(frozen=True)
class Exact(Estimator):
    """-log E_q p(y|f) with its own gradient: closed form, or quadrature good to rounding where there is none."""

    def __call__(
        self, likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, draws: RandomNumbers | None = None
    ) -> Tensor:
        return likelihood.log_loss(mu, v, y)


@ESTIMATORS.register("quadrature")
@dataclass(frozen=True)
class Quadrature(Estimator):
    """-log sum_k w_k p(y|mu + sqrt(v) e_k) in log space; the gradient is autograd's."""

    nodes: int = 20

    def check(self, likelihood: type[Likelihood]) -> None:
        if self.nodes > MOST_NODES:
            raise UserError(f"estimator.quadrature.nodes={self.nodes}: give at most {MOST_NODES}")

    def __call__(
        self, likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, draws: RandomNumbers | None = None
    ) -> Tensor:
        return quadrature_log_loss(likelihood, mu, v, y, self.nodes)


def log_mean_prob(
    likelihood: Likelihood,
    mu: Float[Tensor, "*B N"],
    v: Float[Tensor, "*B N"],
    y: Float[Tensor, "*B N"],
    e: Float[Tensor, "*B L N"],
) -> Float[Tensor, "*B N"]:
    """log 1/S sum_j p(y|f_j) with f_j = mu + sqrt(v) e_j."""
    f = torch.addcmul(mu.unsqueeze(-2), v.sqrt().unsqueeze(-2), e)
    log_p = likelihood.over_samples().log_prob(f, y.unsqueeze(-2))
    return torch.logsumexp(log_p, -2) - math.log(e.shape[-2])


@ESTIMATORS.register("bmc")
@dataclass(frozen=True)
class BMC(Estimator):
    """-log 1/S sum_j p(y|mu + sqrt(v) e_j); value and gradient are biased, both by O(1/S)."""

    samples: int

    def __call__(self, likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, draws: RandomNumbers) -> Tensor:
        return -log_mean_prob(likelihood, mu, v, y, draws.normal(self.samples, mu.shape[-1]))


@ESTIMATORS.register("smooth_bmc")
@dataclass(frozen=True)
class SmoothBMC(Estimator):
    """-log(1/S sum_j p(y|f_j) + nu). The paper writes the sum once and the mean once; this is the mean."""

    samples: int
    nu: float = 1e-4

    def __call__(self, likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, draws: RandomNumbers) -> Tensor:
        log_mean = log_mean_prob(likelihood, mu, v, y, draws.normal(self.samples, mu.shape[-1]))
        return -torch.logaddexp(log_mean, torch.full_like(log_mean, math.log(self.nu)))
