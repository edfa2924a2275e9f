"""Paired comparisons against scipy's, and the rules from these to states and verdicts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dlmexp.presentation.claims import rules
from dlmexp.presentation.claims.paired import compare, holm
from dlmexp.presentation.claims.rules import (
    BETTER,
    COMPARABLE,
    DIFFERENT,
    EQUAL,
    NO_WORSE,
    Relation,
    SizeState,
    Verdict,
    states,
)

S, C, B, W = (
    SizeState.SUPPORTED,
    SizeState.CONTRADICTED,
    SizeState.BETTER_WITHIN,
    SizeState.WORSE_WITHIN,
)
NONE, U = SizeState.NO_DIFFERENCE, SizeState.UNDECIDED
NOISE = np.array([-1.0, 0.5, 0.5, -0.3, 0.3]) * 0.001


def state(
    rule: Relation, gap: float, margin: float = 0.1, noise: float = 1.0, repetitions: int = 5
) -> SizeState | None:
    """A comparison at one size, where ours is lower by `gap`."""
    rival = (gap + noise * NOISE[:repetitions])[None, None]
    return states(compare(np.zeros_like(rival), rival), np.array([margin]), rule)[0]


@pytest.mark.parametrize(
    ("rule", "expected"),
    # ours lower by: much more than the margin, less than it, nothing, higher by less, higher by
    # more
    [
        (BETTER, (S, B, NONE, W, C)),
        (COMPARABLE, (C, S, S, W, C)),
        (EQUAL, (C, S, S, S, C)),
        (NO_WORSE, (S, S, S, W, C)),
        (DIFFERENT, (S, C, C, C, S)),
    ],
)
def test_a_size(rule, expected):
    assert tuple(state(rule, gap) for gap in (0.5, 0.03, 0.0, -0.03, -0.5)) == expected


@pytest.mark.parametrize("rule", [BETTER, COMPARABLE, NO_WORSE, DIFFERENT])
def test_wide_intervals_tell_nothing(rule):
    assert state(rule, 0.0, noise=1000) is U
    assert state(COMPARABLE, 0.1) is state(NO_WORSE, -0.1) is U, "a difference at the margin"


def test_without_a_margin_only_what_is_better_is_no_worse():
    assert state(NO_WORSE, 0.5, np.nan) is S
    assert state(NO_WORSE, -0.5, np.nan) is state(BETTER, -0.5, np.nan) is SizeState.DOUBTFUL
    assert state(BETTER, 0.5, np.nan) is state(COMPARABLE, 0.0, np.nan) is SizeState.NO_MARGIN


def test_every_rival_counts_and_a_missing_one_too():
    rivals = np.stack([0.5 + NOISE, -0.5 + NOISE, np.full(5, np.nan)])[:, None]
    ours, margin = np.zeros_like(rivals), np.array([0.1])
    assert state(BETTER, 0.5, repetitions=2) is None
    assert states(compare(ours[:1], rivals[:1]), margin, BETTER) == [S]
    assert states(compare(ours[:2], rivals[:2]), margin, BETTER) == [C]
    assert states(compare(ours[::2], rivals[::2]), margin, BETTER) == [SizeState.INCOMPLETE]


@given(st.integers(0, 10_000), st.floats(-0.3, 0.3), st.floats(0.001, 0.3))
def test_what_comparable_excludes_is_what_beats_needs(seed, gap, margin):
    rival = gap + np.random.default_rng(seed).normal(size=(1, 3, 5)) * 0.05
    found, margins = compare(np.zeros_like(rival), rival), np.full(3, margin)
    for better, comparable in zip(
        states(found, margins, BETTER), states(found, margins, COMPARABLE), strict=True
    ):
        assert not (better in (S, C) and comparable in (S, W))


@given(
    st.integers(0, 10_000),
    st.floats(-0.3, 0.3),
    st.sampled_from([BETTER, COMPARABLE, NO_WORSE, DIFFERENT]),
)
def test_units_do_not_matter(seed, gap, rule):
    rival = gap + np.random.default_rng(seed).normal(size=(2, 3, 5)) * 0.1
    told = [
        states(compare(np.zeros_like(rival), rival * unit), np.full(3, 0.1 * unit), rule)
        for unit in (1.0, 1024.0)
    ]
    assert told[0] == told[1]


def test_error_rate_of_support_is_kept():
    """About 5 % of 400 datasets of six sizes without a difference are called supported at some
    size."""
    rivals = np.random.default_rng(0).normal(size=(400, 1, 6, 5))
    told = [
        states(compare(np.zeros_like(rival), rival), np.full(6, 1e-9), BETTER) for rival in rivals
    ]
    assert sum(S in of_sizes for of_sizes in told) / 400 < 0.08


@pytest.mark.parametrize(
    ("told", "strict", "tolerant"),
    [  # states of sizes -> verdict on `beats`, and on `no loss`
        ([S, S, NONE], "holds", "holds"),
        ([S, S, C], "mixed", "mixed"),
        ([S, C], "fails", "fails"),
        ([C, C, S], "fails", "fails"),
        ([C, W, W, NONE], "fails", "mixed"),
        ([S, W, NONE, NONE], "mixed", "worse within the margin"),
        ([W, W, NONE], "worse within the margin", "worse within the margin"),
        ([B, S, NONE, NONE], "better within the margin", "better within the margin"),
        ([NONE, NONE, U], "no difference found", "no difference found"),
        ([U, U, NONE], "undecided", "undecided"),
        ([S, NONE, NONE], "mixed", "mixed"),
        ([S, SizeState.NO_MARGIN, SizeState.NO_MARGIN], "undecidable", "undecidable"),
        ([S, S, SizeState.DOUBTFUL], "undecidable", "undecidable"),
        ([], "not run", "not run"),
    ],
)
def test_a_dataset(told, strict, tolerant):
    assert (rules.verdict_of_sizes(told), rules.verdict_of_sizes(told, tolerant=True)) == (
        strict,
        tolerant,
    )


@pytest.mark.parametrize(
    ("several", "expected"),
    [
        (["holds", "holds", "not run"], "holds"),
        (["holds", "fails"], "mixed"),
        (["holds", "no difference found"], "mixed"),
        (["holds", "undecided"], "undecided"),
        (["holds", "undecided", "undecidable"], "undecidable"),
        (["fails", "undecided"], "mixed"),
        (["holds", "better within the margin"], "better within the margin"),
        (["holds", "worse within the margin"], "mixed"),
        (["no difference found", "no difference found"], "no difference found"),
        ([], "not run"),
    ],
)
def test_parts(several, expected):
    assert rules.combine(map(Verdict, several)) == expected
    assert (
        rules.combine([Verdict.HOLDS, Verdict.WORSE_WITHIN], tolerant=True) is Verdict.WORSE_WITHIN
    )


def test_shares_and_limits():
    assert [rules.by_share(share, 0.8, 0.2, 5) for share in (0.8, 0.5, 0.2)] == [
        "holds",
        "mixed",
        "fails",
    ]
    assert [rules.by_share(1.0, 0.8, 0.2, few) for few in (2, 0)] == ["undecidable", "not run"]
    assert [rules.between(value, 1, 3, 5) for value in (2.0, 3.1, float("nan"))] == [
        "holds",
        "fails",
        "fails",
    ]


numbers = st.floats(-5, 5, allow_nan=False, width=32)


@given(st.lists(st.tuples(numbers, numbers), min_size=3, max_size=20))
def test_a_comparison_is_a_paired_t_test(pairs):
    ours, rival = np.array(pairs).T
    found = compare(ours[None, None], rival[None, None])
    difference = rival - ours
    assert found.difference[0, 0] == pytest.approx(difference.mean(), abs=1e-9)
    if difference.std() > 1e-6:
        expected = stats.ttest_rel(rival, ours)
        assert found.p[0, 0] == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)
        low, high = expected.confidence_interval(0.90)
        assert found.half_width(0.05)[0, 0] == pytest.approx((high - low) / 2, rel=1e-6)
        above = stats.ttest_rel(rival, ours, alternative="greater").pvalue
        assert found.p_above(0.0)[0, 0] == pytest.approx(above, rel=1e-6, abs=1e-12)


def test_repetitions_that_one_side_lacks_do_not_count():
    ours, rival = np.array([1.0, 2.0, np.nan, 4.0]), np.array([2.0, np.nan, 3.0, 6.0])
    found = compare(ours[None, None], rival[None, None])
    assert (found.repetitions[0, 0], found.won[0, 0], found.difference[0, 0]) == (2, 2, 1.5)
    nothing = compare(np.full((1, 1, 3), np.nan), np.ones((1, 1, 3)))
    assert nothing.repetitions[0, 0] == 0


def test_without_scatter_the_difference_decides():
    found = compare(np.zeros((2, 1, 4)), np.array([[[1.0] * 4], [[0.0] * 4]]))
    assert found.p.tolist() == [[0.0], [1.0]]
    assert found.half_width(0.05).tolist() == [[0.0], [0.0]]


@given(st.lists(numbers, min_size=3, max_size=10), st.floats(0, 2))
def test_overlapping_splits_make_a_difference_less_certain(values, overlap):
    found = compare(np.zeros((1, 1, len(values))), np.array(values)[None, None])
    corrected = found.corrected(overlap)
    assert corrected.p[0, 0] >= found.p[0, 0] - 1e-12
    if found.error[0, 0] > 0:
        R, s = len(values), np.std(values, ddof=1)
        assert corrected.error[0, 0] == pytest.approx(s * np.sqrt(1 / R + overlap))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm(p):
    adjusted = holm(np.array(p))
    assert (adjusted >= np.array(p)).all()
    assert (adjusted <= np.minimum(1, len(p) * np.array(p)) + 1e-15).all()
    assert adjusted.min() == pytest.approx(min(1.0, len(p) * min(p)))
    assert (np.diff(adjusted[np.argsort(p, kind="stable")]) >= 0).all()
