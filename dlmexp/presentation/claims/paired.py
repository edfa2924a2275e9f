"""Paired comparisons of methods over repetitions, at all sizes and with all rivals at once.

Each is a paired t-test (docs/SPEC.md, section 8). `scipy.stats.ttest_rel` gives the same numbers,
as a test checks. It does not serve here: it tests neither against a margin nor with a corrected
standard error, leaves open what holds without scatter, and loops in Python where repetitions are
missing (13 ms a call, of which all claims need hundreds). `scipy.special` has Student's t without
the import of `scipy.stats`, which takes longer than all verdicts on a claim.
"""

import warnings
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import stdtr, stdtrit

Repeated = Float[np.ndarray, "K S R"]  # by pair, size and repetition
PairValues = Float[np.ndarray, "K S"]  # by pair and size
PairCounts = Int[np.ndarray, "K S"]
PairFlags = Bool[np.ndarray, "K S"]
SizeValues = Float[np.ndarray, " S"]
# Deviations below this share of the mean difference are rounding errors: there is no scatter.
ROUNDING = 1e-12
# Keeps the comparison with `ROUNDING` defined where the mean difference is zero.
SMALLEST = 1e-300
# With fewer repetitions it can't be told whether one of them is an outlier.
FEWEST_FOR_OUTLIERS = 10
# An outlier is so many robust deviations off the median.
OUTLIER = 10.0
# A normal's standard deviation over its median absolute deviation.
DEVIATION_OF_MAD = 1.4826
# Standard error of the median of normals over that of their mean.
ERROR_OF_MEDIAN = 1.2533


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
        median: Medians stand for means, as outliers rule.
    """

    ours: PairValues
    rival: PairValues
    difference: PairValues
    error: PairValues
    effect: PairValues
    repetitions: PairCounts
    won: PairCounts
    median: PairFlags

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
    """Compare values of R repetitions pair by pair; NaN stands for a missing repetition.

    Where outliers rule (a repetition is more than ten robust deviations off the median, of ten or
    more), the median of the differences stands for their mean, and the median absolute deviation
    for the standard deviation.
    """
    common = np.isfinite(ours) & np.isfinite(rival)
    repetitions = common.sum(axis=-1)
    differences = np.where(common, rival - ours, np.nan)
    mean, deviation = _mean_and_deviation(differences, repetitions)
    median, robust_deviation = _median_and_deviation(differences)
    median_rules = _outliers_rule(differences, repetitions, median, robust_deviation)

    centre = np.where(median_rules, median, mean)
    deviation = np.where(median_rules, robust_deviation, deviation)
    error_factor = np.where(median_rules, ERROR_OF_MEDIAN, 1.0)
    our_values = np.where(common, ours, np.nan)
    rival_values = np.where(common, rival, np.nan)
    without_scatter = deviation <= ROUNDING * np.maximum(abs(centre), SMALLEST)
    certain_effect = np.where(centre == 0, 0.0, np.copysign(np.inf, centre))
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where(without_scatter, 0.0, error_factor * deviation / np.sqrt(repetitions))
        effect = np.where(without_scatter, certain_effect, centre / deviation)
    return Comparisons(
        ours=np.where(median_rules, _nan_median(our_values), _nan_mean(our_values)),
        rival=np.where(median_rules, _nan_median(rival_values), _nan_mean(rival_values)),
        difference=centre,
        error=np.where(repetitions > 1, error, np.inf),
        effect=effect,
        repetitions=repetitions,
        won=np.sum(differences > 0, axis=-1),
        median=median_rules,
    )


def _mean_and_deviation(
    differences: Repeated, repetitions: PairCounts
) -> tuple[PairValues, PairValues]:
    """Return the mean and the standard deviation, with R - 1 in the denominator."""
    mean = _nan_mean(differences)
    # s^2 = sum_r (difference_r - mean)^2 / (R - 1)
    squares = np.nansum((differences - mean[..., None]) ** 2, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return mean, np.sqrt(squares / (repetitions - 1))


def _median_and_deviation(differences: Repeated) -> tuple[PairValues, PairValues]:
    """Return the median, and the standard deviation that the median absolute one stands for."""
    median = _nan_median(differences)
    absolute = abs(differences - median[..., None])
    return median, DEVIATION_OF_MAD * _nan_median(absolute)


def _outliers_rule(
    differences: Repeated, repetitions: PairCounts, median: PairValues, deviation: PairValues
) -> PairFlags:
    """Return where a repetition is too far off the median for a mean to say anything."""
    farthest = np.where(np.isfinite(differences), abs(differences - median[..., None]), 0.0)
    is_outlier = farthest.max(axis=-1, initial=0.0) > OUTLIER * deviation
    return (repetitions >= FEWEST_FOR_OUTLIERS) & (deviation > 0) & is_outlier


def _nan_mean(values: Repeated) -> PairValues:
    """Return means over repetitions without the missing ones; NaN where all are missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.nanmean(values, axis=-1)


def _nan_median(values: Repeated) -> PairValues:
    """Return medians over repetitions without the missing ones; NaN where all are missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.nanmedian(values, axis=-1)


def false_discovery_rate(p_values: SizeValues) -> SizeValues:
    """Return Benjamini and Hochberg's adjusted p-values.

    Of all rejections where they are below a level, at most that share is expected to be false.
    """
    count = len(p_values)
    descending = np.argsort(-p_values, kind="stable")
    ranks = count - np.arange(count)  # the largest p-value has rank `count`
    steps = np.minimum(1.0, p_values[descending] * count / ranks)
    adjusted = np.empty_like(p_values)
    adjusted[descending] = np.minimum.accumulate(steps)
    return adjusted


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
