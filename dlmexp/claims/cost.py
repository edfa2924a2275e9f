"""Claim 19: what a step of uPS costs beside one of bMC, from runs that had their device to themselves.

Records say whether another batch of their process shared the device. Of other processes their times tell: a batch
ended when its last record was written, and took as long as the seconds of its cells together. A run is left out where
another run of the same results, on the same machine and device, overlaps with it. Runs that left no record here can't
be seen.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from dlmexp.claims.finding import CLAIMS, Claim, Finding, all_parts, made_by
from dlmexp.claims.rules import Verdict, between
from dlmexp.claims.thresholds import COST_MARGIN, OVERLAP_SECONDS
from dlmexp.records.clock import spans
from dlmexp.records.results import Results
from dlmexp.records.schema import Record, Result

Group = tuple[str, str, int]  # dataset, parameterisation, L

SHARED = "no two runs that could be compared had the device to themselves, by the times in their records"


def alone(records: list[Record]) -> set[str]:
    """Keys of the records whose batch overlaps with no other on its machine and device."""
    found: set[str] = set()
    for batches in spans(records).values():
        begins, ends = (np.array([span[i] for span in batches]) for i in (0, 1))
        for index, (begin, end, several) in enumerate(batches):
            overlap = np.minimum(ends, end) - np.maximum(begins, begin)
            overlap[index] = 0.0
            if overlap.max() <= OVERLAP_SECONDS:
                found |= {record.key for record in several if record.result.alone is not False}
    return found


@lru_cache(maxsize=4)
def _unshared(results: Results) -> set[str]:
    return alone(list(results.records.values()))


def cost(results: Results) -> Iterator[Finding]:
    """Seconds per iteration of uPS against bMC at the same L, data and device: the paper's rejection sampler, which it
    calls significantly slower; and beside it ours, which does not reject and of which the paper says nothing.

    The seeds of a batch share its clock, so their times say nothing about scatter: only the ratio is judged."""
    unshared = _unshared(results.origin)  # whatever their settings, they share a device
    timed: dict[Group, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in results.records.values():
        cell, result = record.cell, record.result
        sampled = cell.kind == "fit" and cell.estimator in ("ups", "bmc")
        if sampled and record.done and result.iterations and result.seconds:
            rejecting = cell.estimator == "ups" and cell.options.get("sampler") == "rejection"
            group = (cell.dataset, cell.parameterisation, cell.samples or 0)
            timed[group]["rejection" if rejecting else cell.estimator].append(record)
    found = [
        one
        for group, both in sorted(timed.items())
        for kind in KINDS
        if both[kind] and both["bmc"]
        for one in _ratios(group, kind, both, unshared)
    ]
    yield from found or [
        Finding(about.format(10), Verdict.NOT_RUN, "abalone", "whitened", ours=kind == OURS)
        for kind, (about, _) in KINDS.items()
    ]


def _ratios(group: Group, kind: str, both: dict[str, list[Record]], unshared: set[str]) -> Iterator[Finding]:
    """How much longer a step takes than with bMC, on each device over the settings and seeds that both have alone."""
    (dataset, how, samples), (about, limits) = group, KINDS[kind]
    timed: dict[str | None, list[tuple[Record, Record]]] = defaultdict(list)
    ours, rival = ({_setting(one): one for one in both[which] if one.key in unshared} for which in (kind, "bmc"))
    for key in sorted(ours.keys() & rival.keys(), key=str):
        timed[ours[key].made.device].append((ours[key], rival[key]))
    for device, pairs in timed.items():
        ratio = math.exp(float(np.mean([_log_seconds(one.result) - _log_seconds(bmc.result) for one, bmc in pairs])))
        seeds = len({one.cell.seed for one, _ in pairs})
        yield Finding(
            f"{about.format(samples)}, on {device}", between(ratio, *limits, seeds), dataset, how, ours=kind == OURS,
            figures={"ratio": ratio}, repetitions=seeds, commands=made_by(one for pair in pairs for one in pair),
            words=f"a step takes {ratio:.2f} times as long (alone on the device by their times)",
        )  # fmt: skip
    if not timed:
        yield Finding(
            about.format(samples), Verdict.UNDECIDABLE, dataset, how, words=SHARED, ours=kind == OURS,
            commands=made_by([*both[kind], *both["bmc"]]),
        )  # fmt: skip


def _setting(record: Record) -> tuple[Any, ...]:
    """What must be the same for times to be compared; the seed last."""
    cell, made = record.cell, record.made
    where = (made.device, made.host, made.commit)
    return (*where, cell.n, cell.variant, cell.beta, cell.evaluate, cell.max_iterations, cell.epochs, cell.seed)


def _log_seconds(result: Result) -> float:
    return math.log((result.seconds or math.nan) / (result.iterations or math.nan))


OURS = "ups"
KINDS = {
    "rejection": ("uPS-{0} by rejection is slower than bMC-{0} (the paper)", (COST_MARGIN, math.inf)),
    OURS: ("(ours, counted apart) uPS-{0} without rejection costs no more per step than bMC-{0}", (0.0, COST_MARGIN)),
}  # fmt: skip


for claim in (
    Claim(
        19, "uPS, with the paper's rejection sampler, is significantly slower than bMC (ours, without rejection, is "
        "counted apart).",
        cost, all_parts, ("sampler", "count-learning"),
    ),
):  # fmt: skip
    CLAIMS.add(str(claim.number), claim)
