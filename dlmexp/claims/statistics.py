"""Paired comparisons over repetitions, all sizes and rivals at once, and Holm's correction over the sizes."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import stdtr, stdtrit

from dlmexp.claims.thresholds import ALPHA


@dataclass(frozen=True)
class Comparisons:
    """K pairs of lines at S sizes. `difference` is rival minus ours; lower values are better, so a positive one speaks
    for ours. All arrays are [K, S]; NaN where a pair has no repetition in common."""

    ours: Float[np.ndarray, "K S"]
    rival: Float[np.ndarray, "K S"]
    difference: Float[np.ndarray, "K S"]
    error: Float[np.ndarray, "K S"]  # standard error of the mean difference
    effect: Float[np.ndarray, "K S"]  # Cohen's d of the paired differences
    repetitions: Int[np.ndarray, "K S"]
    won: Int[np.ndarray, "K S"]  # repetitions in which ours is lower

    @property
    def p(self) -> Float[np.ndarray, "K S"]:
        """Two-sided p-values of the paired t-test; NaN with fewer than two repetitions."""
        p = np.minimum(1.0, 2 * np.minimum(self.p_above(0.0), self.p_below(0.0)))
        return np.where(self.repetitions > 1, p, np.nan)

    def half_width(self, tail: float = ALPHA) -> Float[np.ndarray, "K S"]:
        """Half of the interval of the difference with `tail` on either side; with ALPHA that of two one-sided tests."""
        freedom = np.maximum(self.repetitions - 1, 1)
        return np.where(self.error > 0, stdtrit(freedom, 1 - tail) * self.error, self.error)

    def p_above(self, bound: float | Float[np.ndarray, " S"]) -> Float[np.ndarray, "K S"]:
        """One-sided p-values for `difference > bound`. Without any scatter the difference itself decides."""
        return self._one_sided(self.difference - bound)

    def p_below(self, bound: float | Float[np.ndarray, " S"]) -> Float[np.ndarray, "K S"]:
        """One-sided p-values for `difference < bound`."""
        return self._one_sided(bound - self.difference)

    def _one_sided(self, distance: Float[np.ndarray, "K S"]) -> Float[np.ndarray, "K S"]:
        with np.errstate(divide="ignore", invalid="ignore"):
            p = stdtr(np.maximum(self.repetitions - 1, 1), -distance / self.error)
        return np.where(np.isinf(self.error), 1.0, np.where(self.error == 0, np.where(distance > 0, 0.0, 1.0), p))

    def corrected(self, overlap: float) -> "Comparisons":
        """The same with Nadeau and Bengio's standard error: repetitions share rows, so their number R understates the
        variance of the mean, s^2 / R. It becomes s^2 (1 / R + overlap), where `overlap` is test rows / other rows."""
        return replace(self, error=self.error * np.sqrt(1 + self.repetitions * overlap))


def compare(ours: Float[np.ndarray, "K S R"], rival: Float[np.ndarray, "K S R"]) -> Comparisons:
    """Compares entry by entry; NaN where a repetition is missing."""
    both: Bool[np.ndarray, "K S R"] = np.isfinite(ours) & np.isfinite(rival)
    differences = np.where(both, rival - ours, 0.0)
    count = both.sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        our_mean, rival_mean = (np.where(both, values, 0.0).sum(-1) / count for values in (ours, rival))
        mean = differences.sum(-1) / count
        deviation = np.sqrt((np.where(both, differences - mean[..., None], 0.0) ** 2).sum(-1) / (count - 1))
        still = deviation <= 1e-12 * np.maximum(abs(mean), 1e-300)  # no scatter: the difference decides at once
        error = np.where(count > 1, np.where(still, 0.0, deviation / np.sqrt(count)), np.inf)
        effect = np.where(still, np.where(mean == 0, 0.0, np.copysign(np.inf, mean)), mean / deviation)
    return Comparisons(our_mean, rival_mean, mean, error, effect, count, ((differences > 0) & both).sum(-1))


def holm(p_values: Float[np.ndarray, " S"]) -> Float[np.ndarray, " S"]:
    """Holm's adjusted p-values: below ALPHA where a family of tests rejects with any false rejection at most ALPHA."""
    order = np.argsort(p_values, kind="stable")
    steps = np.minimum(1.0, (len(p_values) - np.arange(len(p_values))) * p_values[order])
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.maximum.accumulate(steps)
    return adjusted
