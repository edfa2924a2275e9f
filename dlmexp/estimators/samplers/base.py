"""What a product sampler is: draws from q~(f) proportional to N(f; mu, v) p(y|f), row by row, all rows at once."""

from typing import NamedTuple, Protocol

from jaxtyping import Float
from torch import Tensor

from dlmexp.estimators.draws import RandomNumbers
from dlmexp.gp.likelihoods import Likelihood


class ProductSample(NamedTuple):
    """Samples in q's own units, the share of proposals accepted in each row, and the row's log loss where the sampler
    has it at little cost.

    f = mu + sqrt(v) e would lose the digits of e where v is tiny, and the gradient needs e.
    """

    e: Float[Tensor, "*B L N"]
    acceptance: Float[Tensor, "*B N"]
    loss: Float[Tensor, "*B N"] | None = None


class ProductSampler(Protocol):
    def __call__(
        self,
        likelihood: Likelihood,
        mu: Float[Tensor, "*B N"],
        v: Float[Tensor, "*B N"],
        y: Float[Tensor, "*B N"],
        samples: int,
        draws: RandomNumbers,
    ) -> ProductSample: ...
