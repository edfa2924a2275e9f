"""Claims 13, 15 and 16: the sampled gradients on counts and their statistics."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np

from dlmexp.claims.estimators import estimator_evidence, matches
from dlmexp.claims.evidence import Evidence, compared, each, everywhere, finding, margins, parameterisations, places
from dlmexp.claims.finding import CLAIMS, Claim, Finding, Measured, all_parts, made_by
from dlmexp.claims.rules import Verdict, better, between
from dlmexp.claims.thresholds import ABOUT_ONE, ABOUT_TWO, RATIO_MARGIN
from dlmexp.console import counted
from dlmexp.figures import style
from dlmexp.records.results import Results, records_of
from dlmexp.records.schema import Record

SAMPLES = (1, 10, 100)
LEARNING = ("abalone", "peds1_dir2")  # the datasets with learning curves


def no_difference(results: Results) -> Iterator[Finding]:
    """Counts: at each L, bMC, uPS and smooth-bMC end at the same NLL."""
    for place in places(results, *LEARNING):
        for how in parameterisations(results, place):
            margin = margins(results, place, "nll", how)
            for samples in SAMPLES:
                pairs = [("bmc", samples), ("ups", samples), ("smooth_bmc", samples)]
                for one, other in combinations(estimator_evidence(results, place, 0.1, pairs, how), 2):
                    found = matches(other, one, margin, place, how)
                    found.about = f"{other.name} and {one.name} end at the same NLL"
                    yield found


Gradients = dict[tuple[str, int], list[Record]]  # estimator and L -> records


def gradient_statistics(results: Results) -> Iterator[Finding]:
    """abalone: error |g - G|^2 and bias proper of uPS and smooth-bMC against bMC, who is noisiest, and whether
    condition (i) is about 1; in either coordinates of q."""
    for how in parameterisations(results, "abalone"):
        records: Gradients = {
            (name, samples): [
                record
                for record in records_of(
                    results.of_one_setting(results.line("gradients", "abalone", "fixed_log_dlm", name, samples))
                )
                if record.done and record.cell.parameterisation == how
            ]
            for name in style.ESTIMATORS
            for samples in SAMPLES
        }
        for other in ("ups", "smooth_bmc"):
            for samples in SAMPLES:
                yield _closer(results, records, other, samples, how)
                yield _less_biased(records, other, samples, how)
        yield _noisiest(results, records, how)
        for (name, samples), several in records.items():
            if (name, samples) != ("bmc", 1):
                yield _about_one(results, several, name, samples, how)


def _logs(records: Gradients, kind: tuple[str, int], value: Callable[[Record], float | None]) -> Evidence:
    """log of a positive figure per repetition, so that a difference is a ratio."""
    found = {(r.cell.n, r.cell.seed): value(r) for r in records[kind]}
    logs = {place: math.log(x) for place, x in found.items() if x is not None and 0 < x < math.inf}
    return Evidence(style.of_estimator(*kind).label, logs, records[kind])


def _compared(what: str, ours: Evidence, rival: Evidence) -> list[Measured]:
    return [Measured(f"log {what}, {one.name}", one.comparison, one.n) for one in compared(ours, [rival])]


def _closer(results: Results, records: Gradients, name: str, samples: int, how: str) -> Finding:
    """The error that the paper plots, mean over the draws of a repetition, with its G of 10 000 bMC samples."""

    def error(record: Record) -> float | None:
        draws = results.arrays(record).get("error")
        return None if draws is None else float(np.mean(draws))

    ours, rival = (_logs(records, kind, error) for kind in ((name, samples), ("bmc", samples)))
    about = "{} has a smaller |g - G|² than {}".format(*_labels(name, samples))
    return _ratios(about, [ours, rival], _compared("|g - G|²", ours, rival), 1, how)


def _less_biased(records: Gradients, name: str, samples: int, how: str) -> Finding:
    """The bias proper, |mean of the draws - G|^2, with the paper's G and with G by quadrature."""
    measured: list[Measured] = []
    evidence: list[Evidence] = []
    for field, G in (("bias", "G of 10 000 bMC samples"), ("bias_quadrature", "G by quadrature")):
        ours, rival = (
            _logs(records, kind, lambda record, field=field: getattr(record.result, field))
            for kind in ((name, samples), ("bmc", samples))
        )
        measured += _compared(f"bias ({G})", ours, rival)
        evidence = [ours, rival]
    about = "{} is less biased than {}".format(*_labels(name, samples))
    return _ratios(about, evidence, measured, 2, how)


def _ratios(about: str, evidence: list[Evidence], measured: list[Measured], rivals: int, how: str) -> Finding:
    """Whether ours is lower in each comparison; of logs, so the margin is a ratio."""
    margin = everywhere(math.log1p(RATIO_MARGIN), *evidence)
    return finding(about, "abalone", evidence, measured, each(better, rivals), margin, how)


def _labels(name: str, samples: int) -> list[str]:
    return [style.of_estimator(one, samples).label for one in (name, "bmc")]


def _noisiest(results: Results, records: Gradients, how: str) -> Finding:
    """The scatter of condition (i) over the draws of a repetition, in logs."""

    def scatter(record: Record) -> float | None:
        draws = results.arrays(record).get("condition_i")
        return None if draws is None else max(float(np.std(draws)), 1e-300)

    evidence = {kind: _logs(records, kind, scatter) for kind in records}
    rival = evidence["bmc", 1]
    measured = [
        one for kind, ours in evidence.items() if kind != ("bmc", 1) for one in _compared("scatter", ours, rival)
    ]
    return _ratios("bMC-1 is the noisiest", list(evidence.values()), measured, len(evidence) - 1, how)


def _about_one(results: Results, records: list[Record], name: str, samples: int, how: str) -> Finding:
    label = style.of_estimator(name, samples).label
    draws = (results.arrays(record).get("condition_i") for record in records)
    means = [float(np.mean(values)) for values in draws if values is not None and np.isfinite(values).all()]
    mean = float(np.mean(means)) if means else math.nan
    found = Finding(
        f"{label}: condition (i) is about 1", between(mean, 1 - ABOUT_ONE, 1 + ABOUT_ONE, len(means)), "abalone", how,
        repetitions=len(means), commands=made_by(records),
    )  # fmt: skip
    if means:
        found.figures = {"mean": mean}
        found.words = f"mean {mean:.3g} over {counted(len(means), 'repetition')}"
    return found


def rejections(results: Results) -> Iterator[Finding]:
    """The paper's sampler: tries rejected per accepted sample. Records keep one acceptance rate for the whole run, so
    the first iterations, which the paper leaves out, are in it."""
    about = "the rejection sampler rejects about 2 tries per sample"
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in results.records.values():
        cell, rate = record.cell, record.result.acceptance
        if cell.estimator == "ups" and cell.options.get("sampler") == "rejection" and cell.kind == "fit" and rate:
            groups[cell.dataset, cell.parameterisation].append(record)
    if not groups:
        yield Finding(about, Verdict.NOT_RUN, "abalone", "whitened")
    for (dataset, how), records in sorted(groups.items()):
        rejected = [1 / (record.result.acceptance or 1.0) - 1 for record in records]
        mean, seeds = float(np.mean(rejected)), len({record.cell.seed for record in records})
        words = f"{mean:.3g} rejected per accepted, {min(rejected):.3g} to {max(rejected):.3g} over runs"
        yield Finding(
            about, between(mean, *ABOUT_TWO, seeds), dataset, how, figures={"rejected_per_accepted": mean},
            words=f"{words}; over all iterations, the first ones included", repetitions=seeds,
            commands=made_by(records),
        )  # fmt: skip


for claim in (
    Claim(
        13, "Counts: uPS, bMC and smooth-bMC do not differ in NLL.", no_difference, all_parts,
        ("count-learning", "count-smooth"),
    ),
    Claim(
        15, "abalone gradients: |g - G|² and bias of uPS and of smooth-bMC are below those of bMC; bMC-1 is noisiest; "
        "condition (i) is about 1.",
        gradient_statistics, all_parts, ("bias",),
    ),
    Claim(
        16, "The rejection sampler rejects about 2 tries on average after the first iterations.", rejections,
        all_parts, ("sampler",),
    ),
):  # fmt: skip
    CLAIMS.add(str(claim.number), claim)
