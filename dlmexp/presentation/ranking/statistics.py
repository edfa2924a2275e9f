"""Ranks of methods over data sets, and tests of what separates them (docs/SPEC.md, section 8).

Scores are arrays [K, D, R]: K methods, D data sets, R splits; lower is better, NaN is missing.
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

ALPHA = 0.05
"""Level of all tests, after Holm's correction, and of intervals."""
RESAMPLES = 10_000
LARGEST_T = 100.0
"""Where splits do not scatter, Student's t of a data set is this."""
FRIEDMAN_METHODS = 3
"""Fewer methods are no case for Friedman's test."""


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

    The drawn data sets are the same on every machine.
    """
    count = len(ranks)
    raw = np.random.PCG64(0).random_raw(RESAMPLES * count)
    drawn = (raw % np.uint64(count)).astype(np.int64).reshape(RESAMPLES, count)
    resampled = np.stack([column[drawn].mean(axis=1) for column in ranks.T], axis=1)
    return np.quantile(resampled, [ALPHA / 2, 1 - ALPHA / 2], axis=0)


@dataclass(frozen=True)
class PairedStatistics:
    """Student's t of P pairs of methods on D data sets, as arrays [P, D].

    Attributes:
        t: Mean difference over Nadeau and Bengio's standard error, t = mean / (s sqrt(1/R + rho)).
            It is positive where the first method is lower, at most `LARGEST_T`, and NaN with fewer
            than two common splits.
        freedom: Its degrees of freedom, R - 1.
    """

    t: Float[np.ndarray, "P D"]
    freedom: Int[np.ndarray, "P D"]

    @property
    def normal_scores(self) -> Float[np.ndarray, "P D"]:
        """The standard normal quantiles that have the p-values of t."""
        return np.sign(self.t) * -ndtri(stdtr(self.freedom, -np.abs(self.t)))


def paired_statistics(
    ours: Float[np.ndarray, "P D R"], rivals: Float[np.ndarray, "P D R"], overlaps: Overlaps
) -> PairedStatistics:
    """Compare the scores of P pairs on every data set.

    Args:
        ours: Scores of the first methods of the pairs.
        rivals: Scores of the second ones.
        overlaps: Test rows over all other rows, rho, by data set.
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

    It is the larger one of two p-values. The first takes the splits as random and the data sets as
    given: the sum of D normal scores has variance D (Stouffer). The second takes the data sets as
    random: a t-test of their t, which needs at least two. t itself serves there, as normal scores
    have short tails, which make a t-test reject too often. A pair without common splits has the
    p-value 1.
    """
    z = pairs.normal_scores
    count = np.isfinite(z).sum(axis=1)
    total = np.nansum(z, axis=1)
    of_splits = 2 * ndtr(-np.abs(total) / np.sqrt(np.maximum(count, 1)))
    t = pairs.t[:, None]
    over_data = compare(np.zeros_like(t), t).p[:, 0]
    p = np.fmax(of_splits, over_data)
    return np.where(count > 0, p, 1.0)


def separations(scores: Scores, overlaps: Overlaps) -> Bool[np.ndarray, "K K"]:
    """Return which method is separated from which: `[i, j]` says that i is better than j.

    P-values are corrected over all pairs by Holm's method: where no methods differ, any pair is
    separated with a probability of at most `ALPHA`.
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
    """Return the ranks of methods, which they share unless they are separated.

    A method has the rank of the method above it, unless the first one of that rank is separated
    from it and better. It is then the first one of a new rank, which is its place.

    Args:
        better: Which method is separated from which, in the order of mean ranks.
    """
    ranks = np.ones(len(better), dtype=int)
    first = 0
    for k in range(len(better)):
        if better[first, k]:
            first = k
        ranks[k] = first + 1
    return ranks


@dataclass(frozen=True)
class Duel:
    """Methods against a reference on every data set, as arrays [K, D].

    Attributes:
        difference: Mean of the reference minus that of the method over common splits.
        error: Its standard error, corrected for overlapping splits.
        half_width: Half of its 95 % interval.
        won: The method is better, by a test with Holm's correction over the data sets.
        lost: It is worse.
    """

    difference: Means
    error: Means
    half_width: Means
    won: Bool[np.ndarray, "K D"]
    lost: Bool[np.ndarray, "K D"]


def duel(scores: Scores, reference: Float[np.ndarray, "D R"], overlaps: Overlaps) -> Duel:
    """Compare methods with a reference on every data set."""
    comparisons = compare(scores, np.broadcast_to(reference, scores.shape)).corrected(overlaps)
    p = np.where(np.isnan(comparisons.p), 1.0, comparisons.p)
    significant = np.array([holm(row) <= ALPHA for row in p])
    return Duel(
        difference=comparisons.difference,
        error=comparisons.error,
        half_width=comparisons.half_width(ALPHA / 2),
        won=significant & (comparisons.difference > 0),
        lost=significant & (comparisons.difference < 0),
    )


def friedman_p(means: Means) -> float:
    """Return the p-value of Friedman's test that no methods differ; NaN where it has no meaning."""
    if len(means) < FRIEDMAN_METHODS or means.shape[1] < 2:
        return float("nan")
    with np.errstate(divide="ignore", invalid="ignore"):  # where all are equal on all data sets
        return float(stats.friedmanchisquare(*means).pvalue)


def nemenyi_difference(methods: int, data_sets: int) -> float:
    """Return Nemenyi's critical difference of mean ranks at the level 0.05."""
    quantile = stats.studentized_range.ppf(1 - ALPHA, methods, np.inf)
    return float(quantile / np.sqrt(2) * np.sqrt(methods * (methods + 1) / (6 * data_sets)))
