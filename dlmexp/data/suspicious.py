"""Values that look wrong: marks of missing values, outliers, sums that are the target."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

MARKERS = tuple(sign * (10.0**digits - 1) for sign in (-1, 1) for digits in range(1, 8))
"""-9, -99, ..., 9999999: what stands for a missing value in old files."""
MIN_ROWS = 20
MIN_DISTINCT = 10
"""Columns with fewer distinct values are codes, not measurements."""
MAX_DEVIATIONS = 20.0
TRIMMED = 1e-3
"""Share of the rows at each end, one row at least, that deviations are not computed from."""
MAX_SHARE_OF_OUTLIERS = 0.01
MAX_SUMMANDS = 200
"""Tables with more columns of numbers are not searched for a sum."""
EXACT_SUM = 1e-10
"""As a share of the target's variance: if a sum of columns leaves less, the rest is rounding."""
NO_WEIGHT = 1e-6
"""In standard deviations of the target: a column that adds less is not part of a sum."""


@dataclass(frozen=True)
class Marker:
    """A number that probably stands for missing values."""

    value: float
    count: int


@dataclass(frozen=True)
class Outlier:
    """The most extreme of a few values that lie far away from all others.

    Attributes:
        row: Its row, counted from 0.
        value: The value.
        deviations: How far it is from the mean of the others, in their standard deviations.
        values: All such values, without repetitions.
        count: The number of rows that have one.
    """

    row: int
    value: float
    deviations: float
    values: tuple[float, ...]
    count: int


def missing_marker(values: Float[np.ndarray, " rows"]) -> Marker | None:
    """Return a number such as -999 that is far away from all others, or the only negative one."""
    for marker in MARKERS:
        is_marker = values == marker
        others = values[~is_marker & np.isfinite(values)]
        if not is_marker.any() or len(others) < MIN_ROWS:
            continue
        low = others.min()
        high = others.max()
        gap = max(low - marker, marker - high)
        has_odd_sign = marker < 0 <= low
        if gap > high - low or (has_odd_sign and gap > 0):
            return Marker(marker, int(is_marker.sum()))
    return None


def outlier(values: Float[np.ndarray, " rows"]) -> Outlier | None:
    """Return the value that lies most than MAX_DEVIATIONS away from the others, if there are few.

    Mean and deviation are those of the rows without the most extreme ones at each end, so that an
    outlier does not hide itself.
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

    None if all of these are the same. `known` are the finite ones of the values.
    """
    n_trimmed = max(1, round(TRIMMED * len(known)))
    middle = np.sort(known)[n_trimmed:-n_trimmed]
    scale = np.abs(middle).max() or 1.0  # of values that may be too large to be squared
    scaled = middle / scale
    spread = float(np.std(scaled))
    if spread == 0:
        return None
    with np.errstate(over="ignore"):
        return np.abs(values / scale - np.mean(scaled)) / spread


def summands(
    columns: Mapping[str, Float[np.ndarray, " rows"]], y: Float[np.ndarray, " rows"]
) -> dict[str, float]:
    """Return the columns that make up the target exactly, with their weights; empty if none do.

    A sum of a single column is not looked for. Rows with gaps are left out.
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
    adds = np.abs(weights) > NO_WEIGHT
    if adds.sum() < 2:
        return {}
    in_units = weights * y_spread / spread[is_used]
    return dict(zip(names[adds].tolist(), in_units[adds].tolist(), strict=True))


def _exact_weights(
    X: Float[np.ndarray, "rows D"], y: Float[np.ndarray, " rows"]
) -> Float[np.ndarray, " D"] | None:
    """Return the weights with which the columns of X, scaled to variance 1, add up to y.

    None if there are no such weights, or many.
    """
    with np.errstate(all="ignore"):
        scaled = (X - X.mean(axis=0)) / X.std(axis=0)
        target = (y - y.mean()) / y.std()
    weights, _, rank, _ = np.linalg.lstsq(scaled, target, rcond=None)
    residuals = scaled @ weights - target
    rest = np.mean(residuals**2)
    if rest > EXACT_SUM or rank < scaled.shape[1]:
        return None
    return weights
