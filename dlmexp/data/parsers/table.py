"""A user's own table (`dataset=csv`, or `loader: table`): CSV, TSV, Parquet, Feather or npz."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dlmexp.console import counted
from dlmexp.data.advice import setting
from dlmexp.data.arrangement import Arrangement
from dlmexp.data.fit import fit
from dlmexp.data.parsers.registry import TEST, Parsed, parser
from dlmexp.data.schema import days, kind_of, missing, parse_dates, values_of
from dlmexp.data.spec import DatasetSpec
from dlmexp.data.table_options import SEPARATORS, TableOptions, separator, table_options
from dlmexp.data.traps import counts_rows, repeated_rows
from dlmexp.errors import Unreadable, UserError, nearest
from dlmexp.reading.arrays import read_npz
from dlmexp.reading.tables import SUFFIXES, first_line, read_table, table_suffix

UNNAMED = ("", "Unnamed: 0", "__index_level_0__")  # what pandas calls an index that was saved with a table
Columns = dict[str, np.ndarray]


@parser("table", version=2, cached=False)
def table(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """Column `options.target` is y, the others are features. The facts say what was read, and what was left out."""
    options = table_options(spec.options)
    path = next(path for name, path in files.items() if name != TEST)
    columns, test_rows, left_out = _combined(path, files.get(TEST), options)
    target = _target_name(options, columns, path)
    features = _feature_names(columns, options, target, path)
    used = [target, *features, *([options.by] if options.by and options.by not in features else [])]
    columns = {name: columns[name] for name in used}
    if options.missing == "drop":
        columns, dropped, test_rows = _without_missing(columns, test_rows, path)
        left_out += [f"{counted(dropped, 'row')} with missing values (csv.missing=drop)"] if dropped else []
    fitted = fit(columns, target, features, spec.task, options, path.name)
    schema = fitted.schema
    X, y = schema.encode_values(fitted.values, source=path.name), schema.encode_target(columns[target])
    warnings = fitted.warnings + repeated_rows(X, y, test_rows > 0)
    facts: dict[str, Any] = {
        "features": list(schema.features), "schema": msgspec.to_builtins(schema),
        "kinds": {column.name: column.words for column in schema.columns}, "file": path.name, "target": target,
        "classes": [str(label) for label in schema.labels or ()], "warnings": warnings,
        "left_out": left_out + [f"column '{name}'" for name in options.drop],
    }  # fmt: skip
    if TEST in files:
        facts["test_file"] = files[TEST].name
    if schema.fill and (count := int(np.isnan(X).any(axis=1).sum())):
        facts["filled"] = count
    return Parsed(X, y, facts, _arrangement(columns, options, test_rows))


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
        kinds = kind_of(column), kind_of(below[name])
        if kinds[0] != kinds[1]:
            raise UserError(f"column '{name}' holds {kinds[0]} in {path.name}, {kinds[1]} in {(test or path).name}")
        joined[name] = np.concatenate([column, below[name]])
    return joined, len(next(iter(below.values()))), left_out


def _read(path: Path, options: TableOptions, test: bool) -> tuple[Columns, list[str]]:
    """The columns of a file that are used, and what is left out."""
    if path.name.lower().endswith(".npz"):
        return _arrays(path, options, test), []
    found = _checked_table(path, options)
    names = found.column_names
    for what in ("drop", "columns", "categories", "dates"):
        for name in getattr(options, what) if not test else ():
            if name not in names:
                raise UserError(f"csv.{what}: {path.name} has no column '{name}': {nearest(name, names)}")
    kept = (options.target, options.by)
    columns: Columns = {}
    left_out = []
    for number, (name, arrow) in enumerate(zip(map(str, names), found.columns, strict=True), start=1):
        if name not in kept and (name in options.drop or (options.columns and name not in options.columns)):
            continue
        columns[name] = values_of(name, arrow, path.name)
        if name == options.target and str(arrow.type) == "bool":  # labels are words, not numbers
            columns[name] = np.array([None if one is None else str(one) for one in arrow.to_pylist()], dtype=object)
        if name in UNNAMED and name not in options.columns:
            if not counts_rows(columns.pop(name)):
                where = f"{path.name}: column {number} has no name ('{name}')"
                raise UserError(f"{where}: name it, or leave it out with {setting('drop', name)}")
            left_out.append("a column without a name that numbers the rows (an index of pandas)")
    return columns, left_out


def _checked_table(path: Path, options: TableOptions) -> Any:
    """The table in a file, with names of columns that tell them apart, and rows."""
    suffix = table_suffix(path)
    if suffix is None:
        raise UserError(
            f"csv.path={path}: '{path.suffix}' is not one of {', '.join(SUFFIXES)}, .npz; save the table as one of "
            "these, or rename it to .csv if it is text already"
        )
    sep = separator(options.sep, suffix)
    try:
        found = read_table(path, sep, options.na)
    except Unreadable:
        _check_separator(path, suffix, sep)
        raise
    names = found.column_names
    if len(names) == 1:
        _check_separator(path, suffix, sep)
    elif all(map(_is_number, names)) and not all(map(str.isdecimal, names)) and suffix not in (".parquet", ".feather"):
        shown = ", ".join(names[:3])
        raise UserError(
            f"{path.name}: its first line holds numbers ({shown}, ...): write the names of columns above it"
        )
    if twice := sorted(name for name, times in Counter(names).items() if times > 1):
        which = ", ".join(f"'{name}'" if not name.strip() else name for name in twice[:5])
        raise UserError(f"{path.name}: several columns are called {which}: rename them")
    if found.num_rows == 0:
        raise UserError(f"{path.name} has columns but no rows")
    return found


def _check_separator(path: Path, suffix: str, sep: str) -> None:
    """UserError if the first line has another separator and not the one that it was read with."""
    if suffix in (".parquet", ".feather"):
        return
    header = first_line(path).decode("utf-8-sig", errors="replace").strip()
    likely = [word for word in ("semicolon", "tab", "comma", "pipe") if SEPARATORS[word] in header]
    if sep not in header and likely:
        raise UserError(f"{path.name} has a single column '{header[:60]}': give its separator, csv.sep={likely[0]}")


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


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
        if name in options.drop:
            continue
        if array.ndim not in (1, 2):
            raise UserError(f"array '{name}' has {array.ndim} dimensions: features are 1-D or 2-D")
        if array.dtype.kind not in "biufUOM":
            raise UserError(f"array '{name}' has type {array.dtype}: only numbers, text and dates can be used")
        kind = np.float64 if array.dtype.kind in "biuf" else object if array.dtype.kind == "U" else array.dtype
        width = array.shape[1] if array.ndim == 2 else 1
        matrix = array.astype(kind).reshape(len(array), width)
        columns |= {f"{name}[{k}]" if width > 1 else name: matrix[:, k] for k in range(width)}
    if len({len(column) for column in columns.values()}) > 1:
        lengths = ", ".join(f"{name} {len(array)}" for name, array in found.items())
        advice = "'csv.arrays={X: NAME, y: NAME}' chooses"
        raise UserError(f"{path.name}: arrays of different lengths ({lengths}): {advice}")
    return columns


def _target_name(options: TableOptions, columns: Columns, path: Path) -> str:
    target = options.target or ("y" if options.arrays else None)
    if target is None:
        names = ", ".join(list(columns)[:20]) + (f" and {len(columns) - 20} more" if len(columns) > 20 else "")
        raise UserError(f"csv.target is not set: name the column to predict, one of {names}")
    if target not in columns:
        if any(name.startswith(f"{target}[") for name in columns):
            raise UserError(f"csv.target={target} has several columns: a target is one column")
        raise UserError(f"csv.target={target}: {path.name} has no such column: {nearest(target, list(columns))}")
    return target


def _feature_names(columns: Columns, options: TableOptions, target: str, path: Path) -> list[str]:
    """The columns that become features. The one that rows are divided by is none of them unless it is named."""
    names = options.columns or [name for name in columns if name not in (target, options.by)]
    if target in names:
        raise UserError(f"csv.columns: '{target}' is the target, it can't be a feature as well")
    for name in (*names, *([options.by] if options.by else [])):
        if name not in columns:
            raise UserError(f"{path.name} has no column '{name}': {nearest(name, list(columns))}")
    return names


def _without_missing(columns: Columns, test_rows: int, path: Path) -> tuple[Columns, int, int]:
    """The columns without the rows that lack a value; how many those are; how many test rows remain."""
    gone = np.any([missing(column) for column in columns.values()], axis=0)
    if gone.all():
        raise UserError(f"{path.name}: every row has a missing value: csv.drop=[COLUMN] leaves out a column instead")
    left = int((~gone[len(gone) - test_rows :]).sum()) if test_rows else 0
    return {name: column[~gone] for name, column in columns.items()}, int(gone.sum()), left


def _arrangement(columns: Columns, options: TableOptions, test_rows: int) -> Arrangement | None:
    if options.by is None:
        return Arrangement(test=test_rows) if test_rows else None
    column = columns[options.by]
    if options.date_format and (dates := parse_dates(column, options.date_format)) is not None:
        column = dates
    kind = kind_of(column)
    if options.split == "time":
        if kind == "text":
            raise UserError(
                f"csv.by={options.by}: text such as '{column[0]}' is no time: write dates as 2020-12-31, or say how "
                "they are written with csv.date_format"
            )
        return Arrangement("time", days(column) if kind == "dates" else column, options.by, test_rows)
    codes = np.unique(column.astype(str) if kind == "text" else column, return_inverse=True)[1]
    return Arrangement("group", codes.astype(np.float64), options.by, test_rows)
