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
SAME_NLL = "{} and {} end at the same NLL"


def _matches(
    evidence: Evidence, dataset: str, q: str, ours: Line, other: Line, says: str = "{} matches {}",
    rule: Rule = COMPARABLE,
) -> Part:  # fmt: skip
    """`ours` ends at the NLL of `other`, within the margin."""
    return evidence.compare(says.format(ours.name, other.name), dataset, q, [(ours, other)], rule, "nll")


@claim(
    11, "airline, β = 0.1: uPS-10 matches exact, bMC needs 100 samples; uPS-1 beats bMC-10.",
    "section 6.2, figure 1(i)", "airline-sampling-0.1",
)  # fmt: skip
def samples_needed(evidence: Evidence) -> Iterator[Part]:
    for dataset, q in evidence.places("airline", role="curve"):
        exact = evidence.estimator(dataset, q, "exact")
        bmc10, bmc100 = (evidence.estimator(dataset, q, "bmc", samples) for samples in (10, 100))
        ups1, ups10 = (evidence.estimator(dataset, q, "ups", samples) for samples in (1, 10))
        yield _matches(evidence, dataset, q, ups10, exact)
        yield _matches(evidence, dataset, q, bmc100, exact)
        yield _matches(evidence, dataset, q, bmc10, exact, "{} does not match {}", DIFFERENT)
        yield evidence.compare("uPS-1 beats bMC-10", dataset, q, [(ups1, bmc10)], BETTER, "nll")


@claim(12, "airline: smooth-bMC equals bMC in NLL.", "section 4; supplement A", "airline-smooth")
def smoothing_changes_nothing(evidence: Evidence) -> Iterator[Part]:
    for dataset, q in evidence.places("airline", role="curve"):
        for samples in SAMPLES:
            smooth, plain = (evidence.estimator(dataset, q, name, samples) for name in ("smooth_bmc", "bmc"))
            yield _matches(evidence, dataset, q, smooth, plain, SAME_NLL, EQUAL)


@claim(
    13, "Counts: uPS, bMC and smooth-bMC do not differ in NLL.", "section 6.2; supplement A",
    "count-learning", "count-smooth",
)  # fmt: skip
def no_difference(evidence: Evidence) -> Iterator[Part]:
    for dataset, q in evidence.places("abalone", "peds1_dir2", role="curve"):
        for samples in SAMPLES:
            lines = [evidence.estimator(dataset, q, name, samples) for name in ("bmc", "ups", "smooth_bmc")]
            for other, ours in combinations(lines, 2):
                yield _matches(evidence, dataset, q, ours, other, SAME_NLL, EQUAL)


@claim(
    14, "Regression: bMC-1 is the worst estimator; bMC recovers exact gradients with at least 10 samples (main text), "
    "with 100 (supplement).", "section 6.2; supplement A", "reg-learning",
)  # fmt: skip
def sampled_gradients(evidence: Evidence) -> Iterator[Part]:
    for dataset, q in evidence.places(*REGRESSION, role="curve"):
        exact = evidence.estimator(dataset, q, "exact")
        one, ten, hundred = (evidence.estimator(dataset, q, "bmc", samples) for samples in SAMPLES)
        pairs = [(line, one) for line in (exact, ten, hundred)]
        yield evidence.compare("bMC-1 is the worst", dataset, q, pairs, BETTER, "nll")
        for ours, source in ((ten, "main text"), (hundred, "supplement")):
            yield _matches(evidence, dataset, q, ours, exact, f"{{}} recovers {{}} gradients ({source})")


@claim(
    15, "abalone gradients: |g - G|² and bias of uPS and of smooth-bMC are below those of bMC; bMC-1 is noisiest; "
    "condition (i) is about 1.", "section 6.2, figure 1(g, h); supplement A", "bias",
)  # fmt: skip
def gradient_statistics(evidence: Evidence) -> Iterator[Part]:
    """The paper's error, |g - G|^2 with G of 10 000 bMC samples, is a mean over draws; the bias proper,
    |mean of the draws - G|^2, is judged with that G and with G by quadrature. All as logs: a difference is a ratio."""
    kinds = [(name, samples) for name in ("bmc", "ups", "smooth_bmc") for samples in SAMPLES]
    margin, rows = math.log1p(RATIO_MARGIN), evidence.gradients
    draws = [evidence.results.arrays(key) for key in rows.column("key")]
    error, scatter, condition = (
        np.array([statistic(some[name]) if name in some else np.nan for some in draws])
        for name, statistic in (("error", np.mean), ("condition_i", np.std), ("condition_i", np.mean))
    )
    biases = {"G of 10 000 bMC samples": rows.column("bias"), "G by quadrature": rows.column("bias_quadrature")}
    for dataset, q in evidence.places("abalone", role="gradient"):

        def logs(what: str, values: np.ndarray, *kinds: tuple[str, int], q: str = q) -> list[Line]:
            at = [rows.at("abalone", q, "fixed_log_dlm", *kind) for kind in kinds]
            with np.errstate(divide="ignore", invalid="ignore"):
                grids = [evidence.grid("abalone", rows, some, np.log(values.astype(float))) for some in at]
            names = [f"log {what}, {estimator_label(*kind)}" for kind in kinds]
            return [Line(*line) for line in zip(names, grids, [rows] * len(at), at, strict=True)]

        for ours, bmc in [((name, samples), ("bmc", samples)) for name in ("ups", "smooth_bmc") for samples in SAMPLES]:
            labels = [estimator_label(*kind) for kind in (ours, bmc)]
            pairs = [tuple(logs("|g - G|²", error, ours, bmc))]
            says = "{} has a smaller |g - G|² than {}".format(*labels)
            yield evidence.compare(says, dataset, q, pairs, BETTER, margin)
            pairs = [tuple(logs(f"bias ({G})", values, ours, bmc)) for G, values in biases.items()]
            yield evidence.compare("{} is less biased than {}".format(*labels), dataset, q, pairs, BETTER, margin)
        pairs = [tuple(logs("scatter", scatter, kind, ("bmc", 1))) for kind in kinds[1:]]
        yield evidence.compare("bMC-1 is the noisiest", dataset, q, pairs, BETTER, margin)
        for kind in kinds[1:]:
            at = rows.at("abalone", q, "fixed_log_dlm", *kind)
            part = Part(f"{estimator_label(*kind)}: condition (i) is about 1", dataset, q, **made_by((rows, at)))
            if len(values := condition[at][np.isfinite(condition[at])]):
                mean, part.repetitions = float(values.mean()), len(values)
                part.verdict = between(mean, 1 - ABOUT_ONE, 1 + ABOUT_ONE, len(values))
                part.figures, part.reason = {"mean": mean}, f"mean {mean:.3g}"
            yield part


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
