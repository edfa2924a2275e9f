"""Values out of records, ready to be compared: (n, seed) -> metric, with the records they come from."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dlmexp import catalogue
from dlmexp.claims.finding import Finding, Measured, made_by
from dlmexp.claims.rules import Verdict
from dlmexp.claims.statistics import paired
from dlmexp.claims.thresholds import MIN_REPETITIONS
from dlmexp.config import PARAMETERISATIONS
from dlmexp.figures import style
from dlmexp.records.results import Results, records_of
from dlmexp.records.schema import Record
from dlmexp.records.selection import Choice, on_test
from dlmexp.records.settings import same_settings


@dataclass(frozen=True)
class Evidence:
    """One line's values; a repetition that failed or is not finite is missing and counted in `lost`."""

    name: str
    values: dict[tuple[int, int], float]
    records: list[Record]
    lost: int = 0


def selected(
    results: Results, dataset: str, method: str, metric: str, parameterisation: str = "whitened",
    estimator: str = "exact", samples: int | None = None,
) -> Evidence:  # fmt: skip
    """A method with its beta chosen on validation, at every size and seed. Where some candidates have no record yet,
    nothing has been selected, and nothing lost."""
    found = [one for one in results.line("fits", dataset, method, estimator, samples) if _usable(one, parameterisation)]
    kept, _ = same_settings(found, catalogue.beta_rule("paper"))
    complete = [one for one in kept if not one.missing]
    chosen = [record for one in complete if (record := one.selected(metric)) is not None]
    return _evidence(style.of_method(method).label, records_of(complete), metric, chosen)


def at_beta(
    results: Results, dataset: str, method: str, beta: float, metric: str = "nll", estimator: str = "exact",
    samples: int | None = None, parameterisation: str = "whitened", by_estimator: bool = False,
) -> Evidence:  # fmt: skip
    """The end of learning curves at one beta, at the size with most records."""
    several = results.line("curves", dataset, method, estimator, samples)
    found = [
        Choice(method, f"{beta:g}", (record,), 0)
        for record in records_of(one for one in several if _usable(one, parameterisation))
        if record.cell.beta is not None and np.isclose(record.cell.beta, beta)
    ]
    if found:
        counts = Counter(one.cell.n for one in found)
        n = max(counts, key=lambda size: (counts[size], size))
        found = [one for one in found if one.cell.n == n]
    records = records_of(same_settings(found, "")[0])
    look = style.of_estimator(estimator, samples) if by_estimator else style.at_beta(style.of_method(method), beta)
    return _evidence(look.label, records, metric, records)


def _usable(one: Choice, parameterisation: str) -> bool:
    return one.cell.parameterisation == parameterisation or one.cell.task == "regression"


def _evidence(name: str, attempted: list[Record], metric: str, chosen: list[Record]) -> Evidence:
    places = {(r.cell.n, r.cell.seed) for r in attempted}
    values = {(r.cell.n, r.cell.seed): on_test(r, metric) for r in chosen}
    finite = {place: value for place, value in values.items() if np.isfinite(value)}
    # Records from before a metric was measured do not have it, which is no loss.
    without = {(r.cell.n, r.cell.seed) for r in chosen if r.done and metric not in r.result.test}
    return Evidence(name, finite, attempted, len(places - without) - len(finite))


def compared(ours: Evidence, rivals: list[Evidence]) -> list[Measured]:
    """Ours against each rival that has something in common with it."""
    pairs = ((rival, paired(ours.values, rival.values)) for rival in rivals)
    return [Measured(f"{ours.name} vs {rival.name}", one) for rival, one in pairs if one is not None]


def finding(
    about: str, verdict: Verdict, dataset: str, evidence: list[Evidence], measured: list[Measured],
    parameterisation: str | None = None,
) -> Finding:  # fmt: skip
    """A finding with its small print: repetitions, commands, and what was lost."""
    lost = sum(one.lost for one in evidence)
    words = f"{lost} repetitions failed or are not finite and are left out" if lost else ""
    few = [one for one in measured if one.comparison.repetitions < MIN_REPETITIONS]
    if verdict is Verdict.NOT_RUN and few:
        words = f"only {few[0].comparison.repetitions} repetitions in common: too few to judge" + (
            f"; {words}" if words else ""
        )
    return Finding(
        about, verdict, dataset, parameterisation, measured, words=words,
        repetitions=max((one.comparison.repetitions for one in measured), default=0),
        commands=made_by(record for one in evidence for record in one.records),
    )  # fmt: skip


def places(results: Results, *datasets: str) -> Iterator[str]:
    """The paper's datasets named, each followed by the stand-ins of it that have records."""
    names = dict.fromkeys(datasets)
    for dataset in datasets:
        names |= dict.fromkeys(name for name in catalogue.stand_ins(dataset) if name in results.tasks)
    yield from names


def parameterisations(results: Results, dataset: str) -> Iterator[str]:
    """Under which q to judge: both, for binary and count data."""
    if results.tasks.get(dataset, catalogue.datasets().get(dataset, {}).get("task")) == "regression":
        yield "whitened"
    else:
        yield from PARAMETERISATIONS
