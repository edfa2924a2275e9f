"""Claims 11 to 16: gradient estimators, the statistics of their gradients, and the paper's rejection sampler."""

import math
from collections.abc import Iterator
from itertools import combinations

import numpy as np

from dlmexp.claims.claim import REGRESSION, Part, claim
from dlmexp.claims.evidence import Evidence, Line, Rows, made_by
from dlmexp.claims.rules import BETTER, COMPARABLE, DIFFERENT, EQUAL, Rule, Verdict, between
from dlmexp.claims.thresholds import ABOUT_ONE, ABOUT_TWO, FIRST_ITERATIONS, RATIO_MARGIN
from dlmexp.labels import estimator_label

SAMPLES = (1, 10, 100)


def _matches(
    evidence: Evidence, dataset: str, q: str, ours: Line, other: Line, says: str = "{} matches {}",
    rule: Rule = COMPARABLE,
) -> Part:  # fmt: skip
    """`ours` ends at the NLL of `other`, within the margin."""
    margin = evidence.margin(dataset, "nll", q)
    return evidence.compare(says.format(ours.name, other.name), dataset, q, [(ours, other)], rule, margin)


def _places(evidence: Evidence, *datasets: str) -> Iterator[tuple[str, str]]:
    for dataset in evidence.places(*datasets):
        for q in evidence.parameterisations(dataset, "curve"):
            yield dataset, q


@claim(
    11, "airline, β = 0.1: uPS-10 matches exact, bMC needs 100 samples; uPS-1 beats bMC-10.",
    "section 6.2, figure 1(i)", "airline-sampling-0.1",
)  # fmt: skip
def samples_needed(evidence: Evidence) -> Iterator[Part]:
    for dataset, q in _places(evidence, "airline"):
        exact = evidence.estimator(dataset, q, "exact")
        bmc10, bmc100 = (evidence.estimator(dataset, q, "bmc", samples) for samples in (10, 100))
        ups1, ups10 = (evidence.estimator(dataset, q, "ups", samples) for samples in (1, 10))
        margin = evidence.margin(dataset, "nll", q)
        yield _matches(evidence, dataset, q, ups10, exact)
        yield _matches(evidence, dataset, q, bmc100, exact)
        yield evidence.compare("bMC-10 does not match exact", dataset, q, [(bmc10, exact)], DIFFERENT, margin)
        yield evidence.compare("uPS-1 beats bMC-10", dataset, q, [(ups1, bmc10)], BETTER, margin)


@claim(12, "airline: smooth-bMC equals bMC in NLL.", "section 4; supplement A", "airline-smooth")
def smoothing_changes_nothing(evidence: Evidence) -> Iterator[Part]:
    for dataset, q in _places(evidence, "airline"):
        for samples in SAMPLES:
            smooth, plain = (evidence.estimator(dataset, q, name, samples) for name in ("smooth_bmc", "bmc"))
            yield _matches(evidence, dataset, q, smooth, plain, "{} and {} end at the same NLL", EQUAL)


@claim(
    13, "Counts: uPS, bMC and smooth-bMC do not differ in NLL.", "section 6.2; supplement A",
    "count-learning", "count-smooth",
)  # fmt: skip
def no_difference(evidence: Evidence) -> Iterator[Part]:
    for dataset, q in _places(evidence, "abalone", "peds1_dir2"):
        for samples in SAMPLES:
            lines = [evidence.estimator(dataset, q, name, samples) for name in ("bmc", "ups", "smooth_bmc")]
            for other, ours in combinations(lines, 2):
                yield _matches(evidence, dataset, q, ours, other, "{} and {} end at the same NLL", EQUAL)


@claim(
    14, "Regression: bMC-1 is the worst estimator; bMC recovers exact gradients with at least 10 samples (main text), "
    "with 100 (supplement).", "section 6.2; supplement A", "reg-learning",
)  # fmt: skip
def sampled_gradients(evidence: Evidence) -> Iterator[Part]:
    for dataset, q in _places(evidence, *REGRESSION):
        exact = evidence.estimator(dataset, q, "exact")
        one, ten, hundred = (evidence.estimator(dataset, q, "bmc", samples) for samples in SAMPLES)
        pairs = [(line, one) for line in (exact, ten, hundred)]
        yield evidence.compare("bMC-1 is the worst", dataset, q, pairs, BETTER, evidence.margin(dataset, "nll", q))
        for ours, source in ((ten, "main text"), (hundred, "supplement")):
            yield _matches(evidence, dataset, q, ours, exact, f"{{}} recovers exact gradients ({source})")


@claim(
    15, "abalone gradients: |g - G|² and bias of uPS and of smooth-bMC are below those of bMC; bMC-1 is noisiest; "
    "condition (i) is about 1.", "section 6.2, figure 1(g, h); supplement A", "bias",
)  # fmt: skip
def gradient_statistics(evidence: Evidence) -> Iterator[Part]:
    """The paper's error, |g - G|^2 with G of 10 000 bMC samples, is a mean over draws; the bias proper,
    |mean of the draws - G|^2, is judged with that G and with G by quadrature. All as logs: a difference is a ratio."""
    kinds = [(name, samples) for name in ("bmc", "ups", "smooth_bmc") for samples in SAMPLES]
    margin = evidence.constant("abalone", math.log1p(RATIO_MARGIN))
    rows = evidence.gradients
    draws = {key: evidence.results.arrays(key) for key in rows.column("key")}
    error = _of_draws(rows, draws, "error", np.mean)
    scatter = _of_draws(rows, draws, "condition_i", np.std)
    mean = _of_draws(rows, draws, "condition_i", np.mean)
    for q in evidence.parameterisations("abalone", "gradient"):

        def logs(kind: tuple[str, int], values: np.ndarray, what: str, q: str = q) -> Line:
            at = rows.at("abalone", q, "fixed_log_dlm", *kind)
            with np.errstate(divide="ignore", invalid="ignore"):
                logs = np.log(values.astype(float))
            return Line(f"log {what}, {estimator_label(*kind)}", evidence.grid("abalone", rows, at, logs), rows, at)

        for name in ("ups", "smooth_bmc"):
            for samples in SAMPLES:
                ours, bmc = (name, samples), ("bmc", samples)
                labels = [estimator_label(*kind) for kind in (ours, bmc)]
                pairs = [(logs(ours, error, "|g - G|²"), logs(bmc, error, "|g - G|²"))]
                says = "{} has a smaller |g - G|² than {}".format(*labels)
                yield evidence.compare(says, "abalone", q, pairs, BETTER, margin)
                pairs = [
                    tuple(logs(kind, rows.column(column), f"bias ({G})") for kind in (ours, bmc))
                    for column, G in (("bias", "G of 10 000 bMC samples"), ("bias_quadrature", "G by quadrature"))
                ]
                says = "{} is less biased than {}".format(*labels)
                yield evidence.compare(says, "abalone", q, pairs, BETTER, margin)
        pairs = [(logs(kind, scatter, "scatter"), logs(("bmc", 1), scatter, "scatter")) for kind in kinds[1:]]
        yield evidence.compare("bMC-1 is the noisiest", "abalone", q, pairs, BETTER, margin)
        for kind in kinds[1:]:
            yield _about_one(rows, rows.at("abalone", q, "fixed_log_dlm", *kind), mean, estimator_label(*kind), q)


def _of_draws(rows: Rows, draws: dict[str, dict[str, np.ndarray]], name: str, what) -> np.ndarray:
    """A statistic over the draws of each row; NaN where there are none."""
    return np.array([what(draws[key][name]) if name in draws[key] else np.nan for key in rows.column("key")])


def _about_one(rows: Rows, at: np.ndarray, means: np.ndarray, name: str, q: str) -> Part:
    values = means[at][np.isfinite(means[at])]
    part = Part(f"{name}: condition (i) is about 1", "abalone", q, **made_by((rows, at)))
    if len(values):
        mean = float(values.mean())
        part.verdict, part.repetitions = between(mean, 1 - ABOUT_ONE, 1 + ABOUT_ONE, len(values)), len(values)
        part.figures, part.reason = {"mean": mean}, f"mean {mean:.3g}"
    return part


@claim(
    16, "The rejection sampler rejects about 2 tries on average after the first iterations.", "supplement B", "sampler"
)
def rejections(evidence: Evidence) -> Iterator[Part]:
    """Over the blocks of 100 steps after the first; a record without them has one rate for all iterations."""
    says = "the rejection sampler rejects about 2 tries per sample"
    frame = evidence.candidates
    frame = frame[(frame["sampler"] == "rejection") & (frame["estimator"] == "ups") & (frame["acceptance"] > 0)]
    if frame.empty:
        yield Part(says, "abalone", "whitened")
    for (dataset, q), several in frame.drop_duplicates("key").groupby(["dataset", "parameterisation"], observed=True):
        rows = Rows(several)
        rates = [evidence.results.arrays(key).get("acceptance", np.array([]))[1:] for key in several["key"]]
        later = np.array([1 / blocks.mean() - 1 for blocks in rates if len(blocks)])
        part = Part(says, str(dataset), str(q), **made_by((rows, np.arange(len(several)))))
        whole = float((1 / several["acceptance"] - 1).mean())
        part.figures = {"rejected_over_all_iterations": whole}
        part.repetitions = several["seed"].nunique()
        if len(later):
            part.figures["rejected_per_accepted"] = mean = float(later.mean())
            part.verdict = between(mean, *ABOUT_TWO, len(later))
            part.reason = f"{mean:.3g} rejected per accepted after {FIRST_ITERATIONS} steps"
        else:
            part.verdict = Verdict.UNDECIDABLE
            part.reason = f"rates by {FIRST_ITERATIONS} steps were not recorded; {whole:.3g} over all iterations"
        yield part
