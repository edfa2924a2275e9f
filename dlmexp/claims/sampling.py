"""Claims 13, 15, 16 and 19: the sampled gradients on counts, their statistics, and what they cost."""

import math
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from dlmexp.claims.estimators import estimator_evidence
from dlmexp.claims.evidence import compared, finding, parameterisations, places
from dlmexp.claims.finding import CLAIMS, Claim, Finding, Measured, made_by
from dlmexp.claims.rules import Verdict, better, between, combine, comparable, lowest
from dlmexp.claims.statistics import Values, paired
from dlmexp.claims.thresholds import ABOUT_ONE, ABOUT_TWO, COST_MARGIN, NLL_MARGIN
from dlmexp.figures import style
from dlmexp.records.results import Results, records_of
from dlmexp.records.schema import Record

SAMPLES = (1, 10, 100)
LEARNING = ("abalone", "peds1_dir2")  # the datasets with learning curves


def no_difference(results: Results) -> Iterator[Finding]:
    """Counts: at each L, uPS and smooth-bMC end within NLL_MARGIN of bMC."""
    for place in places(results, *LEARNING):
        for how in parameterisations(results, place):
            for samples in SAMPLES:
                pairs = [("bmc", samples), ("ups", samples), ("smooth_bmc", samples)]
                bmc, *others = estimator_evidence(results, place, 0.1, pairs, how)
                for other in others:
                    measured = compared(other, [bmc])
                    verdict = comparable(measured[0].comparison, NLL_MARGIN) if measured else Verdict.NOT_RUN
                    about = f"{other.name} and {bmc.name} end at the same NLL"
                    yield finding(about, verdict, place, [other, bmc], measured, how)


def gradient_statistics(results: Results) -> Iterator[Finding]:
    """abalone: bias of uPS and smooth-bMC against bMC, who is noisiest, and whether condition (i) is about 1."""
    for how in parameterisations(results, "abalone"):
        records = {
            (name, samples): [
                record
                for record in records_of(results.line("gradients", "abalone", "fixed_log_dlm", name, samples))
                if record.done and record.cell.parameterisation == how
            ]
            for name in style.ESTIMATORS
            for samples in SAMPLES
        }
        for other in ("ups", "smooth_bmc"):
            for samples in SAMPLES:
                yield _less_biased(records[other, samples], records["bmc", samples], other, samples, how)
        yield _noisiest(results, records, how)
        for (name, samples), several in records.items():
            if (name, samples) != ("bmc", 1):
                yield _about_one(results, several, name, samples, how)


def _by_seed(records: list[Record], value: str) -> Values:
    """log of a positive figure, so that a difference is a ratio."""
    found = {(0, r.cell.seed): getattr(r.result, value) for r in records}
    return {place: math.log(bias) for place, bias in found.items() if bias is not None and 0 < bias < math.inf}


def _less_biased(ours: list[Record], rival: list[Record], name: str, samples: int, how: str) -> Finding:
    labels = [style.of_estimator(one, samples).label for one in (name, "bmc")]
    measured = []
    for value, where in (("bias", "G of 10 000 bMC samples"), ("bias_quadrature", "G by quadrature")):
        if comparison := paired(_by_seed(ours, value), _by_seed(rival, value)):
            measured.append(Measured(f"log bias, {labels[0]} vs {labels[1]}, {where}", comparison))
    verdict = better(measured[0].comparison) if measured else Verdict.NOT_RUN
    found = Finding(f"{labels[0]} is less biased than {labels[1]}", verdict, "abalone", how, measured)
    found.repetitions = measured[0].comparison.repetitions if measured else 0
    found.commands = made_by([*ours, *rival])
    return found


def _noisiest(results: Results, records: dict[tuple[str, int], list[Record]], how: str) -> Finding:
    """The scatter of condition (i) over the draws of a repetition, in logs."""
    scatter: dict[tuple[str, int], Values] = {}
    for kind, several in records.items():
        values = {(0, r.cell.seed): results.arrays(r).get("condition_i") for r in several}
        scatter[kind] = {
            place: math.log(max(float(np.std(draws)), 1e-300)) for place, draws in values.items() if draws is not None
        }
    measured = [
        Measured(f"log scatter, {style.of_estimator(*kind).label} vs bMC-1", comparison)
        for kind, values in scatter.items()
        if kind != ("bmc", 1) and (comparison := paired(values, scatter["bmc", 1]))
    ]
    repetitions = max((m.comparison.repetitions for m in measured), default=0)
    everything = [record for several in records.values() for record in several]
    return Finding(
        "bMC-1 is the noisiest", lowest(m.comparison for m in measured), "abalone", how, measured,
        repetitions=repetitions, commands=made_by(everything),
    )  # fmt: skip


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
        found.words = f"mean {mean:.3g} over {len(means)} repetitions"
    return found


def rejections(results: Results) -> Iterator[Finding]:
    """The paper's sampler: tries rejected per accepted sample."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in results.records.values():
        cell, rate = record.cell, record.result.acceptance
        if cell.estimator == "ups" and cell.options.get("sampler") == "rejection" and cell.kind == "fit" and rate:
            groups[cell.dataset, cell.parameterisation].append(record)
    if not groups:
        yield Finding("the rejection sampler rejects about 2 tries per sample", Verdict.NOT_RUN, "abalone", "whitened")
    for (dataset, how), records in sorted(groups.items()):
        rejected = [1 / (record.result.acceptance or 1.0) - 1 for record in records]
        mean, seeds = float(np.mean(rejected)), len({record.cell.seed for record in records})
        yield Finding(
            "the rejection sampler rejects about 2 tries per sample", between(mean, *ABOUT_TWO, seeds), dataset, how,
            figures={"rejected_per_accepted": mean}, repetitions=seeds, commands=made_by(records),
            words=f"{mean:.3g} rejected per accepted, {min(rejected):.3g} to {max(rejected):.3g} over runs",
        )  # fmt: skip


def cost(results: Results) -> Iterator[Finding]:
    """Seconds per iteration, uPS with our sampler against bMC at the same L, on the same device and data.

    The seeds of a batch share its clock, so their times say nothing about scatter: only the ratio is judged."""
    times: dict[tuple[str, str, int], dict[str, dict[tuple[tuple, int], float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    records: dict[tuple[str, str, int], list[Record]] = defaultdict(list)
    for record in results.records.values():
        cell, result = record.cell, record.result
        ours = cell.estimator == "ups" and cell.options.get("sampler") != "rejection"
        if cell.kind != "fit" or not record.done or not (ours or cell.estimator == "bmc"):
            continue
        if not result.iterations or not result.seconds:
            continue
        group = (cell.dataset, cell.parameterisation, cell.samples or 0)
        made = (record.made.device, record.made.host, record.made.commit)
        setting = (cell.n, cell.variant, cell.beta, cell.evaluate, *made)
        times[group][cell.estimator][setting, cell.seed] = math.log(result.seconds / result.iterations)
        records[group].append(record)
    for (dataset, how, samples), both in sorted(times.items()):
        if comparison := paired(both["ups"], both["bmc"]):
            ratio = math.exp(-comparison.difference)
            yield Finding(
                f"uPS-{samples} costs no more per step than bMC-{samples}",
                between(ratio, 0.0, COST_MARGIN, comparison.repetitions), dataset, how, figures={"ratio": ratio},
                words=f"a step takes {ratio:.2f} times as long", repetitions=comparison.repetitions,
                commands=made_by(records[dataset, how, samples]),
            )  # fmt: skip


def _all(findings: list[Finding]) -> Verdict:
    return combine(found.verdict for found in findings)


for claim in (
    Claim(
        13, "Counts: uPS, bMC and smooth-bMC do not differ in NLL.", no_difference, _all,
        ("count-learning", "count-smooth"), both=True,
    ),
    Claim(
        15, "abalone gradients: uPS and smooth-bMC are less biased than bMC; bMC-1 is noisiest; condition (i) is about "
        "1.",
        gradient_statistics, _all, ("bias",), both=True,
    ),
    Claim(16, "The rejection sampler rejects about 2 tries on average.", rejections, _all, ("sampler",), both=True),
    Claim(
        19, "(ours) uPS costs no more per step than bMC at the same L.", cost, _all, ("sampler", "count-learning"),
        both=True,
    ),
):  # fmt: skip
    CLAIMS.add(str(claim.number), claim)
