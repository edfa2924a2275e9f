"""Claims 6 and 20: which betas validation selects."""

from collections.abc import Iterator

import numpy as np

from dlmexp.claims.claim import BINARY, COUNTS, REGRESSION, Part, claim
from dlmexp.claims.evidence import DLM, Evidence, made_by
from dlmexp.claims.rules import Verdict, by_share
from dlmexp.claims.thresholds import AGREE_SHARE, MIN_REPETITIONS
from dlmexp.labels import method_label

METHODS = ("beta_elbo", *DLM)


@claim(6, "section 6.2, figure 1(c); supplement A", "reg-log")
def best_beta(evidence: Evidence) -> Iterator[Part]:
    """cadata: the best β is above 1 for every method at n = 691; at 80 % joint DLM selects β < 1, others do not."""
    for size, method in [(size, method) for size in ("5%", "80%") for method in METHODS]:
        at = evidence.at("nll", "cadata", "whitened", method, "exact", None)
        at = at[(evidence.column("size")[at] == size) & (evidence.column("status")[at] == "done")]
        betas = evidence.column("beta")[at[np.argsort(evidence.column("seed")[at])]].astype(float)
        what, side = "selects β > 1", betas > 1
        if size == "80%":
            what, side = (
                ("selects β < 1", betas < 1) if method.startswith("joint") else ("selects no β < 1", betas >= 1)
            )
        part = Part(f"{method_label(method)} at {size} {what}", "cadata", **made_by(evidence.made.iloc[at]))
        if len(betas):
            share, part.repetitions = float(side.mean()), len(betas)
            part.verdict, part.few = (
                by_share(share, AGREE_SHARE, 1 - AGREE_SHARE, len(betas)),
                len(betas) < MIN_REPETITIONS,
            )
            part.figures = {"median_beta": float(np.median(betas)), "share": share}
            part.reason = f"selected: {', '.join(f'{beta:.3g}' for beta in betas)}"
        yield part


def most(yes: int, out_of: int) -> Verdict:
    """`For most`: more than half; fails where it is less than half."""
    if not out_of:
        return Verdict.NOT_RUN
    return Verdict.HOLDS if 2 * yes > out_of else Verdict.FAILS if 2 * yes < out_of else Verdict.MIXED


def most_datasets(parts: list[Part]) -> Verdict:
    """`For most datasets`: it holds on more than half of those that were run; it fails where it fails on most."""
    judged = [part.verdict for part in parts if part.verdict is not Verdict.NOT_RUN]
    told = [verdict for verdict in (Verdict.HOLDS, Verdict.FAILS) if 2 * judged.count(verdict) > len(judged)]
    return told[0] if told else Verdict.MIXED if judged else Verdict.NOT_RUN


@claim(20, "section 6.2", "reg-log", "class-log", "count-log", sum_up=most_datasets)
def small_betas(evidence: Evidence) -> Iterator[Part]:
    """For most datasets and sizes a β < 1 is selected.

    Square-loss methods are left out: joint sq-DLM can make any beta as small as it likes (SPEC, section 6).
    """
    for dataset, q in evidence.places(*REGRESSION, *BINARY, *COUNTS):
        lines = [evidence.fit(dataset, method, "nll", q, "beta") for method in METHODS]
        grid = np.stack([line.values for line in lines])
        count = np.isfinite(grid).sum(-1)
        enough = count >= MIN_REPETITIONS
        below = np.zeros(enough.shape, dtype=bool)
        below[enough] = np.nanmedian(grid[enough], axis=-1) < 1
        part = Part("for most methods and sizes a β < 1 is selected", dataset, q)
        part.verdict = most(int(below.sum()), int(enough.sum()))
        vars(part).update(made_by(evidence.made.iloc[np.concatenate([line.at for line in lines])]))
        if count.any():
            part.repetitions, part.few = int(count.max()), not enough.any()
            part.verdict = Verdict.UNDECIDABLE if part.few else part.verdict
        if enough.any():
            part.figures = {"below": int(below.sum()), "cases": int(enough.sum())}
            part.repetitions = int(count[enough].min())
            said = [f"{line.name} at {b.sum()} of {e.sum()}" for line, b, e in zip(lines, below, enough, strict=True)]
            part.reason = f"median selected β < 1: {', '.join(said)} sizes"
        yield part
