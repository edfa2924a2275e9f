"""Cross-validation without training: the rows of folds, and the choice by their pooled losses.

Numbers alone: nothing here needs torch (docs/SPEC.md, section 6).
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from dlmexp.common.errors import UserError

FOLDS = 5
MANY_ROWS = 2000
"""From so many rows on, one in ten is held out in place of folds, where users say nothing."""
PROFILE_LOGS = np.linspace(-6.0, 6.0, 49)
"""Logarithms of the factors of a profile."""
STRENGTH = 2.0
"""Nats of NLL, summed over rows, that a factor must gain per unit of its logarithm."""
SPLINE_POINTS = 6001
"""Points at which the spline through a profile is compared."""
HOLDOUT = "holdout"
LOO = "loo"
"""Leave one row out, in closed form; there are no folds."""
TENTH = 10  # of the rows, one in so many is held out


class Folds(NamedTuple):
    """The row numbers of F folds.

    Attributes:
        train: The rows that are trained on while a fold is held out.
        held_out: The rows of each fold.
    """

    train: Int[np.ndarray, "F n"]
    held_out: Int[np.ndarray, "F s"]


class Candidate(NamedTuple):
    """What is chosen: the weight of the penalty, and the number of Gaussians of q."""

    beta: float
    components: int = 1


def folds(n: int, count: int = FOLDS) -> Folds:
    """Return the folds of n rows.

    Fold f is the rows f s to (f + 1) s - 1, where s = n // count. All folds have as many rows, so
    that they train as one batch; the n mod count last rows are always trained on.

    Raises:
        UserError: There are fewer rows than folds, or fewer than two folds.
    """
    size = fold_size(n, str(count))
    held_out = np.arange(count * size).reshape(count, size)
    return _with_the_rest(n, held_out)


def _with_the_rest(n: int, held_out: Int[np.ndarray, "F s"]) -> Folds:
    """Return folds with these held-out rows, and all other rows to train on."""
    train = [np.delete(np.arange(n), of_fold) for of_fold in held_out]
    return Folds(np.stack(train), held_out)


def folds_of(n: int, cv: str) -> Folds:
    """Return the folds of n rows that a setting asks for.

    Args:
        n: The number of rows.
        cv: The number of folds, or "holdout": a single fold, the last tenth of the rows.
    """
    if cv != HOLDOUT:
        return folds(n, int(cv))
    size = fold_size(n, cv)
    return _with_the_rest(n, np.arange(n - size, n)[None])


def usual_cv(n: int) -> str:
    """Return the setting for n rows where users say nothing: folds, or holdout of many rows."""
    return str(min(FOLDS, n)) if n < MANY_ROWS else HOLDOUT


def fold_count(cv: str) -> int:
    """Return the number of folds that a setting asks for; 0: rows are left out in closed form."""
    if cv == LOO:
        return 0
    return 1 if cv == HOLDOUT else int(cv)


def fold_size(n: int, cv: str) -> int:
    """Return the number of rows in each fold.

    Raises:
        UserError: There are fewer rows than folds, or fewer than two folds.
    """
    if cv == HOLDOUT:
        return max(1, n // TENTH)
    count = int(cv)
    if not 2 <= count <= n:
        raise UserError(f"cv={count}: {n} rows make 2 to {n} folds")
    return n // count


def held_out_share(n: int, share: float) -> Folds:
    """Return a single fold: the first rows, a share of all n, but one at least and n - 1 at most.

    Raises:
        UserError: The share is not between 0 and 1, or there is one row alone.
    """
    if not 0 < share < 1:
        raise UserError(f"cv={share:g}: give a number of folds, or a share between 0 and 1")
    if n < 2:
        raise UserError(f"cv={share:g}: {n} row can't be both trained on and held out")
    size = min(max(1, round(share * n)), n - 1)
    rows = np.arange(n)
    return Folds(rows[None, size:], rows[None, :size])


def in_units_of_target(metric: str, mean: float, y_std: float) -> float:
    """Return the mean of a metric on normalised targets in the units of the targets.

    Folds are normalised by standard deviations `y_std` of their own: only in these units do their
    metrics have a common mean. `1 / y_std` in place of `y_std` undoes it.
    """
    if metric == "nll":
        return mean + math.log(y_std)
    if metric == "mse":
        return mean * y_std**2
    if metric == "crps" or metric.startswith("width_"):
        return mean * y_std
    return mean


def pooled(metric: str, means: Sequence[float], y_stds: Sequence[float] | None = None) -> float:
    """Return the mean of a metric over the rows of all folds, in the units of the targets.

    Args:
        metric: Its name: "nll", "mse", "error", ...
        means: Its mean in each fold; NaN where training failed, and then the result is NaN.
        y_stds: What the targets of each fold were divided by; None: 1.
    """
    if y_stds is None:
        y_stds = [1.0] * len(means)
    values = []
    for mean, y_std in zip(means, y_stds, strict=True):
        values.append(in_units_of_target(metric, mean, y_std))
    return sum(values) / len(values)


def best_candidate(losses: Mapping[Candidate, float]) -> Candidate | None:
    """Return the candidate of the least loss; None if no loss is finite.

    Of equal ones the one with the larger beta, then with fewer components, is taken.
    """
    finite = [candidate for candidate in losses if math.isfinite(losses[candidate])]
    if not finite:
        return None
    return min(finite, key=lambda chosen: (losses[chosen], -chosen.beta, chosen.components))


def penalised_factor(profile: Float[np.ndarray, " P"], strength: float = STRENGTH) -> float:
    """Return the factor of the least NLL, summed over rows, plus `strength * |log factor|`.

    The penalty is that of a Laplace distribution of the logarithm. It weighs nothing among many
    rows, and a small gain of few rows is not worth a large factor. Where the NLL is nowhere finite
    the factor is 1.

    Args:
        profile: The sum of profiles (`recalibration.loss_profile`) over all folds.
        strength: Nats per unit of the logarithm.
    """
    from scipy.interpolate import CubicSpline

    finite = np.isfinite(profile)
    if finite.sum() < 2:
        return 1.0
    logs = np.linspace(PROFILE_LOGS[0], PROFILE_LOGS[-1], SPLINE_POINTS)
    logs = logs[(logs >= PROFILE_LOGS[finite][0]) & (logs <= PROFILE_LOGS[finite][-1])]
    losses = CubicSpline(PROFILE_LOGS[finite], profile[finite])(logs)
    return float(np.exp(logs[np.argmin(losses + strength * np.abs(logs))]))
