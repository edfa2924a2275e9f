"""What a claim is: a sentence of the paper, and the function that yields its tests."""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dlmexp.common.errors import UserError
from dlmexp.common.registry import Registry
from dlmexp.presentation.claims.rules import NEARLY_ALL, Outcome

if TYPE_CHECKING:
    from dlmexp.presentation.claims.evidence import Evidence


@dataclass(frozen=True)
class Origin:
    """How records came to be.

    Attributes:
        records: Number of records.
        commands: The commands that computed most of them, the most frequent first.
        commits: Commits of the code that computed them, sorted.
    """

    records: int = 0
    commands: list[str] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)


@dataclass
class ClaimTest:
    """A test: a comparison at one size of a dataset; lower values are better.

    With several rivals it is about all of them; the numbers are of the nearest one, that the
    outcome hangs on.

    Attributes:
        outcome: What it says about the statement of its part; `judge` decides it.
        n: Number of training rows; None where there are none.
        direction: The relation that is asserted, such as `lower than`.
        ours_name: Our method, as figures write it.
        rival_name: The nearest rival.
        rivals: Number of rivals.
        ours: Mean of our values over the common repetitions.
        rival: Mean of the rival's values over them.
        difference: Mean of rival minus ours.
        low: Lower end of the 95 % interval of the mean difference, corrected for overlapping splits
            (Nadeau and Bengio 2003).
        high: Its upper end.
        margin: The smallest difference that counts; NaN where it is unknown.
        effect: Cohen's d of the paired differences.
        repetitions: Number of repetitions that both have.
        won: Number of those in which ours is lower.
        median: Medians stand for means, as outliers rule.
        p_values: P-values of the outcomes that are asked for.
        p: The p-value of the outcome; the smallest one where it can't tell.
        p_adjusted: The same, adjusted for all tests of the table (false discovery rate).
        reason: Why it can't tell, where something is missing.
    """

    outcome: Outcome = Outcome.UNCLEAR
    n: int | None = None
    direction: str = ""
    ours_name: str = ""
    rival_name: str = ""
    rivals: int = 0
    ours: float = math.nan
    rival: float = math.nan
    difference: float = math.nan
    low: float = math.nan
    high: float = math.nan
    margin: float = math.nan
    effect: float = math.nan
    repetitions: int = 0
    won: int = 0
    median: bool = False
    p_values: dict[Outcome, float] = field(default_factory=dict)
    p: float = math.nan
    p_adjusted: float = math.nan
    reason: str = ""


@dataclass
class Part:
    """A statement about one dataset under one parameterisation of q, with a test for each size.

    Attributes:
        statement: What is said, without the dataset.
        dataset: The dataset; None where no data are involved.
        q: The parameterisation of q.
        tests: Its tests; none where it was not run.
        reason: What was left out, or what stands behind the outcomes.
        supplementary: A statement of ours, which does not count for the verdict on the claim.
        figures: Other numbers behind the outcomes, by name.
        repetitions: Number of repetitions, the fewest of a test.
        origin: How the records came to be.
        stands_for: The paper's dataset for which this one stands in; `judge` fills it in.
    """

    statement: str
    dataset: str | None = None
    q: str | None = None
    tests: list[ClaimTest] = field(default_factory=list)
    reason: str = ""
    supplementary: bool = False
    figures: dict[str, float] = field(default_factory=dict)
    repetitions: int = 0
    origin: Origin = field(default_factory=Origin)
    stands_for: str | None = None

    @property
    def was_run(self) -> bool:
        """Whether there are any tests."""
        return bool(self.tests)


PartsFunction = Callable[["Evidence"], Iterable[Part]]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and the function that compares it with results.

    Attributes:
        number: Its number; numbers from 100 on are for claims of plugins.
        text: The sentence.
        where: Where it stands in the paper.
        parts: Function that yields its parts, with their tests, from an `Evidence`.
        needs: The share of the tests that can tell that must support it (`rules.verdict_of`).
        experiments: Names in `conf/experiment` of what computes the records.
        figures: Names of the figures that show it.
    """

    number: int
    text: str
    where: str
    parts: PartsFunction
    needs: float = NEARLY_ALL
    experiments: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()

    @property
    def section(self) -> str:
        """The first section of the paper in which it stands, such as `section 6.2`."""
        return re.split("[,;]", self.where)[0]


MODULES = ("methods", "betas", "sampling", "runs", "bounds")
CLAIMS: Registry[Claim] = Registry(
    "claim", *(f"dlmexp.presentation.claims.{name}" for name in MODULES)
)


def claim(
    number: int,
    where: str,
    *experiments: str,
    text: str = "",
    figures: tuple[str, ...] | None = None,
    needs: float = NEARLY_ALL,
) -> Callable[[PartsFunction], PartsFunction]:
    """Register the decorated function, which yields parts with tests, as a claim.

    Args:
        number: The number that users type; those from 100 on are free for plugins.
        where: Where the sentence stands in the paper.
        experiments: Names in `conf/experiment` of what computes the records.
        text: The sentence.
        figures: Figures that show it; those named like the experiments, if left out.
        needs: The share of the tests that can tell that must support it (`rules.verdict_of`).

    Raises:
        UserError: There is no text, or there is another claim of this number.
    """
    if not text:
        raise UserError(
            f'claim {number}: its sentence is missing: write @claim({number}, ..., text="...")'
        )

    def register(parts: PartsFunction) -> PartsFunction:
        shown_by = experiments if figures is None else figures
        CLAIMS.add(str(number), Claim(number, text, where, parts, needs, experiments, shown_by))
        return parts

    return register


def claims() -> list[Claim]:
    """Return all claims in the order of their numbers."""
    registered = [CLAIMS[name] for name in CLAIMS]
    return sorted(registered, key=lambda claim: claim.number)
