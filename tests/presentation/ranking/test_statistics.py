"""Ranks and tests of leaderboards against those of scipy, and how often they err."""

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dlmexp.presentation.claims.paired import holm
from dlmexp.presentation.ranking import statistics
from dlmexp.presentation.ranking.statistics import (
    PairedStatistics,
    bootstrap_interval,
    common_means,
    compare_with_reference,
    friedman_p,
    nemenyi_difference,
    p_over_data_sets,
    paired_statistics,
    ranks_of,
    separations,
    shared_ranks,
)

small = st.integers(0, 3)


@pytest.fixture
def scores() -> np.ndarray:
    """Scores [4, 6, 10] of methods with gaps, the first method being better."""
    random = np.random.default_rng(1)
    values = random.normal(size=(4, 6, 10)) + random.normal(size=(1, 6, 1)) * 5
    values[0] -= 4
    values[1, 2, 3:6] = np.nan
    values[3, 5, 0] = np.nan
    return values


def test_means_are_over_splits_that_all_methods_have(scores):
    means = common_means(scores)
    expected = np.delete(scores[:, 2], [3, 4, 5], axis=1).mean(axis=1)
    np.testing.assert_allclose(means[:, 2], expected)


@given(st.lists(st.tuples(small, small, small), min_size=2, max_size=6))
def test_ranks_are_those_of_scipy_with_ties(rows):
    means = np.array(rows, dtype=float).T
    expected = [stats.rankdata(column) for column in means.T]
    np.testing.assert_array_equal(ranks_of(means), expected)


def test_bootstrap_interval_is_that_of_scipy():
    ranks = ranks_of(np.random.default_rng(0).normal(size=(5, 30)))
    low, high = bootstrap_interval(ranks)
    for k in range(5):
        interval = stats.bootstrap((ranks[:, k],), np.mean, method="percentile").confidence_interval
        assert low[k] == pytest.approx(interval.low, abs=0.1)
        assert high[k] == pytest.approx(interval.high, abs=0.1)


def test_normal_scores_have_the_p_values_of_paired_t_tests(scores):
    pairs = paired_statistics(scores[[0, 1]], scores[[2, 3]], np.zeros(6))
    expected = stats.ttest_rel(scores[[2, 3]], scores[[0, 1]], axis=-1, nan_policy="omit")
    np.testing.assert_allclose(pairs.t, expected.statistic, rtol=1e-9)
    z = pairs.normal_scores
    np.testing.assert_allclose(2 * stats.norm.sf(abs(z)), expected.pvalue, rtol=1e-9)
    np.testing.assert_array_equal(np.sign(z), np.sign(expected.statistic))


def test_t_has_the_standard_error_of_nadeau_and_bengio(scores):
    overlap = 0.3
    differences = scores[1, 0] - scores[0, 0]
    error = differences.std(ddof=1) * np.sqrt(1 / 10 + overlap)
    pairs = paired_statistics(scores[[0]], scores[[1]], np.full(6, overlap))
    assert pairs.t[0, 0] == pytest.approx(differences.mean() / error, rel=1e-9)


def test_a_single_split_tells_nothing():
    pairs = paired_statistics(np.zeros((1, 2, 1)), np.ones((1, 2, 1)), np.zeros(2))
    assert np.isnan(pairs.t).all()
    assert p_over_data_sets(pairs) == [1.0]


def test_difference_without_scatter_is_large_and_finite():
    ours = np.zeros((1, 1, 5))
    pairs = paired_statistics(ours, ours + 1, np.full(1, 0.1))
    assert pairs.t == 100
    assert np.isfinite(pairs.normal_scores).all()
    assert paired_statistics(ours, ours, np.full(1, 0.1)).t == 0


def test_p_value_is_the_larger_one_of_stouffer_and_student():
    t = np.array([[1.0, 2.0, 3.0, np.nan], [9.0, -0.5, 8.0, 7.5], [1.5, 1.4, 1.6, 1.5]])
    student = np.array([stats.ttest_1samp(row[np.isfinite(row)], 0.0)[1] for row in t])
    one_sided = [stats.t.sf(row[np.isfinite(row)], 7) for row in t]
    stouffer = np.array([2 * cast(Any, stats.combine_pvalues(p, "stouffer"))[1] for p in one_sided])
    expected = np.maximum(student, stouffer)
    pairs = PairedStatistics(t, np.full(t.shape, 7))
    np.testing.assert_allclose(p_over_data_sets(pairs), expected, rtol=1e-9)
    assert (student > stouffer).tolist() == [True, True, False]


def test_single_data_set_is_judged_by_its_splits():
    pairs = PairedStatistics(np.array([[3.0]]), np.array([[9]]))
    assert p_over_data_sets(pairs) == pytest.approx(2 * stats.t.sf(3.0, 9))


def test_holm_corrects_over_all_pairs(scores, monkeypatch):
    families = []
    monkeypatch.setattr(statistics, "holm", lambda p: families.append(len(p)) or holm(p))
    better = separations(scores, np.full(6, 0.1))
    assert families == [6]
    assert better[0].tolist() == [False, True, True, True]
    assert not better[1:].any()


def test_separation_does_not_depend_on_the_order_of_methods(scores):
    order = [2, 0, 3, 1]
    better = separations(scores, np.full(6, 0.1))
    reordered = separations(scores[order], np.full(6, 0.1))
    np.testing.assert_array_equal(reordered, better[np.ix_(order, order)])


def test_methods_share_a_rank_unless_the_first_of_it_is_better():
    better = np.zeros((5, 5), dtype=bool)
    assert shared_ranks(better).tolist() == [1, 1, 1, 1, 1]
    better[0, 2] = better[0, 3] = better[1, 2] = better[2, 4] = True
    assert shared_ranks(better).tolist() == [1, 1, 3, 3, 5]


def test_duel_counts_data_sets_by_corrected_tests(scores):
    result = compare_with_reference(scores, scores[2], np.full(6, 1 / 9))
    assert result.won[0].all()
    assert not (result.won | result.lost)[2].any()
    assert (result.difference[0] > 0).all()
    interval = stats.ttest_rel(scores[2, 0], scores[0, 0]).confidence_interval(0.95)
    plain = (interval.high - interval.low) / 2
    assert result.half_width[0, 0] == pytest.approx(plain * np.sqrt(1 + 10 / 9), rel=1e-9)


def test_friedman_is_that_of_scipy_with_ties():
    means = np.array([[1.0, 2.0, 1.0, 4.0], [1.0, 3.0, 2.0, 5.0], [2.0, 4.0, 3.0, 5.0]])
    assert friedman_p(means) == stats.friedmanchisquare(*means).pvalue
    assert np.isnan(friedman_p(means[:2]))
    assert np.isnan(friedman_p(np.ones((3, 4))))


@pytest.mark.parametrize(("methods", "quantile"), [(2, 1.960), (5, 2.728), (10, 3.164)])
def test_nemenyi_has_the_quantiles_in_print(methods, quantile):
    """They are in Demšar (2006), table 5."""
    expected = quantile * np.sqrt(methods * (methods + 1) / (6 * 14))
    assert nemenyi_difference(methods, 14) == pytest.approx(expected, rel=1e-3)


def without_difference(random: np.random.Generator, spread: float) -> np.ndarray:
    """Return scores [8, 10, 10] of equally good methods, as overlapping splits give them.

    Splits of a data set share a part of every method's deviation: with a tenth of the rows for
    testing, the correlation of two splits is a tenth. `spread` is that between data sets.
    """
    shape = (8, 10, 10)
    shared = np.sqrt(0.1) * random.normal(size=(8, 10, 1))
    own = np.sqrt(0.9) * random.normal(size=shape)
    of_data_set = spread * random.normal(size=(8, 10, 1))
    difficulty = 5 * random.normal(size=(1, 10, 10))
    return difficulty + of_data_set + shared + own


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_leaderboards_without_difference_have_one_rank(spread):
    """At most 5 % of 1000 boards may have more; with a spread, methods differ on data sets."""
    random = np.random.default_rng(3)
    overlaps = np.full(10, 1 / 9)
    several = 0
    for _ in range(1000):
        scores = without_difference(random, spread)
        better = separations(scores, overlaps)
        order = np.argsort(ranks_of(common_means(scores)).mean(axis=0), kind="stable")
        several += shared_ranks(better[np.ix_(order, order)]).max() > 1
    assert several <= 50


def test_clear_differences_are_separated():
    scores = without_difference(np.random.default_rng(4), 0.2)
    scores += 3 * np.arange(8)[:, None, None]
    better = separations(scores, np.full(10, 1 / 9))
    assert shared_ranks(better).tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
