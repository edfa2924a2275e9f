"""Product samplers by name: `auto` is the fastest exact one for the likelihood, `rejection` the paper's own."""

from dlmexp.estimators.samplers.auto import auto
from dlmexp.estimators.samplers.base import SAMPLERS, ProductSample, ProductSampler, product_sampler
from dlmexp.estimators.samplers.gaussian import gaussian
from dlmexp.estimators.samplers.half_normals import half_normals
from dlmexp.estimators.samplers.log_concave import log_concave
from dlmexp.estimators.samplers.rejection import rejection
from dlmexp.estimators.samplers.scale_mixture import scale_mixture
from dlmexp.estimators.samplers.skew_normal import skew_normal

__all__ = [
    "SAMPLERS",
    "ProductSample",
    "ProductSampler",
    "auto",
    "gaussian",
    "half_normals",
    "log_concave",
    "product_sampler",
    "rejection",
    "scale_mixture",
    "skew_normal",
]
