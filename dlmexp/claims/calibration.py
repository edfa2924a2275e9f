"""Claim 22: DLM is better calibrated than ELBO."""

from collections.abc import Callable, Iterator

import numpy as np

from dlmexp.catalogue import BINARY, COUNTS, REGRESSION
from dlmexp.claims.evidence import compared, each, finding, parameterisations, places, selected, undecidable
from dlmexp.claims.finding import CLAIMS, Claim, Finding, all_parts
from dlmexp.claims.nonconjugate import DLM
from dlmexp.claims.rules import better
from dlmexp.figures import style
from dlmexp.records.results import Results
from dlmexp.records.schema import Record
from dlmexp.records.selection import on_test

NO_METRICS = "records of version 0.1 have no calibration metrics"


def coverage_error(*levels: int) -> Callable[[Record], float]:
    """How far the coverage of central intervals is from their nominal one, mean over the levels (in percent)."""
    return lambda record: float(
        np.mean([abs(on_test(record, f"coverage_{level}") - level / 100) for level in levels])
    )  # fmt: skip


def _plain(metric: str) -> Callable[[Record], float]:
    return lambda record: on_test(record, metric)


# Per task: what is measured, in words, and the value of a record; lower is better.
MEASURES: dict[str, dict[str, Callable[[Record], float]]] = {
    "regression": {"coverage error (50, 90, 95 %)": coverage_error(50, 90, 95), "CRPS": _plain("crps")},
    "binary": {"ECE": _plain("ece"), "Brier score": _plain("brier")},
    "count": {"coverage error (95 %)": coverage_error(95)},
}


def better_calibrated(results: Results) -> Iterator[Finding]:
    """Each DLM, with the beta that NLL selects, against ELBO, in every measure of the task."""
    for task, datasets in (("regression", REGRESSION), ("binary", BINARY), ("count", COUNTS)):
        sampled = {"estimator": "bmc", "samples": 10} if task == "count" else {}
        for place in places(results, *datasets):
            for how in parameterisations(results, place):
                for words, value in MEASURES[task].items():
                    elbo = selected(results, place, "elbo", "nll", how, value=value)
                    for method in DLM:
                        ours = selected(results, place, method, "nll", how, **sampled, value=value)
                        about = f"{style.of_method(method).label} has a lower {words} than ELBO"
                        found = finding(about, place, [ours, elbo], compared(ours, [elbo]), each(better), None, how)
                        ran = ours.records and elbo.records
                        yield undecidable(found, NO_METRICS) if ran and not found.measured else found


for claim in (
    Claim(
        22, "DLM is better calibrated than ELBO: coverage and CRPS in regression, ECE and Brier score in binary, "
        "coverage in counts.",
        better_calibrated, all_parts, ("reg-log", "class-log", "count-log"), both=True,
        shown_in=("calibration-reg", "calibration-class", "calibration-count"),
    ),
):  # fmt: skip
    CLAIMS.add(str(claim.number), claim)
