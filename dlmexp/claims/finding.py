"""What is found about one part of a claim on one dataset, and the claim it belongs to."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from dlmexp import catalogue
from dlmexp.claims.rules import Sizes, Verdict, combine
from dlmexp.claims.statistics import Comparison
from dlmexp.records.results import Results
from dlmexp.records.schema import Record
from dlmexp.registry import Registry


@dataclass(frozen=True)
class Measured:
    """One comparison in a finding, under a name such as `joint DLM vs ELBO`, at one size."""

    name: str
    comparison: Comparison
    n: int | None = None  # None: the question has no size


@dataclass
class Finding:
    """A part of a claim judged on one dataset, under one parameterisation of q."""

    about: str
    verdict: Verdict
    dataset: str | None = None  # None: no data involved
    parameterisation: str | None = None
    measured: list[Measured] = field(default_factory=list)
    deciding: Measured | None = None  # the comparison that its verdict hangs on
    figures: dict[str, float] = field(default_factory=dict)
    words: str = ""
    sizes: Sizes | None = None  # what each size says, where the verdict is made by size
    counted_at: frozenset[int] = frozenset()  # the sizes whose fits were counted, where none were compared
    repetitions: int = 0
    commands: list[str] = field(default_factory=list)
    ours: bool = False  # a statement of ours beside the paper's: told, but not part of the claim's verdict

    @property
    def stands_for(self) -> str | None:
        return catalogue.stands_for(self.dataset) if self.dataset else None

    @property
    def run_at(self) -> frozenset[int]:
        """The sizes that it rests on."""
        return self.counted_at | {one.n for one in self.measured if one.n is not None}


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and the function that holds it against results.

    `judge` yields findings; `sum_up` makes a verdict of the findings on one kind of data under one parameterisation.
    """

    number: int
    says: str
    judge: Callable[[Results], Iterable[Finding]]
    sum_up: Callable[[list[Finding]], Verdict]
    experiments: tuple[str, ...] = ()  # of conf/experiment: what computes the records
    shown_in: tuple[str, ...] = ()  # figures that show it, if they are not those named like its experiments

    @property
    def figures(self) -> tuple[str, ...]:
        """The names of the figures that show what it is about."""
        return self.shown_in or self.experiments


MODULES = (
    "regression", "nonconjugate", "large", "sampling", "cost", "bounds", "convergence", "together", "calibration",
)  # fmt: skip
CLAIMS: Registry[Claim] = Registry(
    "claim",
    *(f"dlmexp.claims.{name}" for name in MODULES),
)


def made_by(records: Iterable[Record], most: int = 3) -> list[str]:
    """The commands that made these records, the most frequent first."""
    counts = Counter(record.made.command or "unknown" for record in records)
    return [command for command, _ in counts.most_common(most)]


def all_parts(findings: list[Finding]) -> Verdict:
    """The usual way to sum up: every part counts, whatever its dataset."""
    return combine(found.verdict for found in findings)
