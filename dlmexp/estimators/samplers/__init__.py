"""Product samplers: `auto` is the fastest exact one for the likelihood, `rejection` the paper's own."""

from torch import Tensor

from dlmexp.errors import UserError, nearest
from dlmexp.estimators.draws import RandomNumbers
from dlmexp.estimators.samplers.base import ProductSample, ProductSampler
from dlmexp.estimators.samplers.gaussian import gaussian
from dlmexp.estimators.samplers.half_normals import half_normals
from dlmexp.estimators.samplers.log_concave import log_concave
from dlmexp.estimators.samplers.rejection import rejection
from dlmexp.estimators.samplers.scale_mixture import scale_mixture
from dlmexp.estimators.samplers.skew_normal import skew_normal
from dlmexp.gp.likelihoods import Gaussian, Likelihood, LogConcave, Poisson, Probit, StudentT

# The first kind that fits is taken.
FASTEST: dict[type[Likelihood], ProductSampler] = {
    Gaussian: gaussian,
    Probit: skew_normal,
    Poisson: half_normals,
    LogConcave: log_concave,
    StudentT: scale_mixture,
}


def auto(likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: RandomNumbers) -> ProductSample:
    """The likelihood's own fastest exact sampler; a fixed number of operations, so a CUDA graph can capture it."""
    for kind, sampler in FASTEST.items():
        if isinstance(likelihood, kind):
            return sampler(likelihood, mu, v, y, samples, draws)
    raise UserError(f"no product sampler for the likelihood {likelihood.name!r}; sampler=rejection works for any")


SAMPLERS: dict[str, ProductSampler] = {"auto": auto, "rejection": rejection(fallback=auto)}


def sampler_named(name: str) -> ProductSampler:
    """The sampler of that name, or a sentence for the user."""
    if name not in SAMPLERS:
        raise UserError(f"unknown sampler {name!r}; {nearest(name, list(SAMPLERS))}")
    return SAMPLERS[name]


__all__ = ["SAMPLERS", "ProductSample", "ProductSampler", "sampler_named"]
