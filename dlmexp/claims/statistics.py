"""Paired comparisons over repetitions. The repetition is the unit: sizes nested in one share its rows."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtr, stdtrit

from dlmexp.claims.thresholds import ALPHA

Values = dict[Any, float]  # (size or other setting, seed) -> value; lower is better


@dataclass(frozen=True)
class Comparison:
    """Rival minus ours, lower being better: a positive difference speaks for ours."""

    ours: float
    rival: float
    difference: float
    p: float  # two-sided paired t test over repetitions
    effect: float  # Cohen's d of the paired differences
    half_width: float  # of the (1 - 2 ALPHA) interval, the one that two one-sided tests at ALPHA use
    repetitions: int
    won: int  # repetitions in which ours is lower

    @property
    def significant(self) -> bool:
        return self.p < ALPHA

    def within(self, margin: float) -> bool:
        """Equivalent: the interval lies inside +-margin (two one-sided tests at ALPHA)."""
        return abs(self.difference) + self.half_width <= margin

    def not_below(self, margin: float) -> bool:
        """Not inferior: ours is worse by less than `margin` (a one-sided test at ALPHA)."""
        return self.difference - self.half_width >= -margin

    def words(self, unit: str = "") -> str:
        effect = f"{self.effect:.2g}" if math.isfinite(self.effect) else "∞"
        return (
            f"{self.ours:.4g} against {self.rival:.4g}{unit} (difference {self.difference:+.3g}, p = {self.p:.2g}, "
            f"d = {effect}, {self.repetitions} repetitions)"
        )


def paired(ours: Values, rival: Values) -> Comparison | None:
    """Compare at the settings and seeds that both have; None if there are none. Differences are averaged per seed."""
    common = sorted(set(ours) & set(rival), key=str)
    if not common:
        return None
    seeds = sorted({seed for _, seed in common})
    per_seed = np.array(
        [np.mean([[ours[key], rival[key]] for key in common if key[1] == seed], axis=0) for seed in seeds]
    )
    differences = per_seed[:, 1] - per_seed[:, 0]
    p, effect, half_width = _t_test(differences)
    return Comparison(
        ours=float(per_seed[:, 0].mean()), rival=float(per_seed[:, 1].mean()), difference=float(differences.mean()),
        p=p, effect=effect, half_width=half_width, repetitions=len(seeds), won=int((differences > 0).sum()),
    )  # fmt: skip


def _t_test(differences: np.ndarray) -> tuple[float, float, float]:
    """p, effect size and half width; differences without any scatter decide at once."""
    count, mean = len(differences), float(differences.mean())
    if count < 2:
        return math.nan, math.nan, math.inf
    deviation = float(differences.std(ddof=1))
    if deviation <= 1e-12 * max(abs(mean), 1e-300):
        return (1.0, 0.0, 0.0) if mean == 0 else (0.0, math.copysign(math.inf, mean), 0.0)
    error = deviation / math.sqrt(count)
    p = 2 * float(stdtr(count - 1, -abs(mean) / error))
    return p, mean / deviation, float(stdtrit(count - 1, 1 - ALPHA)) * error
