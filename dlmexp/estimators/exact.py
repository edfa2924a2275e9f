"""The log loss itself: closed form, or quadrature good to rounding where there is none."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from dlmexp.estimators.draws import RandomNumbers
from dlmexp.gp.likelihoods import Likelihood


@dataclass(frozen=True)
class Exact:
    """-log E_q p(y|f) with its own gradient; ignores the draws."""

    name: ClassVar[str] = "exact"

    def __call__(
        self,
        likelihood: Likelihood,
        mu: Float[Tensor, "*B N"],
        v: Float[Tensor, "*B N"],
        y: Float[Tensor, "*B N"],
        draws: RandomNumbers | None = None,
    ) -> Float[Tensor, "*B N"]:
        return likelihood.log_loss(mu, v, y)
