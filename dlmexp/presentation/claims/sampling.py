"""Claims about sampled gradients.

Claims 11 to 14, 24, 25 and 27 compare the ends of learning curves with different estimators of the
gradient. Claims 15, 29 and 30 compare statistics of gradient draws.

The decorator `claim` takes the number of a claim, its place in the paper, and the experiments that
compute its records.
"""

import math
from collections.abc import Iterator
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
    NO_WORSE,
    Relation,
)
from dlmexp.presentation.labels import estimator_label

SAMPLES = (1, 10, 100)
SAME_NLL = "{} and {} end at the same NLL"


def _compare_final_nll(
    evidence: Evidence,
    dataset: str,
    q: str,
    ours: MetricLine,
    rival: MetricLine,
    template: str = "{} matches {}",
    relation: Relation = COMPARABLE,
) -> Part:
    """Compare the NLL at the ends of the learning curves of two estimators.

    Args:
        evidence: The records.
        dataset: The dataset of both lines.
        q: The parameterisation of q of both lines.
        ours: The line of the estimator that the statement names first.
        rival: The line of the other estimator.
        template: The statement, with a pair of braces for the name of each line.
        relation: The relation of ours to the rival; by default, that they are equal within the
            margin.
    """
    statement = template.format(ours.name, rival.name)
    return evidence.compare(statement, dataset, q, [(ours, rival)], relation, within="nll")


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
        yield _compare_final_nll(evidence, dataset, q, ups10, exact)
        yield _compare_final_nll(evidence, dataset, q, bmc100, exact)
        yield _compare_final_nll(
            evidence,
            dataset,
            q,
            bmc10,
            exact,
            template="{} does not match {}",
            relation=DIFFERENT,
        )
        statement = "uPS-1 beats bMC-10"
        yield evidence.compare(statement, dataset, q, [(ups1, bmc10)], BETTER, within="nll")


@claim(
    27,
    "section 6.2; supplement A",
    "airline-sampling-1",
    "airline-sampling-10",
    text=(
        "airline, β = 1 and 10: with enough samples uPS and bMC match exact gradients; uPS does so "
        "with fewer: uPS-10 matches them, and is no worse than bMC-100."
    ),
)
def samples_needed_at_other_betas(evidence: Evidence) -> Iterator[Part]:
    """Compare the ends of learning curves of uPS and bMC with exact gradients."""
    for dataset, q in evidence.datasets_and_q("airline", kind="curve"):
        for beta in (1.0, 10.0):
            exact = evidence.estimator(dataset, q, "exact", beta=beta)
            bmc100 = evidence.estimator(dataset, q, "bmc", 100, beta)
            ups10 = evidence.estimator(dataset, q, "ups", 10, beta)
            yield _compare_final_nll(evidence, dataset, q, bmc100, exact)
            yield _compare_final_nll(evidence, dataset, q, ups10, exact)
            statement = f"{ups10.name} is no worse than {bmc100.name}"
            pairs = [(ups10, bmc100)]
            yield evidence.compare(statement, dataset, q, pairs, NO_WORSE, within="nll")


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
            yield _compare_final_nll(evidence, dataset, q, smooth, plain, SAME_NLL)


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
            for rival, ours in combinations((bmc, ups, smooth), 2):
                yield _compare_final_nll(evidence, dataset, q, ours, rival, SAME_NLL)


@claim(
    24,
    "section 6.2",
    "count-learning",
    text="Counts: even one sample of bMC yields good results: bMC-1 is no worse than bMC-100.",
)
def one_sample(evidence: Evidence) -> Iterator[Part]:
    """Compare bMC-1 with bMC-100."""
    for dataset, q in evidence.datasets_and_q("abalone", "peds1_dir2", kind="curve"):
        bmc1 = evidence.estimator(dataset, q, "bmc", 1)
        bmc100 = evidence.estimator(dataset, q, "bmc", 100)
        statement = "bMC-1 is no worse than bMC-100"
        yield evidence.compare(statement, dataset, q, [(bmc1, bmc100)], NO_WORSE, within="nll")


@claim(
    25,
    "supplement A",
    "ups-lr",
    text="Counts: uPS is sensitive: with bMC's learning rate, 0.1, it ends at a higher NLL.",
    figures=(),
)
def sensitive(evidence: Evidence) -> Iterator[Part]:
    """Compare uPS at its usual learning rate, 0.01, with uPS at 0.1 (experiment `ups-lr`)."""
    nll = evidence.column("test_nll")
    for dataset, q in evidence.datasets_and_q("abalone", "peds1_dir2", kind="curve"):
        for samples in SAMPLES:
            low_rate = evidence.estimator(dataset, q, "ups", samples)
            name = low_rate.name
            rows_at_high_rate = evidence.at(
                kind="ups-lr",
                dataset=dataset,
                q=q,
                method="joint_log_dlm",
                estimator="ups",
                samples=samples,
            )
            high_rate = evidence.line(f"{name}, lr 0.1", dataset, rows_at_high_rate, nll)
            statement = f"{name} is better with lr 0.01 than with 0.1"
            pairs = [(low_rate, high_rate)]
            yield evidence.compare(statement, dataset, q, pairs, BETTER, within="nll")


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
        yield evidence.compare("bMC-1 is the worst", dataset, q, pairs, BETTER, within="nll")
        yield _compare_final_nll(
            evidence, dataset, q, bmc10, exact, "{} recovers {} gradients (main text)"
        )
        yield _compare_final_nll(
            evidence, dataset, q, bmc100, exact, "{} recovers {} gradients (supplement)"
        )


# The statistics of draws g of a gradient, where G is the reference gradient.
ERROR = "|g - G|²"
SCATTER = "scatter"
CONDITION_I = "condition (i)"
CONDITION_I_DISTANCE = "|condition (i) - 1|"
CONDITION_II_DISTANCE = "|log condition (ii)|"
# The columns of the tidy table with the squared bias, by the name of the statistic. They differ in
# the reference gradient G.
BIAS_COLUMNS = {
    "bias (G of 10 000 bMC samples)": "bias",
    "bias (G by quadrature)": "bias_quadrature",
}
ESTIMATORS = ("bmc", "ups", "smooth_bmc")
Sampler = tuple[str, int]  # an estimator and its number of samples
NOISIEST_SAMPLER: Sampler = ("bmc", 1)  # according to claim 15
# Two values that differ by less than a ratio of 1 + RATIO_MARGIN are equal. Values are compared by
# their logarithms, so the margin is a logarithm too.
LOG_RATIO_MARGIN = math.log1p(rules.RATIO_MARGIN)


class GradientStatistics:
    """The statistics of gradient draws, as values of the rows of an `Evidence`.

    The values of the error, the scatter and the biases are logarithms, so that a difference is the
    logarithm of a ratio. Condition (i) is the mean of g.G / |G|^2 over draws, and condition (ii)
    the mean of |g|^2 / |G|^2. Both conditions are 1 for the true gradient.

    Attributes:
        evidence: The records.
        values: The values of each statistic; NaN in rows without gradient draws.
    """

    def __init__(self, evidence: Evidence):
        self.evidence = evidence
        rows = len(evidence.frame)
        names = (
            ERROR,
            SCATTER,
            CONDITION_I_DISTANCE,
            CONDITION_II_DISTANCE,
            CONDITION_I,
            *BIAS_COLUMNS,
        )
        self.values: dict[str, Float[np.ndarray, " N"]] = {
            name: np.full(rows, np.nan) for name in names
        }
        for row in np.flatnonzero(evidence.column("kind") == "gradient"):
            self._read(int(row))

    def _read(self, row: int) -> None:
        """Compute the statistics of a row, if its record has draws."""
        draws = self.evidence.arrays(row)
        if "error" not in draws or "condition_i" not in draws:
            return
        condition_i = draws["condition_i"]
        self.values[ERROR][row] = _log(draws["error"].mean())
        self.values[SCATTER][row] = _log(condition_i.std())
        self.values[CONDITION_I][row] = condition_i.mean()
        self.values[CONDITION_I_DISTANCE][row] = abs(condition_i.mean() - 1)
        if "condition_ii" in draws:
            self.values[CONDITION_II_DISTANCE][row] = abs(_log(draws["condition_ii"].mean()))
        for name, column in BIAS_COLUMNS.items():
            self.values[name][row] = _log(self.evidence.column(column)[row])

    def line(self, dataset: str, q: str, statistic: str, sampler: Sampler) -> MetricLine:
        """Return a statistic of an estimator as a line."""
        is_logarithm = statistic in (ERROR, SCATTER, *BIAS_COLUMNS)
        name = f"log {statistic}" if is_logarithm else statistic
        estimator, samples = sampler
        rows = self.evidence.at(
            kind="gradient",
            dataset=dataset,
            q=q,
            method="fixed_log_dlm",
            estimator=estimator,
            samples=samples,
        )
        return self.evidence.line(
            f"{name}, {estimator_label(*sampler)}", dataset, rows, self.values[statistic]
        )


def _log(value: float) -> float:
    """Return the logarithm of a value; NaN unless it is positive."""
    return np.log(value) if value > 0 else np.nan


def _gradient_data(evidence: Evidence) -> list[tuple[str, str]]:
    """Return the datasets and parameterisations of q that have gradient draws."""
    return evidence.datasets_and_q("abalone", kind="gradient")


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
    """Compare statistics of gradient draws.

    The error in the paper is the mean over draws of |g - G|^2, with G of 10 000 bMC samples. The
    bias is |mean of the draws - G|^2. It is judged with the same G, and with G by quadrature.
    Condition (i) is tested for every estimator but bMC-1, the noisiest one.
    """
    statistics = GradientStatistics(evidence)
    for dataset, q in _gradient_data(evidence):
        for estimator in ("ups", "smooth_bmc"):
            for samples in SAMPLES:
                yield from _less_wrong_than_bmc(statistics, dataset, q, (estimator, samples))
        less_noisy = [(name, samples) for name in ESTIMATORS for samples in SAMPLES]
        less_noisy.remove(NOISIEST_SAMPLER)
        yield _bmc1_is_noisiest(statistics, dataset, q, less_noisy)
        for sampler in less_noisy:
            yield _condition_i_is_about_one(statistics, dataset, q, sampler)


def _less_wrong_than_bmc(
    statistics: GradientStatistics, dataset: str, q: str, ours: Sampler
) -> Iterator[Part]:
    """Yield tests of whether an estimator has less error and bias than bMC of as many samples."""
    _, samples = ours
    bmc = ("bmc", samples)
    label = estimator_label(*ours)
    bmc_label = estimator_label(*bmc)
    evidence = statistics.evidence

    pairs = [_pair(statistics, dataset, q, ERROR, ours, bmc)]
    statement = f"{label} has a smaller |g - G|² than {bmc_label}"
    yield evidence.compare(statement, dataset, q, pairs, BETTER, within=LOG_RATIO_MARGIN)

    pairs = [_pair(statistics, dataset, q, bias, ours, bmc) for bias in BIAS_COLUMNS]
    statement = f"{label} is less biased than {bmc_label}"
    yield evidence.compare(statement, dataset, q, pairs, BETTER, within=LOG_RATIO_MARGIN)


def _bmc1_is_noisiest(
    statistics: GradientStatistics, dataset: str, q: str, less_noisy: list[Sampler]
) -> Part:
    """Return tests of whether all other estimators scatter less than bMC-1."""
    bmc1 = NOISIEST_SAMPLER
    pairs = [_pair(statistics, dataset, q, SCATTER, sampler, bmc1) for sampler in less_noisy]
    statement = "bMC-1 is the noisiest"
    evidence = statistics.evidence
    return evidence.compare(statement, dataset, q, pairs, BETTER, within=LOG_RATIO_MARGIN)


def _pair(
    statistics: GradientStatistics,
    dataset: str,
    q: str,
    statistic: str,
    ours: Sampler,
    rival: Sampler,
) -> tuple[MetricLine, MetricLine]:
    """Return a statistic of two estimators, as a pair of lines."""
    return (
        statistics.line(dataset, q, statistic, ours),
        statistics.line(dataset, q, statistic, rival),
    )


def _condition_i_is_about_one(
    statistics: GradientStatistics, dataset: str, q: str, sampler: Sampler
) -> Part:
    """Return tests of whether condition (i) is about 1."""
    evidence = statistics.evidence
    condition_i = statistics.line(dataset, q, CONDITION_I, sampler)
    target = evidence.constant("1", condition_i, value=1.0)
    statement = f"{estimator_label(*sampler)}: condition (i) is about 1"
    pairs = [(condition_i, target)]
    return evidence.compare(
        statement, dataset, q, pairs, COMPARABLE, within=rules.CONDITION_I_MARGIN
    )


@claim(
    29,
    "supplement A",
    "bias",
    text=(
        "abalone gradients: uPS is well behaved in all three measures: conditions (i), (ii) and "
        "the error are no further from those of the true gradient than with bMC."
    ),
)
def ups_is_well_behaved(evidence: Evidence) -> Iterator[Part]:
    """Compare uPS with bMC of as many samples in the three measures of the paper's figure."""
    return _no_worse_than_bmc(evidence, "ups", (CONDITION_I_DISTANCE, CONDITION_II_DISTANCE, ERROR))


@claim(
    30,
    "supplement A",
    "bias",
    text="abalone gradients: smooth-bMC does no harm to conditions (i) and (ii) of bMC.",
)
def smoothing_does_no_harm(evidence: Evidence) -> Iterator[Part]:
    """Compare smooth-bMC with bMC of as many samples in the two conditions."""
    return _no_worse_than_bmc(evidence, "smooth_bmc", (CONDITION_I_DISTANCE, CONDITION_II_DISTANCE))


def _no_worse_than_bmc(
    evidence: Evidence, estimator: str, measures: tuple[str, ...]
) -> Iterator[Part]:
    """Yield tests of whether an estimator is no worse than bMC in each of the measures.

    All measures have the same margin. `|condition (i) - 1|` is not a logarithm, but for values of
    condition (i) near 1 its differences are close to those of logarithms.
    """
    statistics = GradientStatistics(evidence)
    labels = {
        CONDITION_I_DISTANCE: "condition (i)",
        CONDITION_II_DISTANCE: "condition (ii)",
        ERROR: "|g - G|²",
    }
    for dataset, q in _gradient_data(evidence):
        for samples in SAMPLES:
            ours = (estimator, samples)
            bmc = ("bmc", samples)
            for measure in measures:
                pairs = [_pair(statistics, dataset, q, measure, ours, bmc)]
                label = labels[measure]
                statement = f"{label} of {estimator_label(*ours)} is no worse than of bMC"
                yield evidence.compare(
                    statement, dataset, q, pairs, NO_WORSE, within=LOG_RATIO_MARGIN
                )
