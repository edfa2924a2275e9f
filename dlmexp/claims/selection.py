"""Claims 6 and 20: which betas validation selects."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dlmexp.claims.claim import BINARY, COUNTS, REGRESSION, Part, claim
from dlmexp.claims.evidence import DLM, Evidence, Line, Rows, made_by
from dlmexp.claims.rules import BETTER, Verdict, by_share
from dlmexp.claims.thresholds import AGREE_SHARE, MIN_REPETITIONS
from dlmexp.labels import method_label

METHODS = ("beta_elbo", *DLM)
ABOVE, BELOW, NOT_BELOW = "selects β > 1", "selects β < 1", "selects no β < 1"
SIDES: dict[str, tuple[Callable[[Any], Any], str, str]] = {  # whether betas are on a side of 1, and both sides
    ABOVE: (lambda beta: beta > 1, "β > 1", "β ≤ 1"),
    BELOW: (lambda beta: beta < 1, "β < 1", "β ≥ 1"),
    NOT_BELOW: (lambda beta: beta >= 1, "β ≥ 1", "β < 1"),
}


@claim(
    6, "cadata: the best β is above 1 for every method at n = 691; at 80 % joint DLM selects β < 1, others do not.",
    "section 6.2, figure 1(c); supplement A", "reg-log",
)  # fmt: skip
def best_beta(evidence: Evidence) -> Iterator[Part]:
    for method in METHODS:
        yield _side(evidence, method, "5%", ABOVE)
    for method in METHODS:
        yield _side(evidence, method, "80%", BELOW if method.startswith("joint") else NOT_BELOW)


def _side(evidence: Evidence, method: str, size: str, what: str) -> Part:
    """On which side of 1 validation selects beta, and what that side gains over the other in test NLL."""
    side, that, other = SIDES[what]
    name, rows = method_label(method), evidence.selected["nll"]
    at = rows.at("cadata", "whitened", method, "exact", None)
    at = at[(rows.column("size")[at] == size) & (rows.column("status")[at] == "done")]
    at = at[np.argsort(rows.column("seed")[at])]
    betas = rows.column("beta")[at].astype(float)
    both = [_best_on_side(evidence, rows.column("group")[at], side, here, f"best {words}")
            for here, words in ((True, that), (False, other))]  # fmt: skip
    part = evidence.compare(f"{name} at {size} {what}", "cadata", None, [(both[0], both[1])], BETTER, "nll")  # fmt: skip
    part.corrected, part.states, part.reason, part.repetitions = None, {}, "", len(betas)
    vars(part).update(made_by((rows, at)))
    if len(betas):
        share = float(side(betas).mean())
        part.verdict = by_share(share, AGREE_SHARE, 1 - AGREE_SHARE, len(betas))
        part.figures = {"median_beta": float(np.median(betas)), "share": share}
        part.reason = f"selected: {', '.join(f'{beta:.3g}' for beta in betas)}"
    return part


def _best_on_side(evidence: Evidence, groups: np.ndarray, side: Callable[[Any], Any], here: bool, name: str) -> Line:
    """Of each group, the candidate on one side of beta = 1 with the lowest validation NLL."""
    frame = evidence.candidates
    frame = frame[np.isin(frame["group"].to_numpy(), groups)]
    frame = frame[(side(frame["beta"]) == here) & (frame["status"] == "done")].sort_values(
        ["validation_nll", "beta"], ascending=[True, False]
    )
    rows = Rows(frame.drop_duplicates("group"))
    at = np.arange(len(rows.frame))
    return Line(name, evidence.grid("cadata", rows, at, rows.column("test_nll")), rows, at)


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


@claim(
    20, "For most datasets and sizes a β < 1 is selected.", "section 6.2", "reg-log", "class-log", "count-log",
    sum_up=most_datasets,
)  # fmt: skip
def small_betas(evidence: Evidence) -> Iterator[Part]:
    """Square-loss methods are left out: joint sq-DLM can make any beta as small as it likes (SPEC, section 6)."""
    for dataset, q in evidence.places(*REGRESSION, *BINARY, *COUNTS):
        lines = [evidence.fit(dataset, method, "nll", q, "beta") for method in METHODS]
        grid = np.stack([line.values for line in lines])
        count = np.isfinite(grid).sum(-1)
        enough = count >= MIN_REPETITIONS
        below = np.zeros(enough.shape, dtype=bool)
        below[enough] = np.nanmedian(grid[enough], axis=-1) < 1
        part = Part("for most methods and sizes a β < 1 is selected", dataset, q)
        part.verdict = most(int(below.sum()), int(enough.sum()))
        vars(part).update(made_by(*((line.rows, line.at) for line in lines)))
        if enough.any():
            part.figures = {"below": int(below.sum()), "cases": int(enough.sum())}
            part.repetitions = int(count[enough].min())
            said = [f"{line.name} at {b.sum()} of {e.sum()}" for line, b, e in zip(lines, below, enough, strict=True)]
            part.reason = f"median selected β < 1: {', '.join(said)} sizes"
        yield part
