"""Paired comparisons against scipy."""

import math

import numpy as np
import pytest
from scipy import stats

from dlmexp.claims.statistics import paired


def values(numbers: list[float]) -> dict:
    return {(100, seed): value for seed, value in enumerate(numbers)}


def test_against_scipys_paired_t_test() -> None:
    random = np.random.default_rng(0)
    ours, rival = random.normal(size=6), random.normal(0.8, 1.0, size=6)
    found = paired(values(list(ours)), values(list(rival)))
    assert found is not None
    expected = stats.ttest_rel(rival, ours)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-12)
    assert found.effect == pytest.approx(np.mean(rival - ours) / np.std(rival - ours, ddof=1))
    low, high = expected.confidence_interval(0.90)
    assert found.half_width == pytest.approx((high - low) / 2)
    assert found.won == int((rival > ours).sum())


def test_the_repetition_is_the_unit_not_the_size() -> None:
    """Ten sizes of the same three repetitions are three observations."""
    ours = {(n, seed): 0.1 * seed for n in range(10) for seed in range(3)}
    rival = {(n, seed): 0.1 * seed + 0.1 + 0.05 * seed for n in range(10) for seed in range(3)}
    found = paired(ours, rival)
    assert found is not None
    assert found.repetitions == 3
    assert found.p == pytest.approx(stats.ttest_1samp([0.1, 0.15, 0.2], 0)[1])


def test_only_what_both_have_is_compared() -> None:
    found = paired({(100, 0): 1.0, (200, 0): 5.0, (100, 1): 1.0}, {(100, 0): 2.0, (100, 1): 4.0, (100, 2): 9.0})
    assert found is not None
    assert (found.repetitions, found.difference) == (2, 2.0)
    assert paired({(100, 0): 1.0}, {(200, 0): 1.0}) is None


def test_no_scatter_decides_at_once() -> None:
    same, above = paired(values([1, 2, 3]), values([1, 2, 3])), paired(values([1, 2, 3]), values([2, 3, 4]))
    assert same is not None
    assert above is not None
    assert (same.p, same.effect) == (1.0, 0.0)
    assert (above.p, above.effect) == (0.0, math.inf)
    assert "d = ∞" in above.words()


def test_one_repetition_proves_nothing() -> None:
    found = paired(values([1.0]), values([2.0]))
    assert found is not None
    assert math.isnan(found.p)
    assert not found.significant
    assert not found.within(100.0)
