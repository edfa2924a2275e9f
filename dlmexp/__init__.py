"""dlmexp: Direct Loss Minimization for Sparse Gaussian Processes, reproduced whole.

    import dlmexp

    dlmexp.run(dataset="ringnorm_drawn", method=["elbo", "joint_log_dlm"], seeds=[0])
    found = dlmexp.results("results")
    found.selected                                # a DataFrame: what each method selects
    found.model(method="joint_log_dlm").predict(X)
    dlmexp.plot("class-log", "results")           # a matplotlib figure
    dlmexp.claims("results")                      # a DataFrame of verdicts

`DLMRegressor`, `DLMClassifier` and `DLMCountRegressor` are estimators in the style of scikit-learn. Everything is
imported when it is first used: `import dlmexp` loads neither torch nor pandas.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from dlmexp.api import Results, TrainedModel, plot, results, run
    from dlmexp.errors import UserError
    from dlmexp.sklearn import DLMClassifier, DLMCountRegressor, DLMRegressor

    def claims(folder: str = "results", protocol: str | None = None) -> pd.DataFrame:
        """Verdicts on the records of a folder (`dlmexp.claims`, which is a package as well)."""
        ...


__version__ = "0.3.0"
__all__ = [
    "DLMClassifier", "DLMCountRegressor", "DLMRegressor", "Results", "TrainedModel", "UserError", "claims", "plot",
    "results", "run",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dlmexp' has no attribute '{name}'")
    if name == "claims":
        return import_module("dlmexp.claims")  # a package, and a function as well
    module = "dlmexp.sklearn" if name.startswith("DLM") else "dlmexp.errors" if name == "UserError" else "dlmexp.api"
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return ["__version__", *__all__]
