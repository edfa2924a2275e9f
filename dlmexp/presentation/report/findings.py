"""Compare the best method on each dataset with ELBO, for the findings at the top of the report."""

from dataclasses import dataclass

import numpy as np

from dlmexp.common.catalogue import dataset_label
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.presentation.claims.claim import Origin
from dlmexp.presentation.claims.columns import VerdictColumn, rows_of
from dlmexp.presentation.claims.evidence import Evidence
from dlmexp.presentation.claims.paired import compare
from dlmexp.presentation.claims.rules import TAIL

MAX_FINDINGS = 5  # in the report


@dataclass(frozen=True)
class Finding:
    """The comparison of the best method on a dataset with ELBO, in test NLL at the largest size.

    Attributes:
        dataset: The label of the dataset. That of a stand-in also has the dataset of the paper that
            it represents.
        q: The parameterisation of q.
        margin: The smallest difference that counts.
        n: The number of training rows.
        method: The label of the method.
        nll: The mean NLL of the method.
        elbo: The mean NLL of ELBO over the same repetitions.
        difference: The NLL of ELBO minus that of the method, which is positive if the method is
            better.
        error: Half the width of the 95 % interval of the difference; infinite with one repetition.
        repetitions: The number of repetitions that both methods have.
        origin: Which commands and commits computed the records.
    """

    dataset: str
    q: str
    margin: float
    n: int
    method: str
    nll: float
    elbo: float
    difference: float
    error: float
    repetitions: int
    origin: Origin

    @property
    def size(self) -> float:
        """The absolute difference as a multiple of the margin."""
        return abs(self.difference) / self.margin


def findings(results: ResultsFolder, column: VerdictColumn) -> list[Finding]:
    """Return the findings with the largest differences, at most one per dataset.

    If a dataset was run in two parameterisations of q, its finding is the larger of both.
    """
    table = rows_of(results.table, column)
    evidence = Evidence(results, table, rows_of(results.candidates, column))
    methods = [name for name in table["method"].unique() if name != "elbo"]
    if not methods:
        return []
    by_dataset: list[Finding] = []
    for dataset in evidence.sizes:
        finding = _finding_on(evidence, dataset, methods)
        if finding is not None:
            by_dataset.append(finding)
    largest_first = sorted(by_dataset, key=lambda finding: finding.size, reverse=True)
    return largest_first[:MAX_FINDINGS]


def _finding_on(evidence: Evidence, dataset: str, methods: list[str]) -> Finding | None:
    """Return the largest finding on a dataset over the parameterisations of q."""
    largest: Finding | None = None
    for name, q in evidence.datasets_and_q(dataset):
        is_stand_in_for_dataset = name != dataset
        if is_stand_in_for_dataset:  # has a finding of its own
            continue
        finding = _finding_for_q(evidence, dataset, q, methods)
        if finding is not None and (largest is None or finding.size > largest.size):
            largest = finding
    return largest


def _finding_for_q(evidence: Evidence, dataset: str, q: str, methods: list[str]) -> Finding | None:
    """Return the finding at the largest size with enough repetitions and a margin; None if none."""
    elbo = evidence.fit(dataset, "elbo", "nll", q)
    lines = [evidence.fit(dataset, name, "nll", q) for name in methods]
    ours = np.stack([line.values for line in lines])
    comparisons = compare(ours, np.broadcast_to(elbo.values, ours.shape))
    # An interval needs two repetitions. If no size has two, a single repetition is enough.
    any_has_two = bool((comparisons.repetitions >= 2).any())
    needed_repetitions = 2 if any_has_two else 1
    has_enough = comparisons.repetitions >= needed_repetitions
    nll = np.where(has_enough, comparisons.ours, np.inf)  # [methods, sizes]
    margin = evidence.margin(dataset, "nll", q)
    has_nll = np.any(np.isfinite(nll), axis=0)
    usable_sizes = np.flatnonzero(has_nll & np.isfinite(margin))
    if not len(usable_sizes):
        return None
    size = usable_sizes[-1]
    best = int(nll[:, size].argmin())
    half_width = comparisons.half_width(TAIL)
    return Finding(
        dataset=dataset_label(dataset, evidence.stands_for.get(dataset)),
        q=q,
        margin=float(margin[size]),
        n=int(evidence.sizes[dataset][size]),
        method=lines[best].name,
        nll=comparisons.ours[best, size],
        elbo=comparisons.rival[best, size],
        difference=comparisons.difference[best, size],
        error=half_width[best, size],
        repetitions=int(comparisons.repetitions[best, size]),
        origin=evidence.origin(lines[best].positions, elbo.positions),
    )
