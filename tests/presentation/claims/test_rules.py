"""The rules from paired comparisons to states of sizes, verdicts on datasets and on claims."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dlmexp.presentation.claims import rules
from dlmexp.presentation.claims.paired import Comparisons, compare
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

S = SizeState.SUPPORTED
C = SizeState.CONTRADICTED
B = SizeState.BETTER_WITHIN
W = SizeState.WORSE_WITHIN
NONE = SizeState.NO_DIFFERENCE
U = SizeState.UNDECIDED
NOISE = np.array([-1.0, 0.5, 0.5, -0.3, 0.3]) * 0.001
REPETITIONS = 5


def state(
    relation: Relation, gap: float, margin: float = 0.1, noise: float = 1.0, repetitions: int = 5
) -> SizeState | None:
    """Return the state of one size, where ours is lower by `gap`."""
    rival = (gap + noise * NOISE[:repetitions])[None, None]
    return states(compare(np.zeros_like(rival), rival), np.array([margin]), relation)[0]


def with_p_values(p: list[list[float]], sign: float = 1.0) -> Comparisons:
    """Return comparisons of differences of 1 with two-sided p-values by rival and size."""
    difference = sign * np.ones_like(p)
    error = 1 / stats.t.isf(np.array(p) / 2, REPETITIONS - 1)
    count = np.full(difference.shape, REPETITIONS)
    return Comparisons(difference, difference, difference, error, difference, count, count)


@pytest.mark.parametrize(
    ("relation", "expected"),
    # Ours is lower by much more than the margin, by less, by nothing, higher by less, by more.
    [
        (BETTER, (S, B, NONE, W, C)),
        (COMPARABLE, (C, S, S, W, C)),
        (EQUAL, (C, S, S, S, C)),
        (NO_WORSE, (S, S, S, W, C)),
        (DIFFERENT, (S, C, C, C, S)),
    ],
)
def test_state_of_a_size_follows_from_difference_and_margin(relation, expected):
    assert tuple(state(relation, gap) for gap in (0.5, 0.03, 0.0, -0.03, -0.5)) == expected


@pytest.mark.parametrize("relation", [BETTER, COMPARABLE, NO_WORSE, DIFFERENT])
def test_wide_intervals_decide_nothing(relation):
    assert state(relation, 0.0, noise=1000) is U


def test_a_difference_at_the_margin_is_undecided():
    assert state(COMPARABLE, 0.1) is state(NO_WORSE, -0.1) is U


def test_least_effect_counts_from_the_margin_on():
    assert state(BETTER, 0.25, margin=0.25, noise=0.0) is S
    assert state(BETTER, 0.2499, margin=0.25, noise=0.0) is B
    assert state(BETTER, -0.25, margin=0.25, noise=0.0) is C
    assert state(BETTER, -0.2499, margin=0.25, noise=0.0) is W


def test_an_interval_as_wide_as_the_margin_is_narrow_enough():
    rival = NOISE[None, None] - NOISE.mean()
    comparisons = compare(np.zeros_like(rival), rival)
    half_width = comparisons.half_width(0.05)[0]
    assert states(comparisons, half_width, BETTER) == [NONE]
    assert states(comparisons, 0.999 * half_width, BETTER) == [U]


def test_without_a_margin_only_that_ours_is_better_can_be_shown():
    assert state(NO_WORSE, 0.5, np.nan) is S
    assert state(NO_WORSE, -0.5, np.nan) is SizeState.DOUBTFUL
    assert state(BETTER, -0.5, np.nan) is SizeState.DOUBTFUL
    assert state(BETTER, 0.5, np.nan) is SizeState.NO_MARGIN
    assert state(COMPARABLE, 0.0, np.nan) is SizeState.NO_MARGIN


def test_two_repetitions_are_not_judged_and_three_are():
    assert state(BETTER, 0.5, repetitions=2) is None
    assert state(BETTER, 0.5, repetitions=3) is S


def test_every_rival_counts():
    rivals = np.stack([0.5 + NOISE, -0.5 + NOISE])[:, None]
    ours = np.zeros_like(rivals)
    margin = np.array([0.1])
    assert states(compare(ours[:1], rivals[:1]), margin, BETTER) == [S]
    assert states(compare(ours, rivals), margin, BETTER) == [C]


def test_a_rival_that_is_missing_makes_a_size_incomplete():
    rivals = np.stack([0.5 + NOISE, np.full(5, np.nan)])[:, None]
    comparisons = compare(np.zeros_like(rivals), rivals)
    assert states(comparisons, np.array([0.1]), BETTER) == [SizeState.INCOMPLETE]


@pytest.mark.parametrize(("p", "expected"), [(0.0499, S), (0.0501, B)])
def test_a_difference_is_significant_at_five_per_cent(p, expected):
    margin = np.array([0.5])
    assert (states(with_p_values([[p]]), margin, BETTER) == [S]) == (expected is S)


def test_support_has_holms_correction_over_sizes():
    margin = np.full(2, 0.5)
    assert states(with_p_values([[0.03, 0.9]]), margin, BETTER)[0] is U
    assert states(with_p_values([[0.024, 0.9]]), margin, BETTER)[0] is S


def test_support_against_several_rivals_needs_no_correction():
    assert states(with_p_values([[0.03], [0.03]]), np.array([0.5]), BETTER) == [S]
    assert states(with_p_values([[0.03], [0.06]]), np.array([0.5]), BETTER) == [U]


def test_contradiction_has_bonferronis_correction_over_rivals():
    margin = np.array([0.5])
    assert states(with_p_values([[0.03]], sign=-1.0), margin, BETTER) == [C]
    assert states(with_p_values([[0.03], [0.9]], sign=-1.0), margin, BETTER) == [U]
    assert states(with_p_values([[0.024], [0.9]], sign=-1.0), margin, BETTER) == [C]


def test_a_large_loss_that_is_not_significant_is_no_contradiction():
    """The significant loss is inside the margin, the one beyond it is not significant."""
    difference = np.array([[-0.2], [-2.0]])
    error = np.array([[0.001], [5.0]])
    count = np.full((2, 1), REPETITIONS)
    comparisons = Comparisons(difference, difference, difference, error, difference, count, count)
    assert states(comparisons, np.array([0.5]), BETTER) == [W]


@pytest.mark.parametrize(
    ("relation", "position"), [(BETTER, 1), (COMPARABLE, 1), (NO_WORSE, 1), (DIFFERENT, 2)]
)
def test_the_verdict_hangs_on_the_least_favourable_difference(relation, position):
    assert relation.decides(np.array([0.3, -0.5, 0.1, np.nan])) == position


@given(st.integers(0, 10_000), st.floats(-0.3, 0.3), st.floats(0.001, 0.3))
def test_better_and_comparable_exclude_one_another(seed, gap, margin):
    rival = gap + np.random.default_rng(seed).normal(size=(1, 3, 5)) * 0.05
    comparisons = compare(np.zeros_like(rival), rival)
    margins = np.full(3, margin)
    for better, comparable in zip(
        states(comparisons, margins, BETTER), states(comparisons, margins, COMPARABLE), strict=True
    ):
        assert not (better in (S, C) and comparable in (S, W))


@given(
    st.integers(0, 10_000),
    st.floats(-0.3, 0.3),
    st.sampled_from([BETTER, COMPARABLE, NO_WORSE, DIFFERENT]),
)
def test_units_do_not_matter(seed, gap, relation):
    rival = gap + np.random.default_rng(seed).normal(size=(2, 3, 5)) * 0.1
    margin = np.full(3, 0.1)
    plain = states(compare(np.zeros_like(rival), rival), margin, relation)
    scaled = states(compare(np.zeros_like(rival), 1024 * rival), 1024 * margin, relation)
    assert plain == scaled


@pytest.fixture(scope="module")
def rejected_without_difference() -> float:
    """Share of 2000 datasets of six sizes, without any difference, in which a size is decided."""
    rivals = np.random.default_rng(0).normal(size=(2000, 1, 6, 5))
    decided = 0
    for rival in rivals:
        of_sizes = states(compare(np.zeros_like(rival), rival), np.full(6, 1e-9), BETTER)
        decided += S in of_sizes or C in of_sizes
    return decided / len(rivals)


def test_error_rate_over_all_sizes_is_the_level(rejected_without_difference):
    """It is neither larger nor much smaller: a test that never rejects keeps any level."""
    assert 0.04 < rejected_without_difference < 0.06


def test_a_clear_difference_is_found_at_every_size():
    rivals = 3 + np.random.default_rng(1).normal(size=(100, 1, 6, 20))
    for rival in rivals:
        of_sizes = states(compare(np.zeros_like(rival), rival), np.full(6, 0.1), BETTER)
        assert of_sizes == [S] * 6


@pytest.mark.parametrize(
    ("of_sizes", "strict", "tolerant"),
    [  # states of sizes -> verdict on `beats`, and on `no loss`
        ([S, S, NONE], "holds", "holds"),
        ([S, NONE], "holds", "holds"),
        ([S, S, C], "mixed", "mixed"),
        ([S, C], "fails", "fails"),
        ([C, C, S], "fails", "fails"),
        ([C, W, W, NONE], "fails", "mixed"),
        ([C, W, NONE, NONE], "fails", "mixed"),
        ([C, W, NONE, NONE, NONE], "mixed", "mixed"),
        ([C, W, W, B], "mixed", "mixed"),
        ([C, W, W, S], "mixed", "mixed"),
        ([S, W, NONE, NONE], "mixed", "worse within the margin"),
        ([W, NONE], "worse within the margin", "worse within the margin"),
        ([W, W, NONE], "worse within the margin", "worse within the margin"),
        ([W, NONE, NONE], "mixed", "mixed"),
        ([B, S, NONE, NONE], "better within the margin", "better within the margin"),
        ([B, NONE, NONE], "mixed", "mixed"),
        ([B, B, W, NONE], "mixed", "mixed"),
        ([NONE, NONE, U], "no difference found", "no difference found"),
        ([U, U, NONE], "undecided", "undecided"),
        ([S, U, NONE, NONE], "undecided", "undecided"),
        ([S, NONE, NONE], "mixed", "mixed"),
        ([S, SizeState.NO_MARGIN, SizeState.NO_MARGIN], "undecidable", "undecidable"),
        ([S, SizeState.INCOMPLETE, SizeState.INCOMPLETE], "undecidable", "undecidable"),
        ([S, S, SizeState.NO_MARGIN], "holds", "holds"),
        ([S, S, SizeState.DOUBTFUL], "undecidable", "undecidable"),
        ([], "not run", "not run"),
    ],
)
def test_verdict_on_a_dataset_follows_from_its_sizes(of_sizes, strict, tolerant):
    assert rules.verdict_of_sizes(of_sizes) == strict
    assert rules.verdict_of_sizes(of_sizes, tolerant=True) == tolerant


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["holds", "holds", "not run"], "holds"),
        (["holds", "fails"], "mixed"),
        (["holds", "no difference found"], "mixed"),
        (["holds", "undecided"], "undecided"),
        (["holds", "partly seen"], "undecided"),
        (["holds", "undecided", "undecidable"], "undecidable"),
        (["undecided", "undecidable"], "undecidable"),
        (["fails", "undecided"], "mixed"),
        (["mixed", "undecided"], "mixed"),
        (["no difference found", "undecided"], "undecided"),
        (["holds", "better within the margin"], "better within the margin"),
        (["holds", "worse within the margin"], "mixed"),
        (["better within the margin", "worse within the margin"], "mixed"),
        (["holds", "better within the margin", "undecided"], "undecided"),
        (["no difference found", "no difference found"], "no difference found"),
        (["not run"], "not run"),
        ([], "not run"),
    ],
)
def test_verdict_on_a_claim_follows_from_its_parts(verdicts, expected):
    assert rules.combine(map(Verdict, verdicts)) == expected


def test_tolerant_parts_may_be_worse_within_the_margin():
    verdicts = [Verdict.HOLDS, Verdict.WORSE_WITHIN]
    assert rules.combine(verdicts, tolerant=True) is Verdict.WORSE_WITHIN


@pytest.mark.parametrize(
    ("share", "expected"),
    [(1.0, "holds"), (0.8, "holds"), (0.79, "mixed"), (0.21, "mixed"), (0.2, "fails")],
)
def test_verdict_on_a_share(share, expected):
    assert rules.by_share(share, 0.8, 0.2, 5) == expected


@pytest.mark.parametrize(
    ("repetitions", "expected"), [(3, "holds"), (2, "undecidable"), (0, "not run")]
)
def test_a_share_of_too_few_repetitions_is_undecidable(repetitions, expected):
    assert rules.by_share(1.0, 0.8, 0.2, repetitions) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.0, "holds"),
        (2.0, "holds"),
        (3.0, "holds"),
        (0.99, "fails"),
        (3.1, "fails"),
        (np.nan, "fails"),
    ],
)
def test_verdict_on_a_mean_between_limits(value, expected):
    assert rules.between(value, 1, 3, 5) == expected
