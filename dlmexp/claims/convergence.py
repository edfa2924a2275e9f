"""Claim 18: almost every run converges."""

from collections import defaultdict
from collections.abc import Iterator

from dlmexp import catalogue
from dlmexp.claims.finding import CLAIMS, Claim, Finding, made_by
from dlmexp.claims.rules import Verdict, almost_all
from dlmexp.console import counted
from dlmexp.records.results import Results
from dlmexp.records.schema import Record

DETERMINISTIC = "almost every run of a deterministic objective converges"
SAMPLED = "(counted apart) almost every run of a sampled or minibatch objective converges"


def _about(record: Record) -> str:
    """Sampled objectives, and those of a minibatch, change from step to step by more than the tolerance."""
    cell = record.cell
    return DETERMINISTIC if cell.minibatch is None and cell.samples is None else SAMPLED


def converged_share(results: Results) -> Iterator[Finding]:
    """Fits with a stopping rule, per dataset and parameterisation; a failed one has not converged.

    Runs for a set number of epochs or iterations and closed forms have nothing to converge.
    """
    groups: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for record in results.records.values():
        cell = record.cell
        known = cell.dataset in catalogue.PAPER or catalogue.stands_for(cell.dataset)
        if known and cell.kind == "fit" and cell.has_stopping_rule:
            groups[cell.dataset, cell.parameterisation, _about(record)].append(record)
    for (dataset, how, about), records in sorted(groups.items()):
        converged = sum(bool(record.result.converged) for record in records)
        failed = sum(not record.done for record in records)
        words = f"{converged} of {counted(len(records), 'run')} converged" + (f", {failed} failed" if failed else "")
        yield Finding(
            about, almost_all(converged, len(records)), dataset, how, words=words,
            figures={"converged": converged, "runs": len(records)},
            counted_at=frozenset(record.cell.n for record in records),
            repetitions=len({record.cell.seed for record in records}), commands=made_by(records),
        )  # fmt: skip


def pooled(findings: list[Finding]) -> Verdict:
    """By the share over all runs of deterministic objectives, as the paper counts ('across algorithms and datasets').
    A dataset on which it fails is not hidden by larger ones: then it is mixed."""
    counted = [found for found in findings if found.about == DETERMINISTIC]
    runs = int(sum(found.figures["runs"] for found in counted))
    verdict = almost_all(int(sum(found.figures["converged"] for found in counted)), runs)
    hidden = verdict is Verdict.HOLDS and any(found.verdict is Verdict.FAILS for found in counted)
    return Verdict.MIXED if hidden else verdict


for claim in (
    Claim(
        18, "Almost every run converges (of deterministic objectives; sampled and minibatch ones are counted apart).",
        converged_share, pooled,
    ),
):  # fmt: skip
    CLAIMS.add(str(claim.number), claim)
