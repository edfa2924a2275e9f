"""What several claims about gradient estimators share: their final NLLs, and when one matches another."""

from collections.abc import Sequence

from dlmexp.claims.evidence import Evidence, Margins, at_beta, compared, each, finding
from dlmexp.claims.finding import Finding
from dlmexp.claims.rules import comparable
from dlmexp.records.results import Results

Pairs = Sequence[tuple[str, int | None]]  # estimator and L


def estimator_evidence(
    results: Results, dataset: str, beta: float, pairs: Pairs, parameterisation: str = "whitened"
) -> list[Evidence]:
    """Final test NLL of joint DLM with each estimator, at one beta."""
    return [
        at_beta(results, dataset, "joint_log_dlm", beta, "nll", name, samples, parameterisation, by_estimator=True)
        for name, samples in pairs
    ]


def matches(
    ours: Evidence, other: Evidence, margins: Margins, dataset: str, parameterisation: str | None = None
) -> Finding:
    """`ours` gives the NLL of `other`, within the margin."""
    about = f"{ours.name} matches {other.name}"
    return finding(about, dataset, [ours, other], compared(ours, [other]), each(comparable), margins, parameterisation)
