"""The fastest exact product sampler that a likelihood has."""

from torch import Tensor

from dlmexp.errors import UserError
from dlmexp.estimators.draws import RandomNumbers
from dlmexp.estimators.samplers.base import OTHER_ESTIMATORS, SAMPLERS, ProductSample, ProductSampler
from dlmexp.gp.likelihoods import Likelihood


class Auto(ProductSampler):
    """The sampler that the likelihood names (`Likelihood.product_sampler`)."""

    def chosen_for(self, likelihood: type[Likelihood]) -> ProductSampler:
        if likelihood.product_sampler is None:
            raise UserError(
                f"estimator=ups: the likelihood '{likelihood.name}' has no product sampler; use {OTHER_ESTIMATORS}"
            )
        return SAMPLERS[likelihood.product_sampler].chosen_for(likelihood)


def draw_auto(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: RandomNumbers
) -> ProductSample:
    """By the likelihood's own sampler."""
    return auto.chosen_for(type(likelihood))(likelihood, mu, v, y, samples, draws)


auto = SAMPLERS.add("auto", Auto("auto", draw_auto))
