"""Every rule says yes, no and perhaps where it should."""

import pytest

from dlmexp.claims.rules import (
    Verdict,
    agreeing,
    almost_all,
    better,
    between,
    combine,
    comparable,
    lowest,
    no_worse,
    opposite,
)
from dlmexp.claims.statistics import Comparison

HOLDS, FAILS, MIXED, NOT_RUN = Verdict.HOLDS, Verdict.FAILS, Verdict.MIXED, Verdict.NOT_RUN


def compare(difference: float, p: float = 0.001, half_width: float = 0.001, repetitions: int = 5) -> Comparison:
    return Comparison(1.0, 1.0 + difference, difference, p, 1.0, half_width, repetitions, 5)


@pytest.mark.parametrize(
    ("comparison", "verdict"),
    [
        (compare(+0.1), HOLDS),
        (compare(+0.1, p=0.2), MIXED),
        (compare(-0.1), FAILS),
        (compare(-0.1, p=0.2), MIXED),
        (compare(0.0, p=1.0), FAILS),  # just the same is not better
        (compare(+0.1, repetitions=2), NOT_RUN),
        (None, NOT_RUN),
    ],
)
def test_better(comparison: Comparison | None, verdict: Verdict) -> None:
    assert better(comparison) is verdict


@pytest.mark.parametrize(
    ("several", "verdict"),
    [
        ([compare(+0.1), compare(+0.2)], HOLDS),
        ([compare(+0.1), compare(+0.2, p=0.3)], MIXED),
        ([compare(+0.1), compare(-0.2)], FAILS),
        ([compare(+0.1), compare(-0.2, p=0.4)], MIXED),
        ([compare(+0.1), None], HOLDS),
        ([], NOT_RUN),
        ([None], NOT_RUN),
    ],
)
def test_lowest(several: list[Comparison | None], verdict: Verdict) -> None:
    assert lowest(several) is verdict


@pytest.mark.parametrize(
    ("comparison", "verdict"),
    [
        (compare(+0.01, half_width=0.005), HOLDS),
        (compare(-0.01, half_width=0.005), HOLDS),  # significant but small is comparable all the same
        (compare(+0.05), FAILS),
        (compare(-0.05), FAILS),
        (compare(+0.05, p=0.3), MIXED),
        (compare(+0.01, half_width=0.05), MIXED),  # too noisy to call equal
        (compare(+0.01, repetitions=1), NOT_RUN),
        (None, NOT_RUN),
    ],
)
def test_comparable(comparison: Comparison | None, verdict: Verdict) -> None:
    assert comparable(comparison, margin=0.02) is verdict


@pytest.mark.parametrize(
    ("comparison", "verdict"),
    [
        (compare(+0.5), HOLDS),
        (compare(-0.01, half_width=0.005), HOLDS),
        (compare(-0.05), FAILS),
        (compare(-0.05, p=0.3, half_width=0.1), MIXED),
        (compare(-0.01, half_width=0.05), MIXED),
        (None, NOT_RUN),
    ],
)
def test_no_worse(comparison: Comparison | None, verdict: Verdict) -> None:
    assert no_worse(comparison, margin=0.02) is verdict


@pytest.mark.parametrize(
    ("verdicts", "verdict"),
    [
        ([HOLDS, HOLDS], HOLDS),
        ([FAILS, FAILS], FAILS),
        ([HOLDS, FAILS], MIXED),
        ([HOLDS, MIXED], MIXED),
        ([HOLDS, NOT_RUN], HOLDS),
        ([NOT_RUN], NOT_RUN),
        ([], NOT_RUN),
    ],
)
def test_combine(verdicts: list[Verdict], verdict: Verdict) -> None:
    assert combine(verdicts) is verdict


def test_opposite() -> None:
    assert [opposite(v) for v in (HOLDS, FAILS, MIXED, NOT_RUN)] == [FAILS, HOLDS, MIXED, NOT_RUN]


@pytest.mark.parametrize(
    ("yes", "of", "verdict"),
    [(5, 5, HOLDS), (4, 5, HOLDS), (3, 5, MIXED), (1, 5, FAILS), (0, 5, FAILS), (2, 2, NOT_RUN)],
)
def test_agreeing(yes: int, of: int, verdict: Verdict) -> None:
    assert agreeing(yes, of) is verdict


@pytest.mark.parametrize(
    ("yes", "of", "verdict"), [(100, 100, HOLDS), (95, 100, HOLDS), (92, 100, MIXED), (89, 100, FAILS), (0, 0, NOT_RUN)]
)
def test_almost_all(yes: int, of: int, verdict: Verdict) -> None:
    assert almost_all(yes, of) is verdict


def test_between() -> None:
    assert between(1.9, 1, 3, 5) is HOLDS
    assert between(3.1, 1, 3, 5) is FAILS
    assert between(1.9, 1, 3, 1) is NOT_RUN
    assert between(float("nan"), 1, 3, 5) is FAILS
