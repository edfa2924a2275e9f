"""Means over repetitions, and how sure they are."""

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

ERRORS = {
    "ci95": "95 % interval of the mean (Student's t)",
    "std": "standard deviation",
    "sem": "standard error of the mean",
}


def statistics(x: Any, values: np.ndarray, attempted: Any, median: bool = False) -> pd.DataFrame:
    """A row per x: mean, sample deviation and standard error (or median and quartiles) of the finite `values`.

    Args:
        x: `[P]`.
        values: `[R, P]`, a row per repetition; NaN where it failed or was not run.
        attempted: Repetitions that were run, `[P]` or a number.
        median: Median and quartiles in place of mean, std, sem.
    """
    values = np.where(np.isfinite(values), values, np.nan)
    count = np.isfinite(values).sum(axis=0)
    some = np.where(count > 0, values, 0.0)  # no warnings on empty columns
    if median:
        quartiles = np.nanquantile(some, [0.5, 0.25, 0.75], axis=0)
        found = dict(zip(("median", "q25", "q75"), np.where(count > 0, quartiles, np.nan), strict=True))
    else:
        mean = np.nanmean(some, axis=0)
        std = np.sqrt(np.nansum((some - mean) ** 2, axis=0) / np.maximum(count - 1, 1))
        std = np.where(count > 1, std, np.nan)
        found = {"mean": np.where(count > 0, mean, np.nan), "std": std, "sem": std / np.sqrt(np.maximum(count, 1))}
    return pd.DataFrame({"x": x, **found, "repetitions": count, "failed": attempted - count})


def half_width(points: pd.DataFrame, error: str) -> pd.Series:
    """Half the interval around the mean of each point; NaN from a single repetition."""
    if error == "ci95":
        return points["sem"] * stdtrit(np.maximum(points["repetitions"] - 1, 1), 0.975)
    return points[error]
