"""Claims about the betas that validation selects: 6 and 20.

A beta is compared with 1 by its logarithm to base 2, so that one step of the paper's grid is 1.
"""

from collections.abc import Iterator

import numpy as np

from dlmexp.common.catalogue import BINARY, COUNTS, REGRESSION
from dlmexp.presentation.claims import rules
from dlmexp.presentation.claims.claim import Part, claim
from dlmexp.presentation.claims.evidence import DLM, Evidence, MetricLine
from dlmexp.presentation.claims.rules import BETTER, NO_WORSE, Relation
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
    """Compare the selected beta with 1 at the sizes that the paper names."""
    for size in ("5%", "80%"):  # 5 % of cadata's pool are 691 rows
        for method in SELECTING:
            yield _selected_beta(evidence, size, method)


def _selected_beta(evidence: Evidence, size: str, method: str) -> Part:
    """Return on which side of 1 a method's selected betas are, on cadata at a size."""
    if size == "5%":
        return _beta_against_one(evidence, "cadata", "whitened", method, "selects β > 1", size)
    if method.startswith("joint"):
        return _beta_against_one(evidence, "cadata", "whitened", method, "selects β < 1", size)
    return _beta_against_one(evidence, "cadata", "whitened", method, "selects no β < 1", size)


# What a method says, with the sign of log2 beta that makes lower values speak for it.
SAYS: dict[str, tuple[float, Relation]] = {
    "selects β > 1": (-1.0, BETTER),
    "selects β < 1": (1.0, BETTER),
    "selects no β < 1": (-1.0, NO_WORSE),
}


def _beta_against_one(
    evidence: Evidence, dataset: str, q: str, method: str, says: str, size: str = ""
) -> Part:
    """Return the tests of selected betas against 1, at all sizes or at one.

    Args:
        evidence: The records.
        dataset: The dataset.
        q: Parameterisation of q.
        method: The method that selects beta.
        says: What is said, one of `SAYS`.
        size: The size as it was typed, such as `5%`; all, if left out.
    """
    sign, relation = SAYS[says]
    betas = evidence.column("beta").astype(float)
    logarithms = sign * np.log2(np.maximum(betas, rules.ZERO_BETA))
    done = evidence.column("status") == "done"
    if size:
        done &= evidence.column("size") == size
    line = evidence.fit(dataset, method, "nll", q, "beta")
    logarithm = "log2 β" if sign > 0 else "-log2 β"
    selected = evidence.line(
        f"{logarithm} of {method_label(method)}",
        dataset,
        line.positions,
        np.where(done, logarithms, np.nan),
    )
    beta_1 = evidence.constant("β = 1", selected)
    statement = f"{method_label(method)} {says}"
    part = evidence.compare(
        statement, dataset, q, [(selected, beta_1)], relation, rules.BETA_MARGIN
    )
    if size and part.tests:
        part.statement = f"{method_label(method)} at {size} {says}"
        part.reason = f"selected: {_listed(selected, sign)}"
    return part


def _listed(line: MetricLine, sign: float) -> str:
    """Return selected betas in the order of seeds."""
    logarithms = sign * line.values[np.isfinite(line.values)]
    return ", ".join(f"{2**logarithm:.3g}" for logarithm in logarithms)


@claim(
    20,
    "section 6.2",
    "reg-log",
    "class-log",
    "count-log",
    text="For most datasets and sizes a β < 1 is selected.",
    needs=rules.MOST,
)
def small_betas(evidence: Evidence) -> Iterator[Part]:
    """Compare the selected beta of each method with 1, at each size.

    Square-loss methods are left out: joint sq-DLM can make any beta as small as it likes (SPEC,
    section 2).
    """
    for dataset, q in evidence.datasets_and_q(*REGRESSION, *BINARY, *COUNTS):
        for method in SELECTING:
            yield _beta_against_one(evidence, dataset, q, method, "selects β < 1")
