"""Compare methods in pairs over repetitions, at all sizes and with all rivals at once.

Each comparison is a paired t-test (docs/SPEC.md, section 8). `scipy.stats.ttest_rel` gives the same
numbers, as a test checks, but is not used, for these reasons:

- It tests neither against a margin nor with a corrected standard error.
- Its result is undefined for differences without scatter.
- It loops in Python where repetitions are missing, which takes 13 ms a call, and all claims need
  hundreds of calls.

Student's t is taken from `scipy.special`: the import of `scipy.stats` takes longer than all
verdicts on a claim.
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
# A standard deviation below this share of the mean difference is a rounding error. Such differences
# have no scatter.
ROUNDING_SHARE = 1e-12
# A lower bound for the absolute mean or median difference when a deviation is compared with a share
# of it. If all differences are 0, so is their deviation.
SMALLEST_CENTRE = 1e-300
# With fewer repetitions, outliers cannot be recognised.
MIN_REPETITIONS_FOR_OUTLIERS = 10
# An outlier is more than this many robust standard deviations away from the median.
OUTLIER_DISTANCE = 10.0
# The standard deviation of a normal distribution, divided by its median absolute deviation (MAD).
DEVIATION_OVER_MAD = 1.4826
# The standard error of the median of normal values, divided by that of their mean: sqrt(pi / 2).
ERROR_OF_MEDIAN_OVER_MEAN = 1.2533


@dataclass(frozen=True)
class Comparisons:
    """The comparisons of K pairs of methods, each ours and a rival, at S sizes: arrays [K, S].

    Lower values are better, so ours is better where the difference is positive. Means are NaN where
    a pair has no repetition in common.

    Attributes:
        ours: The mean of our values over the repetitions that both methods have.
        rival: The mean of the rival's values over these repetitions.
        difference: The mean difference, rival minus ours.
        error: The standard error of the mean difference. It is 0 if the differences have no
            scatter, and infinite if there are fewer than two.
        effect: Cohen's d of the paired differences.
        repetitions: The number of repetitions that both methods have.
        won: The number of repetitions in which ours is lower.
        by_median: Whether medians replace the means above, because of outliers.
    """

    ours: PairValues
    rival: PairValues
    difference: PairValues
    error: PairValues
    effect: PairValues
    repetitions: PairCounts
    won: PairCounts
    by_median: PairFlags

    @property
    def p(self) -> PairValues:
        """Two-sided p-values of the paired t-test; NaN with fewer than two repetitions."""
        smaller_tail = np.minimum(self.p_above(0.0), self.p_below(0.0))
        two_sided = np.minimum(1.0, 2 * smaller_tail)
        return np.where(self.repetitions > 1, two_sided, np.nan)

    def half_width(self, tail: float) -> PairValues:
        """Return half the width of the interval of the difference.

        Args:
            tail: The probability beyond each end of the interval.
        """
        quantile = stdtrit(self._degrees_of_freedom, 1 - tail)
        # Without scatter the error is 0, and so is the width.
        return np.where(self.error > 0, quantile * self.error, self.error)

    def p_above(self, bound: float | SizeValues) -> PairValues:
        """Return one-sided p-values for `difference > bound`."""
        return self._one_sided(self.difference - bound)

    def p_below(self, bound: float | SizeValues) -> PairValues:
        """Return one-sided p-values for `difference < bound`."""
        return self._one_sided(bound - self.difference)

    def corrected(self, overlap: float | SizeValues) -> "Comparisons":
        """Return the same comparisons with the standard error of Nadeau and Bengio (2003).

        Repetitions share rows of the data, so that s^2 / R understates the variance of the mean of
        R repetitions. The corrected variance is s^2 (1 / R + overlap).

        Args:
            overlap: The number of test rows of a repetition, divided by that of its other rows; one
                value, or a value for each size.
        """
        # s^2 (1 / R + overlap) = (s^2 / R) (1 + R overlap)
        inflation = np.sqrt(1 + self.repetitions * overlap)
        return replace(self, error=self.error * inflation)

    @property
    def _degrees_of_freedom(self) -> PairCounts:
        return np.maximum(self.repetitions - 1, 1)

    def _one_sided(self, distance: PairValues) -> PairValues:
        """Return p-values for `distance > 0`.

        Without scatter, a p-value is 0 where the distance is positive, else 1. With fewer than two
        repetitions it is 1.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            p = stdtr(self._degrees_of_freedom, -distance / self.error)
        p = np.where(self.error == 0, np.where(distance > 0, 0.0, 1.0), p)
        return np.where(np.isinf(self.error), 1.0, p)


def compare(ours: Repeated, rival: Repeated) -> Comparisons:
    """Compare values of R repetitions pair by pair; NaN means that a repetition is missing.

    Where differences have outliers, their median replaces the mean, and their scaled median
    absolute deviation replaces the standard deviation.
    """
    common = np.isfinite(ours) & np.isfinite(rival)
    repetitions = common.sum(axis=-1)
    differences = np.where(common, rival - ours, np.nan)
    mean, deviation = _mean_and_deviation(differences, repetitions)
    median, robust_deviation = _median_and_deviation(differences)
    by_median = _has_outliers(differences, repetitions, median, robust_deviation)

    centre = np.where(by_median, median, mean)
    deviation = np.where(by_median, robust_deviation, deviation)
    error_factor = np.where(by_median, ERROR_OF_MEDIAN_OVER_MEAN, 1.0)
    our_values = np.where(common, ours, np.nan)
    rival_values = np.where(common, rival, np.nan)
    has_no_scatter = deviation <= ROUNDING_SHARE * np.maximum(abs(centre), SMALLEST_CENTRE)
    effect_without_scatter = np.where(centre == 0, 0.0, np.copysign(np.inf, centre))
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where(has_no_scatter, 0.0, error_factor * deviation / np.sqrt(repetitions))
        effect = np.where(has_no_scatter, effect_without_scatter, centre / deviation)
    return Comparisons(
        ours=np.where(by_median, _nan_median(our_values), _nan_mean(our_values)),
        rival=np.where(by_median, _nan_median(rival_values), _nan_mean(rival_values)),
        difference=centre,
        error=np.where(repetitions > 1, error, np.inf),
        effect=effect,
        repetitions=repetitions,
        won=np.sum(differences > 0, axis=-1),
        by_median=by_median,
    )


def _mean_and_deviation(
    differences: Repeated, repetitions: PairCounts
) -> tuple[PairValues, PairValues]:
    """Return the mean and the standard deviation over repetitions."""
    mean = _nan_mean(differences)
    # s^2 = sum_r (difference_r - mean)^2 / (R - 1)
    squares = np.nansum((differences - mean[..., None]) ** 2, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return mean, np.sqrt(squares / (repetitions - 1))


def _median_and_deviation(differences: Repeated) -> tuple[PairValues, PairValues]:
    """Return the median and the robust standard deviation over repetitions.

    The robust deviation is the median absolute deviation, scaled so that it estimates the standard
    deviation of normal values.
    """
    median = _nan_median(differences)
    distances = abs(differences - median[..., None])
    return median, DEVIATION_OVER_MAD * _nan_median(distances)


def _has_outliers(
    differences: Repeated, repetitions: PairCounts, median: PairValues, deviation: PairValues
) -> PairFlags:
    """Return which comparisons have enough repetitions, and an outlier among them.

    Args:
        differences: The paired differences.
        repetitions: The number of differences of each comparison.
        median: The median of these differences.
        deviation: The robust standard deviation of these differences.
    """
    distances = np.where(np.isfinite(differences), abs(differences - median[..., None]), 0.0)
    is_far = distances.max(axis=-1, initial=0.0) > OUTLIER_DISTANCE * deviation
    return (repetitions >= MIN_REPETITIONS_FOR_OUTLIERS) & (deviation > 0) & is_far


def _nan_mean(values: Repeated) -> PairValues:
    """Return means over the repetitions that are not missing; NaN where all are missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.nanmean(values, axis=-1)


def _nan_median(values: Repeated) -> PairValues:
    """Return medians over the repetitions that are not missing; NaN where all are missing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.nanmedian(values, axis=-1)


def false_discovery_rate(p_values: SizeValues) -> SizeValues:
    """Return the adjusted p-values of Benjamini and Hochberg.

    If all tests with an adjusted p-value below a level are rejected, the expected share of false
    rejections among them is at most this level.
    """
    count = len(p_values)
    descending = np.argsort(-p_values, kind="stable")
    ranks = count - np.arange(count)  # the largest p-value has rank `count`
    steps = np.minimum(1.0, p_values[descending] * count / ranks)
    adjusted = np.empty_like(p_values)
    adjusted[descending] = np.minimum.accumulate(steps)
    return adjusted


def holm(p_values: SizeValues) -> SizeValues:
    """Return the adjusted p-values of Holm.

    If all tests with an adjusted p-value below a level are rejected, the probability of any false
    rejection among them is at most this level.
    """
    count = len(p_values)
    order = np.argsort(p_values, kind="stable")
    remaining_tests = count - np.arange(count)
    steps = np.minimum(1.0, remaining_tests * p_values[order])
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.maximum.accumulate(steps)
    return adjusted
