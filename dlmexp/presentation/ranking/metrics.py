"""Define the metrics that methods are ranked by."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

NOMINAL_COVERAGE = 0.95  # the coverage that the interval of 95 % should have

Scores = Float[np.ndarray, "..."]  # mean scores, or gains, of any shape

# The next functions return gains, which are positive where the scores are better (lower) than the
# reference.


def density_gain(scores: Scores, reference: Scores) -> Scores:
    """Return the relative gain in predictive density, from NLLs: `exp(reference - scores) - 1`."""
    return np.expm1(reference - scores)


def share_saved(scores: Scores, reference: Scores) -> Scores:
    """Return the share of the reference that is saved; NaN where the reference is zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(reference == 0, np.nan, 1 - scores / reference)


def reduction(scores: Scores, reference: Scores) -> Scores:
    """Return by how much the scores are lower than the reference."""
    return reference - scores


@dataclass(frozen=True)
class RankedMetric:
    """A score by which methods are ranked; lower is better.

    Attributes:
        name: The name that users type.
        label: The name in tables and figures.
        unit: The unit of the score.
        gain: The function that returns the gain over a reference, from the scores of a method and
            those of the reference.
        gain_of: What the gain is measured in shares of, as a text for users.
    """

    name: str
    label: str
    unit: str
    gain: Callable[[Scores, Scores], Scores]
    gain_of: str


RANKED_METRICS = (
    RankedMetric(
        name="nll",
        label="NLL",
        unit="nats per row",
        gain=density_gain,
        gain_of="predictive density",
    ),
    RankedMetric(
        name="crps",
        label="CRPS",
        unit="standard deviations of the target",
        gain=share_saved,
        gain_of="CRPS",
    ),
    RankedMetric(
        name="rmse",
        label="RMSE",
        unit="standard deviations of the target",
        gain=share_saved,
        gain_of="RMSE",
    ),
    RankedMetric(
        name="error",
        label="error rate",
        unit="share of rows",
        gain=share_saved,
        gain_of="error rate",
    ),
    RankedMetric(
        name="coverage",
        label="|95 % coverage − 0.95|",
        unit="share of rows",
        gain=reduction,
        gain_of="rows",  # the gain is a difference of shares of rows
    ),
    RankedMetric(
        name="seconds",
        label="training time",
        unit="seconds, candidates included",
        gain=share_saved,
        gain_of="time",
    ),
)
METRICS = {metric.name: metric for metric in RANKED_METRICS}
