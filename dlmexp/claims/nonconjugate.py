"""Claims 7 to 9: binary and count data, judged under both parameterisations of q."""

from collections.abc import Iterator

from dlmexp.catalogue import BINARY, COUNTS
from dlmexp.claims.evidence import (
    Evidence,
    Relation,
    compared,
    each,
    finding,
    margins,
    parameterisations,
    places,
    selected,
)
from dlmexp.claims.finding import CLAIMS, Claim, Finding, all_parts
from dlmexp.claims.rules import Verdict, better, comparable, no_worse
from dlmexp.claims.thresholds import COUNTS_NEEDED
from dlmexp.records.results import Results

BASELINES = ("elbo", "beta_elbo")
DLM = ("joint_log_dlm", "fixed_log_dlm")


def methods_evidence(results: Results, dataset: str, metric: str, how: str) -> dict[str, Evidence]:
    """ELBO, β-ELBO and both DLMs (on counts with bMC-10), at every size."""
    count = results.tasks.get(dataset) == "count"
    sampled = {"estimator": "bmc", "samples": 10} if count else {}
    found = {name: selected(results, dataset, name, metric, how) for name in BASELINES}
    return found | {name: selected(results, dataset, name, metric, how, **sampled) for name in DLM}


def ringnorm_and_others(results: Results) -> Iterator[Finding]:
    """ringnorm: both DLMs below ELBO; elsewhere comparable to ELBO and β-ELBO."""
    for place in places(results, *BINARY):
        for how in parameterisations(results, place):
            evidence = methods_evidence(results, place, "nll", how)
            margin = margins(results, place, "nll", how)
            rivals, relation, words = list(BASELINES), comparable, "is comparable to ELBO and β-ELBO in NLL"
            if place.startswith("ringnorm"):
                rivals, relation, words = ["elbo"], better, "beats ELBO in NLL"
            for method in DLM:
                against = [evidence[name] for name in rivals]
                measured = compared(evidence[method], against)
                about = f"{evidence[method].name} {words}"
                yield finding(
                    about, place, [evidence[method], *against], measured, each(relation, len(against)), margin, how
                )


def no_loss(results: Results) -> Iterator[Finding]:
    """Neither DLM loses more than the margin in error rate or MRE against ELBO and β-ELBO."""
    for place in places(results, *BINARY, *COUNTS):
        metric, name = ("mre", "MRE") if place in places(results, *COUNTS) else ("error", "error rate")
        for how in parameterisations(results, place):
            evidence = methods_evidence(results, place, metric, how)
            margin = margins(results, place, metric, how)
            against = [evidence[base] for base in BASELINES]
            for method in DLM:
                measured = compared(evidence[method], against)
                about = f"{evidence[method].name} loses no {name} against ELBO and β-ELBO"
                yield finding(
                    about, place, [evidence[method], *against], measured, each(no_worse, len(against)), margin, how
                )


def counts_lowest(results: Results) -> Iterator[Finding]:
    """Per dataset: joint DLM is lowest; and fixed DLM is at least as good as ELBO."""
    parts: tuple[tuple[str, str, list[str], Relation], ...] = (
        ("joint_log_dlm", "joint DLM has the lowest NLL", ["elbo", "beta_elbo", "fixed_log_dlm"], better),
        ("fixed_log_dlm", "fixed DLM is at least as good as ELBO", ["elbo"], no_worse),
    )
    for place in places(results, *COUNTS):
        for how in parameterisations(results, place):
            evidence = methods_evidence(results, place, "nll", how)
            margin = margins(results, place, "nll", how)
            for method, about, rivals, relation in parts:
                against = [evidence[name] for name in rivals]
                measured = compared(evidence[method], against)
                yield finding(
                    about, place, [evidence[method], *against], measured, each(relation, len(against)), margin, how
                )


def three_of_four(findings: list[Finding]) -> Verdict:
    """Joint DLM lowest on three, fixed DLM at least as good as ELBO on the fourth. Fails where joint fails on two."""
    exceptions, judged = [], 0
    for dataset in dict.fromkeys(found.dataset for found in findings):
        joint, fixed = (found for found in findings if found.dataset == dataset)
        if joint.verdict is not Verdict.NOT_RUN:
            judged += 1
            if joint.verdict is not Verdict.HOLDS:
                exceptions.append((joint.verdict, fixed.verdict))
    if judged < COUNTS_NEEDED:
        return Verdict.UNDECIDABLE if judged else Verdict.NOT_RUN
    if not exceptions:
        return Verdict.HOLDS
    failed = [joint for joint, _ in exceptions if joint is Verdict.FAILS]
    if len(exceptions) == 1 and judged > COUNTS_NEEDED:
        fixed = exceptions[0][1]
        return Verdict.MIXED if fixed is Verdict.FAILS else fixed
    if len(failed) > 1:
        return Verdict.FAILS
    told = all(joint in (Verdict.FAILS, Verdict.MIXED) for joint, _ in exceptions)
    return Verdict.MIXED if told and len(exceptions) > 1 else Verdict.UNDECIDED


for claim in (
    Claim(
        7, "ringnorm: DLM beats ELBO in NLL; on the other three binary datasets they are comparable.",
        ringnorm_and_others, all_parts, ("class-log",),
    ),
    Claim(8, "DLM does not lose in error rate or MRE.", no_loss, all_parts, ("class-err", "count-mre")),
    Claim(
        9, "Counts: joint DLM has the lowest NLL on three of four datasets; on the fourth fixed DLM is at least as "
        "good as ELBO.", counts_lowest, three_of_four, ("count-log",),
    ),
):  # fmt: skip
    CLAIMS.add(str(claim.number), claim)
