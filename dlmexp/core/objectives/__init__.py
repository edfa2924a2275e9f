"""Training objectives by name (docs/SPEC.md, section 2).

Direct loss minimisation, the paper's method, trains on the loss of the predictions themselves:
`log_dlm` and `sq_dlm`. Its baselines are `elbo`, whose KL term may be weighted by beta, and `fitc`.
`power_ep` lies between the two baselines. `exact` is the exact Gaussian process, which all others
approximate. `tighter`, `block_tighter` and `t_pep` scale the conditional of f given the inducing
values; `loo` is the leave-one-out loss. `crps` trains on a score in the unit of y, and `robust` is
the gamma-robust ELBO.

A new objective needs one file that registers it (`objective.Objective` shows how) and one line
among the imports below. A method, which is an objective together with its settings, is a YAML file
in `conf/method`.
"""

from dlmexp.core.objectives.crps import CRPS
from dlmexp.core.objectives.elbo import ELBO
from dlmexp.core.objectives.exact import EXACT
from dlmexp.core.objectives.log_dlm import LOG_DLM
from dlmexp.core.objectives.loo import LOO
from dlmexp.core.objectives.objective import (
    OBJECTIVES,
    Notes,
    Objective,
    Option,
    RowLoss,
    SolutionPath,
)
from dlmexp.core.objectives.power_ep import FITC, POWER_EP
from dlmexp.core.objectives.robust import ROBUST
from dlmexp.core.objectives.sq_dlm import SQ_DLM
from dlmexp.core.objectives.t_pep import T_PEP
from dlmexp.core.objectives.tighter import BLOCK_TIGHTER, TIGHTER

__all__ = [
    "BLOCK_TIGHTER",
    "CRPS",
    "ELBO",
    "EXACT",
    "FITC",
    "LOG_DLM",
    "LOO",
    "OBJECTIVES",
    "POWER_EP",
    "ROBUST",
    "SQ_DLM",
    "TIGHTER",
    "T_PEP",
    "Notes",
    "Objective",
    "Option",
    "RowLoss",
    "SolutionPath",
]
