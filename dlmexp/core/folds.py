"""Cross-validation without training: the rows of folds, and the choice by their pooled losses.

Numbers alone: nothing here needs torch (docs/SPEC.md, section 6).
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from dlmexp.common.errors import UserError


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


def folds(n: int, count: int) -> Folds:
    """Return the folds of n rows.

    Fold f is the rows f s to (f + 1) s - 1, where s = n // count. All folds have as many rows, so
    that they train as one batch; the n mod count last rows are always trained on.

    Raises:
        UserError: There are fewer rows than folds, or fewer than two folds.
    """
    if not 2 <= count <= n:
        raise UserError(f"cv={count}: {n} rows make 2 to {n} folds")
    size = n // count
    rows = np.arange(n)
    held_out = rows[: count * size].reshape(count, size)
    train = [np.delete(rows, of_fold) for of_fold in held_out]
    return Folds(np.stack(train), held_out)


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
