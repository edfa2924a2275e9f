"""Claims 10 to 12: the large classification data."""

from collections.abc import Iterator

from dlmexp.claims.estimators import estimator_evidence, matches
from dlmexp.claims.evidence import at_beta, compared, finding, parameterisations, places
from dlmexp.claims.finding import CLAIMS, Claim, Finding
from dlmexp.claims.rules import Verdict, better, combine, opposite
from dlmexp.records.results import Results

BETAS = (0.1, 1.0, 10.0)


def dlm_beats_elbo(results: Results) -> Iterator[Finding]:
    """Each DLM below β-ELBO at the same beta, and below ELBO (beta = 1), at every beta."""
    for place in places(results, "airline"):
        for how in parameterisations(results, place):
            plain = at_beta(results, place, "beta_elbo", 1.0, parameterisation=how)
            for beta in BETAS:
                same = at_beta(results, place, "beta_elbo", beta, parameterisation=how)
                for method in ("joint_log_dlm", "fixed_log_dlm"):
                    ours = at_beta(results, place, method, beta, parameterisation=how)
                    rivals = [same] if beta == 1.0 else [same, plain]
                    measured = compared(ours, rivals)
                    verdict = combine(better(m.comparison) for m in measured)
                    yield finding(f"{ours.name} beats ELBO", verdict, place, [ours, *rivals], measured, how)


def samples_needed(results: Results) -> Iterator[Finding]:
    """uPS-10 and bMC-100 match exact, bMC-10 does not; uPS-1 is below bMC-10."""
    pairs = [("exact", None), ("bmc", 1), ("bmc", 10), ("bmc", 100), ("ups", 1), ("ups", 10)]
    for place in places(results, "airline"):
        for how in parameterisations(results, place):
            evidence = estimator_evidence(results, place, 0.1, pairs, how)
            exact, _, bmc10, bmc100, ups1, ups10 = evidence
            yield matches(ups10, exact, evidence, place, how)
            yield matches(bmc100, exact, evidence, place, how)
            short = matches(bmc10, exact, evidence, place, how)
            short.about, short.verdict = "bMC-10 does not match exact", opposite(short.verdict)
            yield short
            measured = compared(ups1, [bmc10])
            verdict = better(measured[0].comparison) if measured else Verdict.NOT_RUN
            yield finding("uPS-1 beats bMC-10", verdict, place, [ups1, bmc10], measured, how)


def smoothing_changes_nothing(results: Results) -> Iterator[Finding]:
    pairs: list[tuple[str, int | None]] = [("exact", None)]
    pairs += [(name, samples) for samples in (1, 10, 100) for name in ("smooth_bmc", "bmc")]
    for place in places(results, "airline"):
        for how in parameterisations(results, place):
            evidence = estimator_evidence(results, place, 0.1, pairs, how)
            for index in (1, 3, 5):
                yield matches(evidence[index], evidence[index + 1], evidence, place, how)


def _all(findings: list[Finding]) -> Verdict:
    return combine(found.verdict for found in findings)


for claim in (
    Claim(
        10, "airline: both DLMs beat β-ELBO at every β in {0.1, 1, 10}, and ELBO at β = 1.", dlm_beats_elbo, _all,
        ("airline",), both=True,
    ),
    Claim(
        11, "airline, β = 0.1: uPS-10 matches exact, bMC needs 100 samples; uPS-1 beats bMC-10.", samples_needed, _all,
        ("airline-sampling-0.1",), both=True,
    ),
    Claim(
        12, "airline: smooth-bMC equals bMC in NLL.", smoothing_changes_nothing, _all, ("airline-smooth",), both=True
    ),
):  # fmt: skip
    CLAIMS.add(str(claim.number), claim)
