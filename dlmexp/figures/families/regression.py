"""Regression: log loss, square loss, beta, and learning curves of exact and sampled gradients."""

from dlmexp.catalogue import REGRESSION
from dlmexp.figures.panels import Figure, Panel, estimators, methods

LOG = methods("elbo", "beta_elbo", "fitc", "joint_log_dlm", "fixed_log_dlm")
SQUARE = (*LOG, *methods("joint_sq_dlm", "fixed_sq_dlm"))
BETA = methods("beta_elbo", "joint_log_dlm", "fixed_log_dlm", "fitc")
LEARNING = estimators("joint_log_dlm", 0.1, ("exact", ()), ("bmc", (1, 10, 100)))


def nll_vs_n(dataset: str, experiment: str = "reg-log") -> Panel:
    return Panel("sizes", dataset, "nll", LOG, experiment)


def mse_vs_n(dataset: str) -> Panel:
    return Panel("sizes", dataset, "mse", SQUARE, "reg-sq", log=True)


def nll_vs_beta(dataset: str, share: str) -> Panel:
    return Panel("betas", dataset, "nll", BETA, "reg-log", n=share)


pol, cadata, sarcos, song = (nll_vs_n(dataset) for dataset in REGRESSION)

FAMILY = (
    Figure(
        "reg-log",
        (pol, cadata, nll_vs_beta("cadata", "5%"), sarcos, song, nll_vs_beta("cadata", "80%")),
        columns=3,
        caption="Regression, log loss: test NLL against training size, and against β on cadata.",
        of_paper="fig:reg-log",
    ),
    Figure(
        "reg-sq",
        tuple(mse_vs_n(dataset) for dataset in REGRESSION),
        columns=2,
        caption="Regression, square loss: test MSE against training size (β selected by MSE).",
        of_paper="fig:reg-sq",
    ),
    Figure(
        "reg-learning",
        tuple(Panel("curve", dataset, "nll", LEARNING, "reg-learning") for dataset in REGRESSION),
        columns=2,
        caption="Regression, joint DLM at β = 0.1: exact and bMC gradients.",
        of_paper="fig:regression-learning",
    ),
)
