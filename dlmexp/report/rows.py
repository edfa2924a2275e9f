"""The results table: one row per method, dataset, size and way of training, repetitions taken together."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from dlmexp.figures import conf, style
from dlmexp.figures.results import Record, Results, on_test, part_of
from dlmexp.figures.series import summary
from dlmexp.sweep.table import IDENTITY, METRICS

# What repetitions must share to be averaged: every field of a cell but seed and beta.
SHARED = tuple(name for name in IDENTITY if name not in ("seed", "base"))
MOST_ROWS = 4000  # beyond that a browser on a phone gives up; `dlmexp collect` has the whole table


@dataclass(frozen=True)
class Row:
    """Mean and deviation over repetitions; a metric that does not apply is None."""

    dataset: str
    stands_for: str | None
    n: int
    method: str
    estimator: str
    q: str
    M: int
    betas: str
    beta: float | None  # the median, to sort by
    metrics: dict[str, tuple[float, float] | None]  # name -> mean, std (NaN with one repetition)
    repetitions: int
    lost: int  # failed, or not finite
    converged: float | None  # share
    seconds: float


def rows(results: Results) -> list[Row]:
    """Selected fits (beta by validation NLL, square loss by MSE), and fits of learning curves at each beta."""
    groups: dict[tuple, list[Record]] = defaultdict(list)
    attempted: dict[tuple, set[int]] = defaultdict(set)
    shared = itemgetter(*SHARED)
    selected = defaultdict(list)
    for method, key in results.selected("nll"):
        selected[key].append(method)
    for record in results.records.values():
        cell, part = record["cell"], part_of(record)
        if part == "fits":
            for method in _methods(cell):
                attempted[(method, None, shared(cell))].add(cell["seed"])
            for method in selected.get(record["key"], ()):
                groups[(method, None, shared(cell))].append(record)
        elif part == "curves":
            group = (_methods(cell)[-1], cell["beta"], shared(cell))
            attempted[group].add(cell["seed"])
            if record["status"] == "done":
                groups[group].append(record)
    found = [_row(group, groups[group], len(seeds)) for group, seeds in attempted.items()]
    return sorted(found, key=lambda row: (row.dataset, row.q, row.n, row.method, row.estimator, row.beta or 0))


def _methods(cell: dict) -> list[str]:
    """The methods a cell is a candidate of; a fixed beta's own name last."""
    return [
        name
        for name, spec in conf.methods().items()
        if (spec["objective"], spec["variant"]) == (cell["objective"], cell["variant"])
        and (spec["select"] or cell["beta"] in (None, 1.0))
    ][::-1]


def _betas(betas: list[float]) -> str:
    """The selected values with how often each was: `2 (4 times), 1`."""
    counts = Counter(f"{beta:.4g}" for beta in betas)
    return ", ".join(beta if times == 1 else f"{beta} ({times} times)" for beta, times in counts.most_common())


def _row(group: tuple, records: list[Record], attempted: int) -> Row:
    method, _, values = group
    cell = dict(zip(SHARED, values, strict=True))
    records = sorted(records, key=lambda record: record["cell"]["seed"])
    metrics: dict[str, tuple[float, float] | None] = {}
    used = attempted
    for metric in METRICS:
        measured = [on_test(record, metric) for record in records]
        have = [record for record in records if metric in record["result"].get("test", {})]
        point = summary(0, measured, attempted)
        metrics[metric] = (point["mean"], point["std"]) if have else None
        used = min(used, int(point["repetitions"])) if have else used
    betas = [record["cell"]["beta"] for record in records if record["cell"]["beta"] is not None]
    flags = [record["result"].get("converged") for record in records if record["cell"]["max_iterations"] is not None]
    return Row(
        dataset=cell["dataset"], stands_for=conf.stands_for(cell["dataset"]), n=cell["n"],
        method=style.of_method(method).label, estimator=style.of_estimator(cell["estimator"], cell["samples"]).label,
        q=cell["parameterisation"], M=cell["M"], betas=_betas(betas),
        beta=float(np.median(betas)) if betas else None, metrics=metrics, repetitions=used if records else 0,
        lost=attempted - (used if records else 0),
        converged=float(np.mean([bool(flag) for flag in flags])) if flags else None,
        seconds=float(sum(record["result"].get("seconds") or 0.0 for record in records)),
    )  # fmt: skip
