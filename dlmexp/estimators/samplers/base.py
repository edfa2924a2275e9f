"""What a product sampler is: draws from q~(f) proportional to N(f; mu, v) p(y|f), row by row, all rows at once."""

from typing import NamedTuple, Protocol

from jaxtyping import Float
from torch import Tensor

from dlmexp.estimators.draws import RandomNumbers
from dlmexp.gp.likelihoods import Likelihood


class ProductSample(NamedTuple):
    """Samples in q's own units; how many of each row's proposals were accepted, of how many (a number where all rows
    propose alike); and the row's log loss where the sampler has it at little cost.

    f = mu + sqrt(v) e would lose the digits of e where v is tiny, and the gradient needs e.
    """

    e: Float[Tensor, "*B L N"]
    accepted: Float[Tensor, "*B N"]
    proposed: Float[Tensor, "*B N"] | float
    loss: Float[Tensor, "*B N"] | None = None

    @property
    def acceptance(self) -> Float[Tensor, "*B"]:
        """Accepted over proposed, all rows together."""
        proposed = self.proposed.mean(-1) if isinstance(self.proposed, Tensor) else self.proposed
        return self.accepted.mean(-1) / proposed


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
