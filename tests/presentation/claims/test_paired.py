"""Paired comparisons against those of `scipy.stats`."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from dlmexp.presentation.claims.paired import (
    Comparisons,
    compare,
    false_discovery_rate,
    holm,
)

numbers = st.floats(-5, 5, allow_nan=False, width=32)


@pytest.fixture
def repeated() -> tuple[np.ndarray, np.ndarray]:
    """Values of two pairs at three sizes in eight repetitions, some of them missing."""
    random = np.random.default_rng(0)
    ours = random.normal(size=(2, 3, 8))
    rival = random.normal(size=(2, 3, 8)) + 0.5
    ours[0, 1, :3] = np.nan
    rival[1, 2, 5] = np.nan
    rival[0, 0, 0] = np.inf
    return ours, rival


def reference(ours: np.ndarray, rival: np.ndarray, **options):
    """The paired t-test of scipy, where missing repetitions are left out."""
    missing = ~(np.isfinite(ours) & np.isfinite(rival))
    ours = np.where(missing, np.nan, ours)
    rival = np.where(missing, np.nan, rival)
    return stats.ttest_rel(rival, ours, axis=-1, nan_policy="omit", **options)


def test_p_values_are_those_of_a_paired_t_test_without_missing_repetitions(repeated):
    comparisons = compare(*repeated)
    expected = reference(*repeated)
    np.testing.assert_allclose(comparisons.p, expected.pvalue, rtol=1e-12)
    np.testing.assert_array_equal(comparisons.repetitions, expected.df + 1)
    np.testing.assert_allclose(
        comparisons.difference / comparisons.error, expected.statistic, rtol=1e-12
    )


def test_half_width_is_that_of_the_interval_of_the_mean_difference(repeated):
    low, high = reference(*repeated).confidence_interval(0.90)
    np.testing.assert_allclose(compare(*repeated).half_width(0.05), (high - low) / 2, rtol=1e-9)


@pytest.mark.parametrize("bound", [-0.3, 0.0, 0.4])
def test_one_sided_p_values_are_those_of_shifted_values(repeated, bound):
    ours, rival = repeated
    comparisons = compare(ours, rival)
    greater = reference(ours, rival - bound, alternative="greater").pvalue
    less = reference(ours, rival - bound, alternative="less").pvalue
    np.testing.assert_allclose(comparisons.p_above(bound), greater, rtol=1e-9)
    np.testing.assert_allclose(comparisons.p_below(bound), less, rtol=1e-9)


@given(st.lists(st.tuples(numbers, numbers), min_size=3, max_size=20))
def test_any_values_give_the_p_value_of_a_paired_t_test(pairs):
    ours, rival = np.array(pairs).T
    comparisons = compare(ours[None, None], rival[None, None])
    difference = rival - ours
    assume(not comparisons.by_median.item())  # a few values far from all others
    assert comparisons.difference[0, 0] == pytest.approx(difference.mean(), abs=1e-9)
    if difference.std() > 1e-6:
        expected = stats.ttest_rel(rival, ours)
        assert comparisons.p[0, 0] == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)


def test_means_are_over_common_repetitions():
    ours = np.array([[[1.0, 2.0, np.nan, 4.0]]])
    rival = np.array([[[2.0, np.nan, 3.0, 7.0]]])
    comparisons = compare(ours, rival)
    assert comparisons.repetitions.item() == 2
    assert comparisons.ours.item() == 2.5
    assert comparisons.rival.item() == 4.5
    assert comparisons.difference.item() == 2.0


def test_won_counts_the_repetitions_in_which_ours_is_lower():
    ours = np.zeros((1, 1, 5))
    rival = np.array([[[1.0, -1.0, 0.0, 2.0, np.nan]]])
    assert compare(ours, rival).won.item() == 2


def test_effect_is_the_mean_over_the_deviation_of_differences():
    rival = np.array([[[1.0, 2.0, 4.0]]])
    expected = rival.mean() / rival.std(ddof=1)
    assert compare(np.zeros_like(rival), rival).effect.item() == pytest.approx(expected)


def test_nothing_in_common_has_no_repetitions_and_no_p_value():
    comparisons = compare(np.full((1, 1, 3), np.nan), np.ones((1, 1, 3)))
    assert comparisons.repetitions.item() == 0
    assert np.isnan(comparisons.p.item())


def test_one_repetition_has_an_infinite_error_and_no_p_value():
    comparisons = compare(np.zeros((1, 1, 1)), np.ones((1, 1, 1)))
    assert comparisons.error.item() == np.inf
    assert np.isnan(comparisons.p.item())
    assert comparisons.p_above(0.0).item() == 1.0


@pytest.mark.parametrize("values", [[1.0] * 4, [0.1 + 0.2, 0.3, 0.1 + 0.2, 0.3]])
def test_without_scatter_a_difference_is_certain(values):
    rival = np.array([[values]])
    comparisons = compare(np.zeros_like(rival), rival)
    assert comparisons.error.item() == 0.0
    assert comparisons.effect.item() == np.inf
    assert comparisons.p.item() == 0.0
    assert comparisons.half_width(0.05).item() == 0.0


def test_without_scatter_no_difference_is_certain_too():
    comparisons = compare(np.zeros((1, 1, 4)), np.zeros((1, 1, 4)))
    assert comparisons.effect.item() == 0.0
    assert comparisons.p.item() == 1.0


def test_tiny_scatter_is_scatter():
    rival = np.array([[[1.0, 1.0 + 1e-9, 1.0 - 1e-9]]])
    assert compare(np.zeros_like(rival), rival).error.item() > 0


def test_correction_for_overlap_widens_the_standard_error():
    values = np.array([0.1, 0.4, 0.2, 0.6])
    corrected = compare(np.zeros((1, 1, 4)), values[None, None]).corrected(1 / 3)
    expected = values.std(ddof=1) * np.sqrt(1 / 4 + 1 / 3)
    assert corrected.error.item() == pytest.approx(expected)
    p = 2 * stats.t.sf(values.mean() / expected, 3)
    assert corrected.p.item() == pytest.approx(p)


@given(st.lists(numbers, min_size=3, max_size=10), st.floats(0, 2))
def test_overlapping_splits_never_make_a_difference_more_certain(values, overlap):
    comparisons = compare(np.zeros((1, 1, len(values))), np.array(values)[None, None])
    assert comparisons.corrected(overlap).p[0, 0] >= comparisons.p[0, 0] - 1e-12


def test_p_values_depend_on_the_degrees_of_freedom():
    ones = np.ones((1, 2))
    comparisons = Comparisons(
        ones, ones, ones, 0.5 * ones, ones, np.array([[3, 20]]), np.ones((1, 2), int), ones > 1
    )
    np.testing.assert_allclose(comparisons.p[0], 2 * stats.t.sf(2.0, [2, 19]))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_adjusted_p_values_are_those_of_scipy(p):
    expected = stats.false_discovery_control(p)
    np.testing.assert_allclose(false_discovery_rate(np.array(p)), expected, atol=1e-12)


def test_no_p_values_have_no_adjusted_ones():
    assert len(false_discovery_rate(np.array([]))) == 0


def with_outlier(repetitions: int, outlier: float) -> Comparisons:
    """Return the comparison of differences around 1, of which the last one is far off."""
    differences = 1 + 0.01 * np.random.default_rng(0).normal(size=repetitions)
    differences[-1] = outlier
    return compare(np.zeros((1, 1, repetitions)), differences[None, None])


def test_where_an_outlier_rules_the_median_stands_for_the_mean():
    comparisons = with_outlier(20, 30.0)
    assert comparisons.by_median.item()
    assert comparisons.difference.item() == pytest.approx(1.0, abs=0.02)
    assert comparisons.p.item() < 1e-9  # that of the mean is 0.1
    assert comparisons.won.item() == 20


def test_the_median_has_a_wider_error_than_the_mean_of_normals():
    differences = np.random.default_rng(0).normal(size=9999)
    differences[-1] = 1e6
    comparisons = compare(np.zeros((1, 1, 9999)), differences[None, None])
    expected = np.sqrt(np.pi / 2) / np.sqrt(9999)  # of the median of a standard normal
    assert comparisons.error.item() == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(("repetitions", "outlier"), [(9, 30.0), (20, 1.03)])
def test_without_ten_repetitions_or_an_outlier_means_are_compared(repetitions, outlier):
    assert not with_outlier(repetitions, outlier).by_median.item()


def test_differences_that_are_mostly_equal_are_compared_by_means():
    differences = np.zeros((1, 1, 20))
    differences[..., :3] = 5.0
    comparisons = compare(np.zeros((1, 1, 20)), differences)
    assert comparisons.difference.item() == 0.75
    assert not comparisons.by_median.item()


def test_holm_multiplies_by_the_number_of_tests_that_remain():
    np.testing.assert_allclose(holm(np.array([0.01, 0.04, 0.03])), [0.03, 0.06, 0.06])
    np.testing.assert_allclose(holm(np.array([0.6, 0.9])), [1.0, 1.0])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_is_monotone_and_at_most_bonferroni(p):
    adjusted = holm(np.array(p))
    assert (adjusted >= np.array(p)).all()
    assert (adjusted <= np.minimum(1, len(p) * np.array(p)) + 1e-15).all()
    assert adjusted.min() == pytest.approx(min(1.0, len(p) * min(p)))
    assert (np.diff(adjusted[np.argsort(p, kind="stable")]) >= 0).all()
