"""Findings: how the best method compares with ELBO on each dataset."""

from dataclasses import dataclass

import numpy as np

from dlmexp.common.catalogue import labelled
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.presentation.claims.claim import Origin
from dlmexp.presentation.claims.columns import VerdictColumn, rows_of
from dlmexp.presentation.claims.evidence import Evidence
from dlmexp.presentation.claims.paired import compare
from dlmexp.presentation.claims.rules import TAIL

MOST_FINDINGS = 5


@dataclass(frozen=True)
class Finding:
    """The best method on a dataset compared with ELBO, in test NLL at its largest size.

    Attributes:
        dataset: The dataset, with what it stands in for.
        q: Parameterisation of q.
        margin: The smallest difference that counts.
        n: Number of training rows.
        method: The method, as figures write it.
        nll: Its mean NLL.
        elbo: ELBO's mean NLL over the same repetitions.
        difference: ELBO's minus the method's, so that a positive one speaks for the method.
        error: Half of the 95 % interval of the difference; infinite with one repetition.
        repetitions: Number of repetitions that both have.
        origin: How the records came to be.
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
        """The difference without its sign, measured in margins."""
        return abs(self.difference) / self.margin


def findings(results: ResultsFolder, column: VerdictColumn) -> list[Finding]:
    """Return the finding on each dataset, the largest differences first.

    With two parameterisations of q, a dataset's finding is the one with the larger difference.
    """
    table = rows_of(results.table, column)
    evidence = Evidence(results, table, rows_of(results.candidates, column))
    methods = [name for name in table["method"].unique() if name != "elbo"]
    if not methods:
        return []
    largest_first: list[Finding] = []
    for dataset in evidence.sizes:
        finding = _finding_on(evidence, dataset, methods)
        if finding is not None:
            largest_first.append(finding)
    largest_first.sort(key=lambda finding: finding.size, reverse=True)
    return largest_first[:MOST_FINDINGS]


def _finding_on(evidence: Evidence, dataset: str, methods: list[str]) -> Finding | None:
    """Return the largest finding on a dataset over the parameterisations of q."""
    largest: Finding | None = None
    for name, q in evidence.datasets_and_q(dataset):
        if name != dataset:  # a stand-in, which has a finding of its own
            continue
        finding = _finding(evidence, dataset, q, methods)
        if finding is not None and (largest is None or finding.size > largest.size):
            largest = finding
    return largest


def _finding(evidence: Evidence, dataset: str, q: str, methods: list[str]) -> Finding | None:
    """Return the finding at the largest size that has a margin; None where there is none."""
    elbo = evidence.fit(dataset, "elbo", "nll", q)
    lines = [evidence.fit(dataset, name, "nll", q) for name in methods]
    ours = np.stack([line.values for line in lines])
    comparisons = compare(ours, np.broadcast_to(elbo.values, ours.shape))
    # An interval needs two repetitions; where no size has them, one must do.
    has_two = bool((comparisons.repetitions >= 2).any())
    needed = 2 if has_two else 1
    nll = np.where(comparisons.repetitions >= needed, comparisons.ours, np.inf)
    margin = evidence.margin(dataset, "nll", q)
    has_nll = np.any(np.isfinite(nll), axis=0)
    sizes = np.flatnonzero(has_nll & np.isfinite(margin))
    if not len(sizes):
        return None
    size = sizes[-1]
    best = int(nll[:, size].argmin())
    at = (best, size)
    half_width = comparisons.half_width(TAIL)
    return Finding(
        dataset=labelled(dataset, evidence.stands_for.get(dataset)),
        q=q,
        margin=float(margin[size]),
        n=int(evidence.sizes[dataset][size]),
        method=lines[best].name,
        nll=comparisons.ours[at],
        elbo=comparisons.rival[at],
        difference=comparisons.difference[at],
        error=half_width[at],
        repetitions=int(comparisons.repetitions[at]),
        origin=evidence.origin(lines[best].positions, elbo.positions),
    )
