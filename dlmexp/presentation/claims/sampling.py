"""Claims about estimators and runs: 11 to 16 (sampled gradients, their statistics, the paper's
rejection sampler), 18 (almost every run converges) and 19 (what a step of uPS costs)."""

import math
from collections.abc import Iterator
from itertools import combinations

import numpy as np

from dlmexp.common.catalogue import PAPER, REGRESSION
from dlmexp.presentation.claims import rules
from dlmexp.presentation.claims.claim import Part, claim
from dlmexp.presentation.claims.evidence import MADE, Evidence, Line, Places, made_by
from dlmexp.presentation.claims.rules import (
    BETTER,
    COMPARABLE,
    DIFFERENT,
    EQUAL,
    Rule,
    Verdict,
    between,
    by_share,
)
from dlmexp.presentation.labels import estimator_label

SAMPLES = (1, 10, 100)
FIRST = rules.FIRST_ITERATIONS
ERROR, SCATTER = "|g - G|²", "scatter"
BIASES = {"bias": "bias (G of 10 000 bMC samples)", "bias_quadrature": "bias (G by quadrature)"}
STATISTICS = (ERROR, SCATTER, *BIASES.values())
SAME_NLL = "{} and {} end at the same NLL"


def _matches(evidence: Evidence, dataset: str, q: str, ours: Line, other: Line, says: str = "{} matches {}",
             rule: Rule = COMPARABLE) -> Part:  # fmt: skip
    """`ours` ends at the NLL of `other`, within the margin."""
    return evidence.compare(
        says.format(ours.name, other.name), dataset, q, [(ours, other)], rule, "nll"
    )


@claim(11, "section 6.2, figure 1(i)", "airline-sampling-0.1")
def samples_needed(evidence: Evidence) -> Iterator[Part]:
    """airline, β = 0.1: uPS-10 matches exact, bMC needs 100 samples; uPS-1 beats bMC-10."""
    for dataset, q in evidence.places("airline", kind="curve"):
        exact = evidence.estimator(dataset, q, "exact")
        bmc10, bmc100 = (evidence.estimator(dataset, q, "bmc", samples) for samples in (10, 100))
        ups1, ups10 = (evidence.estimator(dataset, q, "ups", samples) for samples in (1, 10))
        yield _matches(evidence, dataset, q, ups10, exact)
        yield _matches(evidence, dataset, q, bmc100, exact)
        yield _matches(evidence, dataset, q, bmc10, exact, "{} does not match {}", DIFFERENT)
        yield evidence.compare("uPS-1 beats bMC-10", dataset, q, [(ups1, bmc10)], BETTER, "nll")


@claim(12, "section 4; supplement A", "airline-smooth")
def smoothing_changes_nothing(evidence: Evidence) -> Iterator[Part]:
    """airline: smooth-bMC equals bMC in NLL."""
    for dataset, q in evidence.places("airline", kind="curve"):
        for samples in SAMPLES:
            smooth, plain = (
                evidence.estimator(dataset, q, name, samples) for name in ("smooth_bmc", "bmc")
            )
            yield _matches(evidence, dataset, q, smooth, plain, SAME_NLL, EQUAL)


@claim(13, "section 6.2; supplement A", "count-learning", "count-smooth")
def no_difference(evidence: Evidence) -> Iterator[Part]:
    """Counts: uPS, bMC and smooth-bMC do not differ in NLL."""
    for dataset, q in evidence.places("abalone", "peds1_dir2", kind="curve"):
        for samples in SAMPLES:
            lines = [
                evidence.estimator(dataset, q, name, samples)
                for name in ("bmc", "ups", "smooth_bmc")
            ]
            for other, ours in combinations(lines, 2):
                yield _matches(evidence, dataset, q, ours, other, SAME_NLL, EQUAL)


@claim(14, "section 6.2; supplement A", "reg-learning")
def sampled_gradients(evidence: Evidence) -> Iterator[Part]:
    """Regression: bMC-1 is the worst estimator; bMC recovers exact gradients with at least 10
    samples (main text), with 100 (supplement)."""
    for dataset, q in evidence.places(*REGRESSION, kind="curve"):
        exact = evidence.estimator(dataset, q, "exact")
        one, ten, hundred = (evidence.estimator(dataset, q, "bmc", samples) for samples in SAMPLES)
        pairs = [(line, one) for line in (exact, ten, hundred)]
        yield evidence.compare("bMC-1 is the worst", dataset, q, pairs, BETTER, "nll")
        for ours, source in ((ten, "main text"), (hundred, "supplement")):
            yield _matches(
                evidence, dataset, q, ours, exact, f"{{}} recovers {{}} gradients ({source})"
            )


@claim(15, "section 6.2, figure 1(g, h); supplement A", "bias")
def gradient_statistics(evidence: Evidence) -> Iterator[Part]:
    """abalone gradients: |g - G|² and bias of uPS and of smooth-bMC are below those of bMC; bMC-1
    is noisiest; condition (i) is about 1.

    The paper's error, |g - G|^2 with G of 10 000 bMC samples, is a mean over draws; the bias
    proper, |mean of the draws - G|^2, is judged with that G and with G by quadrature. All as logs:
    a difference is a ratio."""
    kinds = [(name, samples) for name in ("bmc", "ups", "smooth_bmc") for samples in SAMPLES]
    margin, one = math.log1p(rules.RATIO_MARGIN), ("bmc", 1)
    logs = {name: np.full(len(evidence.frame), np.nan) for name in STATISTICS}
    condition = np.full(len(evidence.frame), np.nan)
    for row in np.flatnonzero(evidence.column("kind") == "gradient"):
        draws = evidence.results.arrays(evidence.column("key")[row])
        if "error" in draws and "condition_i" in draws:
            figures = (
                draws["error"].mean(),
                draws["condition_i"].std(),
                *(evidence.column(b)[row] for b in BIASES),
            )
            for name, figure in zip(STATISTICS, figures, strict=True):
                logs[name][row] = np.log(figure) if figure > 0 else np.nan
            condition[row] = draws["condition_i"].mean()
    for dataset, q in evidence.places("abalone", kind="gradient"):
        at = {kind: evidence.at("gradient", dataset, q, "fixed_log_dlm", *kind) for kind in kinds}

        def pair(
            what: str, *two: tuple[str, int], at: dict[tuple[str, int], Places] = at
        ) -> tuple[Line, Line]:
            names = {kind: f"log {what}, {estimator_label(*kind)}" for kind in two}
            ours, rival = (
                evidence.line(name, "abalone", at[kind], logs[what]) for kind, name in names.items()
            )
            return ours, rival

        for ours, bmc in [
            ((name, samples), ("bmc", samples))
            for name in ("ups", "smooth_bmc")
            for samples in SAMPLES
        ]:
            labels = [estimator_label(*kind) for kind in (ours, bmc)]
            says = "{} has a smaller |g - G|² than {}".format(*labels)
            yield evidence.compare(says, dataset, q, [pair(ERROR, ours, bmc)], BETTER, margin)
            pairs = [pair(what, ours, bmc) for what in BIASES.values()]
            yield evidence.compare(
                "{} is less biased than {}".format(*labels), dataset, q, pairs, BETTER, margin
            )
        pairs = [pair(SCATTER, kind, one) for kind in kinds[1:]]
        yield evidence.compare("bMC-1 is the noisiest", dataset, q, pairs, BETTER, margin)
        for kind in kinds[1:]:
            part = Part(f"{estimator_label(*kind)}: condition (i) is about 1", dataset, q)
            vars(part).update(evidence.made(at[kind]))
            if len(values := condition[at[kind]][np.isfinite(condition[at[kind]])]):
                mean, part.repetitions = float(values.mean()), len(values)
                part.verdict = between(mean, 1 - rules.ABOUT_ONE, 1 + rules.ABOUT_ONE, len(values))
                part.figures, part.reason = {"mean": mean}, f"mean {mean:.3g}"
            yield part


@claim(16, "supplement B", "sampler")
def rejections(evidence: Evidence) -> Iterator[Part]:
    """The rejection sampler rejects about 2 tries on average after the first iterations.

    Over the blocks of 100 steps after the first; a record without them has one rate for all
    iterations."""
    says = "the rejection sampler rejects about 2 tries per sample"
    frame = evidence.candidates
    frame = frame[
        (frame["sampler"] == "rejection")
        & (frame["estimator"] == "ups")
        & (frame["acceptance"] > 0)
    ]
    if frame.empty:
        yield Part(says, "abalone", "whitened")
    for (dataset, q), several in frame.drop_duplicates("key").groupby(
        ["dataset", "parameterisation"], observed=True
    ):
        rates = [
            evidence.results.arrays(key).get("acceptance", np.array([]))[1:]
            for key in several["key"]
        ]
        later = np.array([1 / blocks.mean() - 1 for blocks in rates if len(blocks)])
        part = Part(says, str(dataset), str(q), **made_by(several))
        whole = float((1 / several["acceptance"] - 1).mean())
        part.figures = {"rejected_over_all_iterations": whole}
        part.repetitions = several["seed"].nunique()
        if len(later):
            part.figures["rejected_per_accepted"] = mean = float(later.mean())
            part.verdict = between(mean, *rules.ABOUT_TWO, len(later))
            part.reason = f"{mean:.3g} rejected per accepted after {FIRST} steps"
        else:
            part.verdict = Verdict.UNDECIDABLE
            part.reason = (
                f"rates by {FIRST} steps were not recorded; {whole:.3g} over all iterations"
            )
        yield part


DETERMINISTIC = "almost every run of a deterministic objective converges"
CONVERGENCE = [
    "key",
    "dataset",
    "parameterisation",
    "seed",
    "status",
    "converged",
    "minibatch",
    "samples",
    *MADE,
]
SAMPLED = "(counted apart) almost every run of a sampled or minibatch objective converges"


def pooled(parts: list[Part]) -> Verdict:
    """By the share over all runs of deterministic objectives, as the paper counts ('across
    algorithms and datasets'). A dataset on which it fails is not hidden by larger ones: then it is
    mixed."""
    told = {part.verdict for part in parts}
    if not parts or Verdict.UNDECIDABLE in told:
        return Verdict.UNDECIDABLE if parts else Verdict.NOT_RUN
    converged, runs = (sum(part.figures[name] for part in parts) for name in ("converged", "runs"))
    verdict = by_share(converged / runs, rules.ALMOST_ALL, rules.NOT_ALMOST_ALL)
    return Verdict.MIXED if verdict is Verdict.HOLDS and Verdict.FAILS in told else verdict


@claim(18, "supplement A", sum_up=pooled)
def converged_share(evidence: Evidence) -> Iterator[Part]:
    """Almost every run converges (of deterministic objectives; sampled and minibatch ones are
    counted apart).

    Fits with a stopping rule; a failed one has not converged. Runs for a set number of iterations
    and closed forms have nothing to converge."""
    frame = evidence.candidates
    known = frame["dataset"].isin([*PAPER, *evidence.stands_for])
    ruled = (
        frame["window"].notna()
        & frame["max_iterations"].notna()
        & frame["role"].isin(["fit", "curve"])
    )
    frame = frame.loc[known & ruled, CONVERGENCE].drop_duplicates("key")
    deterministic = frame["minibatch"].isna() & frame["samples"].isna()
    frame = frame.assign(
        says=np.where(deterministic, DETERMINISTIC, SAMPLED), converged=frame["converged"].eq(True)
    )
    for (dataset, q, says), several in frame.groupby(
        ["dataset", "parameterisation", "says"], observed=True
    ):
        converged, failed = (
            int(several["converged"].sum()),
            int((several["status"] != "done").sum()),
        )
        verdict = by_share(converged / len(several), rules.ALMOST_ALL, rules.NOT_ALMOST_ALL)
        verdict = Verdict.UNDECIDABLE if evidence.capped else verdict
        told = f"{converged} of {len(several)} runs converged" + (
            f", {failed} failed" if failed else ""
        )
        yield Part(
            str(says), str(dataset), str(q), verdict, beside=says == SAMPLED,
            figures={"converged": converged, "runs": len(several)},
            repetitions=several["seed"].nunique(), **made_by(several),
            reason=f"the preset ends runs early; {told}" if evidence.capped else told,
        )  # fmt: skip


REJECTION = "uPS-{0:g} by rejection is slower than bMC-{0:g}"
OURS = "uPS-{0:g} without rejection costs no more than bMC-{0:g}"
TIMED = ["curve", "timing"]  # roles
PLACE = ["dataset", "parameterisation", "samples"]
SAME = [
    "device",
    "host",
    "commit",
    "n",
    "variant",
    "beta",
    "evaluate",
    "max_iterations",
    "epochs",
    "seed",
]


@claim(19, "section 6.2", "sampler", "count-learning")
def cost(evidence: Evidence) -> Iterator[Part]:
    """uPS, with the paper's rejection sampler, is significantly slower than bMC (ours, without
    rejection, is counted apart).

    Seconds per iteration of uPS against bMC at the same S, data and device. The seeds of a batch
    share its clock, so their times say nothing about scatter: only the ratio is judged."""
    frame = evidence.candidates
    timed = frame["role"].isin(TIMED) & frame["estimator"].isin(["ups", "bmc"])
    timed &= (frame["seconds"] > 0) & (frame["iterations"] > 0)
    names = [
        "key",
        *PLACE,
        *SAME,
        "seconds",
        "iterations",
        "alone",
        "estimator",
        "sampler",
        "command",
    ]
    frame = frame.loc[timed, names].drop_duplicates("key")
    frame = frame.assign(
        log=np.log(frame["seconds"] / frame["iterations"]), alone=frame["alone"].eq(True)
    )
    bmc, ups = (frame[frame["estimator"] == name] for name in ("bmc", "ups"))
    ups = ups.assign(says=np.where(ups["sampler"] == "rejection", REJECTION, OURS))
    alone = bmc.loc[bmc["alone"], [*PLACE, *SAME, "log"]]
    pairs = ups[ups["alone"]].merge(alone, on=[*PLACE, *SAME], suffixes=("", "_bmc"))
    together = dict(list(pairs.groupby([*PLACE, "says"], observed=True)))
    run = ups.merge(bmc[PLACE].drop_duplicates(), on=PLACE)[[*PLACE, "says"]].drop_duplicates()
    if run.empty:
        yield Part(REJECTION.format(10), "abalone", "whitened")
    for dataset, q, samples, says in run.sort_values([*PLACE, "says"]).itertuples(index=False):
        limits = (0.0, rules.COST_MARGIN) if says == OURS else (rules.COST_MARGIN, math.inf)
        here = together.get((dataset, q, samples, says), pairs[:0])
        for device, some in here.groupby("device", observed=True):
            ratio, seeds = math.exp((some["log"] - some["log_bmc"]).mean()), some["seed"].nunique()
            part = Part(
                f"{says.format(samples)}, on {device}",
                dataset,
                q,
                **made_by(some),
                beside=says == OURS,
            )
            part.verdict, part.figures, part.repetitions = (
                between(ratio, *limits, seeds),
                {"ratio": ratio},
                seeds,
            )
            part.reason = f"a step takes {ratio:.2f} times as long"
            yield part
        if here.empty:
            reason = "no two runs that could be compared had the device to themselves"
            yield Part(
                says.format(samples),
                dataset,
                q,
                Verdict.UNDECIDABLE,
                reason=reason,
                beside=says == OURS,
            )
