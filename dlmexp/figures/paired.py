"""Differences within repetitions: what they average to, and how sure that is.

Splits differ from one another by more than methods do. A difference taken on the same split is free of that, so its
interval shows what the deviation over splits hides.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from scipy.special import stdtrit

CONFIDENCE = 0.95
Values = Mapping[Any, float]  # repetition (and size) -> value


def interval(values: Iterable[float]) -> dict[str, float]:
    """The mean of paired differences and its 95 % interval (Student's t); no interval from a single one."""
    found = np.array([value for value in values if np.isfinite(value)])
    count = len(found)
    mean = float(found.mean()) if count else np.nan
    half = np.nan
    if count > 1:
        half = float(stdtrit(count - 1, 0.5 + CONFIDENCE / 2) * found.std(ddof=1) / np.sqrt(count))
    return {"mean": mean, "low": mean - half, "high": mean + half, "repetitions": count}


def contrast(weights: Iterable[tuple[float, Values]]) -> dict[Any, float]:
    """The weighted sum of several values in each repetition that has them all, finite."""
    weights = list(weights)
    common = set.intersection(*(set(values) for _, values in weights)) if weights else set()
    sums = {key: sum(weight * values[key] for weight, values in weights) for key in sorted(common)}
    return {key: value for key, value in sums.items() if np.isfinite(value)}


def differences(ours: Values, reference: Values) -> dict[int, dict[str, float]]:
    """Ours minus the reference at each size n, for values by (n, repetition)."""
    by_size: dict[int, list[float]] = {}
    for (n, _), value in contrast([(1.0, ours), (-1.0, reference)]).items():
        by_size.setdefault(n, []).append(value)
    return {n: interval(values) for n, values in sorted(by_size.items())}
