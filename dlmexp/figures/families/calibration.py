"""Calibration: how far predictive distributions are what they claim to be. A row of three panels per dataset."""

from dlmexp.catalogue import BINARY, COUNTS, REGRESSION
from dlmexp.figures.families import classification, counts, regression
from dlmexp.figures.panels import Figure, Panel


def of_regression(dataset: str) -> tuple[Panel, ...]:
    lines, experiment = regression.LOG, "reg-log"
    return (
        Panel("reliability", dataset, "coverage", lines, experiment),
        Panel("sizes", dataset, "width_95", lines, experiment),
        Panel("sizes", dataset, "crps", lines, experiment),
    )


def of_binary(dataset: str) -> tuple[Panel, ...]:
    lines, experiment = classification.LINES, "class-log"
    return (
        Panel("reliability", dataset, "reliability", lines, experiment, both=True),
        Panel("sizes", dataset, "ece", lines, experiment, both=True),
        Panel("sizes", dataset, "brier", lines, experiment, both=True),
    )


def of_counts(dataset: str) -> tuple[Panel, ...]:
    return tuple(counts.against_n(dataset, metric, "count-log") for metric in ("coverage_95", "width_95", "crps"))


def rows(*several: tuple[Panel, ...]) -> tuple[Panel, ...]:
    return tuple(panel for row in several for panel in row)


FAMILY = (
    Figure(
        "calibration",
        rows(of_regression("cadata"), of_binary("banana"), of_binary("ringnorm"), of_counts("abalone")),
        columns=3,
        caption="Calibration on one regression, two binary and one count dataset (β selected by NLL).",
    ),
    Figure(
        "calibration-reg",
        rows(*(of_regression(dataset) for dataset in REGRESSION)),
        columns=3,
        caption="Calibration in regression: coverage and width of central intervals, CRPS (β selected by NLL).",
    ),
    Figure(
        "calibration-class",
        rows(*(of_binary(dataset) for dataset in BINARY)),
        columns=3,
        caption="Calibration in classification: reliability, ECE, Brier score (β selected by NLL).",
    ),
    Figure(
        "calibration-count",
        rows(*(of_counts(dataset) for dataset in COUNTS)),
        columns=3,
        caption="Calibration of counts, DLM with bMC-10: coverage and width of 95 % intervals, CRPS.",
    ),
)
