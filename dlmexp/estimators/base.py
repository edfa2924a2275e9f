"""The one call every estimator answers."""

from typing import ClassVar, Protocol

from jaxtyping import Float
from torch import Tensor

from dlmexp.estimators.draws import RandomNumbers
from dlmexp.gp.likelihoods import Likelihood


class Estimator(Protocol):
    """Value and gradient of -log E_q p(y|f) per row, from the marginals alone (SPEC: estimators)."""

    name: ClassVar[str]

    def __call__(
        self,
        likelihood: Likelihood,
        mu: Float[Tensor, "*B N"],
        v: Float[Tensor, "*B N"],
        y: Float[Tensor, "*B N"],
        draws: RandomNumbers,
    ) -> Float[Tensor, "*B N"]: ...
