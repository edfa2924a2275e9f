"""Estimators without samples: the log loss itself, and plain Gauss-Hermite quadrature of it."""

from dataclasses import dataclass

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
