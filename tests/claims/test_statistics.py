"""Paired comparisons and Holm's correction against scipy and against worked examples."""

import math

import numpy as np
import pytest
from scipy import stats

from dlmexp.claims.statistics import compare, holm, paired


def at(n: int, numbers) -> dict:
    return {(n, seed): value for seed, value in enumerate(numbers)}


def test_against_scipys_paired_t_test() -> None:
    random = np.random.default_rng(0)
    ours, rival = random.normal(size=6), random.normal(0.8, 1.0, size=6)
    found = paired(at(100, ours), at(100, rival))[100]
    expected = stats.ttest_rel(rival, ours)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-12)
    assert found.effect == pytest.approx(np.mean(rival - ours) / np.std(rival - ours, ddof=1))
    low, high = expected.confidence_interval(0.90)
    assert found.half_width == pytest.approx((high - low) / 2)
    assert found.won == int((rival > ours).sum())


def test_one_sided_p_values_against_scipy() -> None:
    random = np.random.default_rng(1)
    ours, rival = random.normal(size=7), random.normal(0.4, 1.0, size=7)
    found = compare(ours, rival)
    for bound in (-0.5, 0.0, 0.7):
        above = float(stats.ttest_1samp(rival - ours, bound, alternative="greater")[1])  # pyright: ignore
        assert found.p_above(bound) == pytest.approx(above, rel=1e-10)
        assert found.p_below(bound) == pytest.approx(1 - above, rel=1e-10)


def test_every_size_is_compared_by_itself() -> None:
    found = paired(at(200, [1, 2, 3]) | at(100, [1, 2, 3]), at(100, [2, 4, 5]) | at(200, [1, 3, 0]) | at(300, [1, 1]))
    assert list(found) == [100, 200]
    assert found[100].difference == pytest.approx(5 / 3)
    assert found[200].difference == pytest.approx(-2 / 3)


def test_only_what_both_have_is_compared() -> None:
    found = paired({(100, 0): 1.0, (200, 0): 5.0, (100, 1): 1.0}, {(100, 0): 2.0, (100, 1): 4.0, (100, 2): 9.0})
    assert list(found) == [100]
    assert (found[100].repetitions, found[100].difference) == (2, 2.0)
    assert paired({(100, 0): 1.0}, {(200, 0): 1.0}) == {}


def test_no_scatter_decides_at_once() -> None:
    same, above = compare(np.arange(3.0), np.arange(3.0)), compare(np.arange(3.0), np.arange(3.0) + 1)
    assert (same.p, same.effect, same.half_width) == (1.0, 0.0, 0.0)
    assert (above.p, above.effect) == (0.0, math.inf)
    assert (above.p_above(0.5), above.p_above(1.5), above.p_below(1.5)) == (0.0, 1.0, 0.0)
    assert "d = ∞" in above.words()


def test_one_repetition_proves_nothing() -> None:
    found = compare(np.array([1.0]), np.array([2.0]))
    assert math.isnan(found.p)
    assert found.p_above(-100.0) == found.p_below(100.0) == 1.0
    assert found.half_width == math.inf


@pytest.mark.parametrize(
    ("p_values", "adjusted"),
    [
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),  # the worked example of R's p.adjust
        ([0.02], [0.02]),
        ([0.5, 0.9], [1.0, 1.0]),
        ([0.0, 0.03], [0.0, 0.03]),
        ([], []),
    ],
)
def test_holm(p_values: list[float], adjusted: list[float]) -> None:
    assert holm(p_values) == pytest.approx(adjusted)
