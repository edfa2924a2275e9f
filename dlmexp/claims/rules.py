"""The rules: from comparisons to verdicts. Each is a few lines, and each is tested to say yes and to say no."""

from collections.abc import Iterable
from enum import StrEnum

from dlmexp.claims.statistics import Comparison
from dlmexp.claims.thresholds import AGREE_SHARE, ALMOST_ALL, MIN_REPETITIONS, NOT_ALMOST_ALL


class Verdict(StrEnum):
    HOLDS = "holds"
    FAILS = "fails"
    MIXED = "mixed"
    NOT_RUN = "not run"


def combine(verdicts: Iterable[Verdict]) -> Verdict:
    """Of several parts: what all of them say, else mixed. Parts that were not run do not count."""
    judged = {verdict for verdict in verdicts if verdict is not Verdict.NOT_RUN}
    if not judged:
        return Verdict.NOT_RUN
    return judged.pop() if len(judged) == 1 else Verdict.MIXED


def enough(comparison: Comparison | None) -> bool:
    """Whether there are repetitions enough to judge by."""
    return comparison is not None and comparison.repetitions >= MIN_REPETITIONS


def better(comparison: Comparison | None) -> Verdict:
    """Ours is significantly lower (holds), significantly higher or just the same (fails), or neither (mixed)."""
    if comparison is None or not enough(comparison):
        return Verdict.NOT_RUN
    if comparison.significant:
        return Verdict.HOLDS if comparison.difference > 0 else Verdict.FAILS
    return Verdict.FAILS if comparison.difference == 0 else Verdict.MIXED


def lowest(against: Iterable[Comparison | None]) -> Verdict:
    """Ours is the lowest: significantly below every rival. Fails where it fails against one of them."""
    verdicts = {better(comparison) for comparison in against} - {Verdict.NOT_RUN}
    if not verdicts:
        return Verdict.NOT_RUN
    if Verdict.FAILS in verdicts:
        return Verdict.FAILS
    return Verdict.MIXED if Verdict.MIXED in verdicts else Verdict.HOLDS


def comparable(comparison: Comparison | None, margin: float) -> Verdict:
    """No difference beyond `margin` (holds); one beyond it and significant (fails); undecided (mixed)."""
    if comparison is None or not enough(comparison):
        return Verdict.NOT_RUN
    if comparison.within(margin):
        return Verdict.HOLDS
    return Verdict.FAILS if abs(comparison.difference) > margin and comparison.significant else Verdict.MIXED


def no_worse(comparison: Comparison | None, margin: float) -> Verdict:
    """Ours loses less than `margin` (holds); more than that and significantly (fails); undecided (mixed)."""
    if comparison is None or not enough(comparison):
        return Verdict.NOT_RUN
    if comparison.not_below(margin):
        return Verdict.HOLDS
    return Verdict.FAILS if comparison.difference < -margin and comparison.significant else Verdict.MIXED


def opposite(verdict: Verdict) -> Verdict:
    """For a claim that something does not hold."""
    return {Verdict.HOLDS: Verdict.FAILS, Verdict.FAILS: Verdict.HOLDS}.get(verdict, verdict)


def agreeing(yes: int, out_of: int) -> Verdict:
    """In (nearly) every repetition, in (nearly) none, or in some."""
    if out_of < MIN_REPETITIONS:
        return Verdict.NOT_RUN
    if yes >= AGREE_SHARE * out_of:
        return Verdict.HOLDS
    return Verdict.FAILS if out_of - yes >= AGREE_SHARE * out_of else Verdict.MIXED


def almost_all(yes: int, out_of: int) -> Verdict:
    """`Almost all` of many runs."""
    if out_of == 0:
        return Verdict.NOT_RUN
    share = yes / out_of
    return Verdict.HOLDS if share >= ALMOST_ALL else Verdict.FAILS if share < NOT_ALMOST_ALL else Verdict.MIXED


def between(value: float, low: float, high: float, repetitions: int) -> Verdict:
    """A mean within given limits."""
    if repetitions < MIN_REPETITIONS:
        return Verdict.NOT_RUN
    return Verdict.HOLDS if low <= value <= high else Verdict.FAILS
