"""Values out of records, ready to be compared: (n, seed) -> metric, with the records they come from."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dlmexp.claims.finding import Finding, Measured, made_by
from dlmexp.claims.rules import Verdict
from dlmexp.claims.statistics import paired
from dlmexp.claims.thresholds import MIN_REPETITIONS
from dlmexp.figures import conf, style
from dlmexp.figures.protocol import one_protocol
from dlmexp.figures.results import Record, Results, on_test
from dlmexp.figures.series import grouped
from dlmexp.figures.variants import PARAMETERISATIONS
from dlmexp.sweep.whole import whole


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
    """A method with its beta chosen on validation, at every size and seed."""
    if not method.endswith("log_dlm"):
        estimator, samples = "exact", None
    found = results.candidates("fits", dataset, method, estimator, samples)
    records, _ = one_protocol([r for r in found if _usable(r, parameterisation)])
    places = grouped(records, lambda r: (r["cell"]["n"], r["cell"]["seed"]))
    # Where part of the beta grid is still to be run, nothing has been selected, and nothing lost.
    records = [r for (n, _), cells in places.items() if whole(n, (r["cell"]["beta"] for r in cells)) for r in cells]
    chosen = results.selected(metric)
    return _evidence(
        style.of_method(method).label, records, metric, [r for r in records if (method, r["key"]) in chosen]
    )


def at_beta(
    results: Results, dataset: str, method: str, beta: float, metric: str = "nll", estimator: str = "exact",
    samples: int | None = None, parameterisation: str = "whitened", by_estimator: bool = False,
) -> Evidence:  # fmt: skip
    """The end of learning curves at one beta, at the size with most records."""
    found = results.candidates("curves", dataset, method, estimator, samples)
    found = [r for r in found if _usable(r, parameterisation) and np.isclose(r["cell"]["beta"], beta)]
    if found:
        counts = Counter(r["cell"]["n"] for r in found)
        n = max(counts, key=lambda size: (counts[size], size))
        found = [r for r in found if r["cell"]["n"] == n]
    records, _ = one_protocol(found)
    look = style.of_estimator(estimator, samples) if by_estimator else style.at_beta(style.of_method(method), beta)
    return _evidence(look.label, records, metric, records)


def _usable(record: Record, parameterisation: str) -> bool:
    return record["cell"]["parameterisation"] == parameterisation or record["cell"]["task"] == "regression"


def _evidence(name: str, attempted: list[Record], metric: str, chosen: list[Record]) -> Evidence:
    places = {(r["cell"]["n"], r["cell"]["seed"]) for r in attempted}
    values = {(r["cell"]["n"], r["cell"]["seed"]): on_test(r, metric) for r in chosen}
    finite = {place: value for place, value in values.items() if np.isfinite(value)}
    return Evidence(name, finite, attempted, len(places) - len(finite))


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
        names |= dict.fromkeys(name for name in conf.stand_ins(dataset) if name in results.tasks)
    yield from names


def parameterisations(results: Results, dataset: str) -> Iterator[str]:
    """Under which q to judge: both, for binary and count data."""
    if results.tasks.get(dataset, conf.datasets().get(dataset, {}).get("task")) == "regression":
        yield "whitened"
    else:
        yield from PARAMETERISATIONS
