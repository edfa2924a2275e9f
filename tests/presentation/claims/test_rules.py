"""The rules from paired comparisons to outcomes of tests, and from these to verdicts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlmexp.presentation.claims.paired import Comparisons, compare
from dlmexp.presentation.claims.rules import (
    BETTER,
    COMPARABLE,
    DIFFERENT,
    MOST,
    NEARLY_ALL,
    NO_WORSE,
    SOME,
    THREE_OF_FOUR,
    Outcome,
    PValues,
    Relation,
    Tally,
    Verdict,
    p_values_of_tests,
    verdict_of,
)

S = Outcome.SUPPORTED
C = Outcome.CONTRADICTED
NONE = Outcome.NO_DIFFERENCE
U = Outcome.UNCLEAR
RELATIONS = [BETTER, COMPARABLE, DIFFERENT, NO_WORSE]
NOISE = np.array([-1.0, 0.5, 0.5, -0.3, 0.3]) * 0.001


def gap(difference: float, noise: float = 1.0, repetitions: int = 5) -> Comparisons:
    """Return the comparison at one size where ours is lower by a difference."""
    rival = (difference + noise * NOISE[:repetitions])[None, None]
    return compare(np.zeros_like(rival), rival)


def outcome(p_values: PValues, level: float = 0.05) -> Outcome:
    """Return the outcome of the only size, without a correction for other tests."""
    told = [one for one, p in zip((S, C, NONE), p_values, strict=True) if p[0] < level]
    assert len(told) <= 1
    return told[0] if told else U


def judged(relation: Relation, comparisons: Comparisons, margin: float = 0.1) -> Outcome:
    return outcome(p_values_of_tests(comparisons, np.array([margin]), relation))


@pytest.mark.parametrize(
    ("relation", "expected"),
    # Ours is lower by much more than the margin, by less, by nothing, higher by less, by more.
    [
        (BETTER, (S, NONE, NONE, NONE, C)),
        (COMPARABLE, (C, S, S, S, C)),
        (DIFFERENT, (S, C, C, C, S)),
        (NO_WORSE, (S, S, S, S, C)),
    ],
)
def test_outcome_follows_from_difference_and_margin(relation, expected):
    assert tuple(judged(relation, gap(by)) for by in (0.5, 0.03, 0.0, -0.03, -0.5)) == expected


@pytest.mark.parametrize("relation", RELATIONS)
def test_wide_intervals_can_not_tell(relation):
    assert judged(relation, gap(0.0, noise=1000)) is U


def test_a_significant_difference_below_the_margin_in_a_wide_interval_can_not_tell():
    assert judged(BETTER, gap(0.09, noise=60)) is U
    assert judged(BETTER, gap(0.11, noise=60)) is S


@pytest.mark.parametrize("relation", RELATIONS)
def test_without_a_margin_nothing_is_asked(relation):
    p_values = p_values_of_tests(gap(0.5), np.array([np.nan]), relation)
    assert np.isnan(np.concatenate(p_values)).all()


@pytest.mark.parametrize("relation", RELATIONS)
def test_two_repetitions_are_not_judged_and_three_are(relation):
    asked = [
        np.isfinite(p_values_of_tests(gap(0.5, repetitions=count), np.array([0.1]), relation)).any()
        for count in (2, 3)
    ]
    assert asked == [False, True]


def against(*differences: float) -> Comparisons:
    """Return comparisons with several rivals; NaN: the rival was not run."""
    rivals = np.stack([by + NOISE for by in differences])[:, None]
    return compare(np.zeros_like(rivals), rivals)


@pytest.mark.parametrize(
    ("differences", "relation", "expected"),
    [
        ((0.5, 0.5), BETTER, S),
        ((0.5, -0.5), BETTER, C),
        ((0.5, 0.0), BETTER, NONE),
        ((-0.5, 0.0), BETTER, C),
        ((0.0, 0.0), COMPARABLE, S),
        ((0.0, 0.5), COMPARABLE, C),
        ((0.5, 0.0), DIFFERENT, C),
        ((0.5, -0.5), DIFFERENT, S),
        ((0.5, 0.0), NO_WORSE, S),
        ((0.5, -0.5), NO_WORSE, C),
    ],
)
def test_every_rival_counts(differences, relation, expected):
    assert judged(relation, against(*differences)) is expected


@pytest.mark.parametrize("relation", RELATIONS)
def test_with_a_rival_that_is_missing_only_a_contradiction_is_asked(relation):
    p_values = p_values_of_tests(against(0.5, np.nan), np.array([0.1]), relation)
    assert np.isnan(p_values.supported).all()
    assert np.isnan(p_values.no_difference).all()
    assert judged(BETTER, against(-0.5, np.nan)) is C


def test_a_contradiction_by_one_of_several_rivals_has_bonferronis_correction():
    one = p_values_of_tests(gap(-0.5), np.array([0.1]), BETTER).contradicted
    several = p_values_of_tests(against(-0.5, 0.5, 0.5), np.array([0.1]), BETTER).contradicted
    np.testing.assert_allclose(several, 3 * one)


@pytest.mark.parametrize(
    ("relation", "position"), [(BETTER, 1), (COMPARABLE, 1), (NO_WORSE, 1), (DIFFERENT, 2)]
)
def test_the_nearest_rival_is_the_least_favourable(relation, position):
    assert relation.nearest(against(0.3, -0.5, 0.1, np.nan)) == [position]


@given(st.integers(0, 10_000), st.floats(-0.3, 0.3), st.sampled_from(RELATIONS))
def test_units_do_not_matter(seed, by, relation):
    rival = by + np.random.default_rng(seed).normal(size=(2, 3, 5)) * 0.1
    plain = p_values_of_tests(compare(0 * rival, rival), np.full(3, 0.1), relation)
    scaled = p_values_of_tests(compare(0 * rival, 1024 * rival), np.full(3, 102.4), relation)
    np.testing.assert_allclose(np.stack(plain), np.stack(scaled), rtol=1e-9)


@given(st.integers(0, 10_000), st.floats(-0.3, 0.3), st.sampled_from(RELATIONS))
def test_at_most_one_outcome_is_told(seed, by, relation):
    rival = by + np.random.default_rng(seed).normal(size=(3, 1, 5)) * 0.05
    judged(relation, compare(np.zeros_like(rival), rival))


@pytest.mark.parametrize(
    ("true_difference", "wrong"), [(0.0, (S, C)), (0.1, (NONE,)), (-0.1, (NONE,))]
)
def test_a_single_test_is_wrong_as_often_as_its_level(true_difference, wrong):
    """A difference where there is none; no difference where it is as large as the margin."""
    random = np.random.default_rng(0)
    told = [
        judged(BETTER, compare(np.zeros((1, 1, 5)), true_difference + 0.03 * draws), 0.1)
        for draws in random.normal(size=(1000, 1, 1, 5))
    ]
    assert sum(one in wrong for one in told) / len(told) < 0.07
    if true_difference:
        assert sum(one in wrong for one in told) > 20  # it is not far below its level either


def tally(supported: int = 0, contradicted: int = 0, no_difference: int = 0, unclear: int = 0):
    return Tally(supported, contradicted, no_difference, unclear)


@pytest.mark.parametrize(
    ("counts", "needs", "expected"),
    [
        (tally(), NEARLY_ALL, "not tested"),
        (tally(unclear=5), NEARLY_ALL, "not tested"),
        (tally(10), NEARLY_ALL, "reproduced"),
        (tally(9, 1), NEARLY_ALL, "reproduced"),
        (tally(18, 0, 2), NEARLY_ALL, "reproduced"),
        (tally(8, 1), NEARLY_ALL, "partly"),
        (tally(5, unclear=5), NEARLY_ALL, "reproduced"),
        (tally(5, unclear=6), NEARLY_ALL, "partly"),
        (tally(2, 8), NEARLY_ALL, "partly"),
        (tally(1, 9), NEARLY_ALL, "not reproduced"),
        (tally(1, 4, 5, 30), NEARLY_ALL, "not reproduced"),
        (tally(0, 0, 3), NEARLY_ALL, "not reproduced"),
        (tally(3, 1), THREE_OF_FOUR, "reproduced"),
        (tally(2, 1), THREE_OF_FOUR, "partly"),
        (tally(2, 2), MOST, "partly"),
        (tally(3, 2), MOST, "reproduced"),
        (tally(1, 9, 0, 30), SOME, "reproduced"),
        (tally(0, 9), SOME, "not reproduced"),
    ],
    ids=str,
)
def test_verdict_on_a_claim_follows_from_its_tests(counts, needs, expected):
    assert verdict_of(counts, needs) == Verdict(expected)


def test_a_tally_counts_outcomes():
    counts = Tally.of([S, S, C, U, NONE, U, U])
    assert counts == tally(2, 1, 1, 3)
    assert (counts.conclusive, counts.tests) == (4, 7)
