"""Estimators of the log loss and its gradient, by name: `log_loss` (read it first), which takes its random numbers from
`draws`, and the samples of uPS from `product_samplers`, `half_normals` (counts) and `envelope` (all others).

A new one is a file that registers it, and its line among the imports here."""

from dlmexp.estimators import envelope, half_normals  # they register their samplers
from dlmexp.estimators.draws import Draws
from dlmexp.estimators.log_loss import BMC, ESTIMATORS, UPS, Estimator, Exact, Quadrature, SmoothBMC

__all__ = [
    "BMC", "ESTIMATORS", "UPS", "Draws", "Estimator", "Exact", "Quadrature", "SmoothBMC", "envelope",
    "half_normals",
]  # fmt: skip
