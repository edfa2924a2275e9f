"""dlmexp: Direct Loss Minimization for Sparse Gaussian Processes, all of the paper reproduced.

    import dlmexp

    dlmexp.run(dataset="ringnorm_drawn", method=["elbo", "joint_log_dlm"], seeds=[0])
    results = dlmexp.results("results")
    results.selected                              # a DataFrame: the fits with a selected beta
    results.model(method="joint_log_dlm").predict(X)
    dlmexp.plot("class-log", "results")           # a matplotlib figure
    dlmexp.claims("results")                      # a DataFrame of verdicts
    dlmexp.fit(X, y, betas=[10, 1, 0.1])          # a model for each beta, trained on arrays
    dlmexp.cross_validate(X, y)                   # a model with beta chosen by cross-validation

`DLMRegressor`, `DLMClassifier` and `DLMCountRegressor` are estimators in the style of scikit-learn.
Each name is imported when it is first used: `import dlmexp` loads neither torch nor pandas.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlmexp.api import Results, TrainedModel, claims, plot, results, run
    from dlmexp.common.errors import UserError
    from dlmexp.core.cross_validation import CrossValidation, cross_validate
    from dlmexp.core.fit import Fit, fit
    from dlmexp.core.training.model import AutoM, Model
    from dlmexp.core.training.settings import Settings
    from dlmexp.sklearn import DLMClassifier, DLMCountRegressor, DLMRegressor


__version__ = "0.3.0"
# The modules of public names that are not in `dlmexp.api`. Type checkers and editors do not see
# `__getattr__`: for them the names are also imported above and listed in `__all__`.
MODULE_OF = {
    "AutoM": "dlmexp.core.training.model",
    "CrossValidation": "dlmexp.core.cross_validation",
    "DLMClassifier": "dlmexp.sklearn",
    "DLMCountRegressor": "dlmexp.sklearn",
    "DLMRegressor": "dlmexp.sklearn",
    "Fit": "dlmexp.core.fit",
    "Model": "dlmexp.core.training.model",
    "Settings": "dlmexp.core.training.settings",
    "UserError": "dlmexp.common.errors",
    "cross_validate": "dlmexp.core.cross_validation",
    "fit": "dlmexp.core.fit",
}
__all__ = [
    "AutoM",
    "CrossValidation",
    "DLMClassifier",
    "DLMCountRegressor",
    "DLMRegressor",
    "Fit",
    "Model",
    "Results",
    "Settings",
    "TrainedModel",
    "UserError",
    "claims",
    "cross_validate",
    "fit",
    "plot",
    "results",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dlmexp' has no attribute '{name}'")
    module = import_module(MODULE_OF.get(name, "dlmexp.api"))
    return getattr(module, name)


def __dir__() -> list[str]:
    return ["__version__", *__all__]
