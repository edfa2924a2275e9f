"""Means over repetitions and how sure they are, and the NLL of the truth where data is drawn from a definition."""

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

FEATURES, SQUARE = 20, 4.0  # number of features, and |a|^2 of Breiman's class mean a (`dlmexp.data.published`)


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
    if median:
        quartiles = pd.DataFrame(values).quantile([0.5, 0.25, 0.75]).to_numpy()
        about = dict(zip(("median", "q25", "q75"), quartiles, strict=True))
    else:
        with np.errstate(invalid="ignore"):  # 0 / 0 where there is nothing, or no deviation
            mean = np.nansum(values, axis=0) / count
            std = np.sqrt(np.nansum((values - mean) ** 2, axis=0) / np.maximum(count - 1, 0))
            about = {"mean": mean, "std": std, "sem": std / np.sqrt(count)}
    return pd.DataFrame({"x": x, **about, "repetitions": count, "failed": attempted - count})


def half_width(points: pd.DataFrame) -> np.ndarray:
    """Half the 95 % interval (Student's t) around the mean of each point, `[P]`; NaN from a single repetition."""
    sem, repetitions = points["sem"].to_numpy(), points["repetitions"].to_numpy()
    return sem * stdtrit(np.maximum(repetitions - 1, 1), 0.975)


@cache
def bayes_nll(dataset: str) -> float:
    """Expected log loss of the true class probabilities, in nats per row, by quadrature; NaN for data that is not
    drawn. Both classes are equally frequent."""
    from scipy.stats import ncx2, norm  # takes half a second

    top = SQUARE / 6 + FEATURES * np.log(2)
    # Log odds of class 1 as a function of one number s, and the distribution of s in class 1 and in class 0.
    # twonorm, N(a, I) and N(-a, I): s = 2 a.x. ringnorm, N(a, I) and N(0, 4 I): s = |x - 4/3 a|^2.
    by_dataset = {
        "twonorm_drawn": (lambda s: s, norm(2 * SQUARE, 2 * SQUARE**0.5), norm(-2 * SQUARE, 2 * SQUARE**0.5)),
        "ringnorm_drawn": (lambda s: top - 3 / 8 * s, ncx2(FEATURES, SQUARE / 9), ncx2(FEATURES, SQUARE * 4 / 9, 0, 4)),
    }
    if dataset not in by_dataset:
        return float("nan")
    odds, one, zero = by_dataset[dataset]
    losses = one.expect(lambda s: np.logaddexp(0, -odds(s))), zero.expect(lambda s: np.logaddexp(0, odds(s)))
    return float(sum(losses) / 2)
