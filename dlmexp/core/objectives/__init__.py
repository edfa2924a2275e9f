"""Training objectives by name (docs/SPEC.md, section 2).

Direct loss minimisation, the paper's method, trains on the loss of the predictions themselves:
`log_dlm` and `sq_dlm`. Its baselines are `elbo`, whose KL term may be weighted by beta, and `fitc`.
`power_ep` lies between these two, and `exact` is the exact Gaussian process, which all of them
approximate.

A new objective is one file that registers it (`objective.Objective` shows how) and one line among
the imports below. Each way of using it, a method, is a YAML file in `conf/method`.
"""

from dlmexp.core.objectives.elbo import ELBO
from dlmexp.core.objectives.exact import EXACT
from dlmexp.core.objectives.log_dlm import LOG_DLM
from dlmexp.core.objectives.objective import OBJECTIVES, Notes, Objective, RowLoss, SolutionPath
from dlmexp.core.objectives.power_ep import FITC, POWER_EP
from dlmexp.core.objectives.sq_dlm import SQ_DLM

__all__ = [
    "ELBO",
    "EXACT",
    "FITC",
    "LOG_DLM",
    "OBJECTIVES",
    "POWER_EP",
    "SQ_DLM",
    "Notes",
    "Objective",
    "RowLoss",
    "SolutionPath",
]
