"""Paired comparisons of methods over repetitions, at all sizes and with all rivals at once.

Each is a paired t-test (docs/SPEC.md, section 8). `scipy.stats.ttest_rel` gives the same numbers,
as a test checks. It does not serve here: it tests neither against a margin nor with a corrected
standard error, leaves open what holds without scatter, and loops in Python where repetitions are
missing (13 ms a call, of which all claims need hundreds). `scipy.special` has Student's t without
the import of `scipy.stats`, which takes longer than all verdicts on a claim.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import stdtr, stdtrit

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

    ours: Float[np.ndarray, "K S"]
    rival: Float[np.ndarray, "K S"]
    difference: Float[np.ndarray, "K S"]
    error: Float[np.ndarray, "K S"]
    effect: Float[np.ndarray, "K S"]
    repetitions: Int[np.ndarray, "K S"]
    won: Int[np.ndarray, "K S"]

    @property
    def p(self) -> Float[np.ndarray, "K S"]:
        """Two-sided p-values of the paired t-test; NaN with fewer than two repetitions."""
        smaller_tail = np.minimum(self.p_above(0.0), self.p_below(0.0))
        two_sided = np.minimum(1.0, 2 * smaller_tail)
        return np.where(self.repetitions > 1, two_sided, np.nan)

    def half_width(self, tail: float) -> Float[np.ndarray, "K S"]:
        """Return half of the interval of the difference, with `tail` left out on either side."""
        quantile = stdtrit(self._degrees_of_freedom, 1 - tail)
        return np.where(self.error > 0, quantile * self.error, self.error)

    def p_above(self, bound: float | Float[np.ndarray, " S"]) -> Float[np.ndarray, "K S"]:
        """Return one-sided p-values for `difference > bound`."""
        return self._one_sided(self.difference - bound)

    def p_below(self, bound: float | Float[np.ndarray, " S"]) -> Float[np.ndarray, "K S"]:
        """Return one-sided p-values for `difference < bound`."""
        return self._one_sided(bound - self.difference)

    def corrected(self, overlap: float) -> "Comparisons":
        """Return the same comparisons with Nadeau and Bengio's (2003) standard error.

        Repetitions share rows, so their number R understates the variance of the mean, s^2 / R. It
        becomes s^2 (1 / R + overlap).

        Args:
            overlap: Test rows over all other rows of a repetition.
        """
        inflation = np.sqrt(1 + self.repetitions * overlap)
        return replace(self, error=self.error * inflation)

    @property
    def _degrees_of_freedom(self) -> Int[np.ndarray, "K S"]:
        return np.maximum(self.repetitions - 1, 1)

    def _one_sided(self, distance: Float[np.ndarray, "K S"]) -> Float[np.ndarray, "K S"]:
        """Return p-values for `distance > 0`; without scatter the distance itself decides."""
        with np.errstate(divide="ignore", invalid="ignore"):
            p = stdtr(self._degrees_of_freedom, -distance / self.error)
        p = np.where(self.error == 0, np.where(distance > 0, 0.0, 1.0), p)
        return np.where(np.isinf(self.error), 1.0, p)


def compare(ours: Float[np.ndarray, "K S R"], rival: Float[np.ndarray, "K S R"]) -> Comparisons:
    """Compare values of R repetitions pair by pair; NaN stands for a missing repetition."""
    common: Bool[np.ndarray, "K S R"] = np.isfinite(ours) & np.isfinite(rival)
    differences = np.where(common, rival - ours, 0.0)
    count = common.sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = differences.sum(-1) / count
        squares = np.where(common, differences - mean[..., None], 0.0) ** 2
        deviation = np.sqrt(squares.sum(-1) / (count - 1))
        without_scatter = deviation <= ROUNDING * np.maximum(abs(mean), SMALLEST)
        error = np.where(without_scatter, 0.0, deviation / np.sqrt(count))
        infinite_effect = np.where(mean == 0, 0.0, np.copysign(np.inf, mean))
        return Comparisons(
            ours=np.where(common, ours, 0.0).sum(-1) / count,
            rival=np.where(common, rival, 0.0).sum(-1) / count,
            difference=mean,
            error=np.where(count > 1, error, np.inf),
            effect=np.where(without_scatter, infinite_effect, mean / deviation),
            repetitions=count,
            won=((differences > 0) & common).sum(-1),
        )


def holm(p_values: Float[np.ndarray, " S"]) -> Float[np.ndarray, " S"]:
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
