"""Decide what paired comparisons say about a statement, and what tests say about a claim.

docs/SPEC.md, section 8, has these rules in words. All numbers on which decisions depend are
constants at the top of this module, each with its reason.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from dlmexp.presentation.claims.paired import Comparisons, PairFlags, PairValues, SizeValues

# Of all conclusive tests under a protocol, at most this share is expected to be wrong (the method
# of Benjamini and Hochberg 1995, over the whole table).
FALSE_DISCOVERIES = 0.05
# The probability beyond each end of a 95 % interval.
TAIL = 0.025
# Fewer paired repetitions give no usable deviation (with two, |t| must exceed 12.7).
MIN_REPETITIONS = 3
# A claim is reproduced if nearly all conclusive tests support it: nine in ten, as one in twenty may
# be wrong by chance. It is not reproduced if at most one in ten supports it.
NEARLY_ALL = 0.9
NEARLY_NONE = 0.1
# The share of tests for claims that say `most`, or `three of four datasets`.
MOST = 0.5
THREE_OF_FOUR = 0.75
# For claims that say `in some cases`, one supporting test is enough.
SOME = 0.0
# At least half of all tests must be conclusive for a claim to be reproduced.
MIN_CONCLUSIVE_SHARE = 0.5
# The margin is at most 5 % of what the model explains, which is the metric of the trivial predictor
# minus that of the ELBO at the same size. Such a share has no unit, so it suits NLL, error rate and
# MRE on all data.
EXPLAINED_SHARE = 0.05
# The margin is also at most 10 % of the ELBO's metric, if 0 is the best value of the metric. This
# matters where the ELBO explains nearly all: on ringnorm its NLL is 0.07 and that of the trivial
# predictor 0.69, so that 5 % of the difference are half of the metric.
METRIC_SHARE = 0.10
# The task and metric without METRIC_SHARE: the NLL of a density may be negative.
DENSITY = ("regression", "nll")
# ECE and the distance of coverage from its nominal value are shares of rows. The trivial predictor
# explains nothing of them, so the margin is one percentage point.
PROBABILITY_MARGIN = 0.01
# Gradient statistics are compared as ratios. A difference of less than 5 % does not count.
RATIO_MARGIN = 0.05
# Selected betas are compared with 1 by their logarithm to base 2. The margin is one step of the
# paper's grid.
BETA_MARGIN = 1.0
# beta = 0 has no logarithm. It counts as half of the smallest beta of the paper's grid, 0.01.
BETA_FOR_ZERO = 0.005
# Condition (i), g.G/|G|^2, is `about 1` within 20 %: the paper reads 'roughly 1' off histograms
# that are a few tenths wide.
CONDITION_I_MARGIN = 0.2
# `Approximately 2` rejected tries per accepted one are between 1 and 3.
REJECTED_PER_ACCEPTED = 2.0
REJECTED_MARGIN = 1.0
# `Almost every run converges` is supported if at least 19 in 20 do, and contradicted if fewer than
# nine in ten do.
ALMOST_ALL_CONVERGED = 0.95
TOO_FEW_CONVERGED = 0.90
# Times are compared as ratios. Timings scatter by about 10 %, so smaller differences do not count.
COST_RATIO = 1.1
# The rounding error that is allowed when a derivative is compared with its bound.
BOUND_TOLERANCE = 1e-9


class Outcome(StrEnum):
    """What one test says about the statement that it tests.

    All outcomes but `UNCLEAR` are conclusive.
    """

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    NO_DIFFERENCE = "no difference"  # the difference is smaller than the margin
    UNCLEAR = "can't tell"  # the interval is too wide, or something is missing


class Verdict(StrEnum):
    """What the tests of a claim say together."""

    REPRODUCED = "reproduced"
    PARTLY = "partly"
    NOT_REPRODUCED = "not reproduced"
    NOT_TESTED = "not tested"


Margin = SizeValues  # the smallest difference that counts, by size; NaN where it is unknown
SizeFlags = Bool[np.ndarray, " S"]
RivalPositions = Int[np.ndarray, " S"]


class PValues(NamedTuple):
    """P-values by size for each conclusive outcome; NaN where the outcome is not tested for."""

    supported: SizeValues
    contradicted: SizeValues
    no_difference: SizeValues


@dataclass(frozen=True)
class Relation:
    """A relation of ours to every rival that a statement asserts.

    Attributes:
        words: The relation in words, such as `lower than`.
        p_values: The function that computes the p-values of tests of the relation. Its arguments
            are the comparisons, flags of those with enough repetitions, and the margin.
        support: The function that returns how much a difference, rival minus ours, supports the
            relation: the larger, the more.
    """

    words: str
    p_values: Callable[[Comparisons, PairFlags, Margin], PValues]
    support: Callable[[PairValues], PairValues]

    def nearest(self, comparisons: Comparisons) -> RivalPositions:
        """Return, by size, the position of the rival whose difference supports the relation least.

        This rival decides the outcome.
        """
        support = self.support(comparisons.difference)
        return np.where(np.isfinite(support), support, np.inf).argmin(axis=0)


# In the functions below, `has_enough` tells which comparisons have enough repetitions.


def _p_lower(comparisons: Comparisons, has_enough: PairFlags, margin: Margin) -> PValues:
    """Test that ours is lower than every rival, or else that it is higher than some rival.

    A difference counts only if it is at least the margin. The signs of the differences decide which
    of these two outcomes is tested for, so its p-value is two-sided.
    """
    difference = comparisons.difference
    lower = np.where(difference >= margin, comparisons.p, 1.0)
    higher = np.where(-difference >= margin, comparisons.p, 1.0)
    all_lower = np.all((difference > 0) | ~has_enough, axis=0)
    # No difference: ours is above no rival by the margin, and it is not below every rival by the
    # margin.
    not_higher = _against_every_rival(comparisons.p_above(-margin), has_enough)
    not_lower = _against_some_rival(comparisons.p_below(margin), has_enough)
    return PValues(
        supported=np.where(all_lower, _against_every_rival(lower, has_enough), np.nan),
        contradicted=np.where(all_lower, np.nan, _against_some_rival(higher, has_enough)),
        no_difference=np.maximum(not_higher, not_lower),
    )


def _p_equal(comparisons: Comparisons, has_enough: PairFlags, margin: Margin) -> PValues:
    """Test that ours differs from every rival by less than the margin, in both directions.

    Against each rival these are two one-sided tests (Schuirmann 1987).
    """
    inside = np.maximum(comparisons.p_above(-margin), comparisons.p_below(margin))
    beyond = np.where(abs(comparisons.difference) >= margin, comparisons.p, 1.0)
    return PValues(
        supported=_against_every_rival(inside, has_enough),
        contradicted=_against_some_rival(beyond, has_enough),
        no_difference=np.full_like(margin, np.nan),
    )


def _p_different(comparisons: Comparisons, has_enough: PairFlags, margin: Margin) -> PValues:
    """Test that ours differs from every rival by the margin or more."""
    inside = np.maximum(comparisons.p_above(-margin), comparisons.p_below(margin))
    beyond = np.where(abs(comparisons.difference) >= margin, comparisons.p, 1.0)
    return PValues(
        supported=_against_every_rival(beyond, has_enough),
        contradicted=_against_some_rival(inside, has_enough),
        no_difference=np.full_like(margin, np.nan),
    )


def _p_no_higher(comparisons: Comparisons, has_enough: PairFlags, margin: Margin) -> PValues:
    """Test that ours is lower than every rival, or higher by less than the margin."""
    higher = np.where(-comparisons.difference >= margin, comparisons.p, 1.0)
    return PValues(
        supported=_against_every_rival(comparisons.p_above(-margin), has_enough),
        contradicted=_against_some_rival(higher, has_enough),
        no_difference=np.full_like(margin, np.nan),
    )


def _against_every_rival(p: PairValues, has_enough: PairFlags) -> SizeValues:
    """Return the p-value of a statement about every rival, by size.

    It is the largest p-value of a rival. As all tests must reject, no correction is needed
    (intersection-union test).
    """
    return np.where(has_enough, p, 0.0).max(axis=0)


def _against_some_rival(p: PairValues, has_enough: PairFlags) -> SizeValues:
    """Return the p-value of a statement about some rival, by size, with Bonferroni's correction."""
    rivals = has_enough.sum(axis=0)
    smallest = np.where(has_enough, p, 1.0).min(axis=0)
    return np.minimum(1.0, rivals * smallest)


def _gain(differences: PairValues) -> PairValues:
    """Return the differences, rival minus ours: large ones support that ours is lower."""
    return differences


def _closeness(differences: PairValues) -> PairValues:
    """Return values that are largest where ours is equal to a rival."""
    return -abs(differences)


BETTER = Relation("lower than", _p_lower, support=_gain)
COMPARABLE = Relation("equal to", _p_equal, support=_closeness)
DIFFERENT = Relation("different from", _p_different, support=abs)
NO_WORSE = Relation("no higher than", _p_no_higher, support=_gain)


def p_values_of_tests(comparisons: Comparisons, margin: Margin, relation: Relation) -> PValues:
    """Return the p-values of the tests of a relation, by size.

    Where the margin is unknown, no outcome is tested for. Where only some rivals have enough
    repetitions, these can contradict the relation, but nothing can support it.
    """
    has_enough = comparisons.repetitions >= MIN_REPETITIONS
    some_have_enough = np.any(has_enough, axis=0) & np.isfinite(margin)
    all_have_enough = np.all(has_enough, axis=0) & some_have_enough
    p_values = relation.p_values(comparisons, has_enough, margin)
    return PValues(
        supported=np.where(all_have_enough, p_values.supported, np.nan),
        contradicted=np.where(some_have_enough, p_values.contradicted, np.nan),
        no_difference=np.where(all_have_enough, p_values.no_difference, np.nan),
    )


@dataclass(frozen=True)
class Tally:
    """How many tests have which outcome.

    Attributes:
        supported: The number of tests that support the claim.
        contradicted: The number of tests that contradict it.
        no_difference: The number of tests that show no difference.
        unclear: The number of tests that can't tell.
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
        """The number of conclusive tests, that is all but the unclear ones."""
        return self.supported + self.contradicted + self.no_difference

    @property
    def tests(self) -> int:
        """The number of tests."""
        return self.conclusive + self.unclear


def verdict_of(tally: Tally, needs: float = NEARLY_ALL) -> Verdict:
    """Return the verdict on a claim.

    Args:
        tally: The outcomes of its tests.
        needs: The share of conclusive tests that must support the claim: at least `NEARLY_ALL` or
            `THREE_OF_FOUR`, more than `MOST`, or more than none (`SOME`).
    """
    if not tally.conclusive:
        return Verdict.NOT_TESTED
    share = tally.supported / tally.conclusive
    is_supported = share > needs if needs in (MOST, SOME) else share >= needs
    enough_are_conclusive = tally.conclusive >= MIN_CONCLUSIVE_SHARE * tally.tests or needs == SOME
    if is_supported and enough_are_conclusive:
        return Verdict.REPRODUCED
    if share <= NEARLY_NONE:
        return Verdict.NOT_REPRODUCED
    return Verdict.PARTLY
