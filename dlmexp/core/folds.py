"""What cross-validation needs besides training: rows of folds, pooled losses, and the choice.

See docs/SPEC.md, section 6. This module does not import torch, so that planning a run stays fast.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from dlmexp.common.errors import UserError

DEFAULT_FOLD_COUNT = 5
"""The default number of folds."""
HOLDOUT_FROM_ROWS = 2000
"""From this number of rows on, the default is to hold out a single part in place of folds."""
PROFILE_LOGS = np.linspace(-6.0, 6.0, 49)
"""Logarithms of the candidates of the recalibration factor. A profile is the NLL of held-out rows
at each of these factors (`recalibration.loss_profile`)."""
FACTOR_PENALTY = 2.0
"""Weight of the penalty on a recalibration factor: a factor f is better than 1 only if it lowers
the NLL, summed over rows, by more than FACTOR_PENALTY * |log f| nats."""
SPLINE_POINTS = 6001
"""Number of points at which the spline through a profile is evaluated."""
HOLDOUT = "holdout"
"""The setting that holds out a part of the rows once."""
LOO = "loo"
"""The setting that predicts every row from all others, in closed form and so without folds."""
HOLDOUT_DIVISOR = 10
"""With "holdout", one of every HOLDOUT_DIVISOR rows is held out."""
OWN_ROWS = 0x6F776E20726F7773
"""Tag of the random stream that orders users' own rows (the letters of "own rows").

Without the tag the stream would be that of `numpy.random.default_rng(seed)`. If a user has drawn
the data from that stream, an order drawn from it depends on the data and is not random."""


class Folds(NamedTuple):
    """The row numbers of F folds.

    Attributes:
        train: The rows to train on while each fold is held out: all that are not in it.
        held_out: The held-out rows of each fold.
    """

    train: Int[np.ndarray, "F n_train"]
    held_out: Int[np.ndarray, "F s"]


def row_order(n: int, seed: int, tag: int | None = OWN_ROWS) -> Int[np.ndarray, " n"]:
    """Return a random order of n rows, the same on every machine and with every version of numpy.

    The rows are sorted by n raw words of a bit generator. numpy promises never to change these
    words, unlike the permutations of `Generator`.

    Args:
        n: The number of rows.
        seed: The seed of the repetition.
        tag: The tag of the random stream; None: the stream of the seed alone, which orders the
            data sets of the paper.
    """
    stream = seed if tag is None else np.random.SeedSequence([seed, tag])
    words = np.random.PCG64(stream).random_raw(n)
    return np.argsort(words, kind="stable").astype(np.int64, copy=False)


class Candidate(NamedTuple):
    """A choice of cross-validation: the weight of the penalty and the number of Gaussians of q."""

    beta: float
    components: int = 1


def folds(n: int, count: int = DEFAULT_FOLD_COUNT) -> Folds:
    """Return the folds of n rows.

    With s = n // count, fold number k has the rows k * s to (k + 1) * s - 1. All folds have equally
    many rows, so that they can train as one batch; the last n % count rows are never held out.

    Raises:
        UserError: There are fewer rows than folds, or fewer than two folds.
    """
    size = fold_size(n, cv=str(count))
    held_out = np.arange(count * size).reshape(count, size)
    return _folds_holding_out(n, held_out)


def _folds_holding_out(n: int, held_out: Int[np.ndarray, "F s"]) -> Folds:
    """Return folds with these held-out rows, and all other rows to train on."""
    train = [np.delete(np.arange(n), rows_of_fold) for rows_of_fold in held_out]
    return Folds(np.stack(train), held_out)


def folds_of(n: int, cv: str) -> Folds:
    """Return the folds into which the setting `cv` cuts n rows.

    Args:
        n: The number of rows.
        cv: The number of folds, or "holdout": a single fold, the last tenth of the rows. Not "loo",
            which has no folds.
    """
    if cv != HOLDOUT:
        return folds(n, int(cv))
    size = fold_size(n, cv)
    return _folds_holding_out(n, np.arange(n - size, n)[None])


def default_cv(n: int) -> str:
    """Return the default setting for n rows: a number of folds, or "holdout" for many rows."""
    return str(min(DEFAULT_FOLD_COUNT, n)) if n < HOLDOUT_FROM_ROWS else HOLDOUT


def fold_count(cv: str) -> int:
    """Return the number of folds of a setting; 0 for "loo", which has none."""
    if cv == LOO:
        return 0
    return 1 if cv == HOLDOUT else int(cv)


def fold_size(n: int, cv: str) -> int:
    """Return the number of rows in each fold of n rows; `cv` is as in `folds_of`.

    Raises:
        UserError: There are fewer rows than folds, or fewer than two folds.
    """
    if cv == HOLDOUT:
        return max(1, n // HOLDOUT_DIVISOR)
    count = int(cv)
    if not 2 <= count <= n:
        raise UserError(f"cv={count}: {n} rows can be cut into 2 to {n} folds")
    return n // count


def fold_of_share(n: int, share: float) -> Folds:
    """Return a single fold: the first rows, a share of all n, at least 1 and at most n - 1.

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
    """Convert the mean of a metric on normalised targets to the units of the targets.

    Each fold divides its targets by its own standard deviation `y_std`, so that metrics of
    different folds can be averaged only in the units of the targets.
    """
    if metric == "nll":
        return mean + math.log(y_std)
    if metric == "mse":
        return mean * y_std**2
    if metric == "crps" or metric.startswith("width_"):
        return mean * y_std
    return mean


def in_normalised_units(metric: str, mean: float, y_std: float) -> float:
    """Convert the mean of a metric in the units of the targets to normalised targets.

    This is the inverse of `in_units_of_target`, with the same `y_std`.
    """
    return in_units_of_target(metric, mean, 1 / y_std)


def pooled_mean(
    metric: str, means: Sequence[float], y_stds: Sequence[float] | None = None
) -> float:
    """Return the mean of a metric over the rows of all folds, in the units of the targets.

    Args:
        metric: Its name: "nll", "mse", "error", ...
        means: Its mean in each fold; NaN where training failed, and then the result is NaN.
        y_stds: The number by which each fold has divided its targets; None: 1.
    """
    if y_stds is None:
        y_stds = [1.0] * len(means)
    values = []
    for mean, y_std in zip(means, y_stds, strict=True):
        values.append(in_units_of_target(metric, mean, y_std))
    # The mean of the means is the mean over rows, as all folds have equally many rows.
    return sum(values) / len(values)


def best_candidate(losses: Mapping[Candidate, float]) -> Candidate | None:
    """Return the candidate with the lowest loss; None if no loss is finite.

    Of candidates with equal losses, that with the largest beta is taken, then that with the fewest
    components.
    """
    finite = [candidate for candidate in losses if math.isfinite(losses[candidate])]
    if not finite:
        return None

    def rank(candidate: Candidate) -> tuple[float, float, int]:
        return losses[candidate], -candidate.beta, candidate.components

    return min(finite, key=rank)


def penalised_factor(profile: Float[np.ndarray, " P"], strength: float = FACTOR_PENALTY) -> float:
    """Return the recalibration factor with the lowest sum of NLL and `strength * |log factor|`.

    The penalty is that of a Laplace prior on the logarithm of the factor. Where there are many
    rows, it has hardly any influence. Where there are few, it prevents a large factor from being
    chosen for a small gain. The factor is 1 if the NLL is finite at fewer than two points.

    Args:
        profile: The NLL summed over the rows of all folds, at the factors `exp(PROFILE_LOGS)`.
        strength: Nats per unit of the logarithm.
    """
    # scipy.interpolate takes long to import, and only this function needs it.
    from scipy.interpolate import CubicSpline

    is_finite = np.isfinite(profile)
    if is_finite.sum() < 2:
        return 1.0
    known_logs = PROFILE_LOGS[is_finite]
    spline = CubicSpline(known_logs, profile[is_finite])
    # The points of a fine grid that lie between the known points: the spline does not extrapolate.
    logs = np.linspace(PROFILE_LOGS[0], PROFILE_LOGS[-1], SPLINE_POINTS)
    logs = logs[(logs >= known_logs[0]) & (logs <= known_logs[-1])]
    penalised = spline(logs) + strength * np.abs(logs)
    return float(np.exp(logs[np.argmin(penalised)]))
