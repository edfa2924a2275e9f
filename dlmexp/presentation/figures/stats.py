"""Compute means over repetitions with their intervals.

The NLL of the true class probabilities is here too, for the datasets where it is known.
"""

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

# The expected NLL of the true class probabilities in nats per row, for datasets that are sampled
# from their definition. It was computed by quadrature over the log odds of the true class, which
# have the distribution N(8, 16) for twonorm and a shifted chi-square distribution for ringnorm.
BAYES_NLL = {"ringnorm_drawn": 0.0352338515653, "twonorm_drawn": 0.0604269868231}
UPPER_QUANTILE = 0.975  # of Student's t, for intervals of 95 %


def statistics(x: Any, values: np.ndarray, attempted: Any, median: bool = False) -> pd.DataFrame:
    """Return a row for each x with statistics of its finite values.

    Args:
        x: The positions on the x-axis `[P]`.
        values: A row per repetition `[R, P]`; NaN where a repetition failed or was not run.
        attempted: The number of repetitions that were run: an array `[P]`, or one number for all x.
        median: Whether to compute median and quartiles instead of mean, standard deviation and
            standard error.

    Returns:
        The columns x; mean, std, sem (or median, q25, q75); repetitions, the number of finite
        values; failed, the number of attempted repetitions without a finite value.
    """
    values = np.where(np.isfinite(values), values, np.nan)
    repetitions = np.isfinite(values).sum(axis=0)
    centre = _quartiles(values) if median else _moments(values, repetitions)
    return pd.DataFrame(
        {"x": x, **centre, "repetitions": repetitions, "failed": attempted - repetitions}
    )


def _quartiles(values: np.ndarray) -> dict[str, np.ndarray]:
    """Return the median and the quartiles of the known values of each column."""
    low, middle, high = pd.DataFrame(values).quantile([0.25, 0.5, 0.75]).to_numpy()
    return {"median": middle, "q25": low, "q75": high}


def _moments(values: np.ndarray, repetitions: np.ndarray) -> dict[str, np.ndarray]:
    """Return mean, standard deviation and standard error of the known values of each column."""
    # 0 / 0 gives NaN for the mean of no values, and for the standard deviation of a single value.
    with np.errstate(invalid="ignore"):
        mean = np.nansum(values, axis=0) / repetitions
        squares = np.nansum((values - mean) ** 2, axis=0)
        std = np.sqrt(squares / np.maximum(repetitions - 1, 0))
        sem = std / np.sqrt(repetitions)
    return {"mean": mean, "std": std, "sem": sem}


def half_width(points: pd.DataFrame) -> np.ndarray:
    """Return half the width of Student's 95 % interval around the mean of each point `[P]`.

    It is NaN for a single repetition, whose standard error is NaN.
    """
    # At least 1, as `stdtrit` requires; for one repetition the product is NaN nevertheless.
    freedom = np.maximum(points["repetitions"].to_numpy() - 1, 1)
    return points["sem"].to_numpy() * stdtrit(freedom, UPPER_QUANTILE)
