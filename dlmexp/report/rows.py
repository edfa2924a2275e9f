"""The results table: one row per method, dataset, size and way of training, repetitions taken together."""

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from dlmexp import catalogue
from dlmexp.figures import style
from dlmexp.figures.series import summary
from dlmexp.plan.cell import SHARED, Cell
from dlmexp.records.results import Results
from dlmexp.records.schema import Record
from dlmexp.records.selection import on_test
from dlmexp.records.table import METRICS

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
    """Selected fits (beta by validation NLL, square loss by MSE), and fits of learning curves at each beta. Where some
    candidates have no record yet, nothing has been selected, and nothing lost."""
    groups: dict[tuple, list[Record]] = defaultdict(list)
    attempted: dict[tuple, set[int]] = defaultdict(set)
    cells: dict[tuple, Cell] = {}
    methods: dict[str, str] = {}
    for one in sorted(results.choices, key=lambda one: len(one.records)):
        if one.records[0].part == "fits" and not one.missing:
            group = (one.method, one.betas, one.cell.values(SHARED))
            attempted[group].add(one.cell.seed)
            cells[group] = one.cell
            if (record := one.selected("nll")) is not None:
                groups[group].append(record)
        elif one.records[0].part == "curves":
            methods |= {record.key: one.method for record in one.records}  # the method with most candidates has it
    for key, method in methods.items():
        record = results.records[key]
        group = (method, record.cell.beta, record.cell.values(SHARED))
        attempted[group].add(record.cell.seed)
        cells[group] = record.cell
        if record.done:
            groups[group].append(record)
    found = [_row(group[0], cells[group], groups[group], len(seeds)) for group, seeds in attempted.items()]
    return sorted(found, key=lambda row: (row.dataset, row.q, row.n, row.method, row.estimator, row.beta or 0))


def _betas(betas: list[float]) -> str:
    """The selected values with how often each was: `2 (4 times), 1`."""
    counts = Counter(f"{beta:.4g}" for beta in betas)
    return ", ".join(beta if times == 1 else f"{beta} ({times} times)" for beta, times in counts.most_common())


def _row(method: str, cell: Cell, records: list[Record], attempted: int) -> Row:
    records = sorted(records, key=lambda record: record.cell.seed)
    metrics: dict[str, tuple[float, float] | None] = {}
    used = attempted
    for metric in METRICS:
        measured = [on_test(record, metric) for record in records]
        have = [record for record in records if metric in record.result.test]
        point = summary(0, measured, attempted)
        metrics[metric] = (point["mean"], point["std"]) if have else None
        used = min(used, int(point["repetitions"])) if have else used
    betas = [record.cell.beta for record in records if record.cell.beta is not None]
    flags = [record.result.converged for record in records if record.cell.has_stopping_rule]
    return Row(
        dataset=cell.dataset, stands_for=catalogue.stands_for(cell.dataset), n=cell.n,
        method=style.of_method(method).label, estimator=style.of_estimator(cell.estimator, cell.samples).label,
        q=cell.parameterisation + cell.floor_label, M=cell.M, betas=_betas(betas),
        beta=float(np.median(betas)) if betas else None, metrics=metrics, repetitions=used if records else 0,
        lost=attempted - (used if records else 0),
        converged=float(np.mean([bool(flag) for flag in flags])) if flags else None,
        seconds=float(sum(record.result.seconds or 0.0 for record in records)),
    )  # fmt: skip
