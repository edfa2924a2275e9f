"""The names that plugins import: all that the recipes of docs/PLUGINS.md use.

    from dlmexp.plugins import FIGURES, Figure, Line, Panel

Plugins can import these names from here even if modules inside the package are moved. Each object
is imported when its name is first used, so that a plugin with figures or claims does not load
torch.

Every name stands in three places. `__getattr__` imports it from its module in `MODULE_OF`. Type
checkers do not run `__getattr__`: they need the imports under `TYPE_CHECKING`, and an `__all__`
that is a literal list. A test compares the lists.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlmexp.common.errors import UserError
    from dlmexp.common.registry import Registry
    from dlmexp.core.estimators import (
        BMC,
        ESTIMATORS,
        UPS,
        Estimator,
        Exact,
        Quadrature,
        SmoothBMC,
    )
    from dlmexp.core.gp.closed_form import (
        Closed,
        Problem,
        gaussian_posterior,
        row_projection,
    )
    from dlmexp.core.gp.kernels import KERNELS, Kernel, Parameter, Stationary
    from dlmexp.core.gp.posterior import kl
    from dlmexp.core.likelihoods import LIKELIHOODS, Likelihood, misclassified, squared_error
    from dlmexp.core.objectives import OBJECTIVES, Notes, Objective
    from dlmexp.data.dataset import LOADERS, Dataset
    from dlmexp.presentation.claims.claim import CLAIMS, Claim, ClaimTest, Part, claim
    from dlmexp.presentation.claims.rules import (
        BETTER,
        COMPARABLE,
        DIFFERENT,
        NO_WORSE,
        Outcome,
        Verdict,
    )
    from dlmexp.presentation.figures.axes import Tile
    from dlmexp.presentation.figures.kinds.kind import PANEL_KINDS, PanelKind
    from dlmexp.presentation.figures.numbers import Series
    from dlmexp.presentation.figures.panels import FIGURES, Figure, Line, Panel
    from dlmexp.presentation.figures.stats import half_width, statistics

MODULE_OF = {
    # Datasets
    "LOADERS": "dlmexp.data.dataset",
    "Dataset": "dlmexp.data.dataset",
    # Kernels
    "KERNELS": "dlmexp.core.gp.kernels",
    "Kernel": "dlmexp.core.gp.kernels",
    "Parameter": "dlmexp.core.gp.kernels",
    "Stationary": "dlmexp.core.gp.kernels",
    # Likelihoods
    "LIKELIHOODS": "dlmexp.core.likelihoods",
    "Likelihood": "dlmexp.core.likelihoods",
    "misclassified": "dlmexp.core.likelihoods",
    "squared_error": "dlmexp.core.likelihoods",
    # Objectives
    "OBJECTIVES": "dlmexp.core.objectives",
    "Notes": "dlmexp.core.objectives",
    "Objective": "dlmexp.core.objectives",
    "kl": "dlmexp.core.gp.posterior",
    # Closed forms of objectives
    "Closed": "dlmexp.core.gp.closed_form",
    "Problem": "dlmexp.core.gp.closed_form",
    "gaussian_posterior": "dlmexp.core.gp.closed_form",
    "row_projection": "dlmexp.core.gp.closed_form",
    # Estimators
    "ESTIMATORS": "dlmexp.core.estimators",
    "BMC": "dlmexp.core.estimators",
    "Estimator": "dlmexp.core.estimators",
    "Exact": "dlmexp.core.estimators",
    "Quadrature": "dlmexp.core.estimators",
    "SmoothBMC": "dlmexp.core.estimators",
    "UPS": "dlmexp.core.estimators",
    # Figures
    "FIGURES": "dlmexp.presentation.figures.panels",
    "Figure": "dlmexp.presentation.figures.panels",
    "Line": "dlmexp.presentation.figures.panels",
    "Panel": "dlmexp.presentation.figures.panels",
    # Kinds of panels
    "PANEL_KINDS": "dlmexp.presentation.figures.kinds.kind",
    "PanelKind": "dlmexp.presentation.figures.kinds.kind",
    "Series": "dlmexp.presentation.figures.numbers",
    "Tile": "dlmexp.presentation.figures.axes",
    "half_width": "dlmexp.presentation.figures.stats",
    "statistics": "dlmexp.presentation.figures.stats",
    # Claims
    "CLAIMS": "dlmexp.presentation.claims.claim",
    "Claim": "dlmexp.presentation.claims.claim",
    "ClaimTest": "dlmexp.presentation.claims.claim",
    "Part": "dlmexp.presentation.claims.claim",
    "claim": "dlmexp.presentation.claims.claim",
    "BETTER": "dlmexp.presentation.claims.rules",
    "COMPARABLE": "dlmexp.presentation.claims.rules",
    "DIFFERENT": "dlmexp.presentation.claims.rules",
    "NO_WORSE": "dlmexp.presentation.claims.rules",
    "Outcome": "dlmexp.presentation.claims.rules",
    "Verdict": "dlmexp.presentation.claims.rules",
    # For plugins of every kind
    "Registry": "dlmexp.common.registry",
    "UserError": "dlmexp.common.errors",
}
__all__ = [  # noqa: RUF022 - in the order of MODULE_OF
    "LOADERS",
    "Dataset",
    "KERNELS",
    "Kernel",
    "Parameter",
    "Stationary",
    "LIKELIHOODS",
    "Likelihood",
    "misclassified",
    "squared_error",
    "OBJECTIVES",
    "Notes",
    "Objective",
    "kl",
    "Closed",
    "Problem",
    "gaussian_posterior",
    "row_projection",
    "ESTIMATORS",
    "BMC",
    "Estimator",
    "Exact",
    "Quadrature",
    "SmoothBMC",
    "UPS",
    "FIGURES",
    "Figure",
    "Line",
    "Panel",
    "PANEL_KINDS",
    "PanelKind",
    "Series",
    "Tile",
    "half_width",
    "statistics",
    "CLAIMS",
    "Claim",
    "ClaimTest",
    "Part",
    "claim",
    "BETTER",
    "COMPARABLE",
    "DIFFERENT",
    "NO_WORSE",
    "Outcome",
    "Verdict",
    "Registry",
    "UserError",
]


def __getattr__(name: str) -> Any:
    if name not in MODULE_OF:
        raise AttributeError(f"module 'dlmexp.plugins' has no attribute '{name}'")
    module = import_module(MODULE_OF[name])
    return getattr(module, name)


def __dir__() -> list[str]:
    return list(__all__)
