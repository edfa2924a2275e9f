"""Compute ranks of methods over data sets, and tests of differences (docs/SPEC.md, section 8).

Scores are arrays [K, D, R] of K methods, D data sets and R splits. Lower is better, and NaN means
missing. Two methods are `separated` if a test finds that they differ.
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
LARGEST_T = 100.0  # the largest Student's t of a data set, as it is infinite without scatter
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

    The samples are the same on every machine, as they are made from raw bits.
    """
    count = len(ranks)
    raw_bits = np.random.PCG64(0).random_raw(RESAMPLES * count)
    samples = (raw_bits % np.uint64(count)).astype(np.int64).reshape(RESAMPLES, count)
    mean_ranks = [ranks_of_method[samples].mean(axis=1) for ranks_of_method in ranks.T]
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
        """The quantiles of the standard normal distribution with the p-values of t."""
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
    2. If data sets are random, a t-test of their values of t is made, which needs two data sets. It
       does not use normal scores, whose short tails make a t-test reject too often.

    A pair without common splits has the p-value 1.
    """
    z = pairs.normal_scores
    count = np.isfinite(z).sum(axis=1)
    total = np.nansum(z, axis=1)
    p_for_fixed_data = 2 * ndtr(-np.abs(total) / np.sqrt(np.maximum(count, 1)))
    t = pairs.t[:, None]
    p_for_random_data = compare(np.zeros_like(t), t).p[:, 0]
    p = np.fmax(p_for_fixed_data, p_for_random_data)
    return np.where(count > 0, p, 1.0)


def separations(scores: Scores, overlaps: Overlaps) -> Bool[np.ndarray, "K K"]:
    """Return whether method i is better than method j, and separated from it [i, j].

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

    A method has the rank of the method above it, unless the first method of that rank is better
    than it and separated from it. Then it is the first method of a new rank, which is its position.

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

    It is NaN for few methods, or a single data set.
    """
    if len(means) < MIN_FRIEDMAN_METHODS or means.shape[1] < 2:
        return float("nan")
    # 0 / 0 where all methods are equal on all data sets.
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(stats.friedmanchisquare(*means).pvalue)


def nemenyi_difference(methods: int, data_sets: int) -> float:
    """Return Nemenyi's critical difference of mean ranks at the level 0.05."""
    quantile = stats.studentized_range.ppf(1 - ALPHA, methods, np.inf)
    return float(quantile / np.sqrt(2) * np.sqrt(methods * (methods + 1) / (6 * data_sets)))
