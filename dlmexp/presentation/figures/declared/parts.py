"""Lines, panels and phrases of captions that figures share."""

from collections.abc import Iterable

from dlmexp.presentation.figures.panels import Line, Panel, estimators, methods
from dlmexp.presentation.labels import ESTIMATORS

Lines = tuple[Line, ...]
Panels = tuple[Panel, ...]

ELBOS = methods("elbo", "beta_elbo")
LOG_DLMS = ("joint_log_dlm", "fixed_log_dlm")
REGRESSION_LOG = methods("elbo", "beta_elbo", "fitc", *LOG_DLMS)
REGRESSION_SQUARE = (*REGRESSION_LOG, *methods("joint_sq_dlm", "fixed_sq_dlm"))
BINARY_LOG = methods("elbo", "beta_elbo", *LOG_DLMS)
COUNT_LOG = (*ELBOS, *methods(*LOG_DLMS, estimator="bmc", samples=10))
# The methods that have a beta, and FITC, which has none and is a line across the panel.
AGAINST_BETA = methods("beta_elbo", *LOG_DLMS, "fitc")
AIRLINE_BETAS = (0.1, 1.0, 10.0)

# The datasets of the figures `anatomy`, `inducing` and further ones. Each of these figures has an
# experiment for each kind of dataset, whose name ends in that kind: `anatomy-reg`, `inducing-reg`.
SEVEN_DATASETS = {
    "pol": "reg",
    "cadata": "reg",
    "sarcos_test": "reg",
    "banana": "class",
    "ringnorm": "class",
    "abalone": "count",
    "peds1_left": "count",
}
SAMPLED_DATASETS = ("ringnorm_drawn", "twonorm_drawn")  # sampled from their definition

WITH_DIFFERENCES = "with the difference to the ELBO of the same repetition below"
# For captions of figures with epochs on the x-axis. Other data take another number of their own
# epochs for as many steps.
STEPS_OF_STAND_INS = "A stand-in takes as many steps as airline's 20 epochs."


def methods_at_betas(names: Iterable[str], betas: Iterable[float]) -> Lines:
    """Return a line for each method and beta."""
    betas = tuple(betas)
    lines: list[Line] = []
    for name in names:
        lines += [Line(name, beta=beta, names="beta") for beta in betas]
    return tuple(lines)


AIRLINE_LINES = methods_at_betas(("beta_elbo", *LOG_DLMS), AIRLINE_BETAS)


def gradient_estimators(beta: float, *rivals: tuple[str, Iterable[int | None]]) -> Lines:
    """Return lines of the joint DLM at one beta: with exact gradients, bMC gradients and rivals.

    Args:
        beta: The beta.
        rivals: Further estimators of the gradient, with their numbers of samples.
    """
    return estimators("joint_log_dlm", beta, ("exact", (None,)), ("bmc", (1, 10, 100)), *rivals)


def against_size(
    metrics: Iterable[str], lines: Lines, experiment: str, datasets: Iterable[str]
) -> Panels:
    """Return a panel for each dataset and metric, with MSE on a log axis.

    The x-axis is the training size, except in panels of `reliability`, which are at one size.
    """
    metrics = tuple(metrics)
    panels: list[Panel] = []
    for dataset in datasets:
        for metric in metrics:
            kind = "reliability" if metric == "reliability" else "sizes"
            panels.append(Panel(kind, dataset, metric, lines, experiment, log=metric == "mse"))
    return tuple(panels)


def cadata_against_beta(size: str) -> Panel:
    """Return the panel of NLL against beta on cadata, which stands at the right of its row.

    Args:
        size: The training size as it is written in a command, such as '5%'.
    """
    return Panel("betas", "cadata", "nll", AGAINST_BETA, "reg-log", n=size, column=2)


def airline_by_epoch(
    lines: Lines, experiment: str, metrics: Iterable[str], title: str = ""
) -> Panels:
    """Return a panel of learning curves on airline for each metric."""
    return tuple(
        Panel("curve", "airline", metric, lines, experiment, x="epochs", title=title)
        for metric in metrics
    )


def airline_sampling(
    beta: float,
    rival: tuple[str, Iterable[int | None]],
    experiment: str,
    metrics: Iterable[str],
) -> Panels:
    """Return learning curves on airline with exact, bMC and a rival's gradients at one beta.

    Args:
        beta: The beta.
        rival: A further estimator of the gradient, with its numbers of samples.
        experiment: The experiment that computes the panels.
        metrics: The metrics, with a panel for each.
    """
    lines = gradient_estimators(beta, rival)
    return airline_by_epoch(lines, experiment, metrics, title=f"β = {beta:g}")


def gradient_histogram(estimator: str, statistic: str) -> Panel:
    """Return the panel of a statistic of an estimator's gradient draws, by number of samples."""
    lines = estimators("fixed_log_dlm", 0.1, (estimator, (1, 10, 100)))
    return Panel("histogram", "abalone", statistic, lines, "bias", title=ESTIMATORS[estimator])
