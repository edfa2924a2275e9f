"""Claims 10 to 12: the large classification data."""

from collections.abc import Iterator

from dlmexp.claims.estimators import estimator_evidence, matches
from dlmexp.claims.evidence import NO_MATCH, at_beta, compared, each, finding, margins, parameterisations, places
from dlmexp.claims.finding import CLAIMS, Claim, Finding, all_parts
from dlmexp.claims.rules import better
from dlmexp.records.results import Results

BETAS = (0.1, 1.0, 10.0)


def dlm_beats_elbo(results: Results) -> Iterator[Finding]:
    """Each DLM below β-ELBO at the same beta, and below ELBO (beta = 1), at every beta."""
    for place in places(results, "airline"):
        for how in parameterisations(results, place):
            plain = at_beta(results, place, "beta_elbo", 1.0, parameterisation=how)
            margin = margins(results, place, "nll", how)
            for beta in BETAS:
                same = at_beta(results, place, "beta_elbo", beta, parameterisation=how)
                for method in ("joint_log_dlm", "fixed_log_dlm"):
                    ours = at_beta(results, place, method, beta, parameterisation=how)
                    rivals = [same] if beta == 1.0 else [same, plain]
                    about = f"{ours.name} beats " + ("ELBO" if beta == 1.0 else f"β-ELBO, β={beta:g}, and ELBO")
                    measured = compared(ours, rivals)
                    yield finding(about, place, [ours, *rivals], measured, each(better, len(rivals)), margin, how)


def samples_needed(results: Results) -> Iterator[Finding]:
    """uPS-10 and bMC-100 match exact, bMC-10 does not; uPS-1 is below bMC-10."""
    pairs = [("exact", None), ("bmc", 10), ("bmc", 100), ("ups", 1), ("ups", 10)]
    for place in places(results, "airline"):
        for how in parameterisations(results, place):
            exact, bmc10, bmc100, ups1, ups10 = estimator_evidence(results, place, 0.1, pairs, how)
            margin = margins(results, place, "nll", how)
            yield matches(ups10, exact, margin, place, how)
            yield matches(bmc100, exact, margin, place, how)
            measured = compared(bmc10, [exact])
            yield finding("bMC-10 does not match exact", place, [bmc10, exact], measured, NO_MATCH, margin, how)
            measured = compared(ups1, [bmc10])
            yield finding("uPS-1 beats bMC-10", place, [ups1, bmc10], measured, each(better), margin, how)


def smoothing_changes_nothing(results: Results) -> Iterator[Finding]:
    for place in places(results, "airline"):
        for how in parameterisations(results, place):
            margin = margins(results, place, "nll", how)
            for samples in (1, 10, 100):
                smooth, plain = estimator_evidence(
                    results, place, 0.1, [("smooth_bmc", samples), ("bmc", samples)], how
                )
                yield matches(smooth, plain, margin, place, how)


for claim in (
    Claim(
        10, "airline: both DLMs beat β-ELBO at every β in {0.1, 1, 10}, and ELBO at β = 1.", dlm_beats_elbo, all_parts,
        ("airline",),
    ),
    Claim(
        11, "airline, β = 0.1: uPS-10 matches exact, bMC needs 100 samples; uPS-1 beats bMC-10.", samples_needed,
        all_parts, ("airline-sampling-0.1",),
    ),
    Claim(
        12, "airline: smooth-bMC equals bMC in NLL.", smoothing_changes_nothing, all_parts, ("airline-smooth",),
    ),
):  # fmt: skip
    CLAIMS.add(str(claim.number), claim)
