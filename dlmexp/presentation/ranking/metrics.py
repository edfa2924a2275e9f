"""Define the metrics that methods are ranked by."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

NOMINAL = 0.95  # the coverage that the interval of 95 % should have

Means = Float[np.ndarray, "..."]


def density_gain(scores: Means, reference: Means) -> Means:
    """Return the relative gain in predictive density: `exp(reference - scores) - 1`."""
    return np.expm1(reference - scores)


def share_saved(scores: Means, reference: Means) -> Means:
    """Return the share of the reference that is saved; NaN where the reference is zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(reference == 0, np.nan, 1 - scores / reference)


def difference(scores: Means, reference: Means) -> Means:
    """Return the difference by which the scores are lower than the reference."""
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
        gain_of: The quantity that the gain is a share of.
    """

    name: str
    label: str
    unit: str
    gain: Callable[[Means, Means], Means]
    gain_of: str


RANKED = (
    RankedMetric("nll", "NLL", "nats per row", density_gain, "predictive density"),
    RankedMetric("crps", "CRPS", "standard deviations of the target", share_saved, "CRPS"),
    RankedMetric("rmse", "RMSE", "standard deviations of the target", share_saved, "RMSE"),
    RankedMetric("error", "error rate", "share of rows", share_saved, "error rate"),
    RankedMetric("coverage", "|95 % coverage − 0.95|", "share of rows", difference, "rows"),
    RankedMetric("seconds", "training time", "seconds, candidates included", share_saved, "time"),
)
METRICS = {metric.name: metric for metric in RANKED}
