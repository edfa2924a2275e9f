"""The results table: one row per method, dataset, size and setting, repetitions taken together."""

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from dlmexp import catalogue
from dlmexp.figures import style
from dlmexp.figures.series import summary
from dlmexp.plan.cell import SHARED, Cell
from dlmexp.records.comparison import Settings
from dlmexp.records.results import Results
from dlmexp.records.schema import Record
from dlmexp.records.selection import Choice, on_test
from dlmexp.records.settings import TRAINING, Setting, shown
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
    settings: dict[str, str]  # the protocol, and every value that some row has otherwise; '' where there is none


def rows(results: Results) -> list[Row]:
    """Selected fits (beta by validation NLL, square loss by MSE), and fits of learning curves at each beta. Where some
    candidates have no record yet, nothing has been selected, and nothing lost."""
    groups: dict[tuple, list[Record]] = defaultdict(list)
    attempted: dict[tuple, set[int]] = defaultdict(set)
    cells: dict[tuple, Choice] = {}
    methods: dict[tuple[str, str], Choice] = {}
    setting_of = results.settings.of
    for one in sorted(results.choices, key=lambda one: len(one.records)):
        if one.records[0].part == "fits" and not one.missing:
            group = (one.method, None, setting_of(one), one.cell.values(SHARED))
            attempted[group].add(one.cell.seed)
            cells[group] = one
            if (record := one.selected("nll")) is not None:
                groups[group].append(record)
        elif one.records[0].part == "curves":
            # The method with most candidates has it, once under each protocol.
            methods |= {(record.key, one.protocol): one for record in one.records}
    for (key, _), one in methods.items():
        record = results.records[key]
        group = (one.method, record.cell.beta, setting_of(one), record.cell.values(SHARED))
        attempted[group].add(record.cell.seed)
        cells[group] = one
        if record.done:
            groups[group].append(record)
    columns = _columns({group: (cells[group], group[2]) for group in attempted}, results.settings)
    found = [
        _row(
            group[0],
            cells[group].cell,
            groups[group],
            len(seeds),
            {name: column[group] for name, column in columns.items()},
        )
        for group, seeds in attempted.items()
    ]
    return sorted(found, key=lambda row: (row.dataset, row.q, row.n, row.method, row.estimator, row.beta or 0))


def _columns(groups: dict[tuple, tuple[Choice, Setting]], settings: Settings) -> dict[str, dict[tuple, str]]:
    """A column for each setting in which rows differ: heading -> group -> value, in words."""
    changed = dict.fromkeys(name for _, setting in groups.values() for name, _ in setting.changes if name != "M")
    columns = {"protocol": {group: setting.protocol for group, (_, setting) in groups.items()}}
    columns |= {name: {g: settings.value(one, s, name) for g, (one, s) in groups.items()} for name in changed}
    found = {}
    for name, column in columns.items():
        words = {group: "" if value is None else shown(value) for group, value in column.items()}
        # Nothing is a value of its own in training (no floor under the noise); elsewhere, no such thing.
        nothing = set() if name.startswith(TRAINING) else {""}
        if len(set(words.values()) - nothing) > 1:
            found["β grid" if name == "beta" else name.removeprefix(TRAINING)] = words
    return found


def _betas(betas: list[float]) -> str:
    """The selected values with how often each was: `2 (4 times), 1`."""
    counts = Counter(f"{beta:.4g}" for beta in betas)
    return ", ".join(beta if times == 1 else f"{beta} ({times} times)" for beta, times in counts.most_common())


def _row(method: str, cell: Cell, records: list[Record], attempted: int, settings: dict[str, str]) -> Row:
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
        q=cell.parameterisation if cell.form == "explicit" else cell.form, M=cell.M, betas=_betas(betas),
        beta=float(np.median(betas)) if betas else None, metrics=metrics, repetitions=used if records else 0,
        lost=attempted - (used if records else 0),
        converged=float(np.mean([bool(flag) for flag in flags])) if flags else None,
        seconds=float(sum(record.result.seconds or 0.0 for record in records)), settings=settings,
    )  # fmt: skip
