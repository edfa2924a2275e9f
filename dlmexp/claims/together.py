"""Claims 20 and 21: over all datasets, which betas are selected, and DLM against ELBO."""

from collections.abc import Iterator

import numpy as np

from dlmexp.catalogue import BINARY, COUNTS, REGRESSION
from dlmexp.claims.evidence import (
    Rule,
    compared,
    finding,
    least_in_favour,
    margins,
    parameterisations,
    places,
    selected,
)
from dlmexp.claims.finding import CLAIMS, Claim, Finding, Measured, all_parts, made_by
from dlmexp.claims.nonconjugate import BASELINES, DLM, methods_evidence
from dlmexp.claims.rules import AtSize, Verdict, any_of, every, most, no_worse
from dlmexp.claims.thresholds import MIN_REPETITIONS
from dlmexp.console import counted
from dlmexp.figures import style
from dlmexp.records.results import Results
from dlmexp.records.schema import Record

DATASETS = (*REGRESSION, *BINARY, *COUNTS)
EXPERIMENTS = ("reg-log", "class-log", "count-log")


def small_betas(results: Results) -> Iterator[Finding]:
    """Per dataset: at how many sizes, over the methods that select beta by NLL, the median selected beta is below 1.
    Square-loss methods are left out: joint sq-DLM can make any beta as small as it likes (docs/SPEC.md, section 6)."""
    for place in places(results, *DATASETS):
        sampled = {"estimator": "bmc", "samples": 10} if results.tasks.get(place) == "count" else {}
        for how in parameterisations(results, place):
            said, records, below, cases, repetitions, sizes = [], [], 0, 0, set(), set()
            for method in ("beta_elbo", *DLM):
                line = sampled if method in DLM else {}
                evidence = selected(results, place, method, "nll", how, **line, value=_beta)
                medians = _medians(evidence.values)
                under = sum(median < 1 for median, _ in medians.values())
                cases, below = cases + len(medians), below + under
                repetitions |= {count for _, count in medians.values()}
                sizes |= {*medians}
                records += evidence.records
                said.append(f"{style.of_method(method).label} at {under} of {counted(len(medians), 'size')}")
            yield Finding(
                "for most methods and sizes a β < 1 is selected", most(below, cases), place, how,
                figures={"below": below, "cases": cases} if cases else {},
                words=f"median selected β < 1: {', '.join(said)}" if cases else "", counted_at=frozenset(sizes),
                repetitions=min(repetitions, default=0), commands=made_by(records),
            )  # fmt: skip


def _beta(record: Record) -> float:
    return np.nan if record.cell.beta is None else record.cell.beta


def _medians(betas: dict[tuple[int, int], float]) -> dict[int, tuple[float, int]]:
    """Size -> the median selected beta, and of how many, where there are repetitions enough."""
    sizes = {n: [beta for (size, _), beta in betas.items() if size == n] for n, _ in sorted(betas)}
    enough = {n: several for n, several in sizes.items() if len(several) >= MIN_REPETITIONS}
    return {n: (float(np.median(several)), len(several)) for n, several in enough.items()}


def most_datasets(findings: list[Finding]) -> Verdict:
    """`For most datasets`: it holds on more than half of those that were run; it fails where it fails on most."""
    judged = [found.verdict for found in findings if found.verdict is not Verdict.NOT_RUN]
    if not judged:
        return Verdict.NOT_RUN
    for verdict in (Verdict.HOLDS, Verdict.FAILS):
        if most(judged.count(verdict), len(judged)) is Verdict.HOLDS:
            return verdict
    return Verdict.MIXED


def either_dlm(results: Results) -> Iterator[Finding]:
    """At each size, one of the two DLMs is no worse than ELBO and β-ELBO, within the margin."""
    for place in places(results, *DATASETS):
        for how in parameterisations(results, place):
            evidence = methods_evidence(results, place, "nll", how)
            margin = margins(results, place, "nll", how)
            against = [evidence[name] for name in BASELINES]
            measured = [one for method in DLM for one in compared(evidence[method], against)]
            about = "the better DLM is comparable to or better than ELBO and β-ELBO in NLL"
            yield finding(about, place, list(evidence.values()), measured, EITHER, margin, how)


def _either(measured: list[Measured], margin: float | None) -> AtSize:
    """One of the methods on the left is no worse than all on the right. Where one of the four was not run, nothing can
    be said."""
    if len(measured) < len(DLM) * len(BASELINES):
        return AtSize(1.0, 1.0, incomplete=True)
    several = _by_method(measured).values()
    return any_of(every(no_worse(one.comparison, margin) for one in some) for some in several)


def _of_the_better(measured: list[Measured]) -> Measured:
    """At each size, how the better method stands to its stronger rival; of all sizes where that is least."""
    sizes = [[one for one in measured if one.n == n] for n in {one.n for one in measured}]
    return least_in_favour(
        [
            max(map(least_in_favour, _by_method(some).values()), key=lambda one: one.comparison.difference)
            for some in sizes
        ]
    )


def _by_method(measured: list[Measured]) -> dict[str, list[Measured]]:
    found: dict[str, list[Measured]] = {}
    for one in measured:
        found.setdefault(one.name.split(" vs ")[0], []).append(one)
    return found


EITHER = Rule(_either, _of_the_better)


for claim in (
    Claim(
        20, "For most datasets and sizes a β < 1 is selected.", small_betas, most_datasets, EXPERIMENTS,
    ),
    Claim(
        21, "Taken together, the better of the two DLM variants is comparable to or better than both ELBO and β-ELBO "
        "on every dataset.",
        either_dlm, all_parts, EXPERIMENTS,
    ),
):  # fmt: skip
    CLAIMS.add(str(claim.number), claim)
