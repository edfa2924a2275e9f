"""Claims 7 to 9: binary and count data, judged under both parameterisations of q."""

from collections.abc import Iterator

from dlmexp.catalogue import BINARY, COUNTS
from dlmexp.claims.evidence import Evidence, compared, finding, parameterisations, places, selected
from dlmexp.claims.finding import CLAIMS, Claim, Finding
from dlmexp.claims.rules import Verdict, better, combine, comparable, lowest, no_worse
from dlmexp.claims.thresholds import ERROR_MARGIN, MRE_MARGIN, NLL_MARGIN
from dlmexp.records.results import Results

BASELINES = ("elbo", "beta_elbo")
DLM = ("joint_log_dlm", "fixed_log_dlm")


def _evidence(results: Results, dataset: str, metric: str, how: str) -> dict[str, Evidence]:
    count = results.tasks.get(dataset) == "count"
    sampled = {"estimator": "bmc", "samples": 10} if count else {}
    found = {name: selected(results, dataset, name, metric, how) for name in BASELINES}
    return found | {name: selected(results, dataset, name, metric, how, **sampled) for name in DLM}


def ringnorm_and_others(results: Results) -> Iterator[Finding]:
    """ringnorm: both DLMs below ELBO and no worse than β-ELBO; elsewhere within NLL_MARGIN of either."""
    for place in places(results, *BINARY):
        for how in parameterisations(results, place):
            evidence = _evidence(results, place, "nll", how)
            for method in DLM:
                if place.startswith("ringnorm"):
                    yield from _beats_elbo(evidence, method, place, how)
                    continue
                measured = compared(evidence[method], [evidence[name] for name in BASELINES])
                verdict = combine(comparable(m.comparison, NLL_MARGIN) for m in measured)
                about = f"{evidence[method].name} is comparable to ELBO and β-ELBO in NLL"
                yield finding(about, verdict, place, list(evidence.values()), measured, how)


def _beats_elbo(evidence: dict[str, Evidence], method: str, place: str, how: str) -> Iterator[Finding]:
    """Better than ELBO; 'comparable to or better than' β-ELBO, as the main text has it."""
    ours = evidence[method]
    for base, relation in (("elbo", "beats ELBO"), ("beta_elbo", "is no worse than β-ELBO")):
        measured = compared(ours, [evidence[base]])
        comparison = measured[0].comparison if measured else None
        verdict = better(comparison) if base == "elbo" else no_worse(comparison, NLL_MARGIN)
        yield finding(f"{ours.name} {relation} in NLL", verdict, place, [ours, evidence[base]], measured, how)


def no_loss(results: Results) -> Iterator[Finding]:
    """Neither DLM loses more than the margin in error rate or MRE against ELBO and β-ELBO."""
    for place in places(results, *BINARY, *COUNTS):
        count = place in places(results, *COUNTS)
        metric, name, margin = ("mre", "MRE", MRE_MARGIN) if count else ("error", "error rate", ERROR_MARGIN)
        for how in parameterisations(results, place):
            evidence = _evidence(results, place, metric, how)
            for method in DLM:
                measured = compared(evidence[method], [evidence[base] for base in BASELINES])
                verdict = combine(no_worse(m.comparison, margin) for m in measured)
                about = f"{evidence[method].name} loses no {name} against ELBO and β-ELBO"
                yield finding(about, verdict, place, list(evidence.values()), measured, how)


def counts_lowest(results: Results) -> Iterator[Finding]:
    """Per dataset: joint DLM is lowest; and fixed DLM is at least as good as ELBO."""
    for place in places(results, *COUNTS):
        for how in parameterisations(results, place):
            evidence = _evidence(results, place, "nll", how)
            joint, fixed = (evidence[name] for name in DLM)
            rivals = [one for name, one in evidence.items() if name != "joint_log_dlm"]
            measured = compared(joint, rivals)
            about = "joint DLM has the lowest NLL"
            yield finding(about, lowest(m.comparison for m in measured), place, [joint, *rivals], measured, how)
            fallback = compared(fixed, [evidence["elbo"]])
            verdict = no_worse(fallback[0].comparison, NLL_MARGIN) if fallback else Verdict.NOT_RUN
            about = "fixed DLM is at least as good as ELBO"
            yield finding(about, verdict, place, [fixed, evidence["elbo"]], fallback, how)


def three_of_four(findings: list[Finding]) -> Verdict:
    """Joint DLM lowest on all datasets but at most one, and there fixed DLM at least as good as ELBO."""
    datasets = dict.fromkeys(found.dataset for found in findings)
    exceptions, judged = [], 0
    for dataset in datasets:
        joint, fixed = (found for found in findings if found.dataset == dataset)
        if joint.verdict is Verdict.NOT_RUN:
            continue
        judged += 1
        if joint.verdict is not Verdict.HOLDS:
            exceptions.append(fixed.verdict)
    if not judged:
        return Verdict.NOT_RUN
    if not exceptions or (len(exceptions) == 1 and exceptions[0] is Verdict.HOLDS and judged > 1):
        return Verdict.HOLDS
    return Verdict.FAILS if len(exceptions) == judged and Verdict.HOLDS not in exceptions else Verdict.MIXED


def _all(findings: list[Finding]) -> Verdict:
    return combine(found.verdict for found in findings)


for claim in (
    Claim(
        7, "ringnorm: DLM beats ELBO in NLL; on the other three binary datasets they are comparable.",
        ringnorm_and_others, _all, ("class-log",), both=True,
    ),
    Claim(8, "DLM does not lose in error rate or MRE.", no_loss, _all, ("class-err", "count-mre"), both=True),
    Claim(
        9, "Counts: joint DLM has the lowest NLL on three of four datasets; on the fourth fixed DLM is at least as "
        "good as ELBO.", counts_lowest, three_of_four, ("count-log",), both=True,
    ),
):  # fmt: skip
    CLAIMS.add(str(claim.number), claim)
