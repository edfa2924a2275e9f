"""The rules: from comparisons to verdicts. Each is a few lines, and each is tested to say yes and to say no.

At each size a relation (`better`, `comparable`, `no_worse`) turns comparisons into a p-value for the statement and one
against it. `by_size` corrects both over the sizes (Holm) and counts where the statement is supported and contradicted;
`Sizes.verdict` makes a verdict of the counts; `combine` makes one of several parts.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dlmexp.claims.statistics import Comparison, holm
from dlmexp.claims.thresholds import AGREE_SHARE, ALMOST_ALL, ALPHA, HALF, MIN_REPETITIONS, NOT_ALMOST_ALL


class Verdict(StrEnum):
    HOLDS = "holds"
    FAILS = "fails"
    MIXED = "mixed"
    UNDECIDED = "undecided"  # the intervals are wider than the margin: more repetitions would tell
    UNDECIDABLE = "undecidable"  # the records lack what the claim's own rule needs
    NOT_RUN = "not run"


class State(StrEnum):
    """What one size says about a statement."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    UNDECIDED = "undecided"  # neither, and the interval is wider than the margin
    NEITHER = "neither"  # neither, although the interval is narrow enough
    INCOMPLETE = "incomplete"  # not contradicted, and a rival has too few repetitions to be compared with
    NO_MARGIN = "no margin"  # not supported, and the margin that would tell more is unknown
    DOUBTFUL = "perhaps contradicted"  # worse, and only the unknown margin could excuse it


@dataclass(frozen=True)
class AtSize:
    """p-values for and against a statement at one size. `margin_unknown`: the statement needs one, and it is taken as
    0; what is significant in favour stays so with any margin, the rest can't be told."""

    p_for: float
    p_against: float
    wide: bool = False  # the interval is wider than the margin (or no margin says that it is narrow)
    margin_unknown: bool = False
    incomplete: bool = False  # a rival that the statement is about could not be compared with


def better(comparison: Comparison, margin: float | None = None) -> AtSize:
    """Ours is lower than the rival. The margin only says which intervals are too wide to see a difference."""
    difference, p = comparison.difference, comparison.p
    wide = comparison.error > 0 and (margin is None or comparison.half_width > margin)
    return AtSize(p if difference > 0 else 1.0, p if difference < 0 else 1.0, wide)


def comparable(comparison: Comparison, margin: float | None) -> AtSize:
    """No difference beyond the margin, in either direction (two one-sided tests)."""
    if margin is None:
        return AtSize(1.0, 1.0, margin_unknown=True)
    p_for = max(comparison.p_above(-margin), comparison.p_below(margin))
    p_against = min(1.0, 2 * min(comparison.p_above(margin), comparison.p_below(-margin)))
    return AtSize(p_for, p_against, comparison.half_width > margin)


def no_worse(comparison: Comparison, margin: float | None) -> AtSize:
    """Ours is worse by less than the margin, or better. Against an unknown margin only `better` can be shown."""
    bound = -(margin or 0.0)
    p_for, p_against = comparison.p_above(bound), comparison.p_below(bound)
    wide = margin is not None and comparison.half_width > margin
    return AtSize(p_for, p_against, wide, margin is None)


def every(several: Iterable[AtSize]) -> AtSize:
    """All of several statements: as likely as the least likely (an intersection-union test needs no correction);
    contradicted where one is (Bonferroni)."""
    found = list(several)
    against = min(1.0, len(found) * min(one.p_against for one in found))
    return AtSize(max(one.p_for for one in found), against, *_unsure(found))


def any_of(several: Iterable[AtSize]) -> AtSize:
    """At least one of several statements: the mirror image of `every`."""
    found = list(several)
    p_for = min(1.0, len(found) * min(one.p_for for one in found))
    return AtSize(p_for, max(one.p_against for one in found), *_unsure(found))


def _unsure(several: list[AtSize]) -> tuple[bool, bool]:
    return any(one.wide for one in several), any(one.margin_unknown for one in several)


def opposite(one: AtSize) -> AtSize:
    """The statement that it is not so."""
    return AtSize(one.p_against, one.p_for, one.wide, one.margin_unknown)


@dataclass(frozen=True)
class Sizes:
    """The state at every size that could be judged."""

    states: Mapping[Any, State]

    def count(self, *states: State) -> int:
        return sum(state in states for state in self.states.values())

    @property
    def verdict(self) -> Verdict:
        """Holds: nowhere contradicted, supported at half of the sizes or more. Fails: contradicted at half or more.
        Undecidable: it hangs on an unknown margin, or on rivals that were not run. Undecided: sizes with wide intervals
        could still make it hold."""
        half = HALF * len(self.states)
        supported, contradicted = self.count(State.SUPPORTED), self.count(State.CONTRADICTED)
        if not self.states:
            return Verdict.NOT_RUN
        if supported >= half and not contradicted and not self.count(State.DOUBTFUL):
            return Verdict.HOLDS
        if contradicted >= half:
            return Verdict.FAILS
        if self.count(State.NO_MARGIN, State.DOUBTFUL, State.INCOMPLETE):
            return Verdict.UNDECIDABLE
        if not contradicted and supported + self.count(State.UNDECIDED) >= half:
            return Verdict.UNDECIDED
        return Verdict.MIXED

    @property
    def words(self) -> str:
        """`supported at 4 of 6 sizes, contradicted at 0, undecided at 2`."""
        total = len(self.states)
        text = f"supported at {self.count(State.SUPPORTED)} of {total} size{'' if total == 1 else 's'}"
        text += f", contradicted at {self.count(State.CONTRADICTED)}"
        for state in (State.UNDECIDED, State.NEITHER, State.INCOMPLETE, State.NO_MARGIN, State.DOUBTFUL):
            if number := self.count(state):
                text += f", {state} at {number}"
        return text


def by_size(statements: Mapping[Any, AtSize]) -> Sizes:
    """Which sizes support a statement and which contradict it, each way with Holm's correction over the sizes."""
    several = list(statements.values())
    p_for, p_against = holm([one.p_for for one in several]), holm([one.p_against for one in several])
    return Sizes(dict(zip(statements, map(_state, several, p_for, p_against), strict=True)))


def _state(one: AtSize, p_for: float, p_against: float) -> State:
    if p_for < ALPHA:
        return State.SUPPORTED
    if one.margin_unknown:
        return State.DOUBTFUL if p_against < ALPHA else State.NO_MARGIN
    if p_against < ALPHA:
        return State.CONTRADICTED
    if one.incomplete:
        return State.INCOMPLETE
    return State.UNDECIDED if one.wide else State.NEITHER


def combine(verdicts: Iterable[Verdict]) -> Verdict:
    """Of several parts that were run: what all of them say. Where they say different things it is mixed if a part fails
    or is mixed; otherwise some parts hold and the rest can't be told, and then the whole can't be told either."""
    judged = {verdict for verdict in verdicts if verdict is not Verdict.NOT_RUN}
    if len(judged) <= 1:
        return judged.pop() if judged else Verdict.NOT_RUN
    if judged & {Verdict.FAILS, Verdict.MIXED}:
        return Verdict.MIXED
    return Verdict.UNDECIDABLE if Verdict.UNDECIDABLE in judged else Verdict.UNDECIDED


def agreeing(yes: int, out_of: int) -> Verdict:
    """In (nearly) every repetition, in (nearly) none, or in some."""
    if out_of < MIN_REPETITIONS:
        return _too_few(out_of)
    if yes >= AGREE_SHARE * out_of:
        return Verdict.HOLDS
    return Verdict.FAILS if out_of - yes >= AGREE_SHARE * out_of else Verdict.MIXED


def most(yes: int, out_of: int) -> Verdict:
    """`For most`: more than half; fails where it is less than half."""
    if out_of == 0:
        return Verdict.NOT_RUN
    share = yes / out_of
    return Verdict.HOLDS if share > HALF else Verdict.FAILS if share < HALF else Verdict.MIXED


def almost_all(yes: int, out_of: int) -> Verdict:
    """`Almost all` of many runs."""
    if out_of == 0:
        return Verdict.NOT_RUN
    share = yes / out_of
    return Verdict.HOLDS if share >= ALMOST_ALL else Verdict.FAILS if share < NOT_ALMOST_ALL else Verdict.MIXED


def between(value: float, low: float, high: float, repetitions: int) -> Verdict:
    """A mean within given limits."""
    if repetitions < MIN_REPETITIONS:
        return _too_few(repetitions)
    return Verdict.HOLDS if math.isfinite(value) and low <= value <= high else Verdict.FAILS


def _too_few(repetitions: int) -> Verdict:
    return Verdict.UNDECIDABLE if repetitions else Verdict.NOT_RUN
