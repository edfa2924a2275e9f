"""Suspicious values: numbers that mark missing values, outliers, columns that sum to the target."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

MARKERS = tuple(sign * (10.0**digits - 1) for sign in (-1, 1) for digits in range(1, 8))
"""-9, -99, ..., 9999999: numbers that mark missing values in old files."""
MIN_ROWS = 20
"""With fewer values, none is called suspicious."""
MIN_DISTINCT = 10
"""Columns with fewer distinct values are taken for codes, which have no outliers."""
MAX_DEVIATIONS = 20.0
"""A value further from the mean than this number of standard deviations is an outlier."""
TRIMMED_SHARE = 1e-3
"""Mean and deviation leave out this share of the smallest values, and of the largest values."""
MAX_SHARE_OF_OUTLIERS = 0.01
"""If more values are far from the mean, they are not outliers: the distribution has heavy tails."""
MAX_SUMMANDS = 200
"""Tables with more columns of numbers are not searched for a sum."""
MAX_RESIDUAL = 1e-10
"""An exact sum of columns leaves at most this share of the target's variance, by rounding."""
MIN_WEIGHT = 1e-6
"""A column whose part of a sum has a smaller deviation, relative to the target's, is left out."""


@dataclass(frozen=True)
class Marker:
    """A number that probably stands for missing values."""

    value: float
    count: int


@dataclass(frozen=True)
class Outliers:
    """The outliers of a column.

    Attributes:
        row: The row of the most extreme outlier, counted from 0.
        value: The most extreme outlier.
        deviations: The distance of the most extreme outlier from the mean of the middle values, in
            their standard deviations.
        values: All outliers, without repetitions.
        count: The number of rows with an outlier.
    """

    row: int
    value: float
    deviations: float
    values: tuple[float, ...]
    count: int


def missing_marker(values: Float[np.ndarray, " rows"]) -> Marker | None:
    """Return a number that probably stands for missing values.

    It is one of `MARKERS`. Either its distance from the other values is larger than their range, or
    it is the only negative value.
    """
    for marker in MARKERS:
        is_marker = values == marker
        other_values = values[~is_marker & np.isfinite(values)]
        if not is_marker.any() or len(other_values) < MIN_ROWS:
            continue
        low = other_values.min()
        high = other_values.max()
        distance = max(low - marker, marker - high)  # negative if the marker lies within the range
        is_only_negative = marker < 0 <= low
        if distance > high - low or is_only_negative:
            return Marker(value=marker, count=int(is_marker.sum()))
    return None


def find_outliers(values: Float[np.ndarray, " rows"]) -> Outliers | None:
    """Return the values that are more than MAX_DEVIATIONS from the mean, if they are few.

    Mean and deviation are computed from the middle values. An outlier could make the deviation of
    all values so large that the outlier itself would seem close to the mean.
    """
    finite = values[np.isfinite(values)]
    if len(finite) < MIN_ROWS or len(np.unique(finite)) < MIN_DISTINCT:
        return None
    deviations = _deviations(values, finite)
    if deviations is None:
        return None
    is_far = deviations > MAX_DEVIATIONS
    count = int(is_far.sum())
    max_count = max(1, MAX_SHARE_OF_OUTLIERS * len(finite))
    if not 1 <= count <= max_count:
        return None
    row = int(np.nanargmax(deviations))
    far_values = np.unique(values[is_far])
    return Outliers(
        row=row,
        value=float(values[row]),
        deviations=float(deviations[row]),
        values=tuple(far_values.tolist()),
        count=count,
    )


def _deviations(
    values: Float[np.ndarray, " rows"], finite: Float[np.ndarray, " finite"]
) -> Float[np.ndarray, " rows"] | None:
    """Return how far values are from the mean of the middle ones, in their standard deviations.

    Args:
        values: The values.
        finite: The finite ones among the values.

    Returns:
        The distances; None if all middle values are the same.
    """
    n_trimmed = max(1, round(TRIMMED_SHARE * len(finite)))
    middle = np.sort(finite)[n_trimmed:-n_trimmed]
    # Divide by the largest value, because the squares of huge values would overflow.
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

    The result is empty if there is no such sum, or if the sum has a single column. Rows with
    missing values are left out.
    """
    if not 2 <= len(columns) <= MAX_SUMMANDS:
        return {}
    X = np.column_stack(list(columns.values()))
    is_known = np.isfinite(X).all(axis=1) & np.isfinite(y)
    X = X[is_known]
    y = y[is_known]
    if len(y) < max(MIN_ROWS, 2 * X.shape[1]):
        return {}
    with np.errstate(all="ignore"):  # the squares of huge values overflow
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
    # These weights are for columns and a target of variance 1: convert them to the original units.
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
