"""Claims 1 to 6 and 14: regression."""

from collections.abc import Iterator

import numpy as np

from dlmexp import catalogue
from dlmexp.claims.estimators import estimator_evidence, matches
from dlmexp.claims.evidence import compared, finding, places, selected
from dlmexp.claims.finding import CLAIMS, Claim, Finding, Measured, made_by
from dlmexp.claims.rules import Verdict, agreeing, better, combine, lowest, opposite
from dlmexp.claims.statistics import paired
from dlmexp.data.splits import known_pool, resolve_size
from dlmexp.figures import style
from dlmexp.records.results import Results, records_of
from dlmexp.records.selection import lowest as lowest_validation
from dlmexp.records.selection import on_test
from dlmexp.records.settings import same_settings

LOG_METHODS = ["elbo", "beta_elbo", "fitc", "joint_log_dlm", "fixed_log_dlm"]
ALL_METHODS = [*LOG_METHODS, "joint_sq_dlm", "fixed_sq_dlm"]


def _all(findings: list[Finding]) -> Verdict:
    return combine(finding.verdict for finding in findings)


def _lowest(results: Results, dataset: str, method: str, metric: str, among: list[str]) -> Iterator[Finding]:
    """`method` has the lowest test metric of all on the dataset and its stand-ins."""
    for place in places(results, dataset):
        evidence = {name: selected(results, place, name, metric) for name in among}
        rivals = [one for name, one in evidence.items() if name != method]
        measured = compared(evidence[method], rivals)
        verdict = lowest(one.comparison for one in measured)
        about = f"{evidence[method].name} has the lowest {metric.upper()}"
        yield finding(about, verdict, place, list(evidence.values()), measured)


def joint_log_lowest(results: Results) -> Iterator[Finding]:
    for dataset in ("pol", "sarcos", "song"):
        yield from _lowest(results, dataset, "joint_log_dlm", "nll", LOG_METHODS)


def fixed_log_lowest(results: Results) -> Iterator[Finding]:
    yield from _lowest(results, "cadata", "fixed_log_dlm", "nll", LOG_METHODS)


def square_lowest(results: Results) -> Iterator[Finding]:
    for dataset in ("pol", "sarcos", "song"):
        yield from _lowest(results, dataset, "joint_sq_dlm", "mse", ALL_METHODS)
    yield from _lowest(results, "cadata", "fixed_sq_dlm", "mse", ALL_METHODS)


def _beats(results: Results, dataset: str, ours: str, rival: str, metric: str) -> Iterator[Finding]:
    for place in places(results, dataset):
        evidence = [selected(results, place, name, metric) for name in (ours, rival)]
        measured = compared(evidence[0], evidence[1:])
        verdict = better(measured[0].comparison) if measured else Verdict.NOT_RUN
        about = f"{evidence[0].name} beats {evidence[1].name} in {metric.upper()}"
        yield finding(about, verdict, place, evidence, measured)


def square_beats_log(results: Results) -> Iterator[Finding]:
    yield from _beats(results, "sarcos", "joint_sq_dlm", "joint_log_dlm", "mse")
    yield from _beats(results, "sarcos", "fixed_sq_dlm", "fixed_log_dlm", "mse")


def beta_beats_plain(results: Results) -> Iterator[Finding]:
    yield from _beats(results, "sarcos", "beta_elbo", "elbo", "nll")
    yield from _beats(results, "sarcos", "beta_elbo", "elbo", "mse")


def best_beta(results: Results) -> Iterator[Finding]:
    """cadata: above 1 for every method at 5 %; below 1 for joint DLM, and for no other, at 80 %."""
    methods = ("beta_elbo", "joint_log_dlm", "fixed_log_dlm")
    for method in methods:
        yield _beta_side(results, method, "5%", above=True)
    for method in methods:
        yield _beta_side(results, method, "80%", above=method != "joint_log_dlm")


def _beta_side(results: Results, method: str, share: str, above: bool) -> Finding:
    """Whether validation selects beta above (below) 1, and what that side gains over the other in test NLL."""
    wanted = resolve_size(share, known_pool("cadata") or 1)
    kept, _ = same_settings(results.line("fits", "cadata", method), catalogue.beta_rule("paper"))
    near = [one for one in kept if abs(one.cell.n - wanted) <= 0.02 * wanted]
    records = records_of(near)
    label = style.of_method(method).label
    about = f"{label} at {share} (n = {wanted}) selects β {'> 1' if above else '< 1'}"
    near = sorted(near, key=lambda one: one.cell.seed)
    betas = [r.cell.beta for one in near if (r := lowest_validation(one.records, "nll")) and r.cell.beta is not None]
    over = sum(beta > 1 for beta in betas)
    # 'Other methods do not select beta < 1' is as good with 1 or more.
    verdict = agreeing(over, len(betas)) if above else opposite(agreeing(over, len(betas)))
    over_one, under_one = (
        {
            (wanted, one.cell.seed): on_test(best, "nll")
            for one in near
            if (best := lowest_validation([r for r in one.records if side(r.cell.beta or 1.0)], "nll"))
        }
        for side in (lambda beta: beta > 1, lambda beta: beta < 1)
    )
    comparison = paired(over_one, under_one) if above else paired(under_one, over_one)
    names = ("best β > 1", "best β < 1") if above else ("best β < 1", "best β > 1")
    found = Finding(about, verdict, "cadata", repetitions=len(betas), commands=made_by(records))
    found.measured = [Measured(f"{label}: {names[0]} vs {names[1]}", comparison)] if comparison else []
    if betas:
        found.figures = {"median_beta": float(np.median(betas)), "share_above_1": over / len(betas)}
        found.words = f"selected: {', '.join(f'{beta:.3g}' for beta in betas)}"
    return found


def sampled_gradients(results: Results) -> Iterator[Finding]:
    """bMC-1 is the worst of exact and bMC-1, 10, 100; bMC-100 matches exact."""
    for place in places(results, *catalogue.REGRESSION):
        evidence = estimator_evidence(results, place, 0.1, [("exact", None), ("bmc", 1), ("bmc", 10), ("bmc", 100)])
        exact, one, ten, hundred = evidence
        worst = [measured for rival in (exact, ten, hundred) for measured in compared(rival, [one])]
        yield finding("bMC-1 is the worst", lowest(m.comparison for m in worst), place, evidence, worst)
        yield matches(hundred, exact, evidence, place)


for claim in (
    Claim(1, "pol, sarcos, song: joint log-DLM has the lowest NLL.", joint_log_lowest, _all, ("reg-log",)),
    Claim(2, "cadata: fixed log-DLM has the lowest NLL.", fixed_log_lowest, _all, ("reg-log",)),
    Claim(
        3, "MSE: joint sq-DLM is lowest on pol, sarcos, song; fixed sq-DLM on cadata.", square_lowest, _all, ("reg-sq",)
    ),
    Claim(4, "sarcos: sq-DLM beats log-DLM in MSE.", square_beats_log, _all, ("reg-sq",)),
    Claim(5, "sarcos: β-ELBO beats ELBO in NLL and MSE.", beta_beats_plain, _all, ("reg-sq",)),
    Claim(
        6, "cadata: the best β is above 1 for every method at n = 691; at 80 % joint DLM selects β < 1, others do not.",
        best_beta, _all, ("reg-log",),
    ),
    Claim(
        14, "Regression: bMC-1 is the worst estimator, bMC-100 equals exact gradients.", sampled_gradients, _all,
        ("reg-learning",),
    ),
):  # fmt: skip
    CLAIMS.add(str(claim.number), claim)
