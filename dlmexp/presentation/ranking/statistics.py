"""Compute ranks of methods over data sets, and tests of differences (docs/SPEC.md, section 8).

Scores are arrays [K, D, R] of K methods, D data sets and R splits. Lower is better, and NaN means
missing. Two methods are `separated` if a test over the data sets finds that they differ.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats
from scipy.special import ndtr, ndtri, stdtr

from dlmexp.presentation.claims.paired import compare, holm

Scores = Float[np.ndarray, "K D R"]
Means = Float[np.ndarray, "K D"]
Ranks = Float[np.ndarray, "... K"]
Overlaps = Float[np.ndarray, " D"]

ALPHA = 0.05  # the level of all tests, after Holm's correction, and of intervals
RESAMPLES = 10_000  # of the bootstrap
LARGEST_T = 100.0  # a bound of Student's t, which is infinite for differences without scatter
MIN_FRIEDMAN_METHODS = 3  # Friedman's test needs at least this many methods


def common_means(scores: Scores) -> Means:
    """Return the mean score of each method on each data set, over the splits that all have."""
    is_common = np.isfinite(scores).all(axis=0)
    counts = is_common.sum(axis=-1)
    sums = np.where(is_common, scores, 0.0).sum(axis=-1)
    with np.errstate(invalid="ignore"):
        return sums / counts


def ranks_of(means: Means) -> Float[np.ndarray, "D K"]:
    """Return the rank of each method on each data set; equal means have the mean of their ranks."""
    return stats.rankdata(means, axis=0).T


def bootstrap_interval(ranks: Float[np.ndarray, "D K"]) -> Float[np.ndarray, "2 K"]:
    """Return the 95 % percentile interval of the mean ranks over resampled data sets.

    The resampled data sets are the same on every machine and with every version of NumPy, as they
    are computed from the raw bits of a generator.
    """
    data_set_count = len(ranks)
    raw_bits = np.random.PCG64(0).random_raw(RESAMPLES * data_set_count)
    positions = (raw_bits % np.uint64(data_set_count)).astype(np.int64)
    resampled = positions.reshape(RESAMPLES, data_set_count)
    mean_ranks = [ranks_of_method[resampled].mean(axis=1) for ranks_of_method in ranks.T]
    return np.quantile(np.stack(mean_ranks, axis=1), [ALPHA / 2, 1 - ALPHA / 2], axis=0)


@dataclass(frozen=True)
class PairedStatistics:
    """Student's t of P pairs of methods on D data sets, as arrays [P, D].

    Attributes:
        t: The mean difference, divided by the standard error of Nadeau and Bengio:
            t = mean / (s sqrt(1/R + rho)), where rho is the overlap. It is positive where the first
            method is lower, its absolute value is at most `LARGEST_T`, and it is NaN with fewer
            than two common splits.
        freedom: The degrees of freedom of t, R - 1.
    """

    t: Float[np.ndarray, "P D"]
    freedom: Int[np.ndarray, "P D"]

    @property
    def normal_scores(self) -> Float[np.ndarray, "P D"]:
        """The standard normal values with the same one-sided p-values and signs as t."""
        return np.sign(self.t) * -ndtri(stdtr(self.freedom, -np.abs(self.t)))


def paired_statistics(
    ours: Float[np.ndarray, "P D R"], rivals: Float[np.ndarray, "P D R"], overlaps: Overlaps
) -> PairedStatistics:
    """Compare the scores of P pairs on every data set.

    Args:
        ours: The scores of the first method of each pair.
        rivals: The scores of the second method of each pair.
        overlaps: The number of test rows, divided by that of other rows, by data set (rho).
    """
    comparisons = compare(ours, rivals).corrected(overlaps)
    difference = comparisons.difference
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(difference == 0, 0.0, difference / comparisons.error)
    t = np.clip(t, -LARGEST_T, LARGEST_T)
    return PairedStatistics(
        t=np.where(comparisons.repetitions > 1, t, np.nan),
        freedom=np.maximum(comparisons.repetitions - 1, 1),
    )


def p_over_data_sets(pairs: PairedStatistics) -> Float[np.ndarray, " P"]:
    """Return two-sided p-values of pairs over all data sets.

    A p-value is the larger of two:

    1. If splits are random and data sets fixed, the sum of D normal scores has variance D
       (Stouffer's method).
    2. If data sets are random, the values of t of the data sets are compared with 0 by a t-test,
       which needs two data sets. Normal scores have shorter tails, with which the t-test would
       reject too often.

    A pair without common splits has the p-value 1.
    """
    z = pairs.normal_scores
    count = np.isfinite(z).sum(axis=1)
    total = np.nansum(z, axis=1)
    p_for_fixed_data = 2 * ndtr(-np.abs(total) / np.sqrt(np.maximum(count, 1)))
    t = pairs.t[:, None]  # [P, 1, D]: `compare` takes the data sets for repetitions
    p_for_random_data = compare(np.zeros_like(t), t).p[:, 0]
    p = np.fmax(p_for_fixed_data, p_for_random_data)
    return np.where(count > 0, p, 1.0)


def separations(scores: Scores, overlaps: Overlaps) -> Bool[np.ndarray, "K K"]:
    """Return an array [i, j]: whether method i is better than method j, and separated from it.

    P-values are corrected over all pairs by Holm's method. If no methods differ, the probability
    that any pair is separated is at most `ALPHA`.
    """
    count = len(scores)
    first, second = np.triu_indices(count, 1)
    pairs = paired_statistics(scores[first], scores[second], overlaps)
    is_separated = holm(p_over_data_sets(pairs)) <= ALPHA
    first_is_better = np.nansum(pairs.t, axis=1) > 0
    better = np.zeros((count, count), dtype=bool)
    better[first, second] = is_separated & first_is_better
    better[second, first] = is_separated & ~first_is_better
    return better


def shared_ranks(better: Bool[np.ndarray, "K K"]) -> Int[np.ndarray, " K"]:
    """Return the ranks of methods, which share a rank unless they are separated.

    A method shares the rank of the method above it, unless it is separated from the first method of
    this rank. Then a new rank starts, whose number is the method's position, counted from 1.

    Args:
        better: The result of `separations`, for methods in the order of mean ranks.
    """
    ranks = np.ones(len(better), dtype=int)
    first_of_rank = 0
    for k in range(len(better)):
        if better[first_of_rank, k]:
            first_of_rank = k
        ranks[k] = first_of_rank + 1
    return ranks


@dataclass(frozen=True)
class ReferenceComparison:
    """The comparisons of methods with a reference on every data set, as arrays [K, D].

    Attributes:
        difference: The mean of the reference minus that of the method, over common splits.
        error: The standard error of the difference, corrected for overlapping splits.
        half_width: Half the width of the 95 % interval of the difference.
        won: Whether the method is better, by a test with Holm's correction over the data sets.
        lost: Whether the method is worse, by the same test.
    """

    difference: Means
    error: Means
    half_width: Means
    won: Bool[np.ndarray, "K D"]
    lost: Bool[np.ndarray, "K D"]


def compare_with_reference(
    scores: Scores, reference: Float[np.ndarray, "D R"], overlaps: Overlaps
) -> ReferenceComparison:
    """Compare methods with a reference on every data set."""
    comparisons = compare(scores, np.broadcast_to(reference, scores.shape)).corrected(overlaps)
    p = np.where(np.isnan(comparisons.p), 1.0, comparisons.p)
    is_significant = np.array([holm(p_of_method) <= ALPHA for p_of_method in p])
    return ReferenceComparison(
        difference=comparisons.difference,
        error=comparisons.error,
        half_width=comparisons.half_width(ALPHA / 2),
        won=is_significant & (comparisons.difference > 0),
        lost=is_significant & (comparisons.difference < 0),
    )


def friedman_p(means: Means) -> float:
    """Return the p-value of Friedman's test that no methods differ.

    It is NaN for fewer than `MIN_FRIEDMAN_METHODS` methods, or a single data set.
    """
    if len(means) < MIN_FRIEDMAN_METHODS or means.shape[1] < 2:
        return float("nan")
    # 0 / 0 where all methods are equal on all data sets.
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(stats.friedmanchisquare(*means).pvalue)


def nemenyi_difference(method_count: int, data_set_count: int) -> float:
    """Return Nemenyi's critical difference of mean ranks at the level `ALPHA`."""
    quantile = stats.studentized_range.ppf(1 - ALPHA, method_count, np.inf)
    # q / sqrt(2) sqrt(K (K + 1) / (6 D))
    variance = method_count * (method_count + 1) / (6 * data_set_count)
    return float(quantile / np.sqrt(2) * np.sqrt(variance))
