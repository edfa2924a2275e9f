"""A user's own table (`dataset=csv`, or `loader: table`): CSV, TSV or Parquet."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dlmexp.console import counted
from dlmexp.data.fit import counts_rows, fit, is_number, repeated_rows
from dlmexp.data.options import SEPARATORS, TableOptions, separator, setting, table_options
from dlmexp.data.parsers.registry import Parsed, parser
from dlmexp.data.schema import days, kind_of, missing, parse_dates, values_of
from dlmexp.data.spec import TEST, DatasetSpec
from dlmexp.data.splits import Arrangement
from dlmexp.errors import Unreadable, UserError, nearest
from dlmexp.reading.tables import PARQUET, SUFFIXES, first_line, read_table, table_suffix

UNNAMED = ("", "Unnamed: 0", "__index_level_0__")  # what pandas calls an index that was saved with a table
Columns = dict[str, np.ndarray]


@parser("table")
def table(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """Column `options.target` is y, the others are features. The facts say what was read, and what was left out."""
    options = table_options(spec.options)
    path = next(path for name, path in files.items() if name != TEST)
    columns, left_out = _read(path, options, test=False)
    test_rows = 0
    if TEST in files:
        columns, test_rows = _with_test_rows(columns, path, files[TEST], options)
    target, features = _roles(columns, options, path)
    columns = {name: columns[name] for name in dict.fromkeys([target, *features, *filter(None, [options.by])])}
    if options.missing == "drop":
        gone = np.any([missing(column) for column in columns.values()], axis=0)
        if gone.all():
            raise UserError(f"{path.name}: every row has a missing value: leave out a column with csv.drop=[COLUMN]")
        columns = {name: column[~gone] for name, column in columns.items()}
        left_out += [f"{counted(int(gone.sum()), 'row')} with missing values (csv.missing=drop)"] if gone.any() else []
        test_rows -= int(gone[len(gone) - test_rows :].sum())
    schema, warnings = fit(columns, target, features, spec.task, options, path.name)
    X, y = schema.encode(columns, source=path.name), schema.encode_target(columns[target])
    facts: dict[str, Any] = {
        "features": list(schema.features), "schema": msgspec.to_builtins(schema),
        "kinds": {column.name: column.words for column in schema.columns}, "file": path.name, "target": target,
        "classes": [str(label) for label in schema.labels or ()],
        "warnings": warnings + repeated_rows(X, y),
        "left_out": left_out + [f"column '{name}'" for name in options.drop],
    }  # fmt: skip
    if TEST in files:
        facts["test_file"] = files[TEST].name
    if schema.fill and (count := int(np.isnan(X).any(axis=1).sum())):
        facts["filled"] = count
    return Parsed(X, y, facts, _arrangement(columns, options, test_rows))


def _with_test_rows(columns: Columns, path: Path, test: Path, options: TableOptions) -> tuple[Columns, int]:
    """All columns, those of the test rows below the others, and the number of test rows."""
    below, _ = _read(test, options, test=True)
    unused = {*options.drop, *(set(columns) - {*options.columns, options.target} if options.columns else ())}
    columns = {name: column for name, column in columns.items() if name in below or name not in unused}
    for name, column in columns.items():
        if name not in below:
            advice = f"; {setting('drop', name)} leaves it out of {path.name} too"
            needed = name in (options.target, options.by)
            raise UserError(f"csv.test={test}: it has no column '{name}'{'' if needed else advice}")
        if kind_of(column) != kind_of(below[name]):
            kinds = f"{kind_of(column)} in {path.name}, {kind_of(below[name])} in {test.name}"
            raise UserError(f"column '{name}' holds {kinds}")
    joined = {name: np.concatenate([column, below[name]]) for name, column in columns.items()}
    return joined, len(next(iter(below.values())))


def _read(path: Path, options: TableOptions, test: bool) -> tuple[Columns, list[str]]:
    """The columns of a file that are used, and what is left out."""
    found = _checked_table(path, options)
    names = list(map(str, found.column_names))
    for what in ("drop", "columns", "categories"):
        for name in getattr(options, what) if not test else ():
            if name not in names:
                raise UserError(f"csv.{what}: {path.name} has no column '{name}': {nearest(name, names)}")
    columns: Columns = {}
    left_out = []
    for name, arrow in zip(names, found.columns, strict=True):
        left = name in options.drop or (options.columns and name not in options.columns)
        if left and name not in (options.target, options.by):
            continue
        columns[name] = values_of(name, arrow, path.name)
        if name == options.target and str(arrow.type) == "bool":  # labels are words, not numbers
            columns[name] = np.array([None if value is None else str(value) for value in arrow.to_pylist()], object)
        if name in UNNAMED and name not in options.columns:
            if not counts_rows(columns.pop(name)):
                where = f"{path.name}: column {names.index(name) + 1} has no name ('{name}')"
                raise UserError(f"{where}: name it, or leave it out with {setting('drop', name)}")
            left_out.append("a column without a name that numbers the rows (an index of pandas)")
    return columns, left_out


def _checked_table(path: Path, options: TableOptions) -> Any:
    """The table in a file, with names of columns that tell them apart, and rows."""
    suffix = table_suffix(path)
    if suffix is None:
        raise UserError(f"csv.path={path}: '{path.suffix}' is not one of {', '.join(SUFFIXES)}: save the table as such")
    sep = separator(options.sep, suffix)
    header = "" if suffix == PARQUET else first_line(path).decode("utf-8-sig", errors="replace").strip()
    likely = [word for word in ("semicolon", "tab", "comma", "pipe") if SEPARATORS[word] in header]
    other_sep = f"{path.name} has a single column '{header[:60]}': give its separator, csv.sep={[*likely, ''][0]}"
    try:
        found = read_table(path, sep, options.na)
    except Unreadable as error:
        raise UserError(other_sep) if likely and sep not in header else error from None
    names = found.column_names
    if len(names) == 1 and likely and sep not in header:
        raise UserError(other_sep)
    if header and len(names) > 1 and all(map(is_number, names)) and not all(map(str.isdecimal, names)):
        raise UserError(f"{path.name}: its first line holds numbers ({names[0]}, ...): write names of columns above it")
    if twice := sorted(name.strip() or repr(name) for name, times in Counter(names).items() if times > 1):
        raise UserError(f"{path.name}: several columns are called {', '.join(twice[:5])}: rename them")
    if found.num_rows == 0:
        raise UserError(f"{path.name} has columns but no rows")
    return found


def _roles(columns: Columns, options: TableOptions, path: Path) -> tuple[str, list[str]]:
    """The target, and the columns that become features. The one that rows are divided by is none of them unless it is
    named."""
    target = options.target
    if target is None:
        names = ", ".join(list(columns)[:20]) + (f" and {len(columns) - 20} more" if len(columns) > 20 else "")
        raise UserError(f"csv.target is not set: name the column to predict, one of {names}")
    if target not in columns:
        raise UserError(f"csv.target={target}: {path.name} has no such column: {nearest(target, list(columns))}")
    if target in options.columns:
        raise UserError(f"csv.columns: '{target}' is the target, it can't be a feature as well")
    names = options.columns or [name for name in columns if name not in (target, options.by)]
    for name in (*names, *filter(None, [options.by])):
        if name not in columns:
            raise UserError(f"{path.name} has no column '{name}': {nearest(name, list(columns))}")
    return target, names


def _arrangement(columns: Columns, options: TableOptions, test_rows: int) -> Arrangement | None:
    if options.by is None:
        return Arrangement(test=test_rows) if test_rows else None
    column = columns[options.by]
    for format in (None, options.date_format):
        dates = parse_dates(column, format)
        column = column if dates is None else dates
    if options.split == "time":
        if column.dtype == object:
            raise UserError(
                f"csv.by={options.by}: text such as '{column[0]}' is no time: write dates as 2020-12-31, or say how "
                "they are written with csv.date_format"
            )
        return Arrangement("time", days(column) if kind_of(column) == "dates" else column, options.by, test_rows)
    codes = np.unique(column.astype(str) if column.dtype == object else column, return_inverse=True)[1]
    return Arrangement("group", codes.astype(np.float64), options.by, test_rows)
