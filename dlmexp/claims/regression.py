"""Claims 1 to 6 and 14: regression."""

from collections.abc import Iterator

import numpy as np

from dlmexp import catalogue
from dlmexp.claims.estimators import estimator_evidence, matches
from dlmexp.claims.evidence import compared, each, finding, margins, places, selected, usable
from dlmexp.claims.finding import CLAIMS, Claim, Finding, Measured, all_parts, made_by
from dlmexp.claims.rules import agreeing, better
from dlmexp.claims.statistics import paired
from dlmexp.data.splits import known_pool, resolve_size
from dlmexp.figures import style
from dlmexp.records.results import Results, records_of
from dlmexp.records.schema import Record
from dlmexp.records.selection import lowest as lowest_validation
from dlmexp.records.selection import on_test

LOG_METHODS = ["elbo", "beta_elbo", "fitc", "joint_log_dlm", "fixed_log_dlm"]
ALL_METHODS = [*LOG_METHODS, "joint_sq_dlm", "fixed_sq_dlm"]


def _below(
    results: Results, dataset: str, method: str, rivals: list[str], metric: str, about: str
) -> Iterator[Finding]:
    """`method` has a lower test metric than each rival, on the dataset and its stand-ins."""
    for place in places(results, dataset):
        ours = selected(results, place, method, metric)
        others = [selected(results, place, name, metric) for name in rivals if name != method]
        margin = margins(results, place, metric)
        yield finding(about, place, [ours, *others], compared(ours, others), each(better, len(others)), margin)


def _lowest(results: Results, dataset: str, method: str, metric: str, among: list[str]) -> Iterator[Finding]:
    about = f"{style.of_method(method).label} has the lowest {metric.upper()}"
    return _below(results, dataset, method, among, metric, about)


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
    names = (style.of_method(method).label for method in (ours, rival))
    return _below(results, dataset, ours, [rival], metric, f"{' beats '.join(names)} in {metric.upper()}")


def square_beats_log(results: Results) -> Iterator[Finding]:
    yield from _beats(results, "sarcos", "joint_sq_dlm", "joint_log_dlm", "mse")
    yield from _beats(results, "sarcos", "fixed_sq_dlm", "fixed_log_dlm", "mse")


def beta_beats_plain(results: Results) -> Iterator[Finding]:
    yield from _beats(results, "sarcos", "beta_elbo", "elbo", "nll")
    yield from _beats(results, "sarcos", "beta_elbo", "elbo", "mse")


def best_beta(results: Results) -> Iterator[Finding]:
    """cadata: above 1 for every method at 5 %; below 1 for joint DLM, and for no other, at 80 %."""
    for method in ("beta_elbo", "joint_log_dlm", "fixed_log_dlm"):
        yield _beta_side(results, method, "5%", "selects β > 1")
    for method in ("beta_elbo", "joint_log_dlm", "fixed_log_dlm"):
        yield _beta_side(results, method, "80%", "selects β < 1" if method.startswith("joint") else "selects no β < 1")


SIDES = {  # whether a beta is on that side of 1, and the two sides in words
    "selects β > 1": (lambda beta: beta > 1, "β > 1", "β ≤ 1"),
    "selects β < 1": (lambda beta: beta < 1, "β < 1", "β ≥ 1"),
    "selects no β < 1": (lambda beta: beta >= 1, "β ≥ 1", "β < 1"),
}


def _beta(record: Record) -> float:
    return 1.0 if record.cell.beta is None else record.cell.beta


def _beta_side(results: Results, method: str, share: str, what: str) -> Finding:
    """On which side of 1 validation selects beta, and what that side gains over the other in test NLL."""
    side, that, other = SIDES[what]
    wanted = resolve_size(share, known_pool("cadata") or 1)
    kept = [one for one in results.of_one_setting(results.line("fits", "cadata", method)) if usable(one, "whitened")]
    near = sorted(
        (one for one in kept if not one.missing and abs(one.cell.n - wanted) <= 0.02 * wanted),
        key=lambda one: one.cell.seed,
    )
    label = style.of_method(method).label
    betas = [_beta(record) for one in near if (record := one.selected("nll"))]
    inside, outside = (
        {
            (wanted, one.cell.seed): on_test(best, "nll")
            for one in near
            if (best := lowest_validation([r for r in one.records if side(_beta(r)) is here], "nll"))
        }
        for here in (True, False)
    )
    measured = [Measured(f"{label}: best {that} vs best {other}", one, n) for n, one in paired(inside, outside).items()]
    found = Finding(
        f"{label} at {share} (n = {wanted}) {what}", agreeing(sum(map(side, betas)), len(betas)), "cadata",
        measured=measured, deciding=measured[0] if measured else None, repetitions=len(betas),
        commands=made_by(records_of(near)),
    )  # fmt: skip
    if betas:
        found.figures = {"median_beta": float(np.median(betas)), "share": sum(map(side, betas)) / len(betas)}
        found.words = f"selected: {', '.join(f'{beta:.3g}' for beta in betas)}"
    return found


def sampled_gradients(results: Results) -> Iterator[Finding]:
    """bMC-1 is the worst of exact and bMC-1, 10, 100; bMC recovers exact with 10 samples (the paper's main text), and
    with 100 (its supplement)."""
    for place in places(results, *catalogue.REGRESSION):
        evidence = estimator_evidence(results, place, 0.1, [("exact", None), ("bmc", 1), ("bmc", 10), ("bmc", 100)])
        exact, one, ten, hundred = evidence
        margin = margins(results, place, "nll")
        worst = [measured for rival in (exact, ten, hundred) for measured in compared(rival, [one])]
        yield finding("bMC-1 is the worst", place, evidence, worst, each(better, 3), margin)
        for ours, source in ((ten, "main text"), (hundred, "supplement")):
            found = matches(ours, exact, margin, place)
            found.about = f"{ours.name} recovers exact gradients ({source})"
            yield found


for claim in (
    Claim(1, "pol, sarcos, song: joint log-DLM has the lowest NLL.", joint_log_lowest, all_parts, ("reg-log",)),
    Claim(2, "cadata: fixed log-DLM has the lowest NLL.", fixed_log_lowest, all_parts, ("reg-log",)),
    Claim(
        3, "MSE: joint sq-DLM is lowest on pol, sarcos, song; fixed sq-DLM on cadata.", square_lowest, all_parts,
        ("reg-sq",),
    ),
    Claim(4, "sarcos: sq-DLM beats log-DLM in MSE.", square_beats_log, all_parts, ("reg-sq",)),
    Claim(5, "sarcos: β-ELBO beats ELBO in NLL and MSE.", beta_beats_plain, all_parts, ("reg-log", "reg-sq")),
    Claim(
        6, "cadata: the best β is above 1 for every method at n = 691; at 80 % joint DLM selects β < 1, others do not.",
        best_beta, all_parts, ("reg-log",),
    ),
    Claim(
        14, "Regression: bMC-1 is the worst estimator; bMC recovers exact gradients with at least 10 samples (main "
        "text), with 100 (supplement).",
        sampled_gradients, all_parts, ("reg-learning",),
    ),
):  # fmt: skip
    CLAIMS.add(str(claim.number), claim)
