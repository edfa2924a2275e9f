"""Paired comparisons over repetitions, at each size, and Holm's correction over the sizes."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtr, stdtrit

from dlmexp.claims.thresholds import ALPHA
from dlmexp.console import counted

Values = dict[Any, float]  # (size or other setting, seed) -> value; lower is better


@dataclass(frozen=True)
class Comparison:
    """Rival minus ours, lower being better: a positive difference speaks for ours."""

    ours: float
    rival: float
    difference: float
    error: float  # standard error of the mean difference
    p: float  # two-sided paired t-test over repetitions
    effect: float  # Cohen's d of the paired differences
    half_width: float  # of the (1 - 2 ALPHA) interval, the one that two one-sided tests at ALPHA use
    repetitions: int
    won: int  # repetitions in which ours is lower

    def p_above(self, bound: float) -> float:
        """One-sided p-value for `difference > bound`. Without any scatter the difference itself decides."""
        return self._one_sided(self.difference - bound)

    def p_below(self, bound: float) -> float:
        """One-sided p-value for `difference < bound`."""
        return self._one_sided(bound - self.difference)

    def _one_sided(self, distance: float) -> float:
        if math.isinf(self.error):
            return 1.0
        if self.error == 0:
            return 0.0 if distance > 0 else 1.0
        return float(stdtr(self.repetitions - 1, -distance / self.error))

    @property
    def sign(self) -> str:
        """`lower by 0.01`: ours, which speaks for it; or `higher by 0.01`, or `equal`."""
        return (
            f"{'lower' if self.difference > 0 else 'higher'} by {abs(self.difference):.3g}"
            if self.difference
            else "equal"
        )

    def words(self) -> str:
        effect = f"{self.effect:.2g}" if math.isfinite(self.effect) else "∞"
        return (
            f"{self.ours:.4g} against {self.rival:.4g} ({self.sign}, p = {self.p:.2g}, "
            f"d = {effect}, {counted(self.repetitions, 'repetition')})"
        )


def paired(ours: Values, rival: Values) -> dict[Any, Comparison]:
    """A comparison at each size (or other setting), over the seeds that both have there."""
    seeds: dict[Any, list[Any]] = defaultdict(list)
    for key in sorted(ours.keys() & rival.keys(), key=str):
        seeds[key[0]].append(key)
    return {
        size: compare(np.array([ours[key] for key in keys]), np.array([rival[key] for key in keys]))
        for size, keys in sorted(seeds.items(), key=lambda item: (isinstance(item[0], tuple), item[0]))
    }


def compare(ours: np.ndarray, rival: np.ndarray) -> Comparison:
    """The paired t-test of one size; entry i of both belongs to repetition i."""
    differences = rival - ours
    count, mean = len(differences), float(differences.mean())
    error, p, effect, half_width = math.inf, math.nan, math.nan, math.inf
    if count > 1:
        deviation = float(differences.std(ddof=1))
        if deviation <= 1e-12 * max(abs(mean), 1e-300):  # no scatter: the difference decides at once
            error, half_width = 0.0, 0.0
            p, effect = (1.0, 0.0) if mean == 0 else (0.0, math.copysign(math.inf, mean))
        else:
            error, effect = deviation / math.sqrt(count), mean / deviation
            p = 2 * float(stdtr(count - 1, -abs(mean) / error))
            half_width = float(stdtrit(count - 1, 1 - ALPHA)) * error
    return Comparison(
        ours=float(ours.mean()), rival=float(rival.mean()), difference=mean, error=error, p=p, effect=effect,
        half_width=half_width, repetitions=count, won=int((differences > 0).sum()),
    )  # fmt: skip


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: below ALPHA where a family of tests rejects with any false rejection at most ALPHA."""
    adjusted, largest = [1.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted
