"""FITC's marginal likelihood, the paper's other baseline; it has no beta."""

from dlmexp.gp.fitc import fitc
from dlmexp.objectives.base import Objective

FITC = Objective("fitc", collapsed=fitc)
