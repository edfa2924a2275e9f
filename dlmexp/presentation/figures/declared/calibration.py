"""Figures of calibration: coverage and width of intervals, reliability diagrams and CRPS."""

from dlmexp.common.catalogue import BINARY, COUNTS, REGRESSION
from dlmexp.presentation.figures.declared.parts import (
    BINARY_LOG,
    COUNT_LOG,
    REGRESSION_LOG,
    against_size,
)
from dlmexp.presentation.figures.panels import Figure, declare

BINARY_METRICS = ("reliability", "ece", "brier")
COUNT_METRICS = ("coverage_95", "width_95", "crps")
# Phrases of captions:
RELIABILITY = (
    "observed minus predicted shares of class 1 in bins of equal numbers of test rows, "
    "ECE and Brier score (β selected by NLL)"
)
END_ON_WHOLE_NUMBERS = "end on whole numbers, so they cover at least what they promise."


@declare
def calibration() -> Figure:
    """Return calibration on one dataset of regression, two of classification and one of counts."""
    regression_metrics = ("coverage_50", "coverage_95", "crps")
    panels = (
        *against_size(regression_metrics, REGRESSION_LOG, "reg-log", ("cadata",)),
        *against_size(BINARY_METRICS, BINARY_LOG, "class-log", ("banana", "ringnorm")),
        *against_size(COUNT_METRICS, COUNT_LOG, "count-log", ("abalone",)),
    )
    return Figure(
        "calibration",
        panels,
        columns=3,
        title="Calibration",
        caption=(
            f"Coverage of central intervals minus nominal, their width and CRPS; {RELIABILITY}. "
            f"Intervals of counts {END_ON_WHOLE_NUMBERS}"
        ),
    )


@declare
def calibration_reg() -> Figure:
    """Return coverage, width and CRPS on all datasets of regression."""
    metrics = ("coverage_50", "coverage_90", "coverage_95", "width_95", "crps")
    return Figure(
        "calibration-reg",
        against_size(metrics, REGRESSION_LOG, "reg-log", REGRESSION),
        columns=5,
        title="Calibration in regression",
        caption=(
            "Coverage of central 50, 90 and 95 % intervals minus nominal, width of 95 % intervals "
            "and CRPS against training size (β selected by NLL)."
        ),
    )


@declare
def calibration_class() -> Figure:
    """Return reliability, ECE and Brier score on all datasets of classification."""
    return Figure(
        "calibration-class",
        against_size(BINARY_METRICS, BINARY_LOG, "class-log", BINARY),
        columns=3,
        title="Calibration in classification",
        # The phrase begins a sentence here.
        caption=f"{RELIABILITY.replace('observed', 'Observed')}.",
    )


@declare
def calibration_count() -> Figure:
    """Return coverage, width and CRPS on all datasets of counts."""
    return Figure(
        "calibration-count",
        against_size(COUNT_METRICS, COUNT_LOG, "count-log", COUNTS),
        columns=3,
        title="Calibration of counts",
        caption=(
            "Coverage of 95 % intervals minus nominal, their width and CRPS, DLM with bMC-10. "
            f"The intervals {END_ON_WHOLE_NUMBERS}"
        ),
    )
