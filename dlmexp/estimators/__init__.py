"""Estimators of the log loss and its gradient, by name.

A new one is a file that registers it (`base` shows how), and its line among the imports here."""

from dlmexp.estimators.base import ESTIMATORS, Estimator
from dlmexp.estimators.draws import Draws, FreshDraws
from dlmexp.estimators.ups import UPS
from dlmexp.estimators.value import BMC, Exact, Quadrature, SmoothBMC

__all__ = ["BMC", "ESTIMATORS", "UPS", "Draws", "Estimator", "Exact", "FreshDraws", "Quadrature", "SmoothBMC"]
