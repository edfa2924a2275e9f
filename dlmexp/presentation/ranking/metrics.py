"""What methods are ranked by."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

NOMINAL = 0.95
"""The coverage that the interval of 95 % should have."""

Means = Float[np.ndarray, "..."]


def density_gain(scores: Means, reference: Means) -> Means:
    """Return by how much the predictive density is higher: `exp(reference - scores) - 1`."""
    return np.expm1(reference - scores)


def share_saved(scores: Means, reference: Means) -> Means:
    """Return by which share of the reference the scores are lower; NaN where that is zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(reference == 0, np.nan, 1 - scores / reference)


def difference(scores: Means, reference: Means) -> Means:
    """Return by how much the scores are lower."""
    return reference - scores


@dataclass(frozen=True)
class RankedMetric:
    """A score by which methods are ranked; lower is better.

    Attributes:
        name: What users type.
        label: How tables and figures write it.
        unit: Unit of the score.
        gain: Function of scores and those of a reference that returns the relative gain.
        gain_of: What the gain is a share of.
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
