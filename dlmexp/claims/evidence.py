"""Values out of records, ready to be compared: (n, seed) -> metric, with the records they come from."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from dlmexp import catalogue
from dlmexp.claims.finding import Finding, Measured, made_by
from dlmexp.claims.rules import AtSize, State, Verdict, by_size, comparable, every, opposite
from dlmexp.claims.statistics import Comparison, Values, paired
from dlmexp.claims.thresholds import MARGIN_SHARE, MIN_REPETITIONS
from dlmexp.config import PARAMETERISATIONS
from dlmexp.console import counted
from dlmexp.figures import style
from dlmexp.records.results import Results, records_of
from dlmexp.records.schema import Record
from dlmexp.records.selection import Choice, on_test

NO_TRIVIAL = "records of version 0.1 have no trivial predictor, so there is no margin"
NO_ELBO = "ELBO was not run at some of the sizes, or explains nothing there, so there is no margin"
Relation = Callable[[Comparison, float | None], AtSize]  # `better`, `comparable`, `no_worse`


@dataclass(frozen=True)
class Rule:
    """What the comparisons at one size say, given a margin; and which of all comparisons the verdict hangs on."""

    at_size: Callable[[list[Measured], float | None], AtSize]
    decides: Callable[[list[Measured]], Measured]


@dataclass(frozen=True)
class Margins:
    """Size -> margin, and why sizes without one have none."""

    at: dict[int | None, float]
    missing: str


@dataclass(frozen=True)
class Evidence:
    """One line's values; a repetition that failed or is not finite is missing and counted in `lost`."""

    name: str
    values: Values
    records: list[Record]
    lost: int = 0


def trivial(record: Record, metric: str) -> float | None:
    """The test metric of the predictor that knows only the training targets of the record's split, where it has one."""
    return record.result.trivial.get("test", {}).get(metric)


def selected(
    results: Results, dataset: str, method: str, metric: str, parameterisation: str = "whitened",
    estimator: str = "exact", samples: int | None = None,
    value: Callable[[Record], float] | None = None,
) -> Evidence:  # fmt: skip
    """A method with its beta chosen on validation, at every size and seed. Where some candidates have no record yet,
    nothing has been selected, and nothing lost. `value` gives something else than the test metric of the selected."""
    found = [one for one in results.line("fits", dataset, method, estimator, samples) if usable(one, parameterisation)]
    complete = [one for one in results.of_one_setting(found) if not one.missing]
    chosen = [record for one in complete if (record := one.selected(metric)) is not None]
    return _evidence(style.of_method(method).label, records_of(complete), metric, chosen, value)


def at_beta(
    results: Results, dataset: str, method: str, beta: float, metric: str = "nll", estimator: str = "exact",
    samples: int | None = None, parameterisation: str = "whitened", by_estimator: bool = False,
) -> Evidence:  # fmt: skip
    """The end of learning curves at one beta, at the size with most records."""
    several = results.line("curves", dataset, method, estimator, samples)
    found = [
        Choice(method, f"{beta:g}", (record,), 0)
        for record in records_of(one for one in results.of_one_setting(several) if usable(one, parameterisation))
        if record.cell.beta is not None and np.isclose(record.cell.beta, beta)
    ]
    if found:
        counts = Counter(one.cell.n for one in found)
        n = max(counts, key=lambda size: (counts[size], size))
        found = [one for one in found if one.cell.n == n]
    records = records_of(found)
    look = style.of_estimator(estimator, samples) if by_estimator else style.at_beta(style.of_method(method), beta)
    return _evidence(look.label, records, metric, records)


def usable(one: Choice, parameterisation: str) -> bool:
    """Whether fits of these candidates are of this q. Closed forms count as whitened."""
    return one.cell.parameterisation == parameterisation


def _evidence(
    name: str, attempted: list[Record], metric: str, chosen: list[Record],
    value: Callable[[Record], float] | None = None,
) -> Evidence:  # fmt: skip
    places = {(r.cell.n, r.cell.seed) for r in attempted}
    values = {(r.cell.n, r.cell.seed): value(r) if value else on_test(r, metric) for r in chosen}
    finite = {place: value for place, value in values.items() if np.isfinite(value)}
    # Records from before a metric was measured do not have it, which is no loss.
    without = {(r.cell.n, r.cell.seed) for r in chosen if r.done and metric not in r.result.test}
    return Evidence(name, finite, attempted, len(places - without) - len(finite))


def margins(results: Results, dataset: str, metric: str, parameterisation: str = "whitened") -> Margins:
    """5 % of what ELBO explains at each size: the trivial predictor's metric minus ELBO's, mean over repetitions.
    ELBO is the fit at beta = 1, at its end or at that of its learning curve. Where it explains nothing, there is no
    margin."""
    elbo = selected(results, dataset, "elbo", metric, parameterisation).values
    for method in ("elbo", "beta_elbo"):
        elbo = at_beta(results, dataset, method, 1.0, metric, parameterisation=parameterisation).values | elbo
    explained: dict[int, list[float]] = defaultdict(list)
    known = _trivial_values(results).get((dataset, metric), {})
    for place, value in known.items():
        if place in elbo:
            explained[place[0]].append(value - elbo[place])
    found = {n: MARGIN_SHARE * float(np.mean(values)) for n, values in explained.items()}
    return Margins({n: margin for n, margin in found.items() if margin > 0}, NO_ELBO if known else NO_TRIVIAL)


@lru_cache(maxsize=4)
def _trivial_values(results: Results) -> dict[tuple[str, str], Values]:
    """(dataset, metric) -> the trivial predictor's values. Any record of a split may carry them."""
    found: dict[tuple[str, str], Values] = defaultdict(dict)
    for record in results.records.values():
        for metric in record.result.test:
            if (value := trivial(record, metric)) is not None and np.isfinite(value):
                found[record.cell.dataset, metric][record.cell.n, record.cell.seed] = value
    return found


def everywhere(margin: float, *several: Evidence) -> Margins:
    """The same margin at every size."""
    return Margins({n: margin for one in several for n, _ in one.values}, "")


def each(relation: Relation, rivals: int = 1) -> Rule:
    """The relation to each of so many rivals: `each(better, 4)` is to be the lowest of five. Where one of them has too
    few repetitions, the statement can be contradicted, and not supported."""

    def at_size(measured: list[Measured], margin: float | None) -> AtSize:
        found = every(relation(one.comparison, margin) for one in measured)
        return replace(found, p_for=1.0, incomplete=True) if len(measured) < rivals else found

    return Rule(at_size, largest_difference if relation is comparable else least_in_favour)


def least_in_favour(measured: list[Measured]) -> Measured:
    return min(measured, key=lambda one: one.comparison.difference)


def largest_difference(measured: list[Measured]) -> Measured:
    return max(measured, key=lambda one: abs(one.comparison.difference))


def smallest_difference(measured: list[Measured]) -> Measured:
    return min(measured, key=lambda one: abs(one.comparison.difference))


# Not comparable to the one rival.
NO_MATCH = Rule(lambda measured, margin: opposite(comparable(measured[0].comparison, margin)), smallest_difference)


def compared(ours: Evidence, rivals: list[Evidence]) -> list[Measured]:
    """Ours against each rival, at every size where both have something."""
    return [
        Measured(f"{ours.name} vs {rival.name}", comparison, n)
        for rival in rivals
        for n, comparison in paired(ours.values, rival.values).items()
    ]


def finding(
    about: str, dataset: str, evidence: list[Evidence], measured: list[Measured], rule: Rule,
    margins: Margins | None = None, parameterisation: str | None = None,
) -> Finding:  # fmt: skip
    """What `rule` says at every size with repetitions enough, made one verdict, with its small print: repetitions,
    commands, what was lost. `margins` is None where the rule needs none."""
    several: dict[int | None, list[Measured]] = defaultdict(list)
    for one in measured:
        if one.comparison.repetitions >= MIN_REPETITIONS:
            several[one.n].append(one)
    known = margins.at if margins else {}
    ordered = sorted(several.items(), key=lambda item: item[0] or 0)
    sizes = by_size({n: rule.at_size(comparisons, known.get(n)) for n, comparisons in ordered})
    verdict, said = sizes.verdict, []
    if measured and not several:
        verdict = Verdict.UNDECIDABLE
        most = max(one.comparison.repetitions for one in measured)
        said.append(f"only {counted(most, 'repetition')} in common: too few to judge")
    elif sizes.count(State.INCOMPLETE):
        absent = [one.name for one in evidence if not one.values]
        said.append(f"not run: {', '.join(absent)}" if absent else "at some sizes a rival has too few repetitions")
    elif verdict is Verdict.UNDECIDABLE and margins:
        said.append(margins.missing)
    if measured and (lost := sum(one.lost for one in evidence)):
        be = "is" if lost == 1 else "are"
        said.append(f"{counted(lost, 'repetition')} failed or {be} not finite and {be} left out")
    return Finding(
        about, verdict, dataset, parameterisation, measured, rule.decides(measured) if measured else None,
        words="; ".join(said),
        sizes=sizes if sizes.states else None, repetitions=_fewest(measured),
        commands=made_by(record for one in evidence for record in one.records),
    )  # fmt: skip


def _fewest(measured: list[Measured]) -> int:
    """Repetitions behind a finding: the fewest of any comparison that counts."""
    counts = [one.comparison.repetitions for one in measured]
    return min((count for count in counts if count >= MIN_REPETITIONS), default=max(counts, default=0))


def undecidable(found: Finding, reason: str) -> Finding:
    """The same finding, for which the records do not hold what it needs."""
    found.verdict, found.words = Verdict.UNDECIDABLE, reason
    return found


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
