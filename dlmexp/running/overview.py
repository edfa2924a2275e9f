"""What is shown before a run: what was read from a user's own tables, and with `plan=true` the cells of a sweep."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import islice

from rich.table import Table

from dlmexp.config import DatasetConfig
from dlmexp.console import counted, print_table, wide_console
from dlmexp.data.dataset import Dataset
from dlmexp.data.splits import split
from dlmexp.plan.batches import Plan
from dlmexp.plan.cell import Cell
from dlmexp.running.sweep import Sweep

MOST_COLUMNS = 12  # that are named one by one


def what_was_read(sweep: Sweep) -> list[str]:
    """A few lines for each dataset that is a user's own table; none for the others."""
    lines = []
    for which, (spec, data) in sweep.datasets.items():
        if spec.loader == "table":
            lines += describe(spec, data, [cell for cell in sweep.cells if (cell.dataset, cell.split) == which])
    return lines


def describe(spec: DatasetConfig, data: Dataset, cells: Iterable[Cell]) -> list[str]:
    """Rows, features, target, how the rows are divided, what was left out, and what looks wrong."""
    facts, kinds = data.facts, data.facts["kinds"]
    features = data.X.shape[1]
    few = islice(kinds.items(), MOST_COLUMNS)
    named = [f"{repr(column) if ',' in column else column} ({kind})" for column, kind in few]
    more = [f"{len(kinds) - MOST_COLUMNS} more"] if len(kinds) > MOST_COLUMNS else []
    lines = [
        f"{data.name}: {_rows(data)}, {counted(features, 'feature')} from "
        f"{counted(len(kinds), 'column')}: {', '.join(named + more)}",
        f"  target {facts['target']}: {_target(data)}",
        f"  {_division(spec, data)}; n = {_values(cell.n for cell in cells)}; M = {_values(cell.M for cell in cells)}",
    ]
    if filled := facts.get("filled"):
        lines.append(f"  {counted(filled, 'row')} with missing values, which get the mean of the training rows")
    if facts["left_out"]:
        lines.append(f"  left out: {', '.join(facts['left_out'])}")
    return lines + [f"  warning: {text}" for text in facts["warnings"]]


def _rows(data: Dataset) -> str:
    """How many rows each file has."""
    rows, test_file = len(data.y), data.facts.get("test_file")
    if test_file is None or data.arrangement is None:
        return f"{counted(rows, 'row')} of {data.facts['file']}"
    tested = data.arrangement.test
    return f"{counted(rows - tested, 'row')} of {data.facts['file']} and {tested} of {test_file}"


def _target(data: Dataset) -> str:
    if data.task == "binary":
        zero, one = data.facts["classes"]
        ones = int(data.y.sum())
        return f"class 1 is '{one}' ({ones} rows), class 0 is '{zero}' ({len(data.y) - ones} rows)"
    return f"{data.y.min():g} to {data.y.max():g}, mean {data.y.mean():.4g}"


def _division(spec: DatasetConfig, data: Dataset) -> str:
    parts, how = split(len(data.y), spec.split, 0, None, data.arrangement), "at random"
    if data.arrangement is not None and data.arrangement.by is not None:
        how = f"by {data.arrangement.kind} ({data.arrangement.column})"
    counts = f"{len(parts.train_pool)} rows for training, {len(parts.validation)} for validation"
    return f"divided {how}: {counts}, {len(parts.test[: spec.test_cap])} for testing"


def _values(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(set(numbers))))


def show_plan(plan: Plan, sweep: Sweep) -> None:
    """Print one line per dataset, size, method and estimator with its cells, how many are done, and in how many batches
    the rest run; then the totals, and the missing datasets."""
    table = Table("dataset", "n", "method", "estimator", "q", "seeds", "betas", "cells", "done", "failed", "batches")
    batches = Counter(batch[0].group for batch in plan.batches)
    methods, groups = defaultdict[tuple, dict[str, None]](dict), defaultdict[tuple, list[Cell]](list)
    for some in sweep.candidates:
        methods[some.cells[0].group][some.method] = None
    for cell in plan.cells:
        groups[cell.group].append(cell)
    for group, cells in groups.items():
        first = cells[0]
        done, failed = (sum(cell.key in keys for cell in cells) for keys in (plan.done, plan.failed))
        seeds, betas = len({cell.seed for cell in cells}), len({cell.beta for cell in cells})
        q = (first.parameterisation if first.form == "explicit" else "collapsed") + first.floor_label
        counts = map(str, (seeds, betas, len(cells), done, failed, batches[group]))
        table.add_row(first.dataset, str(first.n), ", ".join(methods[group]), first.estimator_label, q, *counts)
    console = wide_console()
    print_table(console, table)
    console.print(
        f"{counted(len(plan.cells), 'cell')}: {len(plan.done)} done, {len(plan.failed)} failed, "
        f"{plan.pending} to run in {counted(len(plan.batches), 'batch')}",
        highlight=False,
    )
    for message in sweep.missing:
        console.print(f"left out: {message}", highlight=False)
