"""Every rule says yes, no and perhaps where it should."""

import numpy as np
import pytest

from dlmexp.claims.rules import (
    AtSize,
    Sizes,
    State,
    Verdict,
    agreeing,
    almost_all,
    any_of,
    better,
    between,
    by_size,
    combine,
    comparable,
    every,
    most,
    no_worse,
    opposite,
)
from dlmexp.claims.statistics import Comparison
from dlmexp.claims.statistics import compare as compare_values

HOLDS, FAILS, MIXED, NOT_RUN = Verdict.HOLDS, Verdict.FAILS, Verdict.MIXED, Verdict.NOT_RUN
UNDECIDED, UNDECIDABLE = Verdict.UNDECIDED, Verdict.UNDECIDABLE
YES, NO, OPEN, NEITHER = State.SUPPORTED, State.CONTRADICTED, State.UNDECIDED, State.NEITHER
NO_MARGIN, DOUBTFUL, INCOMPLETE = State.NO_MARGIN, State.DOUBTFUL, State.INCOMPLETE


def compare(difference: float, scatter: float) -> Comparison:
    """Five repetitions in which the rival is higher by `difference`, give or take `scatter`."""
    return compare_values(np.zeros(5), difference + scatter * np.array([-1.0, -0.5, 0.0, 0.5, 1.0]))


def state(one: AtSize) -> State:
    return by_size({100: one}).states[100]


@pytest.mark.parametrize(
    ("difference", "scatter", "margin", "expected"),
    [
        (+0.1, 0.01, 0.02, YES),
        (-0.1, 0.01, 0.02, NO),
        (+0.1, 0.5, 0.02, OPEN),
        (+0.1, 0.5, None, OPEN),  # not significant, and no margin says that the interval is narrow
        (+0.001, 0.01, 0.02, NEITHER),
        (0.0, 0.0, None, NEITHER),  # just the same
    ],
)
def test_better(difference: float, scatter: float, margin: float | None, expected: State) -> None:
    assert state(better(compare(difference, scatter), margin)) is expected


@pytest.mark.parametrize(
    ("difference", "scatter", "margin", "expected"),
    [
        (+0.01, 0.004, 0.02, YES),
        (-0.01, 0.004, 0.02, YES),  # significant but small is comparable all the same
        (+0.05, 0.01, 0.02, NO),
        (-0.05, 0.01, 0.02, NO),
        (+0.01, 0.1, 0.02, OPEN),  # too noisy to call equal
        (+0.02, 0.01, 0.02, NEITHER),  # on the margin
        (0.0, 0.0, 0.02, YES),
        (+0.01, 0.004, None, NO_MARGIN),
    ],
)
def test_comparable(difference: float, scatter: float, margin: float | None, expected: State) -> None:
    assert state(comparable(compare(difference, scatter), margin)) is expected


@pytest.mark.parametrize(
    ("difference", "scatter", "margin", "expected"),
    [
        (+0.5, 0.01, 0.02, YES),
        (-0.01, 0.004, 0.02, YES),
        (-0.05, 0.01, 0.02, NO),
        (-0.05, 0.3, 0.02, OPEN),
        (-0.02, 0.01, 0.02, NEITHER),
        (+0.5, 0.01, None, YES),  # better is no worse, whatever the margin
        (-0.05, 0.01, None, DOUBTFUL),
        (+0.01, 0.1, None, NO_MARGIN),
    ],
)
def test_no_worse(difference: float, scatter: float, margin: float | None, expected: State) -> None:
    assert state(no_worse(compare(difference, scatter), margin)) is expected


def test_every_needs_all_and_fails_with_one() -> None:
    yes, no, perhaps = AtSize(0.001, 1.0), AtSize(1.0, 0.001), AtSize(0.2, 1.0, wide=True)
    assert state(every([yes, yes])) is YES
    assert state(every([yes, perhaps])) is OPEN
    assert state(every([yes, no])) is NO
    assert every([AtSize(1.0, 0.03), yes]).p_against == pytest.approx(0.06)  # two chances to be contradicted


def test_any_of_needs_one_and_fails_with_all() -> None:
    yes, no, perhaps = AtSize(0.001, 1.0), AtSize(1.0, 0.001), AtSize(0.2, 1.0, wide=True)
    assert state(any_of([yes, no])) is YES
    assert state(any_of([no, no])) is NO
    assert state(any_of([no, perhaps])) is OPEN
    assert any_of([AtSize(0.03, 1.0), no]).p_for == pytest.approx(0.06)


def test_opposite() -> None:
    assert state(opposite(AtSize(0.001, 1.0))) is NO
    assert state(opposite(AtSize(1.0, 0.001))) is YES
    assert state(opposite(AtSize(1.0, 1.0, margin_unknown=True))) is NO_MARGIN


def test_holms_correction_is_over_the_sizes() -> None:
    weak, strong = AtSize(0.03, 1.0), AtSize(0.001, 1.0)
    assert by_size({1: weak}).count(YES) == 1
    assert by_size({1: weak, 2: weak}).count(YES) == 0
    assert by_size({1: weak, 2: strong}).count(YES) == 2  # step-down: the weak one is the last


@pytest.mark.parametrize(
    ("states", "verdict"),
    [
        ([YES, YES, OPEN, OPEN], HOLDS),
        ([YES, YES, NEITHER, NEITHER], HOLDS),
        ([YES, YES, YES, NO], MIXED),
        ([NO, NO, YES, OPEN], FAILS),
        ([NO, OPEN, OPEN, OPEN], MIXED),
        ([YES, OPEN, OPEN, OPEN], UNDECIDED),
        ([OPEN], UNDECIDED),
        ([YES, NEITHER, NEITHER, NEITHER], MIXED),
        ([NEITHER, NEITHER], MIXED),
        ([YES, YES, NO_MARGIN], HOLDS),
        ([YES, YES, DOUBTFUL], UNDECIDABLE),
        ([YES, NO_MARGIN, NO_MARGIN], UNDECIDABLE),
        ([YES, YES, INCOMPLETE], HOLDS),
        ([YES, INCOMPLETE, INCOMPLETE], UNDECIDABLE),
        ([NO, INCOMPLETE], FAILS),
        ([], NOT_RUN),
    ],
)
def test_verdict_of_the_sizes(states: list[State], verdict: Verdict) -> None:
    assert Sizes(dict(enumerate(states))).verdict is verdict


def test_counts_are_said() -> None:
    assert Sizes(dict(enumerate([YES, YES, OPEN]))).words == (
        "supported at 2 of 3 sizes, contradicted at 0, undecided at 1"
    )
    assert Sizes({100: NO}).words == "supported at 0 of 1 size, contradicted at 1"


@pytest.mark.parametrize(
    ("verdicts", "verdict"),
    [
        ([HOLDS, HOLDS], HOLDS),
        ([FAILS, FAILS], FAILS),
        ([HOLDS, FAILS], MIXED),
        ([HOLDS, MIXED], MIXED),
        ([FAILS, UNDECIDED], MIXED),
        ([HOLDS, UNDECIDED], UNDECIDED),
        ([HOLDS, UNDECIDABLE], UNDECIDABLE),
        ([UNDECIDED, UNDECIDABLE], UNDECIDABLE),
        ([HOLDS, NOT_RUN], HOLDS),
        ([NOT_RUN], NOT_RUN),
        ([], NOT_RUN),
    ],
)
def test_combine(verdicts: list[Verdict], verdict: Verdict) -> None:
    assert combine(verdicts) is verdict


@pytest.mark.parametrize(
    ("yes", "of", "verdict"),
    [(5, 5, HOLDS), (4, 5, HOLDS), (3, 5, MIXED), (1, 5, FAILS), (0, 5, FAILS), (2, 2, UNDECIDABLE), (0, 0, NOT_RUN)],
)
def test_agreeing(yes: int, of: int, verdict: Verdict) -> None:
    assert agreeing(yes, of) is verdict


@pytest.mark.parametrize(("yes", "of", "verdict"), [(3, 5, HOLDS), (2, 4, MIXED), (1, 4, FAILS), (0, 0, NOT_RUN)])
def test_most(yes: int, of: int, verdict: Verdict) -> None:
    assert most(yes, of) is verdict


@pytest.mark.parametrize(
    ("yes", "of", "verdict"), [(100, 100, HOLDS), (95, 100, HOLDS), (92, 100, MIXED), (89, 100, FAILS), (0, 0, NOT_RUN)]
)
def test_almost_all(yes: int, of: int, verdict: Verdict) -> None:
    assert almost_all(yes, of) is verdict


def test_between() -> None:
    assert between(1.9, 1, 3, 5) is HOLDS
    assert between(3.1, 1, 3, 5) is FAILS
    assert between(1.9, 1, 3, 1) is UNDECIDABLE
    assert between(1.9, 1, 3, 0) is NOT_RUN
    assert between(float("nan"), 1, 3, 5) is FAILS
