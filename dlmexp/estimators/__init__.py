"""Estimators of the log loss and its gradient, by name. A new one is a file here and a line in the registry."""

from dlmexp.estimators.base import Estimator
from dlmexp.estimators.bmc import BMC
from dlmexp.estimators.draws import Draws, FreshDraws
from dlmexp.estimators.exact import Exact
from dlmexp.estimators.quadrature import Quadrature
from dlmexp.estimators.smooth_bmc import SmoothBMC
from dlmexp.estimators.ups import UPS

ESTIMATORS: dict[str, type[Estimator]] = {kind.name: kind for kind in (Exact, Quadrature, BMC, SmoothBMC, UPS)}

__all__ = ["BMC", "ESTIMATORS", "UPS", "Draws", "Estimator", "Exact", "FreshDraws", "Quadrature", "SmoothBMC"]
