"""Paired comparisons against scipy's, Nadeau and Bengio's correction, Holm's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dlmexp.claims.statistics import compare, holm

numbers = st.floats(-5, 5, allow_nan=False, width=32)


@given(st.lists(st.tuples(numbers, numbers), min_size=3, max_size=20))
def test_a_comparison_is_a_paired_t_test(pairs: list[tuple[float, float]]) -> None:
    ours, rival = np.array(pairs).T
    found = compare(ours[None, None], rival[None, None])
    difference = rival - ours
    assert found.difference[0, 0] == pytest.approx(difference.mean(), abs=1e-9)
    if difference.std() > 1e-6:
        expected = stats.ttest_rel(rival, ours)
        assert found.p[0, 0] == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)
        low, high = expected.confidence_interval(0.90)
        assert found.half_width()[0, 0] == pytest.approx((high - low) / 2, rel=1e-6)
        above = stats.ttest_rel(rival, ours, alternative="greater").pvalue
        assert found.p_above(0.0)[0, 0] == pytest.approx(above, rel=1e-6, abs=1e-12)


def test_repetitions_that_one_side_lacks_do_not_count() -> None:
    ours, rival = np.array([1.0, 2.0, np.nan, 4.0]), np.array([2.0, np.nan, 3.0, 6.0])
    found = compare(ours[None, None], rival[None, None])
    assert (found.repetitions[0, 0], found.won[0, 0], found.difference[0, 0]) == (2, 2, 1.5)
    nothing = compare(np.full((1, 1, 3), np.nan), np.ones((1, 1, 3)))
    assert nothing.repetitions[0, 0] == 0


def test_without_scatter_the_difference_decides() -> None:
    found = compare(np.zeros((2, 1, 4)), np.array([[[1.0] * 4], [[0.0] * 4]]))
    assert found.p.tolist() == [[0.0], [1.0]]
    assert found.half_width().tolist() == [[0.0], [0.0]]


@given(st.lists(numbers, min_size=3, max_size=10), st.floats(0, 2))
def test_overlapping_splits_make_a_difference_less_certain(values: list[float], overlap: float) -> None:
    found = compare(np.zeros((1, 1, len(values))), np.array(values)[None, None])
    corrected = found.corrected(overlap)
    assert corrected.p[0, 0] >= found.p[0, 0] - 1e-12
    if found.error[0, 0] > 0:
        R, s = len(values), np.std(values, ddof=1)
        assert corrected.error[0, 0] == pytest.approx(s * np.sqrt(1 / R + overlap))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm(p: list[float]) -> None:
    adjusted = holm(np.array(p))
    assert (adjusted >= np.array(p)).all()
    assert (adjusted <= np.minimum(1, len(p) * np.array(p)) + 1e-15).all()
    assert adjusted.min() == pytest.approx(min(1.0, len(p) * min(p)))
    assert (np.diff(adjusted[np.argsort(p, kind="stable")]) >= 0).all()
