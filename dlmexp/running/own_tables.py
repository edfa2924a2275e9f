"""What was read from a user's own tables, in words: shown before anything is trained, and with `plan=true`."""

from collections.abc import Iterable
from itertools import islice

import numpy as np

from dlmexp.config import DatasetConfig
from dlmexp.console import counted
from dlmexp.data.dataset import Dataset
from dlmexp.data.splits import split
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
        zeros = counted(len(data.y) - ones, "row")
        return f"class 1 is '{one}' ({counted(ones, 'row')}), class 0 is '{zero}' ({zeros})"
    return f"{data.y.min():g} to {data.y.max():g}, mean {data.y.mean():.4g}"


def _division(spec: DatasetConfig, data: Dataset) -> str:
    parts = split(len(data.y), spec.split, 0, None, data.arrangement)
    how, unused = "at random", ""
    if data.arrangement is not None and data.arrangement.by is not None:
        by = data.arrangement.column
        if data.arrangement.kind == "time":
            how = f"by time ({by}), the latest for testing"
        else:
            how = f"by {counted(len(np.unique(data.arrangement.by)), 'group')} ({by})"
            left = len(data.y) - len(parts.train_pool) - len(parts.validation) - len(parts.test)
            unused = f", {left} not used, as no group is in two parts" if left else ""
    own = " of your own" if data.arrangement is not None and data.arrangement.test else ""
    counts = f"{len(parts.train_pool)} rows for training, {len(parts.validation)} for validation"
    return f"divided {how}: {counts}, {len(parts.test[: spec.test_cap])}{own} for testing{unused}"


def _values(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(set(numbers))))
