"""Define claims: a sentence of the paper, and a function that yields its tests.

A claim has parts, which are statements about one dataset each. A part has a test for each training
size. A test compares one method, called `ours`, with one or more other methods, its rivals.
"""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING

from dlmexp.common.errors import UserError
from dlmexp.common.registry import Registry
from dlmexp.presentation.claims.rules import NEARLY_ALL, Outcome

if TYPE_CHECKING:
    from dlmexp.presentation.claims.evidence import Evidence


@dataclass(frozen=True)
class Origin:
    """Which commands and which versions of the code computed some records.

    Attributes:
        records: The number of records.
        commands: The commands that computed most of them, the most frequent first.
        commits: The commits of the code that computed them, sorted.
    """

    records: int = 0
    commands: list[str] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)


@dataclass
class ClaimTest:
    """A comparison at one training size of a dataset. Lower values are better.

    A test with several rivals is about all of them. Its numbers are those of the nearest rival,
    which decides the outcome: the one whose difference supports the statement least.

    Attributes:
        outcome: What the test says about the statement of its part; `judge` decides it.
        n: The number of training rows; None for tests without data.
        direction: The relation that is asserted, such as `lower than`.
        ours_name: The label of our method.
        rival_name: The label of the nearest rival.
        rivals: The number of rivals.
        ours: The mean of our values over the repetitions that both methods have.
        rival: The mean of the rival's values over these repetitions.
        difference: The mean difference, rival minus ours.
        low: The lower end of the 95 % interval of the mean difference, which is corrected for
            overlapping splits (Nadeau and Bengio 2003).
        high: The upper end of this interval.
        margin: The smallest difference that counts; NaN where it is unknown.
        effect: Cohen's d of the paired differences.
        repetitions: The number of repetitions that both methods have.
        won: The number of repetitions in which ours is lower.
        median: Whether medians replace the means above, because of outliers.
        p_values: The p-values of the outcomes that are possible.
        p: The p-value of the outcome; the smallest of `p_values` if the test can't tell.
        p_adjusted: This p-value, adjusted for all tests of the table (false discovery rate).
        reason: What is missing, such as repetitions, if the test can't tell for this reason.
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
        statement: The statement, without the dataset.
        dataset: The dataset; None where no data are involved.
        q: The parameterisation of q.
        tests: Its tests; empty where there are no results for them.
        reason: A remark on the outcomes, or on what was left out.
        supplementary: Whether the statement is ours and not the paper's. Such a statement does not
            count for the verdict on the claim.
        figures: Further numbers behind the outcomes, by name. (The word has another meaning in
            `Claim.figures`, which are plots. Plugins and the JSON of claims use both names.)
        repetitions: The smallest number of repetitions of its tests.
        origin: Which commands and commits computed the records.
        stands_for: The dataset of the paper that this one represents, if it is a stand-in; `judge`
            fills it in.
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
        number: The number that users type; numbers from 100 on are for claims of plugins.
        text: The sentence.
        where: Where the sentence stands in the paper.
        parts: The function that yields its parts, with their tests, from an `Evidence`.
        needs: The share of conclusive tests that must support the claim (`rules.verdict_of`).
        experiments: The experiments in `conf/experiment` that compute the records.
        figures: The figures that show it.
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
        """The place in the paper that `where` names first, such as `section 6.2`."""
        return re.split("[,;]", self.where)[0]


# The modules with the paper's claims. The registry imports them when it is first read.
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
        number: The number that users type; numbers from 100 on are free for plugins.
        where: Where the sentence stands in the paper.
        experiments: The experiments in `conf/experiment` that compute the records.
        text: The sentence. It has a default only so that its absence raises a helpful error.
        figures: The figures that show the claim; None means those with the names of the
            experiments.
        needs: The share of conclusive tests that must support the claim (`rules.verdict_of`).

    Raises:
        UserError: There is no text, or there is another claim of this number.
    """
    if not text:
        raise UserError(
            f'claim {number}: its sentence is missing: write @claim({number}, ..., text="...")'
        )

    def register(parts: PartsFunction) -> PartsFunction:
        registered = Claim(
            number=number,
            text=text,
            where=where,
            parts=parts,
            needs=needs,
            experiments=experiments,
            figures=experiments if figures is None else figures,
        )
        CLAIMS.add(str(number), registered)
        return parts

    return register


def claims() -> list[Claim]:
    """Return all claims in the order of their numbers."""
    registered = [CLAIMS[name] for name in CLAIMS]
    return sorted(registered, key=attrgetter("number"))
