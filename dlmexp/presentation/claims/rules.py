"""Paired comparisons over repetitions, all sizes and rivals at once; and the rules that make
verdicts of them: states of sizes, then the verdict of a part, then that of a claim. docs/SPEC.md,
section 8, has them in words.

First, every number that turns measurements into verdicts, with its reason. Nothing else in `claims`
decides by one."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import stdtr, stdtrit

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
# at that size: that has no unit, so it serves NLL, error rate and MRE on all data. It is at most 10
# % of ELBO's metric itself, where 0 is the best value: where ELBO explains nearly all (ringnorm:
# NLL 0.07 of 0.69), 5 % of that is half of the metric.
EXPLAINED_SHARE, METRIC_SHARE = 0.05, 0.10
# The task and metric without METRIC_SHARE: the NLL of a density has no zero, and may be negative.
DENSITY = ("regression", "nll")
# ECE, and how far coverage is from nominal, are shares of rows, of which the trivial predictor
# explains nothing: one percentage point.
PROBABILITY_MARGIN = 0.01
# Gradient statistics are compared as ratios: a difference of less than 5 % is none.
RATIO_MARGIN = 0.05
# `Selects beta > 1`: in at least four repetitions out of five; in at most one it does not; in
# between is mixed.
AGREE_SHARE = 0.8
# Claim 9 speaks of three datasets of four: with fewer than three it says how many of those seen are
# so.
COUNTS_NEEDED = 3
# Condition (i), g.G/|G|^2, is `about 1` within 20 %: the paper reads 'roughly 1' off histograms a
# few tenths wide.
ABOUT_ONE = 0.2
# `Approximately 2` rejected tries per accepted one, to the nearest whole number or its neighbour.
ABOUT_TWO = (1.0, 3.0)
# A rejection sampler starts at the prior, where most tries fail. Rates are kept for every 100
# steps; the first is out.
FIRST_ITERATIONS = 100
# `Almost all runs` converge: 19 in 20. Below nine in ten nobody would say so; in between the
# verdict is mixed.
ALMOST_ALL, NOT_ALMOST_ALL = 0.95, 0.90
# uPS costs `no more` than bMC where a step takes at most 10 % longer, as timings scatter; `slower`
# needs more.
COST_MARGIN = 1.1
# Rounding allowed when a derivative is held against its bound.
BOUND_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Comparisons:
    """K pairs of lines at S sizes. `difference` is rival minus ours; lower values are better, so a
    positive one speaks for ours. All arrays are [K, S]; NaN where a pair has no repetition in
    common."""

    ours: Float[np.ndarray, "K S"]
    rival: Float[np.ndarray, "K S"]
    difference: Float[np.ndarray, "K S"]
    error: Float[np.ndarray, "K S"]  # standard error of the mean difference
    effect: Float[np.ndarray, "K S"]  # Cohen's d of the paired differences
    repetitions: Int[np.ndarray, "K S"]
    won: Int[np.ndarray, "K S"]  # repetitions in which ours is lower

    @property
    def p(self) -> Float[np.ndarray, "K S"]:
        """Two-sided p-values of the paired t-test; NaN with fewer than two repetitions."""
        p = np.minimum(1.0, 2 * np.minimum(self.p_above(0.0), self.p_below(0.0)))
        return np.where(self.repetitions > 1, p, np.nan)

    def half_width(self, tail: float = ALPHA) -> Float[np.ndarray, "K S"]:
        """Half of the interval of the difference with `tail` on either side; with ALPHA that of two
        one-sided tests."""
        freedom = np.maximum(self.repetitions - 1, 1)
        return np.where(self.error > 0, stdtrit(freedom, 1 - tail) * self.error, self.error)

    def p_above(self, bound: float | Float[np.ndarray, " S"]) -> Float[np.ndarray, "K S"]:
        """One-sided p-values for `difference > bound`. Without any scatter the difference itself
        decides."""
        return self._one_sided(self.difference - bound)

    def p_below(self, bound: float | Float[np.ndarray, " S"]) -> Float[np.ndarray, "K S"]:
        """One-sided p-values for `difference < bound`."""
        return self._one_sided(bound - self.difference)

    def _one_sided(self, distance: Float[np.ndarray, "K S"]) -> Float[np.ndarray, "K S"]:
        with np.errstate(divide="ignore", invalid="ignore"):
            p = stdtr(np.maximum(self.repetitions - 1, 1), -distance / self.error)
        return np.where(
            np.isinf(self.error),
            1.0,
            np.where(self.error == 0, np.where(distance > 0, 0.0, 1.0), p),
        )

    def corrected(self, overlap: float) -> "Comparisons":
        """The same with Nadeau and Bengio's standard error: repetitions share rows, so their number
        R understates the variance of the mean, s^2 / R. It becomes s^2 (1 / R + overlap), where
        `overlap` is test rows / other rows."""
        return replace(self, error=self.error * np.sqrt(1 + self.repetitions * overlap))


def compare(ours: Float[np.ndarray, "K S R"], rival: Float[np.ndarray, "K S R"]) -> Comparisons:
    """Compares entry by entry; NaN where a repetition is missing."""
    both: Bool[np.ndarray, "K S R"] = np.isfinite(ours) & np.isfinite(rival)
    differences = np.where(both, rival - ours, 0.0)
    count = both.sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        our_mean, rival_mean = (
            np.where(both, values, 0.0).sum(-1) / count for values in (ours, rival)
        )
        mean = differences.sum(-1) / count
        deviation = np.sqrt(
            (np.where(both, differences - mean[..., None], 0.0) ** 2).sum(-1) / (count - 1)
        )
        still = deviation <= 1e-12 * np.maximum(
            abs(mean), 1e-300
        )  # no scatter: the difference decides at once
        error = np.where(count > 1, np.where(still, 0.0, deviation / np.sqrt(count)), np.inf)
        effect = np.where(
            still, np.where(mean == 0, 0.0, np.copysign(np.inf, mean)), mean / deviation
        )
    return Comparisons(
        our_mean, rival_mean, mean, error, effect, count, ((differences > 0) & both).sum(-1)
    )


def holm(p_values: Float[np.ndarray, " S"]) -> Float[np.ndarray, " S"]:
    """Holm's adjusted p-values: below ALPHA where a family of tests rejects with any false
    rejection at most ALPHA."""
    order = np.argsort(p_values, kind="stable")
    steps = np.minimum(1.0, (len(p_values) - np.arange(len(p_values))) * p_values[order])
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.maximum.accumulate(steps)
    return adjusted


class Verdict(StrEnum):
    HOLDS = "holds"
    FAILS = "fails"
    BETTER_WITHIN = (
        "better within the margin"  # significant, but smaller than the least difference that counts
    )
    WORSE_WITHIN = "worse within the margin"
    NO_DIFFERENCE = "no difference found"
    MIXED = "mixed"  # sizes or parts disagree
    UNDECIDED = "undecided"  # the intervals are too wide to tell: more repetitions would
    UNDECIDABLE = "undecidable"  # the records lack what the claim's own rule needs
    PARTLY_SEEN = "partly seen"  # the claim counts datasets, and too few of them were run
    NOT_RUN = "not run"


class State(StrEnum):
    """What one size says about a statement."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    BETTER_WITHIN = "better within the margin"
    WORSE_WITHIN = "worse within the margin"
    NO_DIFFERENCE = "no difference"  # and the interval is narrow enough to see one
    UNDECIDED = "undecided"  # the interval is too wide to tell
    INCOMPLETE = (
        "incomplete"  # not contradicted, and a rival has too few repetitions to be compared with
    )
    NO_MARGIN = "no margin"  # not supported, and the margin that would tell more is unknown
    DOUBTFUL = "perhaps contradicted"  # worse, and only the unknown margin could excuse it


Margin = Float[np.ndarray, " S"]  # by size; NaN: unknown
Sides = tuple[
    Float[np.ndarray, "K S"], Float[np.ndarray, "K S"]
]  # p-values for a statement, and against it


@dataclass(frozen=True)
class Rule:
    """A relation of ours to each rival.

    `sides` are the p-values for and against it. `least_effect`: a significant difference counts
    only if it is at least the margin. `tolerant`: a loss inside the margin is no contradiction.
    `decides` is the position of the difference that the verdict hangs on."""

    sides: Callable[[Comparisons, Margin], Sides]
    decides: Callable[[np.ndarray], np.intp]
    least_effect: bool = False
    tolerant: bool = False


def _better(comparisons: Comparisons, margin: Margin) -> Sides:
    """Ours is lower, or higher: a two-sided test."""
    difference, p = comparisons.difference, comparisons.p
    return np.where(difference > 0, p, 1.0), np.where(difference < 0, p, 1.0)


def _comparable(comparisons: Comparisons, margin: Margin) -> Sides:
    """No difference beyond the margin, in either direction: two one-sided tests."""
    p_for = np.maximum(comparisons.p_above(-margin), comparisons.p_below(margin))
    p_against = np.minimum(
        1.0, 2 * np.minimum(comparisons.p_above(margin), comparisons.p_below(-margin))
    )
    return np.where(np.isnan(margin), 1.0, p_for), np.where(np.isnan(margin), 1.0, p_against)


def _different(comparisons: Comparisons, margin: Margin) -> Sides:
    """A difference beyond the margin: the opposite of comparable."""
    p_for, p_against = _comparable(comparisons, margin)
    return p_against, p_for


def _no_worse(comparisons: Comparisons, margin: Margin) -> Sides:
    """Ours is worse by less than the margin, or better; without a margin only that it is better can
    be shown."""
    bound = -np.nan_to_num(margin)
    return comparisons.p_above(bound), np.where(np.isnan(margin), 1.0, comparisons.p_below(bound))


BETTER = Rule(_better, np.nanargmin, least_effect=True)
COMPARABLE = Rule(_comparable, lambda differences: np.nanargmax(abs(differences)), tolerant=True)
EQUAL = replace(
    COMPARABLE, tolerant=False
)  # of two on a par: a difference inside the margin is a loss of neither
NO_WORSE = Rule(_no_worse, np.nanargmin, tolerant=True)
DIFFERENT = Rule(_different, lambda differences: np.nanargmin(abs(differences)))


def states(comparisons: Comparisons, margin: Margin, rule: Rule) -> list[State | None]:
    """What each size says about the relation to all rivals; None where no rival has repetitions
    enough.

    Supported: as likely as the least likely of the relations (an intersection-union test needs no
    correction). Contradicted: where one is (Bonferroni). Both have Holm's correction over the
    sizes."""
    enough = comparisons.repetitions >= MIN_REPETITIONS
    judged, complete = (
        np.any(enough, axis=0, keepdims=True)[0],
        np.all(enough, axis=0, keepdims=True)[0],
    )
    unknown = np.isnan(margin)
    p_for, p_against = rule.sides(comparisons, margin)
    gains, losses = _better(comparisons, margin)
    for_, gain = (_significant(np.where(enough, p, 0.0).max(0), judged) for p in (p_for, gains))
    against, loss = (
        _significant(np.minimum(1.0, enough.sum(0) * np.where(enough, p, 1.0).min(0)), judged)
        for p in (p_against, losses)
    )
    if rule.least_effect:
        differences = np.where(enough, comparisons.difference, np.inf)
        lost = (enough.sum(0) * losses < ALPHA) & enough
        for_ &= differences.min(0) >= margin
        against &= np.where(lost, -differences, -np.inf).max(0) >= margin
    # A relation to the margin that is neither shown nor refuted has the margin in its interval.
    wide = (enough & (comparisons.error > 0) & ~(comparisons.half_width() <= margin)).any(0) | (
        not rule.least_effect
    )
    named = (
        (~judged, None),
        (for_ & complete & rule.tolerant & loss, State.WORSE_WITHIN),
        (for_ & complete, State.SUPPORTED),
        (unknown & loss, State.DOUBTFUL),
        (unknown, State.NO_MARGIN),
        (against, State.CONTRADICTED),
        (~complete, State.INCOMPLETE),
        (gain & rule.least_effect, State.BETTER_WITHIN),
        (loss & rule.least_effect, State.WORSE_WITHIN),
        (wide, State.UNDECIDED),
    )
    table = [(np.atleast_1d(holds).tolist(), state) for holds, state in named]
    return [
        next((state for holds, state in table if holds[size]), State.NO_DIFFERENCE)
        for size in range(len(judged))
    ]


def _significant(
    p: Float[np.ndarray, " S"], judged: Bool[np.ndarray, " S"]
) -> Bool[np.ndarray, " S"]:
    found = np.zeros(len(p), dtype=bool)
    found[judged] = holm(p[judged]) < ALPHA
    return found


def by_size(told: Collection[State], tolerant: bool = False) -> Verdict:
    """The verdict on a dataset, from the states of its sizes."""
    half = HALF * len(told)
    number = {state: sum(one is state for one in told) for state in State}
    supported, contradicted = number[State.SUPPORTED], number[State.CONTRADICTED]
    if not told:
        return Verdict.NOT_RUN
    if contradicted >= half:
        return Verdict.FAILS
    if not contradicted and not number[State.DOUBTFUL] and supported >= half:
        return Verdict.HOLDS
    if number[State.NO_MARGIN] or number[State.DOUBTFUL] or number[State.INCOMPLETE]:
        return Verdict.UNDECIDABLE
    worse, better = number[State.WORSE_WITHIN], number[State.BETTER_WITHIN]
    if contradicted:
        only_losses = not (tolerant or supported or better) and contradicted + worse >= half
        return Verdict.FAILS if only_losses else Verdict.MIXED
    if worse and worse + supported * tolerant >= half:
        return Verdict.WORSE_WITHIN
    if better and not worse and better + supported >= half:
        return Verdict.BETTER_WITHIN
    if supported + number[State.UNDECIDED] >= half:
        return Verdict.UNDECIDED
    return Verdict.MIXED if supported or better or worse else Verdict.NO_DIFFERENCE


def combine(verdicts: Iterable[Verdict], tolerant: bool = False) -> Verdict:
    """What all parts that were run say. Where they say different things: the weaker of `holds` and
    `within the margin` (`worse` only if the parts tolerate that); undecided or undecidable where
    the rest holds; otherwise mixed."""
    judged = {verdict for verdict in verdicts if verdict is not Verdict.NOT_RUN}
    if len(judged) <= 1:
        return judged.pop() if judged else Verdict.NOT_RUN
    unsure = judged & {Verdict.UNDECIDED, Verdict.UNDECIDABLE, Verdict.PARTLY_SEEN}
    told = judged - unsure
    if len(told) > 1:
        weaker = told - {Verdict.HOLDS}
        agreeing_with_holds = {Verdict.BETTER_WITHIN} | (
            {Verdict.WORSE_WITHIN} if tolerant else set()
        )
        if len(weaker) > 1 or not weaker <= agreeing_with_holds:
            return Verdict.MIXED
        told = weaker
    if not unsure:
        return told.pop()
    if told & {Verdict.FAILS, Verdict.MIXED}:
        return Verdict.MIXED
    return Verdict.UNDECIDABLE if Verdict.UNDECIDABLE in unsure else Verdict.UNDECIDED


def by_share(
    share: float, holds: float, fails: float, repetitions: int = MIN_REPETITIONS
) -> Verdict:
    """Holds from one share on, fails up to another, mixed in between; undecidable with too few
    repetitions."""
    if repetitions < MIN_REPETITIONS:
        return Verdict.UNDECIDABLE if repetitions else Verdict.NOT_RUN
    return Verdict.HOLDS if share >= holds else Verdict.FAILS if share <= fails else Verdict.MIXED


def between(value: float, low: float, high: float, repetitions: int) -> Verdict:
    """Whether a mean lies within limits; undecidable with too few repetitions."""
    return by_share(float(low <= value <= high), 1.0, 0.0, repetitions)
