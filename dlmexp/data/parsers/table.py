"""A user's own table (`dataset=csv`, or `loader: table`): CSV, TSV, Parquet, Feather or npz."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dlmexp.console import counted
from dlmexp.data import table_columns as of
from dlmexp.data.advice import setting
from dlmexp.data.arrangement import Arrangement
from dlmexp.data.parsers.registry import TEST, Parsed, parser
from dlmexp.data.schema import Column, Label, Schema
from dlmexp.data.spec import DatasetSpec
from dlmexp.data.table_files import read_table, table_suffix
from dlmexp.data.table_options import TableOptions, table_options
from dlmexp.data.traps import alike_levels, check_target, counts_rows, leaks, rare_class, repeated_rows
from dlmexp.errors import UserError, nearest
from dlmexp.reading.arrays import read_npz

UNNAMED = ("", "Unnamed: 0", "__index_level_0__")  # what pandas calls an index that was saved with a table
WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")  # a number as Python writes it
Columns = dict[str, np.ndarray]


@parser("table", version=2, cached=False)
def table(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """Column `options.target` is y, the others are features. The facts say what was read, and what was left out."""
    options = table_options(spec.options)
    path = next(path for name, path in files.items() if name != TEST)
    columns, test_rows, left_out = _combined(path, files.get(TEST), options)
    target = _target_name(options, columns, path)
    chosen = _chosen(columns, options, target, path)
    columns, dropped, test_rows = _without_missing({target: columns[target]} | chosen | _by(columns, options), options,
                                                   test_rows, path, target)  # fmt: skip
    left_out += [f"{counted(dropped, 'row')} with missing values (csv.missing=drop)"] if dropped else []
    y, classes = of.labels(target, columns[target], spec.task)
    check_target(target, y)
    described: list[Column] = []
    arrays: list[np.ndarray] = []
    kinds: dict[str, str] = {}
    warnings: list[str] = []
    for name in chosen:
        column = columns[name]
        added, values, kinds[name] = of.features(name, column, options.categories, options.dates)
        described.append(added)
        arrays.append(values)
        warnings += _warnings(name, column, values, kinds[name], target, y, spec.task, name in options.columns)
        warnings += filter(None, [alike_levels(name, added.levels)])
    labels = (_label(classes[0]), _label(classes[1])) if classes else None
    schema = Schema(target, tuple(described), labels, options.missing == "mean", options.sep, tuple(options.na))
    if not schema.features:
        raise UserError(f"{path.name} has no feature besides the target '{target}'")
    left_out += [f"column '{name}'" for name in options.drop]
    facts: dict[str, Any] = {
        "features": list(schema.features), "schema": msgspec.to_builtins(schema), "kinds": kinds, "file": path.name,
        "target": target, "classes": classes, "left_out": left_out, "warnings": warnings,
    }  # fmt: skip
    X = np.concatenate(arrays, axis=1)
    of_rows = [repeated_rows(X, y, test_rows > 0), rare_class((classes[0], classes[1]), y) if classes else None]
    warnings += [text for text in of_rows if text]
    if TEST in files:
        facts["test_file"] = files[TEST].name
    if options.missing == "mean" and (count := int(np.isnan(X).any(axis=1).sum())):
        facts["filled"] = count
    return Parsed(X, y, facts, _arrangement(columns, options, test_rows))


def _label(text: str) -> Label:
    """A label as a whole number where it is one of at most 18 digits."""
    return int(text) if WHOLE.fullmatch(text) else text


def _combined(path: Path, test: Path | None, options: TableOptions) -> tuple[Columns, int, list[str]]:
    """All columns, those of the test rows below the others; the number of test rows; what was left out."""
    columns, left_out = _read(path, options, test=False)
    if test is None and "X_test" not in options.arrays:
        return columns, 0, left_out
    below, _ = _read(test or path, options, test=True)
    unused = {*options.drop, *(set(columns) - set(options.columns) if options.columns else ())}
    joined: Columns = {}
    for name, column in columns.items():
        if name not in below:
            if name in unused and name != options.target:
                continue
            needed = name in (options.target, options.by)
            advice = "" if needed else f"; {setting('drop', name)} leaves it out of {path.name} too"
            raise UserError(f"csv.test={test or path}: it has no column '{name}'{advice}")
        if of.kind_of(column) != of.kind_of(below[name]):
            kinds = f"{of.kind_of(column)} in {path.name}, {of.kind_of(below[name])} in {(test or path).name}"
            raise UserError(f"column '{name}' holds {kinds}")
        joined[name] = np.concatenate([column, below[name]])
    return joined, len(next(iter(below.values()))), left_out


def _read(path: Path, options: TableOptions, test: bool) -> tuple[Columns, list[str]]:
    if table_suffix(path) == ".npz":
        return _arrays(path, options, test), []
    found = read_table(path, options.sep, options.na)
    columns: Columns = {}
    left_out = []
    for name, arrow in zip(map(str, found.column_names), found.columns, strict=True):
        if name in options.drop and name not in (options.target, options.by):
            continue
        if options.columns and name not in (*options.columns, options.target, options.by):
            continue
        columns[name] = of.from_arrow(name, arrow, path.name)
        if name == options.target and str(arrow.type) == "bool":
            columns[name] = of.as_words(columns[name])
        if name in UNNAMED and name not in options.columns:
            if not counts_rows(columns.pop(name)):
                where = f"{path.name}: column {found.column_names.index(name) + 1}"
                raise UserError(
                    f"{where} has no name ('{name}'): name it, or leave it out with {setting('drop', name)}"
                )
            left_out.append("a column without a name that numbers the rows (an index of pandas)")
    for what in ("drop", "columns", "categories", "dates"):
        for name in getattr(options, what):
            if name not in found.column_names and not test:
                raise UserError(f"csv.{what}: {path.name} has no column '{name}': {nearest(name, found.column_names)}")
    return columns, left_out


def _arrays(path: Path, options: TableOptions, test: bool) -> Columns:
    """The arrays of an npz file as columns; with `csv.arrays`, those that it names."""
    found = read_npz(path)
    if options.arrays:
        suffix = "_test" if test and "X_test" in options.arrays else ""
        wanted = {name: options.arrays[f"{name}{suffix}"] for name in ("X", "y")}
        for array in wanted.values():
            if array not in found:
                raise UserError(f"csv.arrays: {path.name} has no array '{array}': {nearest(array, list(found))}")
        found = {name: found[array] for name, array in wanted.items()}
    columns: Columns = {}
    for name, array in found.items():
        if name not in options.drop:
            columns |= of.from_array(name, array)
    if len({len(column) for column in columns.values()}) > 1:
        lengths = ", ".join(f"{name} {len(array)}" for name, array in found.items())
        raise UserError(
            f"{path.name}: arrays of different lengths ({lengths}): 'csv.arrays={{X: NAME, y: NAME}}' chooses"
        )
    return columns


def _target_name(options: TableOptions, columns: Columns, path: Path) -> str:
    target = options.target or ("y" if options.arrays else None)
    if target is None:
        raise UserError(f"csv.target is not set: name the column to predict, one of {_some(columns)}")
    if target not in columns:
        if any(name.startswith(f"{target}[") for name in columns):
            raise UserError(f"csv.target={target} has several columns: a target is one column")
        raise UserError(f"csv.target={target}: {path.name} has no such column: {nearest(target, list(columns))}")
    return target


def _some(columns: Columns, most: int = 20) -> str:
    names = list(columns)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _chosen(columns: Columns, options: TableOptions, target: str, path: Path) -> Columns:
    """The columns that become features. The one that rows are divided by is none of them unless it is named."""
    names = options.columns or [name for name in columns if name not in (target, options.by)]
    if target in names:
        raise UserError(f"csv.columns: '{target}' is the target, it can't be a feature as well")
    for name in (*names, *([options.by] if options.by else [])):
        if name not in columns:
            raise UserError(f"{path.name} has no column '{name}': {nearest(name, list(columns))}")
    return {name: columns[name] for name in names}


def _by(columns: Columns, options: TableOptions) -> Columns:
    return {options.by: columns[options.by]} if options.by else {}


def _without_missing(
    columns: Columns, options: TableOptions, test_rows: int, path: Path, target: str
) -> tuple[Columns, int, int]:
    """The columns without missing values, or, where the user asks for their mean, with them; how many rows were left
    out; how many test rows remain."""
    for name, column in columns.items():
        if column.dtype.kind == "f" and np.isinf(column).any():
            row = int(np.argmax(np.isinf(column))) + 1
            raise UserError(f"a value is infinite in row {row}, column '{name}'; correct it, or drop the row")
    for name, column in columns.items() if table_suffix(path) != ".npz" else ():
        if name not in (target, options.by) and of.missing(column).all():
            raise UserError(f"{path.name}: column '{name}' is empty: {setting('drop', name)} leaves it out")
    strict = columns.items() if options.missing == "refuse" else [
        (name, columns[name]) for name in (target, options.by) if name and options.missing == "mean"
    ]  # fmt: skip
    if found := of.first_missing(strict):
        count, row, name = found
        others = f" ({count} in all)" if count > 1 else ""
        advice = "csv.missing=drop leaves such rows out" + (
            "" if name in (target, options.by) else ", csv.missing=mean puts in the mean of the training rows"
        )
        raise UserError(f"{path.name}: a value is missing in row {row}, column '{name}'{others}; {advice}")
    if options.missing != "drop":
        return columns, 0, test_rows
    gone = np.zeros(len(columns[target]), dtype=bool)
    for column in columns.values():
        gone |= of.missing(column)
    if gone.all():
        raise UserError(f"{path.name}: every row has a missing value: csv.drop=[COLUMN] leaves out a column instead")
    left = int((~gone[len(gone) - test_rows :]).sum()) if test_rows else 0
    return {name: column[~gone] for name, column in columns.items()}, int(gone.sum()), left


def _warnings(
    name: str, column: np.ndarray, values: np.ndarray, kind: str, target: str, y: np.ndarray, task: str, insisted: bool
) -> list[str]:
    found = []
    if leak := leaks(name, values[:, 0] if kind == "date" else column, target, y, task, insisted):
        found.append(leak)
    if counts_rows(column):
        found.append(f"column '{name}' numbers the rows: {setting('drop', name)} leaves it out")
    elif values.size and (values == values[0]).all():
        found.append(f"column '{name}' is the same in all rows")
    return found


def _arrangement(columns: Columns, options: TableOptions, test_rows: int) -> Arrangement | None:
    if options.by is None:
        return Arrangement(test=test_rows) if test_rows else None
    column = columns[options.by]
    kind = of.kind_of(column)
    if options.split == "time":
        if kind == "text":
            raise UserError(f"csv.by={options.by}: text such as '{column[0]}' is no time: write dates as 2020-12-31")
        by = of.days(column) if kind == "dates" else column
        return Arrangement("time", by, options.by, test_rows)
    codes = np.unique(column.astype(str) if kind == "text" else column, return_inverse=True)[1]
    return Arrangement("group", codes.astype(np.float64), options.by, test_rows)
