"""What a claim is: a sentence of the paper, where it stands there, and the function that yields its
judged parts."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from dlmexp.common.registry import Registry
from dlmexp.presentation.claims.rules import State, Verdict, combine


@dataclass
class Part:
    """A statement about one dataset under one parameterisation of q, with its verdict and what it
    rests on."""

    says: str
    dataset: str | None = None  # None: no data involved
    q: str | None = None
    verdict: Verdict = Verdict.NOT_RUN
    corrected: Verdict | None = (
        None  # with Nadeau and Bengio's standard errors, where there are comparisons
    )
    reason: str = ""  # why it can't be told, or what was left out
    tolerant: bool = False  # the statement allows a loss inside the margin
    beside: bool = (
        False  # a statement of ours beside the paper's: told, but not part of the claim's verdict
    )
    states: dict[int, State] = field(default_factory=dict)  # by size
    comparisons: list[dict[str, Any]] = field(default_factory=list)  # a paired test each
    deciding: int | None = None  # the comparison that the verdict hangs on
    figures: dict[str, float] = field(default_factory=dict)
    repetitions: int = 0
    few: bool = False  # too few of them for a verdict
    records: int = 0
    commands: list[str] = field(
        default_factory=list
    )  # that made the records, the most frequent first
    commits: list[str] = field(default_factory=list)


def all_parts(parts: list[Part]) -> Verdict:
    """The usual way to sum up: every part counts."""
    return combine((part.verdict for part in parts), all(part.tolerant for part in parts))


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and the function that holds it against results."""

    number: int
    text: str
    where: str  # in the paper
    parts: Callable[[Any], Iterable[Part]]
    sum_up: Callable[[list[Part]], Verdict] = all_parts
    experiments: tuple[str, ...] = ()  # of conf/experiment: what computes the records
    figures: tuple[str, ...] = ()  # that show it
    seen: Callable[[list[Part]], str] | None = (
        None  # of a claim that counts datasets: how many of those run are so
    )


CLAIMS: Registry[Claim] = Registry(
    "claim", *(f"dlmexp.presentation.claims.{name}" for name in ("methods", "sampling", "bounds"))
)


def claim(number: int, where: str, *experiments: str, **more: Any) -> Callable[[Any], Any]:
    """Registers the decorated function, which yields the parts, as a claim; the first paragraph of
    its docstring is the sentence. `more`: other fields. Figures that show it are those named like
    its experiments, unless they are given."""

    def register(parts: Callable[[Any], Iterable[Part]]) -> Callable[[Any], Iterable[Part]]:
        text = " ".join((parts.__doc__ or "").split("\n\n")[0].split())
        fields: dict[str, Any] = {"experiments": experiments, "figures": experiments} | more
        CLAIMS.add(str(number), Claim(number, text, where, parts, **fields))
        return parts

    return register


def claims() -> list[Claim]:
    """All claims in the order of their numbers."""
    return sorted((CLAIMS[name] for name in CLAIMS), key=lambda one: one.number)
