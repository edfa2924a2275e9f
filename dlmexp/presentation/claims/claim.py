"""What a claim is: a sentence of the paper, and the function that yields its judged parts."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dlmexp.common.errors import UserError
from dlmexp.common.registry import Registry
from dlmexp.presentation.claims.rules import SizeState, Verdict, combine

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


@dataclass(frozen=True)
class PairedTest:
    """A paired test between two methods at one size; lower values are better.

    Attributes:
        ours_name: Our method, as figures write it.
        rival_name: The other one.
        n: Number of training rows.
        margin: The smallest difference that counts; NaN where it is unknown.
        ours: Mean of our values.
        rival: Mean of the rival's values.
        difference: Mean of rival minus ours.
        error: Standard error of the mean difference.
        effect: Cohen's d of the paired differences.
        repetitions: Number of repetitions that both have.
        won: Number of those in which ours is lower.
        p: Two-sided p-value.
        p_corrected: The same, corrected for overlapping splits (Nadeau and Bengio 2003).
        half_width: Half of the 90 % interval of the mean difference.
    """

    ours_name: str
    rival_name: str
    n: int
    margin: float
    ours: float
    rival: float
    difference: float
    error: float
    effect: float
    repetitions: int
    won: int
    p: float
    p_corrected: float
    half_width: float


@dataclass
class Part:
    """A statement about one dataset under one parameterisation of q, with its verdict.

    Attributes:
        statement: What is said, without the dataset.
        dataset: The dataset; None where no data are involved.
        q: The parameterisation of q.
        verdict: The verdict.
        corrected: The verdict with Nadeau and Bengio's standard errors, where there are tests.
        reason: Why there is no clear verdict, or what was left out.
        tolerant: The statement allows a loss inside the margin.
        supplementary: A statement of ours, which does not count for the verdict on the claim.
        states: What each size says, by number of training rows.
        tests: The paired tests behind the states.
        deciding: Position of the test that the verdict depends on.
        figures: Other numbers that the verdict depends on, by name.
        repetitions: Number of repetitions.
        few: There are too few repetitions for a verdict.
        origin: How the records came to be.
        stands_for: The paper's dataset for which this one stands in; `judge` fills it in.
    """

    statement: str
    dataset: str | None = None
    q: str | None = None
    verdict: Verdict = Verdict.NOT_RUN
    corrected: Verdict | None = None
    reason: str = ""
    tolerant: bool = False
    supplementary: bool = False
    states: dict[int, SizeState] = field(default_factory=dict)
    tests: list[PairedTest] = field(default_factory=list)
    deciding: int | None = None
    figures: dict[str, float] = field(default_factory=dict)
    repetitions: int = 0
    few: bool = False
    origin: Origin = field(default_factory=Origin)
    stands_for: str | None = None

    @property
    def was_run(self) -> bool:
        """Whether there are any records about it."""
        return self.verdict is not Verdict.NOT_RUN


PartsFunction = Callable[["Evidence"], Iterable[Part]]


def all_parts(parts: list[Part]) -> Verdict:
    """Return the verdict on a claim of which every part counts: the usual way to sum up."""
    tolerant = all(part.tolerant for part in parts)
    return combine((part.verdict for part in parts), tolerant)


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and the function that compares it with results.

    Attributes:
        number: Its number; numbers from 100 on are for claims of plugins.
        text: The sentence.
        where: Where it stands in the paper.
        parts: Function that yields its judged parts from an `Evidence`.
        sum_up: Function that makes one verdict of those of the parts.
        experiments: Names in `conf/experiment` of what computes the records.
        figures: Names of the figures that show it.
        seen: Function that says, for a claim that counts datasets, on how many of those that were
            run it holds; used where they are too few for a verdict.
    """

    number: int
    text: str
    where: str
    parts: PartsFunction
    sum_up: Callable[[list[Part]], Verdict] = all_parts
    experiments: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    seen: Callable[[list[Part]], str] | None = None


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
    sum_up: Callable[[list[Part]], Verdict] = all_parts,
    seen: Callable[[list[Part]], str] | None = None,
) -> Callable[[PartsFunction], PartsFunction]:
    """Register the decorated function, which yields judged parts, as a claim.

    Args:
        number: The number that users type; those from 100 on are free for plugins.
        where: Where the sentence stands in the paper.
        experiments: Names in `conf/experiment` of what computes the records.
        text: The sentence.
        figures: Figures that show it; those named like the experiments, if left out.
        sum_up: Function that makes one verdict of the parts.
        seen: For claims that count datasets (`Claim.seen`).

    Raises:
        UserError: There is no text, or there is another claim of this number.
    """
    if not text:
        raise UserError(
            f'claim {number}: its sentence is missing: write @claim({number}, ..., text="...")'
        )

    def register(parts: PartsFunction) -> PartsFunction:
        shown_by = experiments if figures is None else figures
        CLAIMS.add(
            str(number), Claim(number, text, where, parts, sum_up, experiments, shown_by, seen)
        )
        return parts

    return register


def claims() -> list[Claim]:
    """Return all claims in the order of their numbers."""
    registered = [CLAIMS[name] for name in CLAIMS]
    return sorted(registered, key=lambda claim: claim.number)
