"""Claims about sampled gradients: learning curves by estimator (11 to 14) and statistics (15)."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float

from dlmexp.common.catalogue import REGRESSION
from dlmexp.presentation.claims import rules
from dlmexp.presentation.claims.claim import Part, claim
from dlmexp.presentation.claims.evidence import Evidence, MetricLine
from dlmexp.presentation.claims.rules import (
    BETTER,
    COMPARABLE,
    DIFFERENT,
    EQUAL,
    Relation,
    between,
)
from dlmexp.presentation.labels import estimator_label

SAMPLES = (1, 10, 100)
SAME_NLL = "{} and {} end at the same NLL"


def _matches(
    evidence: Evidence,
    dataset: str,
    q: str,
    ours: MetricLine,
    other: MetricLine,
    says: str = "{} matches {}",
    relation: Relation = COMPARABLE,
) -> Part:
    """Return whether two estimators end at the same NLL, within the margin."""
    statement = says.format(ours.name, other.name)
    return evidence.compare(statement, dataset, q, [(ours, other)], relation, "nll")


@claim(
    11,
    "section 6.2, figure 1(i)",
    "airline-sampling-0.1",
    text="airline, β = 0.1: uPS-10 matches exact, bMC needs 100 samples; uPS-1 beats bMC-10.",
)
def samples_needed(evidence: Evidence) -> Iterator[Part]:
    """Compare the ends of learning curves of uPS and bMC with exact gradients."""
    for dataset, q in evidence.datasets_and_q("airline", kind="curve"):
        exact = evidence.estimator(dataset, q, "exact")
        bmc10 = evidence.estimator(dataset, q, "bmc", 10)
        bmc100 = evidence.estimator(dataset, q, "bmc", 100)
        ups1 = evidence.estimator(dataset, q, "ups", 1)
        ups10 = evidence.estimator(dataset, q, "ups", 10)
        yield _matches(evidence, dataset, q, ups10, exact)
        yield _matches(evidence, dataset, q, bmc100, exact)
        yield _matches(evidence, dataset, q, bmc10, exact, "{} does not match {}", DIFFERENT)
        yield evidence.compare("uPS-1 beats bMC-10", dataset, q, [(ups1, bmc10)], BETTER, "nll")


@claim(
    12,
    "section 4; supplement A",
    "airline-smooth",
    text="airline: smooth-bMC equals bMC in NLL.",
)
def smoothing_changes_nothing(evidence: Evidence) -> Iterator[Part]:
    """Compare smooth-bMC with bMC at each number of samples."""
    for dataset, q in evidence.datasets_and_q("airline", kind="curve"):
        for samples in SAMPLES:
            smooth = evidence.estimator(dataset, q, "smooth_bmc", samples)
            plain = evidence.estimator(dataset, q, "bmc", samples)
            yield _matches(evidence, dataset, q, smooth, plain, SAME_NLL, EQUAL)


@claim(
    13,
    "section 6.2; supplement A",
    "count-learning",
    "count-smooth",
    text="Counts: uPS, bMC and smooth-bMC do not differ in NLL.",
)
def no_difference(evidence: Evidence) -> Iterator[Part]:
    """Compare the three estimators pair by pair."""
    for dataset, q in evidence.datasets_and_q("abalone", "peds1_dir2", kind="curve"):
        for samples in SAMPLES:
            bmc = evidence.estimator(dataset, q, "bmc", samples)
            ups = evidence.estimator(dataset, q, "ups", samples)
            smooth = evidence.estimator(dataset, q, "smooth_bmc", samples)
            for other, ours in combinations((bmc, ups, smooth), 2):
                yield _matches(evidence, dataset, q, ours, other, SAME_NLL, EQUAL)


@claim(
    14,
    "section 6.2; supplement A",
    "reg-learning",
    text=(
        "Regression: bMC-1 is the worst estimator; bMC recovers exact gradients with at least 10 "
        "samples (main text), with 100 (supplement)."
    ),
)
def sampled_gradients(evidence: Evidence) -> Iterator[Part]:
    """Compare bMC with exact gradients, and bMC-1 with all others."""
    for dataset, q in evidence.datasets_and_q(*REGRESSION, kind="curve"):
        exact = evidence.estimator(dataset, q, "exact")
        bmc1 = evidence.estimator(dataset, q, "bmc", 1)
        bmc10 = evidence.estimator(dataset, q, "bmc", 10)
        bmc100 = evidence.estimator(dataset, q, "bmc", 100)
        pairs = [(exact, bmc1), (bmc10, bmc1), (bmc100, bmc1)]
        yield evidence.compare("bMC-1 is the worst", dataset, q, pairs, BETTER, "nll")
        for ours, source in ((bmc10, "main text"), (bmc100, "supplement")):
            says = f"{{}} recovers {{}} gradients ({source})"
            yield _matches(evidence, dataset, q, ours, exact, says)


# Statistics of gradients g around the gradient G, and the columns of those that records have.
ERROR = "|g - G|²"
SCATTER = "scatter"
BIAS_COLUMNS = {
    "bias (G of 10 000 bMC samples)": "bias",
    "bias (G by quadrature)": "bias_quadrature",
}
ESTIMATORS = ("bmc", "ups", "smooth_bmc")
NOISIEST = ("bmc", 1)
Sampler = tuple[str, int]  # an estimator and its number of samples


@dataclass(frozen=True)
class GradientStatistics:
    """Statistics of gradients, as arrays as long as `Evidence.frame`; NaN for all other rows.

    Attributes:
        logs: Logarithms of error, scatter and biases, by their names.
        condition: Mean over draws of condition (i), g.G / |G|^2.
    """

    logs: dict[str, Float[np.ndarray, " N"]]
    condition: Float[np.ndarray, " N"]


@claim(
    15,
    "section 6.2, figure 1(g, h); supplement A",
    "bias",
    text=(
        "abalone gradients: |g - G|² and bias of uPS and of smooth-bMC are below those of bMC; "
        "bMC-1 is noisiest; condition (i) is about 1."
    ),
)
def gradient_statistics(evidence: Evidence) -> Iterator[Part]:
    """Compare statistics of gradients by their logarithms: a difference is a ratio.

    The paper's error, |g - G|^2 with G of 10 000 bMC samples, is a mean over draws. The bias
    proper, |mean of the draws - G|^2, is judged with that G and with G by quadrature.
    """
    statistics = _statistics(evidence)
    for dataset, q in evidence.datasets_and_q("abalone", kind="gradient"):
        for estimator in ("ups", "smooth_bmc"):
            for samples in SAMPLES:
                ours = (estimator, samples)
                yield from _less_wrong_than_bmc(evidence, dataset, q, ours, statistics)
        others = [(name, samples) for name in ESTIMATORS for samples in SAMPLES]
        others.remove(NOISIEST)
        yield _noisiest(evidence, dataset, q, others, statistics)
        for sampler in others:
            yield _about_one(evidence, dataset, q, sampler, statistics)


def _statistics(evidence: Evidence) -> GradientStatistics:
    """Compute the statistics of all rows with draws of gradients."""
    rows = len(evidence.frame)
    logs = {name: np.full(rows, np.nan) for name in (ERROR, SCATTER, *BIAS_COLUMNS)}
    condition = np.full(rows, np.nan)
    for row in np.flatnonzero(evidence.column("kind") == "gradient"):
        draws = evidence.results.arrays(evidence.column("key")[row])
        if "error" not in draws or "condition_i" not in draws:
            continue
        logs[ERROR][row] = _log(draws["error"].mean())
        logs[SCATTER][row] = _log(draws["condition_i"].std())
        for name, column in BIAS_COLUMNS.items():
            logs[name][row] = _log(evidence.column(column)[row])
        condition[row] = draws["condition_i"].mean()
    return GradientStatistics(logs, condition)


def _log(value: float) -> float:
    return np.log(value) if value > 0 else np.nan


def _less_wrong_than_bmc(
    evidence: Evidence, dataset: str, q: str, ours: Sampler, statistics: GradientStatistics
) -> Iterator[Part]:
    """Yield whether an estimator has less error, and less bias, than bMC with as many samples."""
    bmc = ("bmc", ours[1])
    label = estimator_label(*ours)
    bmc_label = estimator_label(*bmc)
    margin = math.log1p(rules.RATIO_MARGIN)

    pairs = [_pair(evidence, dataset, q, ERROR, ours, bmc, statistics)]
    says = f"{label} has a smaller |g - G|² than {bmc_label}"
    yield evidence.compare(says, dataset, q, pairs, BETTER, margin)

    pairs = [_pair(evidence, dataset, q, name, ours, bmc, statistics) for name in BIAS_COLUMNS]
    says = f"{label} is less biased than {bmc_label}"
    yield evidence.compare(says, dataset, q, pairs, BETTER, margin)


def _noisiest(
    evidence: Evidence, dataset: str, q: str, others: list[Sampler], statistics: GradientStatistics
) -> Part:
    """Return whether all others scatter less than bMC-1."""
    pairs = [_pair(evidence, dataset, q, SCATTER, ours, NOISIEST, statistics) for ours in others]
    margin = math.log1p(rules.RATIO_MARGIN)
    return evidence.compare("bMC-1 is the noisiest", dataset, q, pairs, BETTER, margin)


def _pair(
    evidence: Evidence,
    dataset: str,
    q: str,
    statistic: str,
    ours: Sampler,
    rival: Sampler,
    statistics: GradientStatistics,
) -> tuple[MetricLine, MetricLine]:
    """Return the logarithms of a statistic of two estimators."""

    def line(sampler: Sampler) -> MetricLine:
        name = f"log {statistic}, {estimator_label(*sampler)}"
        at = evidence.at("gradient", dataset, q, "fixed_log_dlm", *sampler)
        return evidence.line(name, dataset, at, statistics.logs[statistic])

    return line(ours), line(rival)


def _about_one(
    evidence: Evidence, dataset: str, q: str, sampler: Sampler, statistics: GradientStatistics
) -> Part:
    """Return whether the mean of condition (i) over repetitions is about 1."""
    at = evidence.at("gradient", dataset, q, "fixed_log_dlm", *sampler)
    statement = f"{estimator_label(*sampler)}: condition (i) is about 1"
    part = Part(statement, dataset, q, origin=evidence.origin(at))
    values = statistics.condition[at]
    values = values[np.isfinite(values)]
    if len(values):
        mean = float(values.mean())
        low = 1 - rules.ABOUT_ONE
        high = 1 + rules.ABOUT_ONE
        part.repetitions = len(values)
        part.verdict = between(mean, low, high, len(values))
        part.figures = {"mean": mean}
        part.reason = f"mean {mean:.3g}"
    return part
