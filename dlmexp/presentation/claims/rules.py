"""The rules that turn paired comparisons into verdicts (docs/SPEC.md, section 8).

Comparisons give the state of each size, the states of the sizes give the verdict of a part, and the
verdicts of the parts give that of a claim. First stand the numbers that turn measurements into
verdicts, each with its reason; nothing else in `claims` decides by a number.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from dlmexp.presentation.claims.paired import Comparisons, PairValues, SizeValues, holm

# Level of every test, after Holm's correction over the sizes of a dataset: the chance that any size
# is falsely called supported. To be lowest needs a significant difference from each rival; all
# tests must reject, so among rivals no correction is needed (intersection-union test).
ALPHA = 0.05
# Fewer paired repetitions give no usable deviation (with two, |t| must exceed 12.7): numbers are
# shown, no verdict.
MIN_REPETITIONS = 3
# A claim holds on a dataset where it is supported at half of the sizes or more, and fails where it
# is contradicted at half or more (docs/SPEC.md, section 8).
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
# `Selects beta > 1` holds where that is so in at least four repetitions out of five, fails where it
# is so in at most one, and is mixed in between.
AGREE_SHARE = 0.8
# Claim 9 speaks of three datasets of four. Where fewer than three were run, it has no verdict, but
# says on how many of them it is so.
COUNTS_NEEDED = 3
# Condition (i), g.G/|G|^2, is `about 1` within 20 %: the paper reads 'roughly 1' off histograms a
# few tenths wide.
ABOUT_ONE = 0.2
# `Approximately 2` rejected tries per accepted one, to the nearest whole number or its neighbour.
ABOUT_TWO = (1.0, 3.0)
# A rejection sampler starts at the prior, where most tries fail. Rates are kept for every 100
# steps; the first is left out.
FIRST_ITERATIONS = 100
# `Almost all runs` converge: 19 in 20. Below nine in ten nobody would say so; in between the
# verdict is mixed.
ALMOST_ALL = 0.95
NOT_ALMOST_ALL = 0.90
# uPS costs `no more` than bMC where a step takes at most 10 % longer, as timings scatter; `slower`
# needs more.
COST_MARGIN = 1.1
# Rounding allowed when a derivative is compared with its bound.
BOUND_TOLERANCE = 1e-9


class Verdict(StrEnum):
    """What the records say about a part of a claim, or about a claim."""

    HOLDS = "holds"
    FAILS = "fails"
    BETTER_WITHIN = "better within the margin"  # significant, but smaller than the margin
    WORSE_WITHIN = "worse within the margin"
    NO_DIFFERENCE = "no difference found"
    MIXED = "mixed"  # sizes or parts disagree
    UNDECIDED = "undecided"  # the intervals are too wide: more repetitions would decide
    UNDECIDABLE = "undecidable"  # the records lack what the claim's own rule needs
    PARTLY_SEEN = "partly seen"  # the claim counts datasets, and too few of them were run
    NOT_RUN = "not run"


class SizeState(StrEnum):
    """What one training size says about a statement."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    BETTER_WITHIN = "better within the margin"
    WORSE_WITHIN = "worse within the margin"
    NO_DIFFERENCE = "no difference"  # and the interval is narrow enough to see one
    UNDECIDED = "undecided"  # the interval is too wide
    INCOMPLETE = "incomplete"  # not contradicted, and a rival has too few repetitions
    NO_MARGIN = "no margin"  # not supported, and the margin that would decide is unknown
    DOUBTFUL = "perhaps contradicted"  # worse, and only the unknown margin could excuse it


Margin = SizeValues  # NaN: unknown
PairFlags = Bool[np.ndarray, "K S"]  # by rival and size
SizeFlags = Bool[np.ndarray, " S"]


class PValues(NamedTuple):
    """P-values for a statement and for its opposite, by rival and size."""

    supporting: PairValues
    contradicting: PairValues


@dataclass(frozen=True)
class Relation:
    """A relation of ours to each rival that a statement asserts.

    Attributes:
        p_values: Function of comparisons and margin that returns their `PValues`.
        decides: Position of the difference that the verdict depends on, among all differences.
        least_effect: A significant difference counts only if it is at least the margin.
        tolerant: A loss inside the margin does not contradict the statement.
    """

    p_values: Callable[[Comparisons, Margin], PValues]
    decides: Callable[[np.ndarray], np.intp]
    least_effect: bool = False
    tolerant: bool = False


def _better(comparisons: Comparisons, margin: Margin) -> PValues:
    """Test that ours is lower, against that it is higher (two-sided)."""
    difference = comparisons.difference
    p = comparisons.p
    return PValues(
        supporting=np.where(difference > 0, p, 1.0),
        contradicting=np.where(difference < 0, p, 1.0),
    )


def _comparable(comparisons: Comparisons, margin: Margin) -> PValues:
    """Test for no difference beyond the margin in either direction (two one-sided tests)."""
    inside = np.maximum(comparisons.p_above(-margin), comparisons.p_below(margin))
    beyond = np.minimum(comparisons.p_above(margin), comparisons.p_below(-margin))
    unknown = np.isnan(margin)
    return PValues(
        supporting=np.where(unknown, 1.0, inside),
        contradicting=np.where(unknown, 1.0, np.minimum(1.0, 2 * beyond)),
    )


def _different(comparisons: Comparisons, margin: Margin) -> PValues:
    """Test for a difference beyond the margin: the opposite of comparable."""
    comparable = _comparable(comparisons, margin)
    return PValues(comparable.contradicting, comparable.supporting)


def _no_worse(comparisons: Comparisons, margin: Margin) -> PValues:
    """Test that ours is better, or worse by less than the margin.

    Where the margin is unknown, only that ours is better can be shown.
    """
    bound = -np.nan_to_num(margin)
    return PValues(
        supporting=comparisons.p_above(bound),
        contradicting=np.where(np.isnan(margin), 1.0, comparisons.p_below(bound)),
    )


def _largest_magnitude(differences: np.ndarray) -> np.intp:
    return np.nanargmax(abs(differences))


def _smallest_magnitude(differences: np.ndarray) -> np.intp:
    return np.nanargmin(abs(differences))


BETTER = Relation(_better, np.nanargmin, least_effect=True)
COMPARABLE = Relation(_comparable, _largest_magnitude, tolerant=True)
# Where a statement calls two equal, a difference inside the margin is a loss of neither.
EQUAL = replace(COMPARABLE, tolerant=False)
NO_WORSE = Relation(_no_worse, np.nanargmin, tolerant=True)
DIFFERENT = Relation(_different, _smallest_magnitude)


def states(comparisons: Comparisons, margin: Margin, relation: Relation) -> list[SizeState | None]:
    """Return what each size says about the relation to all rivals.

    A size is None where no rival has enough repetitions. A relation is supported if its least
    likely rival supports it (an intersection-union test needs no correction), and contradicted if
    any rival contradicts it (Bonferroni). Both have Holm's correction over the sizes.
    """
    enough = comparisons.repetitions >= MIN_REPETITIONS
    judged = np.any(enough, axis=0)
    complete = np.all(enough, axis=0)
    unknown = np.isnan(margin)

    p_values = relation.p_values(comparisons, margin)
    supported = _against_every_rival(p_values.supporting, enough)
    contradicted = _against_some_rival(p_values.contradicting, enough)
    gain_and_loss = _better(comparisons, margin)
    gain = _against_every_rival(gain_and_loss.supporting, enough)
    loss = _against_some_rival(gain_and_loss.contradicting, enough)
    if relation.least_effect:
        supported &= _smallest_gain(comparisons, enough) >= margin
        contradicted &= _largest_loss(comparisons, gain_and_loss.contradicting, enough) >= margin
        undecided = _has_wide_interval(comparisons, enough, margin)
    else:
        # These relations compare the difference with the margin: where one is neither shown nor
        # refuted, the margin is inside the interval of the difference.
        undecided = np.ones_like(judged)

    # The first that applies is the state of a size.
    precedence = (
        (~judged, None),
        (supported & complete & loss & relation.tolerant, SizeState.WORSE_WITHIN),
        (supported & complete, SizeState.SUPPORTED),
        (unknown & loss, SizeState.DOUBTFUL),
        (unknown, SizeState.NO_MARGIN),
        (contradicted, SizeState.CONTRADICTED),
        (~complete, SizeState.INCOMPLETE),
        (gain & relation.least_effect, SizeState.BETTER_WITHIN),
        (loss & relation.least_effect, SizeState.WORSE_WITHIN),
        (undecided, SizeState.UNDECIDED),
        (np.ones_like(judged), SizeState.NO_DIFFERENCE),
    )
    conditions = np.stack([condition for condition, _ in precedence])
    first = conditions.argmax(axis=0)
    return [precedence[position][1] for position in first]


def _against_every_rival(p: PairValues, enough: PairFlags) -> SizeFlags:
    """Return at which sizes the tests against all rivals reject."""
    largest_p = np.where(enough, p, 0.0).max(axis=0)
    return _significant(largest_p, np.any(enough, axis=0))


def _against_some_rival(p: PairValues, enough: PairFlags) -> SizeFlags:
    """Return at which sizes the test against any rival rejects, with Bonferroni's correction."""
    rivals = enough.sum(axis=0)
    smallest_p = np.where(enough, p, 1.0).min(axis=0)
    corrected_p = np.minimum(1.0, rivals * smallest_p)
    return _significant(corrected_p, np.any(enough, axis=0))


def _significant(p: SizeValues, judged: SizeFlags) -> SizeFlags:
    """Return which tests reject, with Holm's correction over the sizes that are judged."""
    rejected = np.zeros(len(p), dtype=bool)
    rejected[judged] = holm(p[judged]) < ALPHA
    return rejected


def _smallest_gain(comparisons: Comparisons, enough: PairFlags) -> SizeValues:
    """Return by how much ours is lower than the nearest rival."""
    return np.where(enough, comparisons.difference, np.inf).min(axis=0)


def _largest_loss(comparisons: Comparisons, p: PairValues, enough: PairFlags) -> SizeValues:
    """Return the largest of the significant losses against single rivals; -inf without any.

    `p` are the p-values for a loss.
    """
    rivals = enough.sum(axis=0)
    corrected_p = rivals * p  # Bonferroni
    lost = (corrected_p < ALPHA) & enough
    return np.where(lost, -comparisons.difference, -np.inf).max(axis=0)


def _has_wide_interval(comparisons: Comparisons, enough: PairFlags, margin: Margin) -> SizeFlags:
    """Return at which sizes an interval is too wide to see a difference of the margin."""
    narrow = comparisons.half_width(ALPHA) <= margin
    return np.any(enough & (comparisons.error > 0) & ~narrow, axis=0)


def verdict_of_sizes(states: Collection[SizeState], tolerant: bool = False) -> Verdict:
    """Return the verdict on a dataset from the states of its sizes."""
    if not states:
        return Verdict.NOT_RUN
    count = Counter(states)
    half = HALF * len(states)
    supported = count[SizeState.SUPPORTED]
    contradicted = count[SizeState.CONTRADICTED]
    if contradicted >= half:
        return Verdict.FAILS
    if not contradicted and not count[SizeState.DOUBTFUL] and supported >= half:
        return Verdict.HOLDS
    if count[SizeState.NO_MARGIN] or count[SizeState.DOUBTFUL] or count[SizeState.INCOMPLETE]:
        return Verdict.UNDECIDABLE
    if contradicted:
        return _verdict_below_half_contradicted(count, half, tolerant)
    return _verdict_without_contradiction(count, half, tolerant)


def _verdict_below_half_contradicted(
    count: Counter[SizeState], half: float, tolerant: bool
) -> Verdict:
    """Return the verdict where some sizes contradict, but fewer than half.

    A statement that tolerates no loss fails where no size speaks for it and half or more are worse.
    """
    speaks_for = count[SizeState.SUPPORTED] or count[SizeState.BETTER_WITHIN]
    worse = count[SizeState.CONTRADICTED] + count[SizeState.WORSE_WITHIN]
    if not tolerant and not speaks_for and worse >= half:
        return Verdict.FAILS
    return Verdict.MIXED


def _verdict_without_contradiction(
    count: Counter[SizeState], half: float, tolerant: bool
) -> Verdict:
    """Return the verdict where no size contradicts, and fewer than half support."""
    supported = count[SizeState.SUPPORTED]
    better = count[SizeState.BETTER_WITHIN]
    worse = count[SizeState.WORSE_WITHIN]
    # Supported sizes count with those worse within the margin only if that loss is tolerated.
    as_expected = supported if tolerant else 0
    if worse and worse + as_expected >= half:
        return Verdict.WORSE_WITHIN
    if better and not worse and better + supported >= half:
        return Verdict.BETTER_WITHIN
    if supported + count[SizeState.UNDECIDED] >= half:
        return Verdict.UNDECIDED
    if supported or better or worse:
        return Verdict.MIXED
    return Verdict.NO_DIFFERENCE


UNSURE = {Verdict.UNDECIDED, Verdict.UNDECIDABLE, Verdict.PARTLY_SEEN}


def combine(verdicts: Iterable[Verdict], tolerant: bool = False) -> Verdict:
    """Return what all parts that were run say together.

    Parts that say the same give just that. `Holds` and `better within the margin` give the latter;
    so do `holds` and `worse within the margin`, if the parts tolerate a loss. Where some parts are
    unsure, and the others neither fail nor contradict one another, the result is undecidable if a
    part is, else undecided. All else is mixed.
    """
    judged = {verdict for verdict in verdicts if verdict is not Verdict.NOT_RUN}
    if len(judged) <= 1:
        return judged.pop() if judged else Verdict.NOT_RUN
    unsure = judged & UNSURE
    sure = judged - unsure
    common = _weakest(sure, tolerant) if sure else None
    if not unsure and common:
        return common
    if common in (Verdict.FAILS, Verdict.MIXED):
        return Verdict.MIXED
    return Verdict.UNDECIDABLE if Verdict.UNDECIDABLE in unsure else Verdict.UNDECIDED


def _weakest(verdicts: set[Verdict], tolerant: bool) -> Verdict:
    """Return the verdict that decided parts share; mixed where they contradict one another."""
    besides_holds = verdicts - {Verdict.HOLDS}
    if not besides_holds:
        return Verdict.HOLDS
    if len(besides_holds) > 1:
        return Verdict.MIXED
    weaker = besides_holds.pop()
    agrees = weaker is Verdict.BETTER_WITHIN or (tolerant and weaker is Verdict.WORSE_WITHIN)
    if Verdict.HOLDS not in verdicts or agrees:
        return weaker
    return Verdict.MIXED


def by_share(
    share: float, holds: float, fails: float, repetitions: int = MIN_REPETITIONS
) -> Verdict:
    """Return the verdict on a share of runs.

    Args:
        share: Share of the runs in which the statement is true.
        holds: It holds from this share on.
        fails: It fails up to this share, and is mixed in between.
        repetitions: With fewer than `MIN_REPETITIONS` it is undecidable.
    """
    if repetitions < MIN_REPETITIONS:
        return Verdict.UNDECIDABLE if repetitions else Verdict.NOT_RUN
    if share >= holds:
        return Verdict.HOLDS
    if share <= fails:
        return Verdict.FAILS
    return Verdict.MIXED


def between(value: float, low: float, high: float, repetitions: int) -> Verdict:
    """Return whether a mean lies within limits; undecidable with too few repetitions."""
    share_inside = 1.0 if low <= value <= high else 0.0
    return by_share(share_inside, holds=1.0, fails=0.0, repetitions=repetitions)
