"""Plain Gauss-Hermite quadrature of the log loss."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.estimators.draws import RandomNumbers
from dlmexp.gp.likelihoods import Likelihood
from dlmexp.gp.quadrature import at_nodes


@dataclass(frozen=True)
class Quadrature:
    """-log sum_k w_k p(y|mu + sqrt(v) e_k) in log space; the gradient is autograd's. Ignores the draws."""

    nodes: int = 20
    name: ClassVar[str] = "quadrature"

    def __call__(
        self,
        likelihood: Likelihood,
        mu: Float[Tensor, "*B N"],
        v: Float[Tensor, "*B N"],
        y: Float[Tensor, "*B N"],
        draws: RandomNumbers | None = None,
    ) -> Float[Tensor, "*B N"]:
        f, log_w = at_nodes(mu, v, self.nodes)
        return -torch.logsumexp(log_w + likelihood.over_samples().log_prob(f, y.unsqueeze(-2)), -2)
