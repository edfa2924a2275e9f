"""The rules that turn paired comparisons into outcomes of tests, and these into verdicts.

docs/SPEC.md, section 8, has them in words. First stand the numbers that decide, each with its
reason; nothing else in `claims` decides by a number.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from dlmexp.presentation.claims.paired import Comparisons, PairFlags, PairValues, SizeValues

# Of all tests under a protocol that can tell, at most this share is expected to be wrong
# (Benjamini and Hochberg 1995, over the whole table).
FALSE_DISCOVERIES = 0.05
# What either side of a 95 % interval leaves out.
TAIL = 0.025
# Fewer paired repetitions give no usable deviation (with two, |t| must exceed 12.7).
MIN_REPETITIONS = 3
# A claim is reproduced where nearly all of the tests that can tell support it: nine in ten, as one
# in twenty may be wrong by chance. It is not reproduced where at most one in ten does.
NEARLY_ALL = 0.9
NEARLY_NONE = 0.1
# Claims that say `most`, or `three of four datasets`.
MOST = 0.5
THREE_OF_FOUR = 0.75
# Claims that say `in some cases`: one test is enough.
SOME = 0.0
# No more than half of the tests of a claim that is reproduced may be too wide to tell.
HALF = 0.5
# The margin is at most 5 % of what the model explains, the trivial predictor's metric minus ELBO's
# at that size: that has no unit, so it serves NLL, error rate and MRE on all data.
EXPLAINED_SHARE = 0.05
# It is at most 10 % of ELBO's metric itself, where 0 is the best value: where ELBO explains nearly
# all (ringnorm: NLL 0.07 of 0.69), 5 % of that is half of the metric.
METRIC_SHARE = 0.10
# The task and metric without METRIC_SHARE: the NLL of a density has no zero, and may be negative.
DENSITY = ("regression", "nll")
# ECE, and how far coverage is from nominal, are shares of rows, of which the trivial predictor
# explains nothing: one percentage point.
PROBABILITY_MARGIN = 0.01
# Gradient statistics are compared as ratios: a difference of less than 5 % does not count.
RATIO_MARGIN = 0.05
# Selected betas are compared with 1 by their logarithm to base 2: one step of the paper's grid.
BETA_MARGIN = 1.0
# beta = 0 has no logarithm: it counts as half of the smallest beta of the paper's grid, 0.01.
ZERO_BETA = 0.005
# Condition (i), g.G/|G|^2, is `about 1` within 20 %: the paper reads 'roughly 1' off histograms a
# few tenths wide.
ABOUT_ONE = 0.2
# `Approximately 2` rejected tries per accepted one: to the nearest whole number or its neighbour.
REJECTED = 2.0
ABOUT_TWO = 1.0
# A rejection sampler starts at the prior, where most tries fail. Rates are kept for every 100
# steps; the first is left out.
FIRST_ITERATIONS = 100
# `Almost all runs` converge: 19 in 20. Below nine in ten nobody would say so.
ALMOST_ALL = 0.95
NOT_ALMOST_ALL = 0.90
# Times are compared as ratios: timings scatter by 10 %.
COST_MARGIN = 1.1
# Rounding allowed when a derivative is compared with its bound.
BOUND_TOLERANCE = 1e-9


class Outcome(StrEnum):
    """What one test says about the statement that it tests."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    NO_DIFFERENCE = "no difference"  # the interval lies inside the margin
    UNCLEAR = "can't tell"  # the interval is too wide, or something is missing


class Verdict(StrEnum):
    """What the tests of a claim say together."""

    REPRODUCED = "reproduced"
    PARTLY = "partly"
    NOT_REPRODUCED = "not reproduced"
    NOT_TESTED = "not tested"


Margin = SizeValues  # NaN: unknown
SizeFlags = Bool[np.ndarray, " S"]
Positions = Int[np.ndarray, " S"]


class PValues(NamedTuple):
    """P-values by size for each outcome that a test can have; NaN: this is not asked."""

    supported: SizeValues
    contradicted: SizeValues
    no_difference: SizeValues


@dataclass(frozen=True)
class Relation:
    """A relation of ours to every rival that a statement asserts.

    Attributes:
        words: Ours in relation to a rival, for people.
        p_values: Function of comparisons, of which of them have enough repetitions, and of the
            margin that returns `PValues`.
        unfavourable: Function of differences by rival that returns those that speak least for the
            relation as the smallest.
    """

    words: str
    p_values: Callable[[Comparisons, PairFlags, Margin], PValues]
    unfavourable: Callable[[PairValues], PairValues]

    def nearest(self, comparisons: Comparisons) -> Positions:
        """Return the position of the rival that the outcome hangs on, by size."""
        order = self.unfavourable(comparisons.difference)
        return np.where(np.isfinite(order), order, np.inf).argmin(axis=0)


def _differs(comparisons: Comparisons, enough: PairFlags, margin: Margin) -> PValues:
    """Test that ours is lower than every rival, and that it is higher than any.

    A difference counts from the margin on. Only the side that the differences are on is asked for,
    by a two-sided p-value.
    """
    difference = comparisons.difference
    lower = np.where(difference >= margin, comparisons.p, 1.0)
    higher = np.where(-difference >= margin, comparisons.p, 1.0)
    all_lower = np.all((difference > 0) | ~enough, axis=0)
    return PValues(
        supported=np.where(all_lower, _against_every_rival(lower, enough), np.nan),
        contradicted=np.where(all_lower, np.nan, _against_some_rival(higher, enough)),
        no_difference=np.maximum(
            _against_every_rival(comparisons.p_above(-margin), enough),
            _against_some_rival(comparisons.p_below(margin), enough),
        ),
    )


def _is_equal(comparisons: Comparisons, enough: PairFlags, margin: Margin) -> PValues:
    """Test that ours differs from every rival by less than the margin, in both directions.

    (Two one-sided tests; Schuirmann 1987.)
    """
    inside = np.maximum(comparisons.p_above(-margin), comparisons.p_below(margin))
    beyond = np.where(abs(comparisons.difference) >= margin, comparisons.p, 1.0)
    return PValues(
        supported=_against_every_rival(inside, enough),
        contradicted=_against_some_rival(beyond, enough),
        no_difference=np.full_like(margin, np.nan),
    )


def _is_different(comparisons: Comparisons, enough: PairFlags, margin: Margin) -> PValues:
    """Test that ours differs from every rival by the margin or more: the opposite of equal."""
    inside = np.maximum(comparisons.p_above(-margin), comparisons.p_below(margin))
    beyond = np.where(abs(comparisons.difference) >= margin, comparisons.p, 1.0)
    return PValues(
        supported=_against_every_rival(beyond, enough),
        contradicted=_against_some_rival(inside, enough),
        no_difference=np.full_like(margin, np.nan),
    )


def _is_no_higher(comparisons: Comparisons, enough: PairFlags, margin: Margin) -> PValues:
    """Test that ours is lower than every rival, or higher by less than the margin."""
    higher = np.where(-comparisons.difference >= margin, comparisons.p, 1.0)
    return PValues(
        supported=_against_every_rival(comparisons.p_above(-margin), enough),
        contradicted=_against_some_rival(higher, enough),
        no_difference=np.full_like(margin, np.nan),
    )


def _against_every_rival(p: PairValues, enough: PairFlags) -> SizeValues:
    """Return the p-value of a statement about every rival.

    It is the largest one: all tests must reject, so no correction is needed (intersection-union
    test).
    """
    return np.where(enough, p, 0.0).max(axis=0)


def _against_some_rival(p: PairValues, enough: PairFlags) -> SizeValues:
    """Return the p-value of a statement about any rival, with Bonferroni's correction."""
    rivals = enough.sum(axis=0)
    smallest = np.where(enough, p, 1.0).min(axis=0)
    return np.minimum(1.0, rivals * smallest)


def _least_gain(differences: PairValues) -> PairValues:
    return differences


def _largest_difference(differences: PairValues) -> PairValues:
    return -abs(differences)


BETTER = Relation("lower than", _differs, _least_gain)
COMPARABLE = Relation("equal to", _is_equal, _largest_difference)
DIFFERENT = Relation("different from", _is_different, abs)
NO_WORSE = Relation("no higher than", _is_no_higher, _least_gain)


def p_values_of_tests(comparisons: Comparisons, margin: Margin, relation: Relation) -> PValues:
    """Return the p-values of the tests of a relation, by size.

    Without a margin nothing is asked. Without enough repetitions of every rival, only whether the
    relation is contradicted by those that have them.
    """
    enough = comparisons.repetitions >= MIN_REPETITIONS
    judged = np.any(enough, axis=0) & np.isfinite(margin)
    complete = np.all(enough, axis=0) & judged
    p_values = relation.p_values(comparisons, enough, margin)
    return PValues(
        supported=np.where(complete, p_values.supported, np.nan),
        contradicted=np.where(judged, p_values.contradicted, np.nan),
        no_difference=np.where(complete, p_values.no_difference, np.nan),
    )


@dataclass(frozen=True)
class Tally:
    """How many tests have which outcome.

    Attributes:
        supported: Number of tests that support the claim.
        contradicted: Number of those that contradict it.
        no_difference: Number of those that show no difference.
        unclear: Number of those that can't tell.
    """

    supported: int = 0
    contradicted: int = 0
    no_difference: int = 0
    unclear: int = 0

    @classmethod
    def of(cls, outcomes: Iterable[Outcome]) -> "Tally":
        """Count outcomes."""
        counts = Counter(outcomes)
        return cls(
            supported=counts[Outcome.SUPPORTED],
            contradicted=counts[Outcome.CONTRADICTED],
            no_difference=counts[Outcome.NO_DIFFERENCE],
            unclear=counts[Outcome.UNCLEAR],
        )

    @property
    def conclusive(self) -> int:
        """The number of tests that can tell."""
        return self.supported + self.contradicted + self.no_difference

    @property
    def tests(self) -> int:
        """The number of tests."""
        return self.conclusive + self.unclear


def verdict_of(tally: Tally, needs: float = NEARLY_ALL) -> Verdict:
    """Return the verdict on a claim.

    Args:
        tally: The outcomes of its tests.
        needs: The share of the tests that can tell that must support it: at least `NEARLY_ALL` or
            `THREE_OF_FOUR`, more than `MOST`, or any at all (`SOME`).
    """
    if not tally.conclusive:
        return Verdict.NOT_TESTED
    share = tally.supported / tally.conclusive
    is_enough = share > needs if needs in (MOST, SOME) else share >= needs
    can_tell = tally.conclusive >= HALF * tally.tests or needs == SOME
    if is_enough and can_tell:
        return Verdict.REPRODUCED
    if share <= NEARLY_NONE:
        return Verdict.NOT_REPRODUCED
    return Verdict.PARTLY
