"""Product samplers by name: `auto` is the fastest exact one for the likelihood, `rejection` the paper's own.

`base` says what they are; `closed`, `half_normals` and `envelope` are what `auto` chooses among."""

from dlmexp.estimators.samplers import closed, envelope, half_normals, rejection  # they register themselves
from dlmexp.estimators.samplers.base import SAMPLERS, ProductSample, ProductSampler, product_sampler

__all__ = [
    "SAMPLERS",
    "ProductSample",
    "ProductSampler",
    "closed",
    "envelope",
    "half_normals",
    "product_sampler",
    "rejection",
]
