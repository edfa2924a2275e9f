"""Counts: log loss, relative error, and learning curves of the sampled gradients."""

from dlmexp.catalogue import COUNTS
from dlmexp.figures.panels import Figure, Panel, estimators, methods

LEARNING = ("abalone", "peds1_dir2")
LINES = (*methods("elbo", "beta_elbo"), *methods("joint_log_dlm", "fixed_log_dlm", estimator="bmc", samples=10))


def against_n(dataset: str, metric: str, experiment: str) -> Panel:
    return Panel("sizes", dataset, metric, LINES, experiment, both=True)


def _learning(experiment: str, *names: str) -> tuple[Panel, ...]:
    """A row per dataset, a column per number of samples S, as in the paper."""
    return tuple(
        Panel(
            "curve",
            dataset,
            "nll",
            estimators("joint_log_dlm", 0.1, *((name, (samples,)) for name in names)),
            experiment,
            title=f"S = {samples}",
            height=0.05,  # nats: a difference of 0.02 is to be seen
            both=True,
        )
        for dataset in LEARNING
        for samples in (1, 10, 100)
    )


FAMILY = (
    Figure(
        "count-log",
        tuple(against_n(dataset, "nll", "count-log") for dataset in COUNTS),
        columns=2,
        caption="Counts, DLM with bMC-10: test NLL against training size.",
        of_paper="fig:poisson-log",
    ),
    Figure(
        "count-mre",
        tuple(against_n(dataset, "mre", "count-mre") for dataset in COUNTS),
        columns=2,
        caption="Counts, DLM with bMC-10: mean relative error against training size (β selected by NLL).",
        of_paper="fig:poisson-mre",
    ),
    Figure(
        "count-learning",
        _learning("count-learning", "bmc", "ups"),
        columns=3,
        caption="Counts, joint DLM at β = 0.1: learning with uPS and bMC gradients of S samples.",
        of_paper="fig:poisson-learning-curve",
    ),
    Figure(
        "count-smooth",
        _learning("count-smooth", "bmc", "smooth_bmc"),
        columns=3,
        caption="Counts, joint DLM at β = 0.1: learning with smooth-bMC and bMC gradients of S samples.",
        of_paper="fig:poisson-smooth-learning-curve",
    ),
)
