"""What several claims about gradient estimators share: their final NLLs, and when one matches another."""

from collections.abc import Sequence

from dlmexp.claims.evidence import Evidence, at_beta, compared, finding
from dlmexp.claims.finding import Finding
from dlmexp.claims.rules import Verdict, comparable
from dlmexp.claims.thresholds import MATCH_FLOOR, MATCH_SHARE
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


def match_margin(all_in_plot: list[Evidence]) -> float:
    """A tenth of the gap between the best and the worst line of the plot, at least the floor."""
    means = [sum(one.values.values()) / len(one.values) for one in all_in_plot if one.values]
    return max(MATCH_SHARE * (max(means) - min(means)), MATCH_FLOOR) if means else MATCH_FLOOR


def matches(
    ours: Evidence, other: Evidence, all_in_plot: list[Evidence], dataset: str, parameterisation: str | None = None
) -> Finding:
    """`ours` gives the NLL of `other`, within the margin that the plot sets."""
    measured = compared(ours, [other])
    margin = match_margin(all_in_plot)
    verdict = comparable(measured[0].comparison, margin) if measured else Verdict.NOT_RUN
    found = finding(f"{ours.name} matches {other.name}", verdict, dataset, [ours, other], measured, parameterisation)
    found.figures["margin"] = margin
    return found
