"""Suspicious values: numbers that mark missing values, outliers, columns that sum to the target."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

MARKERS = tuple(sign * (10.0**digits - 1) for sign in (-1, 1) for digits in range(1, 8))
"""-9, -99, ..., 9999999: numbers that mark missing values in old files."""
MIN_ROWS = 20
"""Nothing is called suspicious among fewer values."""
MIN_DISTINCT = 10
"""Columns with fewer distinct values are taken for codes, which have no outliers."""
MAX_DEVIATIONS = 20.0
"""A value is an outlier if it is further from the mean, in standard deviations."""
TRIMMED = 1e-3
"""The share of the largest, and of the smallest values that mean and deviation leave out."""
MAX_SHARE_OF_OUTLIERS = 0.01
"""If a larger share of the values is far away, the distribution has heavy tails."""
MAX_SUMMANDS = 200
"""Tables with more columns of numbers are not searched for a sum."""
MAX_RESIDUAL = 1e-10
"""The largest share of the target's variance that an exact sum of columns leaves, by rounding."""
MIN_WEIGHT = 1e-6
"""The least that a part of a sum contributes, in standard deviations of the target."""


@dataclass(frozen=True)
class Marker:
    """A number that probably stands for missing values."""

    value: float
    count: int


@dataclass(frozen=True)
class Outlier:
    """The outliers of a column, of which the most extreme one is described.

    Attributes:
        row: The row of the most extreme outlier, counted from 0.
        value: Its value.
        deviations: How far it is from the mean of the middle values, in their standard deviations.
        values: All values that are outliers, without repetitions.
        count: The number of rows with an outlier.
    """

    row: int
    value: float
    deviations: float
    values: tuple[float, ...]
    count: int


def missing_marker(values: Float[np.ndarray, " rows"]) -> Marker | None:
    """Return a number that probably stands for missing values.

    It is one of `MARKERS`, and lies further from all other values than they do from each other, or
    is the only negative one.
    """
    for marker in MARKERS:
        is_marker = values == marker
        others = values[~is_marker & np.isfinite(values)]
        if not is_marker.any() or len(others) < MIN_ROWS:
            continue
        low = others.min()
        high = others.max()
        gap = max(low - marker, marker - high)  # negative if the marker lies among the others
        is_only_negative = marker < 0 <= low
        if gap > high - low or (is_only_negative and gap > 0):
            return Marker(marker, int(is_marker.sum()))
    return None


def outlier(values: Float[np.ndarray, " rows"]) -> Outlier | None:
    """Return the values that are more than MAX_DEVIATIONS from the mean, if they are few.

    Mean and deviation are those of the middle values: an outlier among them would make them so
    large that it would not be found.
    """
    known = values[np.isfinite(values)]
    if len(known) < MIN_ROWS or len(np.unique(known)) < MIN_DISTINCT:
        return None
    deviations = _deviations(values, known)
    if deviations is None:
        return None
    is_far = deviations > MAX_DEVIATIONS
    count = int(is_far.sum())
    max_count = max(1, MAX_SHARE_OF_OUTLIERS * len(known))
    if not 1 <= count <= max_count:
        return None
    row = int(np.nanargmax(deviations))
    far_values = np.unique(values[is_far])
    return Outlier(
        row=row,
        value=float(values[row]),
        deviations=float(deviations[row]),
        values=tuple(far_values.tolist()),
        count=count,
    )


def _deviations(
    values: Float[np.ndarray, " rows"], known: Float[np.ndarray, " known"]
) -> Float[np.ndarray, " rows"] | None:
    """Return how far values are from the mean of the middle ones, in their standard deviations.

    Args:
        values: The values.
        known: Those of the values that are finite.

    Returns:
        The distances; None if all middle values are the same.
    """
    n_trimmed = max(1, round(TRIMMED * len(known)))
    middle = np.sort(known)[n_trimmed:-n_trimmed]
    # Values may be so large that their squares overflow: divide by the largest one.
    scale = np.abs(middle).max() or 1.0
    scaled = middle / scale
    spread = float(np.std(scaled))
    if spread == 0:
        return None
    with np.errstate(over="ignore"):
        return np.abs(values / scale - np.mean(scaled)) / spread


def summands(
    columns: Mapping[str, Float[np.ndarray, " rows"]], y: Float[np.ndarray, " rows"]
) -> dict[str, float]:
    """Return the columns of which the target is an exact weighted sum, with their weights.

    It is empty if there is no such sum, or one of a single column. Rows with gaps are left out.
    """
    if not 2 <= len(columns) <= MAX_SUMMANDS:
        return {}
    X = np.column_stack(list(columns.values()))
    is_known = np.isfinite(X).all(axis=1) & np.isfinite(y)
    X = X[is_known]
    y = y[is_known]
    if len(y) < max(MIN_ROWS, 2 * X.shape[1]):
        return {}
    with np.errstate(all="ignore"):
        spread = X.std(axis=0)
        y_spread = y.std()
    is_used = (spread > 0) & np.isfinite(spread)
    if not is_used.any() or not 0 < y_spread < np.inf:
        return {}
    names = np.array(list(columns), dtype=object)[is_used]
    weights = _exact_weights(X[:, is_used], y)
    if weights is None:
        return {}
    is_part = np.abs(weights) > MIN_WEIGHT
    if is_part.sum() < 2:
        return {}
    # From columns and target scaled to variance 1 back to their own units.
    weights_in_units = weights * y_spread / spread[is_used]
    return dict(zip(names[is_part].tolist(), weights_in_units[is_part].tolist(), strict=True))


def _exact_weights(
    X: Float[np.ndarray, "rows D"], y: Float[np.ndarray, " rows"]
) -> Float[np.ndarray, " D"] | None:
    """Return the weights with which the columns of X add up to y, all scaled to variance 1.

    None if there are no such weights, or if they are not unique.
    """
    with np.errstate(all="ignore"):
        scaled = (X - X.mean(axis=0)) / X.std(axis=0)
        target = (y - y.mean()) / y.std()
    weights, _, rank, _ = np.linalg.lstsq(scaled, target, rcond=None)
    residuals = scaled @ weights - target
    residual_variance = np.mean(residuals**2)
    if residual_variance > MAX_RESIDUAL or rank < scaled.shape[1]:
        return None
    return weights
