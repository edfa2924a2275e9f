"""Label methods, estimators and metrics for figures, verdicts and the report."""

import math

METHODS = {
    "elbo": "ELBO",
    "beta_elbo": "β-ELBO",
    "fitc": "FITC",
    "joint_log_dlm": "joint DLM",
    "fixed_log_dlm": "fixed DLM",
    "joint_sq_dlm": "joint sq-DLM",
    "fixed_sq_dlm": "fixed sq-DLM",
    "ppgpr": "PPGPR",
    "mixture_log_dlm": "mixture DLM",
    "power_ep": "power EP",
    "exact": "exact GP",
    "tighter": "tighter ELBO",
    "beta_tighter": "tighter β-ELBO",
    "block_tighter": "block-tighter ELBO",
    "t_pep": "T-PEP",
    "loo": "leave-one-out",
    "crps": "CRPS",
    "robust": "robust ELBO",
    "elbo_q": "ELBO's hyperparameters, q by ELBO",
    "dlm_elbo_q": "DLM's hyperparameters, q by ELBO",
    "dlm_q": "DLM's hyperparameters, q by DLM",
}
ESTIMATORS = {"bmc": "bMC", "ups": "uPS", "smooth_bmc": "smooth-bMC"}
METRICS = {
    "nll": "NLL",
    "mse": "MSE",
    "error": "error rate",
    "mre": "MRE",
    "rmse": "RMSE",
    "mae": "MAE",
    "r2": "R²",
    "crps": "CRPS",
    "excess_nll": "NLL − Bayes NLL",
    "brier": "Brier score",
    "ece": "ECE",
    **{f"coverage_{level}": f"{level} % coverage" for level in (50, 90, 95)},
    **{f"width_{level}": f"{level} % width" for level in (50, 90, 95)},
}


def method_label(method: str) -> str:
    """Return the label of a method: `joint DLM` for joint_log_dlm.

    The label of a plugin's method is its name, with spaces for underscores.
    """
    return METHODS.get(method, method.replace("_", " "))


def estimator_label(estimator: str, samples: float | None = None) -> str:
    """Return the label of an estimator: `bMC-10` for bmc with 10 samples.

    The number is left out if it is None, or NaN as in tables.
    """
    name = ESTIMATORS.get(estimator, estimator.replace("_", "-"))
    if samples is None or math.isnan(samples):
        return name
    return f"{name}-{samples:g}"


def metric_label(metric: str) -> str:
    """Return the label of a metric: `NLL` for nll. A metric without a label keeps its name."""
    return METRICS.get(metric, metric)
