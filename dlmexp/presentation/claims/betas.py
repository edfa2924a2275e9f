"""Claims about the betas that validation selects: 6 and 20."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from dlmexp.common.catalogue import BINARY, COUNTS, REGRESSION
from dlmexp.presentation.claims import rules
from dlmexp.presentation.claims.claim import Part, claim
from dlmexp.presentation.claims.evidence import DLM, Evidence
from dlmexp.presentation.claims.rules import Verdict, by_share
from dlmexp.presentation.labels import method_label

# Methods that select beta by NLL.
SELECTING = ("beta_elbo", *DLM)


@claim(
    6,
    "section 6.2, figure 1(c); supplement A",
    "reg-log",
    text=(
        "cadata: the best β is above 1 for every method at n = 691; at 80 % joint DLM selects "
        "β < 1, others do not."
    ),
)
def best_beta(evidence: Evidence) -> Iterator[Part]:
    """Count the repetitions in which the selected beta is on the side that the paper says."""
    for size in ("5%", "80%"):  # 5 % of cadata's pool are 691 rows
        for method in SELECTING:
            yield _selected_beta(evidence, size, method)


def _selected_beta(evidence: Evidence, size: str, method: str) -> Part:
    """Return on which side of 1 a method's selected betas are, on cadata at a size."""
    at = evidence.at("nll", "cadata", "whitened", method, "exact", None)
    of_size = evidence.column("size")[at] == size
    done = evidence.column("status")[at] == "done"
    at = at[of_size & done]
    by_seed = at[np.argsort(evidence.column("seed")[at])]
    betas = evidence.column("beta")[by_seed].astype(float)

    if size == "5%":
        says = "selects β > 1"
        agrees = betas > 1
    elif method.startswith("joint"):
        says = "selects β < 1"
        agrees = betas < 1
    else:
        says = "selects no β < 1"
        agrees = betas >= 1
    statement = f"{method_label(method)} at {size} {says}"
    part = Part(statement, "cadata", origin=evidence.origin(at))
    if len(betas):
        share = float(agrees.mean())
        part.repetitions = len(betas)
        part.few = len(betas) < rules.MIN_REPETITIONS
        part.verdict = by_share(share, rules.AGREE_SHARE, 1 - rules.AGREE_SHARE, len(betas))
        part.figures = {"median_beta": float(np.median(betas)), "share": share}
        part.reason = f"selected: {', '.join(f'{beta:.3g}' for beta in betas)}"
    return part


def most_datasets(parts: list[Part]) -> Verdict:
    """Sum up `for most datasets`: the verdict on more than half of those that were run."""
    judged = [part.verdict for part in parts if part.was_run]
    if not judged:
        return Verdict.NOT_RUN
    for verdict in (Verdict.HOLDS, Verdict.FAILS):
        if 2 * judged.count(verdict) > len(judged):
            return verdict
    return Verdict.MIXED


@claim(
    20,
    "section 6.2",
    "reg-log",
    "class-log",
    "count-log",
    text="For most datasets and sizes a β < 1 is selected.",
    sum_up=most_datasets,
)
def small_betas(evidence: Evidence) -> Iterator[Part]:
    """Count the methods and sizes whose median selected beta is below 1.

    Square-loss methods are left out: joint sq-DLM can make any beta as small as it likes (SPEC,
    section 2).
    """
    for dataset, q in evidence.datasets_and_q(*REGRESSION, *BINARY, *COUNTS):
        yield _small_betas_on(evidence, dataset, q)


def _small_betas_on(evidence: Evidence, dataset: str, q: str) -> Part:
    """Return whether most methods and sizes select a beta below 1 on a dataset."""
    lines = [evidence.fit(dataset, method, "nll", q, "beta") for method in SELECTING]
    betas = np.stack([line.values for line in lines])
    repetitions = np.isfinite(betas).sum(axis=-1)
    origin = evidence.origin(*(line.positions for line in lines))
    part = Part("for most methods and sizes a β < 1 is selected", dataset, q, origin=origin)
    if not repetitions.any():
        return part

    judged = repetitions >= rules.MIN_REPETITIONS
    if not judged.any():
        part.repetitions = int(repetitions.max())
        part.few = True
        part.verdict = Verdict.UNDECIDABLE
        return part

    below = _median_below_one(betas, judged)
    part.repetitions = int(repetitions[judged].min())
    part.verdict = _more_than_half(int(below.sum()), int(judged.sum()))
    part.figures = {"below": int(below.sum()), "cases": int(judged.sum())}
    counts = [
        f"{line.name} at {below[position].sum()} of {judged[position].sum()}"
        for position, line in enumerate(lines)
    ]
    part.reason = f"median selected β < 1: {', '.join(counts)} sizes"
    return part


def _median_below_one(betas: Float[np.ndarray, "M S R"], judged: np.ndarray) -> np.ndarray:
    """Return where the median over repetitions is below 1, among the methods and sizes judged."""
    below = np.zeros(judged.shape, dtype=bool)
    below[judged] = np.nanmedian(betas[judged], axis=-1) < 1
    return below


def _more_than_half(count: int, cases: int) -> Verdict:
    if 2 * count > cases:
        return Verdict.HOLDS
    if 2 * count < cases:
        return Verdict.FAILS
    return Verdict.MIXED
