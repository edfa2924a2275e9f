"""Paired comparisons of methods over repetitions, at all sizes and with all rivals at once.

Each is a paired t-test (docs/SPEC.md, section 8). `scipy.stats.ttest_rel` gives the same numbers,
as a test checks. It does not serve here: it tests neither against a margin nor with a corrected
standard error, leaves open what holds without scatter, and loops in Python where repetitions are
missing (13 ms a call, of which all claims need hundreds). `scipy.special` has Student's t without
the import of `scipy.stats`, which takes longer than all verdicts on a claim.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from scipy.special import stdtr, stdtrit

Repeated = Float[np.ndarray, "K S R"]  # by pair, size and repetition
PairValues = Float[np.ndarray, "K S"]  # by pair and size
PairCounts = Int[np.ndarray, "K S"]
SizeValues = Float[np.ndarray, " S"]
# Deviations below this share of the mean difference are rounding errors: there is no scatter.
ROUNDING = 1e-12
# Keeps the comparison with `ROUNDING` defined where the mean difference is zero.
SMALLEST = 1e-300


@dataclass(frozen=True)
class Comparisons:
    """K pairs of methods at S sizes, as arrays [K, S].

    Lower values are better, so a positive difference speaks for ours. Means are NaN where a pair
    has no repetition in common.

    Attributes:
        ours: Mean of our values over the common repetitions.
        rival: Mean of the rival's values over them.
        difference: Mean of rival minus ours.
        error: Standard error of the mean difference: 0 without scatter, infinite with one
            repetition.
        effect: Cohen's d of the paired differences.
        repetitions: Number of common repetitions.
        won: Number of those in which ours is lower.
    """

    ours: PairValues
    rival: PairValues
    difference: PairValues
    error: PairValues
    effect: PairValues
    repetitions: PairCounts
    won: PairCounts

    @property
    def p(self) -> PairValues:
        """Two-sided p-values of the paired t-test; NaN with fewer than two repetitions."""
        smaller_tail = np.minimum(self.p_above(0.0), self.p_below(0.0))
        two_sided = np.minimum(1.0, 2 * smaller_tail)
        return np.where(self.repetitions > 1, two_sided, np.nan)

    def half_width(self, tail: float) -> PairValues:
        """Return half of the interval of the difference, with `tail` left out on either side."""
        quantile = stdtrit(self._degrees_of_freedom, 1 - tail)
        return np.where(self.error > 0, quantile * self.error, self.error)

    def p_above(self, bound: float | SizeValues) -> PairValues:
        """Return one-sided p-values for `difference > bound`."""
        return self._one_sided(self.difference - bound)

    def p_below(self, bound: float | SizeValues) -> PairValues:
        """Return one-sided p-values for `difference < bound`."""
        return self._one_sided(bound - self.difference)

    def corrected(self, overlap: float | SizeValues) -> "Comparisons":
        """Return the same comparisons with Nadeau and Bengio's (2003) standard error.

        Repetitions share rows, so their number R understates the variance of the mean, s^2 / R. It
        becomes s^2 (1 / R + overlap).

        Args:
            overlap: Test rows over all other rows of a repetition; one value, or one by size.
        """
        inflation = np.sqrt(1 + self.repetitions * overlap)
        return replace(self, error=self.error * inflation)

    @property
    def _degrees_of_freedom(self) -> PairCounts:
        return np.maximum(self.repetitions - 1, 1)

    def _one_sided(self, distance: PairValues) -> PairValues:
        """Return p-values for `distance > 0`; without scatter the distance itself decides."""
        with np.errstate(divide="ignore", invalid="ignore"):
            p = stdtr(self._degrees_of_freedom, -distance / self.error)
        p = np.where(self.error == 0, np.where(distance > 0, 0.0, 1.0), p)
        return np.where(np.isinf(self.error), 1.0, p)


def compare(ours: Repeated, rival: Repeated) -> Comparisons:
    """Compare values of R repetitions pair by pair; NaN stands for a missing repetition."""
    common = np.isfinite(ours) & np.isfinite(rival)
    repetitions = common.sum(axis=-1)
    differences = np.where(common, rival - ours, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = differences.sum(axis=-1) / repetitions
        # s^2 = sum_r (difference_r - mean)^2 / (R - 1)
        residuals = differences - mean[..., None]
        squares = np.where(common, residuals, 0.0) ** 2
        variance = squares.sum(axis=-1) / (repetitions - 1)
        deviation = np.sqrt(variance)
        error = deviation / np.sqrt(repetitions)
        effect = mean / deviation
        our_mean = np.where(common, ours, 0.0).sum(axis=-1) / repetitions
        rival_mean = np.where(common, rival, 0.0).sum(axis=-1) / repetitions

    rounding = ROUNDING * np.maximum(abs(mean), SMALLEST)
    without_scatter = deviation <= rounding
    error = np.where(without_scatter, 0.0, error)
    infinite = np.copysign(np.inf, mean)
    certain_effect = np.where(mean == 0, 0.0, infinite)
    return Comparisons(
        ours=our_mean,
        rival=rival_mean,
        difference=mean,
        error=np.where(repetitions > 1, error, np.inf),
        effect=np.where(without_scatter, certain_effect, effect),
        repetitions=repetitions,
        won=np.sum(common & (differences > 0), axis=-1),
    )


def holm(p_values: SizeValues) -> SizeValues:
    """Return Holm's adjusted p-values.

    Rejecting where they are below a level makes any false rejection in the family at most as likely
    as that level.
    """
    count = len(p_values)
    order = np.argsort(p_values, kind="stable")
    remaining_tests = count - np.arange(count)
    steps = np.minimum(1.0, remaining_tests * p_values[order])
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.maximum.accumulate(steps)
    return adjusted
