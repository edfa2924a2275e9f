"""Means over repetitions with their intervals, and the NLL of the truth where it is known."""

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

# Expected log loss of the true class probabilities in nats per row, where data is drawn from its
# definition; by quadrature over the log odds of a row's own class: N(8, 16) for twonorm, a shifted
# chi-square for ringnorm.
BAYES_NLL = {"ringnorm_drawn": 0.0352338515653, "twonorm_drawn": 0.0604269868231}
UPPER_QUANTILE = 0.975  # of Student's t, for intervals of 95 %


def statistics(x: Any, values: np.ndarray, attempted: Any, median: bool = False) -> pd.DataFrame:
    """Return a row for each x with statistics of its finite values.

    Args:
        x: `[P]`.
        values: `[R, P]`, a row per repetition; NaN where it failed or was not run.
        attempted: Repetitions that were run, `[P]` or a number.
        median: Median and quartiles in place of mean, standard deviation and standard error.

    Returns:
        Columns x; mean, std, sem, or median, q25, q75; repetitions (finite values) and failed.
    """
    values = np.where(np.isfinite(values), values, np.nan)
    repetitions = np.isfinite(values).sum(axis=0)
    centre = _quartiles(values) if median else _moments(values, repetitions)
    return pd.DataFrame(
        {"x": x, **centre, "repetitions": repetitions, "failed": attempted - repetitions}
    )


def _quartiles(values: np.ndarray) -> dict[str, np.ndarray]:
    low, middle, high = pd.DataFrame(values).quantile([0.25, 0.5, 0.75]).to_numpy()
    return {"median": middle, "q25": low, "q75": high}


def _moments(values: np.ndarray, repetitions: np.ndarray) -> dict[str, np.ndarray]:
    with np.errstate(invalid="ignore"):  # 0 / 0: no values, or no deviation from a single one
        mean = np.nansum(values, axis=0) / repetitions
        squares = np.nansum((values - mean) ** 2, axis=0)
        std = np.sqrt(squares / np.maximum(repetitions - 1, 0))
        sem = std / np.sqrt(repetitions)
    return {"mean": mean, "std": std, "sem": sem}


def half_width(points: pd.DataFrame) -> np.ndarray:
    """Return half of Student's 95 % interval around the mean of each point, `[P]`.

    It is NaN for a single repetition.
    """
    freedom = np.maximum(points["repetitions"].to_numpy() - 1, 1)
    return points["sem"].to_numpy() * stdtrit(freedom, UPPER_QUANTILE)
