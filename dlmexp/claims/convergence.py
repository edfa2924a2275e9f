"""Claim 18: almost every run converges."""

from collections import defaultdict
from collections.abc import Iterator

from dlmexp import catalogue
from dlmexp.claims.finding import CLAIMS, Claim, Finding, made_by
from dlmexp.claims.rules import Verdict, almost_all, combine
from dlmexp.records.results import Results
from dlmexp.records.schema import Record


def converged_share(results: Results) -> Iterator[Finding]:
    """Fits with a stopping rule, per dataset and parameterisation; a failed one has not converged.

    Runs for a set number of epochs or iterations and closed forms have nothing to converge.
    """
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in results.records.values():
        cell = record.cell
        known = cell.dataset in catalogue.PAPER or catalogue.stands_for(cell.dataset)
        if known and cell.kind == "fit" and cell.has_stopping_rule:
            groups[cell.dataset, cell.parameterisation].append(record)
    for (dataset, how), records in sorted(groups.items()):
        converged = sum(bool(record.result.converged) for record in records)
        failed = sum(not record.done for record in records)
        words = f"{converged} of {len(records)} runs converged" + (f", {failed} failed" if failed else "")
        yield Finding(
            "almost every run converges", almost_all(converged, len(records)), dataset, how, words=words,
            figures={"converged": converged, "runs": len(records)},
            repetitions=len({record.cell.seed for record in records}), commands=made_by(records),
        )  # fmt: skip


def pooled(findings: list[Finding]) -> Verdict:
    """By the share over all runs, as the paper counts ('across algorithms and datasets')."""
    runs = sum(found.figures["runs"] for found in findings)
    verdict = almost_all(int(sum(found.figures["converged"] for found in findings)), int(runs))
    # A dataset on which most runs do not converge is not hidden by larger ones.
    return combine([verdict, Verdict.MIXED]) if _hidden(findings, verdict) else verdict


def _hidden(findings: list[Finding], verdict: Verdict) -> bool:
    return verdict is Verdict.HOLDS and any(found.verdict is Verdict.FAILS for found in findings)


for claim in (Claim(18, "Almost every run converges.", converged_share, pooled, both=True),):  # fmt: skip
    CLAIMS.add(str(claim.number), claim)
