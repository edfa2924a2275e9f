"""Claims about methods: 1 to 5 and 10 (who is lowest), 7 to 9 (binary and count data), 21 and 22
(taken together), and about the betas that validation selects: 6 and 20."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from dlmexp.common.catalogue import BINARY, COUNTS, REGRESSION
from dlmexp.presentation.claims import rules
from dlmexp.presentation.claims.claim import Part, claim
from dlmexp.presentation.claims.evidence import DLM, Evidence
from dlmexp.presentation.claims.rules import (
    BETTER,
    COMPARABLE,
    NO_WORSE,
    Rule,
    Verdict,
    by_share,
    combine,
)
from dlmexp.presentation.labels import method_label, metric_label

LOG_METHODS = ("elbo", "beta_elbo", "fitc", "joint_log_dlm", "fixed_log_dlm")
ALL_METHODS = (*LOG_METHODS, "joint_sq_dlm", "fixed_sq_dlm")
BASELINES = ("elbo", "beta_elbo")
BOTH = "ELBO and β-ELBO"


def related(
    evidence: Evidence,
    datasets: Sequence[str],
    method: str,
    rivals: Sequence[str],
    metric: str,
    rule: Rule,
    says: str,
) -> Iterator[Part]:
    """The relation of a method to each rival, on the datasets and their stand-ins, in all
    coordinates of q."""
    for dataset, q in evidence.places(*datasets):
        ours = evidence.fit(dataset, method, metric, q)
        pairs = [
            (ours, evidence.fit(dataset, name, metric, q)) for name in rivals if name != method
        ]
        yield evidence.compare(f"{method_label(method)} {says}", dataset, q, pairs, rule, metric)


def lowest(evidence: Evidence, method: str, metric: str, *datasets: str) -> Iterator[Part]:
    among = LOG_METHODS if metric == "nll" else ALL_METHODS
    return related(
        evidence, datasets, method, among, metric, BETTER, f"has the lowest {metric_label(metric)}"
    )


def beats(evidence: Evidence, method: str, rival: str, metric: str, dataset: str) -> Iterator[Part]:
    says = f"beats {method_label(rival)} in {metric_label(metric)}"
    return related(evidence, [dataset], method, [rival], metric, BETTER, says)


@claim(1, "section 6.2, figure 1(a); supplement A", "reg-log")
def joint_log_lowest(evidence: Evidence) -> Iterator[Part]:
    """pol, sarcos, song: joint log-DLM has the lowest NLL."""
    yield from lowest(evidence, "joint_log_dlm", "nll", "pol", "sarcos", "song")


@claim(2, "supplement A", "reg-log")
def fixed_log_lowest(evidence: Evidence) -> Iterator[Part]:
    """cadata: fixed log-DLM has the lowest NLL."""
    yield from lowest(evidence, "fixed_log_dlm", "nll", "cadata")


@claim(3, "supplement A", "reg-sq")
def square_lowest(evidence: Evidence) -> Iterator[Part]:
    """MSE: joint sq-DLM is lowest on pol, sarcos, song; fixed sq-DLM on cadata."""
    yield from lowest(evidence, "joint_sq_dlm", "mse", "pol", "sarcos", "song")
    yield from lowest(evidence, "fixed_sq_dlm", "mse", "cadata")


@claim(4, "section 6.2, figure 1(b)", "reg-sq")
def square_beats_log(evidence: Evidence) -> Iterator[Part]:
    """sarcos: sq-DLM beats log-DLM in MSE."""
    yield from beats(evidence, "joint_sq_dlm", "joint_log_dlm", "mse", "sarcos")
    yield from beats(evidence, "fixed_sq_dlm", "fixed_log_dlm", "mse", "sarcos")


@claim(5, "section 6.2, figure 1(a, b)", "reg-log", "reg-sq")
def beta_beats_plain(evidence: Evidence) -> Iterator[Part]:
    """sarcos: β-ELBO beats ELBO in NLL and MSE."""
    yield from beats(evidence, "beta_elbo", "elbo", "nll", "sarcos")
    yield from beats(evidence, "beta_elbo", "elbo", "mse", "sarcos")


@claim(7, "section 6.2, figure 1(d); supplement A", "class-log")
def ringnorm_and_others(evidence: Evidence) -> Iterator[Part]:
    """ringnorm: DLM beats ELBO in NLL; on the other three binary datasets they are comparable."""
    for method in DLM:
        yield from beats(evidence, method, "elbo", "nll", "ringnorm")
        others, says = ("banana", "thyroid", "twonorm"), f"is comparable to {BOTH} in NLL"
        yield from related(evidence, others, method, BASELINES, "nll", COMPARABLE, says)


@claim(8, "section 6.2; supplement A", "class-err", "count-mre")
def no_loss(evidence: Evidence) -> Iterator[Part]:
    """DLM does not lose in error rate or MRE."""
    for metric, datasets in (("error", BINARY), ("mre", COUNTS)):
        for method in DLM:
            says = f"loses no {metric_label(metric)} against {BOTH}"
            yield from related(evidence, datasets, method, BASELINES, metric, NO_WORSE, says)


JOINT_LOWEST = "joint DLM has the lowest NLL"


def three_of_four(parts: list[Part]) -> Verdict:
    """Joint DLM lowest on three, fixed DLM at least as good as ELBO on the fourth. Fails where
    joint fails on two."""
    joint, fixed = ({}, {})
    for part in parts:
        if part.verdict is not Verdict.NOT_RUN:
            (joint if part.says == JOINT_LOWEST else fixed).setdefault(part.dataset, []).append(
                part.verdict
            )
    told = {
        dataset: combine(verdicts) for dataset, verdicts in joint.items()
    }  # over the coordinates of q
    if len(told) < rules.COUNTS_NEEDED:
        return Verdict.PARTLY_SEEN if told else Verdict.NOT_RUN
    others = [dataset for dataset, verdict in told.items() if verdict is not Verdict.HOLDS]
    if len(told) - len(others) >= rules.COUNTS_NEEDED:
        return combine([Verdict.HOLDS, *(combine(fixed.get(dataset, [])) for dataset in others)])
    verdicts = list(told.values())
    if verdicts.count(Verdict.FAILS) > 1:
        return Verdict.FAILS
    return (
        Verdict.UNDECIDED
        if {Verdict.UNDECIDED, Verdict.UNDECIDABLE} & {*verdicts}
        else Verdict.MIXED
    )


def how_many_lowest(parts: list[Part]) -> str:
    """`1 of 2 seen`: the datasets, stand-ins among them, on which joint DLM is lowest in all
    coordinates of q run."""
    joint = [
        part for part in parts if part.says == JOINT_LOWEST and part.verdict is not Verdict.NOT_RUN
    ]
    seen = {part.dataset for part in joint}
    return f"{len(seen - {part.dataset for part in joint if part.verdict is not Verdict.HOLDS})} of {len(seen)} seen"


@claim(
    9,
    "section 6.2, figure 1(e); supplement A",
    "count-log",
    sum_up=three_of_four,
    seen=how_many_lowest,
)
def counts_lowest(evidence: Evidence) -> Iterator[Part]:
    """Counts: joint DLM has the lowest NLL on three of four datasets; on the fourth fixed DLM is at
    least as good as ELBO."""
    for dataset, q in evidence.places(*COUNTS):
        joint, fixed, elbo, beta_elbo = (
            evidence.fit(dataset, name, "nll", q) for name in (*DLM, *BASELINES)
        )
        rivals = [(joint, rival) for rival in (elbo, beta_elbo, fixed)]
        yield evidence.compare(JOINT_LOWEST, dataset, q, rivals, BETTER, "nll")
        yield evidence.compare(
            "fixed DLM is at least as good as ELBO", dataset, q, [(fixed, elbo)], NO_WORSE, "nll"
        )


@claim(10, "section 6.2, figure 1(f)", "airline")
def dlm_beats_elbo(evidence: Evidence) -> Iterator[Part]:
    """airline: both DLMs beat β-ELBO at every β in {0.1, 1, 10}, and ELBO at β = 1."""
    for dataset, q in evidence.places("airline", kind="curve"):
        plain = evidence.curve(dataset, "beta_elbo", 1.0, q)
        for beta in (0.1, 1.0, 10.0):
            rivals = (
                [evidence.curve(dataset, "beta_elbo", beta, q), plain] if beta != 1.0 else [plain]
            )
            for method in DLM:
                ours = evidence.curve(dataset, method, beta, q)
                says = f"{ours.name} beats " + (
                    "ELBO" if beta == 1.0 else f"β-ELBO, β={beta:g}, and ELBO"
                )
                yield evidence.compare(
                    says, dataset, q, [(ours, rival) for rival in rivals], BETTER, "nll"
                )


@claim(21, "section 6.2", "reg-log", "class-log", "count-log")
def better_dlm(evidence: Evidence) -> Iterator[Part]:
    """Taken together, the better of the two DLM variants is comparable to or better than both ELBO
    and β-ELBO on every dataset.

    In each repetition the variant with the lower validation NLL, as a user would choose it.
    """
    says = f"the DLM variant that validation selects is comparable to or better than {BOTH} in NLL"
    for dataset, q in evidence.places(*REGRESSION, *BINARY, *COUNTS):
        joint, fixed = (evidence.fit(dataset, method, "nll", q) for method in DLM)
        validation = np.stack(
            [evidence.fit(dataset, method, "nll", q, "validation_nll").values for method in DLM]
        )
        known, take_joint = np.isfinite(validation).all(0), validation[0] <= validation[1]
        values = np.where(known, np.where(take_joint, joint.values, fixed.values), np.nan)
        ours = replace(
            joint, name="DLM (variant by validation)", values=values, lost=joint.lost + fixed.lost
        )
        pairs = [(ours, evidence.fit(dataset, name, "nll", q)) for name in BASELINES]
        part = evidence.compare(says, dataset, q, pairs, NO_WORSE, "nll")
        if known.any():
            part.figures = {"joint_selected": float(take_joint[known].mean())}
        yield part


CALIBRATION = {
    REGRESSION: ("coverage_50", "coverage_90", "coverage_95", "crps"),
    BINARY: ("ece", "brier"),
    COUNTS: ("coverage_95",),
}
FIGURES = ("calibration-reg", "calibration-class", "calibration-count")


@claim(22, "section 6.2; supplement A", "reg-log", "class-log", "count-log", figures=FIGURES)
def better_calibrated(evidence: Evidence) -> Iterator[Part]:
    """DLM is better calibrated than ELBO: coverage and CRPS in regression (our addition), ECE and
    Brier score in binary, coverage in counts (said in the paper, not measured there).

    Each DLM, with the beta that NLL selects, against ELBO: coverage by its distance from each
    nominal level."""
    for datasets, measures in CALIBRATION.items():
        for dataset, q in evidence.places(*datasets):
            for measure in measures:
                for method in DLM:
                    yield _calibrated(evidence, dataset, q, measure, method)


def _calibrated(evidence: Evidence, dataset: str, q: str, measure: str, method: str) -> Part:
    coverage = measure.startswith("coverage")
    level = int(measure.split("_")[1]) / 100 if coverage else 0.0
    signed = [evidence.fit(dataset, name, "nll", q, f"test_{measure}") for name in (method, "elbo")]
    ours, elbo = (replace(line, values=abs(line.values - level)) for line in signed)
    what = f"coverage error at {level:.0%}" if coverage else metric_label(measure)
    margin = measure if measure in ("crps", "brier") else rules.PROBABILITY_MARGIN
    part = evidence.compare(
        f"{ours.name} has a lower {what} than ELBO", dataset, q, [(ours, elbo)], BETTER, margin
    )
    if part.comparisons and all(row["difference"] == 0 == row["error"] for row in part.comparisons):
        part.verdict = part.corrected = Verdict.UNDECIDABLE
        part.reason = "both have the same value in every repetition, so it tells nothing"
    if part.comparisons and coverage:
        means = [float(np.nanmean(line.values)) - level for line in signed]
        part.figures = {"signed_error": means[0], "signed_error_elbo": means[1]}
        told = f"coverage minus nominal, mean over sizes: {means[0]:+.3f}, ELBO {means[1]:+.3f}"
        part.reason = "; ".join(filter(None, [told, part.reason]))
    return part


SELECTING = ("beta_elbo", *DLM)


@claim(6, "section 6.2, figure 1(c); supplement A", "reg-log")
def best_beta(evidence: Evidence) -> Iterator[Part]:
    """cadata: the best β is above 1 for every method at n = 691; at 80 % joint DLM selects β < 1,
    others do not."""
    for size, method in [(size, method) for size in ("5%", "80%") for method in SELECTING]:
        at = evidence.at("nll", "cadata", "whitened", method, "exact", None)
        at = at[(evidence.column("size")[at] == size) & (evidence.column("status")[at] == "done")]
        betas = evidence.column("beta")[at[np.argsort(evidence.column("seed")[at])]].astype(float)
        what, side = "selects β > 1", betas > 1
        if size == "80%":
            joint = method.startswith("joint")
            what, side = ("selects β < 1", betas < 1) if joint else ("selects no β < 1", betas >= 1)
        part = Part(f"{method_label(method)} at {size} {what}", "cadata", **evidence.made(at))
        if len(betas):
            share, part.repetitions = float(side.mean()), len(betas)
            part.verdict = by_share(share, rules.AGREE_SHARE, 1 - rules.AGREE_SHARE, len(betas))
            part.few = len(betas) < rules.MIN_REPETITIONS
            part.figures = {"median_beta": float(np.median(betas)), "share": share}
            part.reason = f"selected: {', '.join(f'{beta:.3g}' for beta in betas)}"
        yield part


def most_datasets(parts: list[Part]) -> Verdict:
    """`For most datasets`: it holds on more than half of those that were run; it fails where it
    fails on most."""
    judged = [part.verdict for part in parts if part.verdict is not Verdict.NOT_RUN]
    told = [
        verdict
        for verdict in (Verdict.HOLDS, Verdict.FAILS)
        if 2 * judged.count(verdict) > len(judged)
    ]
    return told[0] if told else Verdict.MIXED if judged else Verdict.NOT_RUN


@claim(20, "section 6.2", "reg-log", "class-log", "count-log", sum_up=most_datasets)
def small_betas(evidence: Evidence) -> Iterator[Part]:
    """For most datasets and sizes a β < 1 is selected.

    Square-loss methods are left out: joint sq-DLM can make any beta as small as it likes (SPEC,
    section 6)."""
    for dataset, q in evidence.places(*REGRESSION, *BINARY, *COUNTS):
        lines = [evidence.fit(dataset, method, "nll", q, "beta") for method in SELECTING]
        grid = np.stack([line.values for line in lines])
        count = np.isfinite(grid).sum(-1)
        enough = count >= rules.MIN_REPETITIONS
        below = np.zeros(enough.shape, dtype=bool)
        below[enough] = np.nanmedian(grid[enough], axis=-1) < 1
        made = evidence.made(*(line.at for line in lines))
        part = Part("for most methods and sizes a β < 1 is selected", dataset, q, **made)
        if count.any() and not enough.any():
            part.repetitions, part.few, part.verdict = int(count.max()), True, Verdict.UNDECIDABLE
        if enough.any():
            yes, cases = int(below.sum()), int(enough.sum())
            part.verdict = (
                Verdict.HOLDS
                if 2 * yes > cases
                else Verdict.FAILS
                if 2 * yes < cases
                else Verdict.MIXED
            )
            part.figures, part.repetitions = (
                {"below": yes, "cases": cases},
                int(count[enough].min()),
            )
            said = [
                f"{line.name} at {b.sum()} of {e.sum()}"
                for line, b, e in zip(lines, below, enough, strict=True)
            ]
            part.reason = f"median selected β < 1: {', '.join(said)} sizes"
        yield part
