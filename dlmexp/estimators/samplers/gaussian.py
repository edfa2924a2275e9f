"""Gaussian likelihood: the product of two Gaussians is one."""

from torch import Tensor

from dlmexp.estimators.draws import RandomNumbers
from dlmexp.estimators.samplers.base import ProductSample, product_sampler
from dlmexp.gp.likelihoods import Gaussian, Likelihood


@product_sampler("gaussian", Gaussian)
def gaussian(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: RandomNumbers
) -> ProductSample:
    """f | y ~ N(mu + v (y - mu) / (v + noise), v noise / (v + noise)). Shapes: [..., N] to [..., L, N]."""
    assert isinstance(likelihood, Gaussian)
    total = v + likelihood.noise
    centre = v.sqrt() * (y - mu) / total
    spread = (likelihood.noise / total).sqrt()
    e = centre.unsqueeze(-2) + spread.unsqueeze(-2) * draws.normal(samples, mu.shape[-1])
    return ProductSample(e, mu.new_ones(()).expand_as(mu), 1)
