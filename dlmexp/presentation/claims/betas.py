"""Claims about the betas that validation selects: 6 and 20.

A beta is compared with 1 by its logarithm to base 2. On this scale, beta = 1 is 0, and a step of
the paper's grid has length 1.

The decorator `claim` takes the number of a claim, its place in the paper, and the experiments that
compute its records.
"""

from collections.abc import Iterator

import numpy as np

from dlmexp.common.catalogue import BINARY, COUNTS, REGRESSION
from dlmexp.presentation.claims import rules
from dlmexp.presentation.claims.claim import Part, claim
from dlmexp.presentation.claims.evidence import DLM, Evidence, MetricLine
from dlmexp.presentation.claims.rules import BETTER, NO_WORSE, Relation
from dlmexp.presentation.labels import method_label

# The methods of log loss that have a beta. The claims below are about these methods alone.
LOG_METHODS_WITH_BETA = ("beta_elbo", *DLM)


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
        for method in LOG_METHODS_WITH_BETA:
            yield _selected_beta(evidence, size, method)


def _selected_beta(evidence: Evidence, size: str, method: str) -> Part:
    """Return the tests of what the claim says about a method's selected betas at a size."""
    if size == "5%":
        predicate = "selects β > 1"
    elif method.startswith("joint"):
        predicate = "selects β < 1"
    else:
        predicate = "selects no β < 1"
    return _beta_against_one(evidence, "cadata", "whitened", method, predicate, size)


# Statements about selected betas, without their subject. Each has a sign and a relation: the
# statement is true if log2 beta times the sign has this relation to 0, the value of beta = 1. Lower
# is better in all relations, so statements about high betas have the sign -1.
PREDICATES: dict[str, tuple[float, Relation]] = {
    "selects β > 1": (-1.0, BETTER),  # -log2 β < 0
    "selects β < 1": (1.0, BETTER),  # log2 β < 0
    "selects no β < 1": (-1.0, NO_WORSE),  # -log2 β ≤ 0
}


def _beta_against_one(
    evidence: Evidence, dataset: str, q: str, method: str, predicate: str, size: str = ""
) -> Part:
    """Return the tests of selected betas against 1, at all sizes or at one size.

    Args:
        evidence: The records.
        dataset: The dataset.
        q: The parameterisation of q.
        method: The method that selects beta.
        predicate: A key of `PREDICATES`.
        size: The size as it is written in a command, such as `5%`; '' means all sizes.
    """
    sign, relation = PREDICATES[predicate]
    label = method_label(method)
    betas = evidence.column("beta").astype(float)
    logarithms = sign * np.log2(np.maximum(betas, rules.BETA_FOR_ZERO))
    is_counted = evidence.column("status") == "done"
    if size:
        is_counted &= evidence.column("size") == size
    # The claims are about the betas that are selected by NLL, the loss of these methods.
    fits = evidence.fit(dataset, method, metric="nll", q=q, value="beta")
    text_of_logarithm = "log2 β" if sign > 0 else "-log2 β"
    selected = evidence.line(
        name=f"{text_of_logarithm} of {label}",
        dataset=dataset,
        at=fits.positions,
        values=np.where(is_counted, logarithms, np.nan),
    )
    beta_1 = evidence.constant("β = 1", selected, value=0.0)
    pairs = [(selected, beta_1)]
    part = evidence.compare(
        f"{label} {predicate}", dataset, q, pairs, relation, within=rules.BETA_MARGIN
    )
    # A part without tests has no selected betas to list.
    if size and part.tests:
        part.statement = f"{label} at {size} {predicate}"
        part.reason = f"selected: {_betas_in_words(selected, sign)}"
    return part


def _betas_in_words(line: MetricLine, sign: float) -> str:
    """Return the selected betas of a line as a text, in the order of seeds.

    Args:
        line: The logarithms of the betas times `sign`, NaN where none is counted.
        sign: 1 or -1.
    """
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

    Methods of square loss are left out: joint sq-DLM can make its effective penalty arbitrarily
    small, whatever beta is (docs/SPEC.md, section 2).
    """
    for dataset, q in evidence.datasets_and_q(*REGRESSION, *BINARY, *COUNTS):
        for method in LOG_METHODS_WITH_BETA:
            yield _beta_against_one(evidence, dataset, q, method, "selects β < 1")
