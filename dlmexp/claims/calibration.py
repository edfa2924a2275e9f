"""Claim 22: DLM is better calibrated than ELBO."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from dlmexp.catalogue import BINARY, COUNTS, REGRESSION
from dlmexp.claims.evidence import (
    compared,
    each,
    everywhere,
    finding,
    margins,
    parameterisations,
    places,
    selected,
    undecidable,
)
from dlmexp.claims.finding import CLAIMS, Claim, Finding, all_parts
from dlmexp.claims.nonconjugate import DLM
from dlmexp.claims.rules import better
from dlmexp.claims.thresholds import PROBABILITY_MARGIN
from dlmexp.figures import style
from dlmexp.records.results import Results
from dlmexp.records.schema import Record
from dlmexp.records.selection import on_test

NO_METRICS = "records of version 0.1 have no calibration metrics"
NO_DIFFERENCE = "both have the same value in every repetition, so it tells nothing"


def coverage_error(*levels: int) -> Callable[[Record], float]:
    """How far the coverage of central intervals is from their nominal one, mean over the levels (in percent)."""
    return lambda record: float(
        np.mean([abs(on_test(record, f"coverage_{level}") - level / 100) for level in levels])
    )  # fmt: skip


def _plain(metric: str) -> Callable[[Record], float]:
    return lambda record: on_test(record, metric)


class Measure(NamedTuple):
    """Something of a record in words, and its value; lower is better. A score has the margin of its metric."""

    words: str
    value: Callable[[Record], float]
    score: str = ""


MEASURES = {
    "regression": (
        Measure("coverage error (50, 90, 95 %)", coverage_error(50, 90, 95)), Measure("CRPS", _plain("crps"), "crps"),
    ),
    "binary": (Measure("ECE", _plain("ece")), Measure("Brier score", _plain("brier"), "brier")),
    "count": (Measure("coverage error (95 %)", coverage_error(95)),),
}  # fmt: skip


def better_calibrated(results: Results) -> Iterator[Finding]:
    """Each DLM, with the beta that NLL selects, against ELBO, in every measure of the task."""
    for task, datasets in (("regression", REGRESSION), ("binary", BINARY), ("count", COUNTS)):
        sampled = {"estimator": "bmc", "samples": 10} if task == "count" else {}
        for place in places(results, *datasets):
            for how in parameterisations(results, place):
                for one in MEASURES[task]:
                    elbo = selected(results, place, "elbo", "nll", how, value=one.value)
                    margin = (
                        margins(results, place, one.score, how) if one.score else everywhere(PROBABILITY_MARGIN, elbo)
                    )
                    for method in DLM:
                        ours = selected(results, place, method, "nll", how, **sampled, value=one.value)
                        about = f"{style.of_method(method).label} has a lower {one.words} than ELBO"
                        found = finding(about, place, [ours, elbo], compared(ours, [elbo]), each(better), margin, how)
                        yield _or_why_not(found, bool(ours.records and elbo.records))


def _or_why_not(found: Finding, ran: bool) -> Finding:
    """The finding, undecidable where nothing was measured, or nothing that differs: an interval of small counts may
    cover every row, whatever the method."""
    if ran and not found.measured:
        return undecidable(found, NO_METRICS)
    same = all(one.comparison.difference == 0 == one.comparison.error for one in found.measured)
    return undecidable(found, NO_DIFFERENCE) if found.measured and same else found


for claim in (
    Claim(
        22, "DLM is better calibrated than ELBO: coverage and CRPS in regression (our addition), ECE and Brier score "
        "in binary, coverage in counts (said in the paper, not measured there).",
        better_calibrated, all_parts, ("reg-log", "class-log", "count-log"),
        shown_in=("calibration-reg", "calibration-class", "calibration-count"),
    ),
):  # fmt: skip
    CLAIMS.add(str(claim.number), claim)
