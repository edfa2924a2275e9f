"""Binary classification: log loss and error rate."""

from dlmexp.catalogue import BINARY
from dlmexp.figures.panels import Figure, Panel, methods

LINES = methods("elbo", "beta_elbo", "joint_log_dlm", "fixed_log_dlm")


def against_n(dataset: str, metric: str, experiment: str) -> Panel:
    return Panel("sizes", dataset, metric, LINES, experiment, both=True)


FAMILY = (
    Figure(
        "class-log",
        tuple(against_n(dataset, "nll", "class-log") for dataset in BINARY),
        columns=2,
        caption="Classification: test NLL against training size.",
        of_paper="fig:class-log",
    ),
    Figure(
        "class-err",
        tuple(against_n(dataset, "error", "class-err") for dataset in BINARY),
        columns=2,
        caption="Classification: test error rate against training size (β selected by NLL).",
        of_paper="fig:class-err",
    ),
)
