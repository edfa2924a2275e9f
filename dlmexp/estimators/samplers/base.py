"""What a product sampler is: draws from q~(f) proportional to N(f; mu, v) p(y|f), row by row, all rows at once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from dlmexp.errors import UserError
from dlmexp.estimators.draws import RandomNumbers
from dlmexp.gp.likelihoods import Likelihood
from dlmexp.registry import Registry

OTHER_ESTIMATORS = "estimator=exact, quadrature, bmc or smooth_bmc"  # that need nothing of a likelihood but log_prob


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


Draw = Callable[[Likelihood, Tensor, Tensor, Tensor, int, RandomNumbers], ProductSample]
"""draw(likelihood, mu [..., N], v [..., N], y [..., N], samples, random numbers)"""


@dataclass(frozen=True)
class ProductSampler:
    """A product sampler and its facts: the likelihoods it can draw for, and whether a CUDA graph can capture it (it
    does the same operations whatever the data)."""

    name: str
    draw: Draw
    likelihoods: type[Likelihood] = Likelihood
    capturable: bool = True

    def __call__(
        self, likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: RandomNumbers
    ) -> ProductSample:
        return self.draw(likelihood, mu, v, y, samples, draws)

    def chosen_for(self, likelihood: type[Likelihood]) -> "ProductSampler":
        """The sampler that draws for this likelihood, this one or the one it leaves that to; or a sentence for the
        user."""
        if not issubclass(likelihood, self.likelihoods):
            other = "sampler=auto" if likelihood.product_sampler else OTHER_ESTIMATORS
            raise UserError(f"sampler={self.name} can't draw for the likelihood '{likelihood.name}': use {other}")
        return self


SAMPLERS: Registry[ProductSampler] = Registry("sampler", "dlmexp.estimators.samplers")


def product_sampler(name: str, likelihoods: type[Likelihood] = Likelihood, capturable: bool = True):
    """Register a function as the product sampler of that name."""

    def register(draw: Draw) -> ProductSampler:
        return SAMPLERS.add(name, ProductSampler(name, draw, likelihoods, capturable))

    return register


class Auto(ProductSampler):
    """The fastest exact sampler for a likelihood, which it names itself (`Likelihood.product_sampler`)."""

    def chosen_for(self, likelihood: type[Likelihood]) -> ProductSampler:
        if likelihood.product_sampler is None:
            raise UserError(
                f"estimator=ups: the likelihood '{likelihood.name}' has no product sampler; use {OTHER_ESTIMATORS}"
            )
        return SAMPLERS[likelihood.product_sampler].chosen_for(likelihood)


def draw_auto(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: RandomNumbers
) -> ProductSample:
    return auto.chosen_for(type(likelihood))(likelihood, mu, v, y, samples, draws)


auto = SAMPLERS.add("auto", Auto("auto", draw_auto))
