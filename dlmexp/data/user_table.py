"""Loader of a user's own table (`dataset=csv`, or `loader: table` in a YAML file).

It reads every format of `dlmexp.common.reading.tables.SUFFIXES`. `dlmexp.data.table_checks` reports
the problems of a table, with the settings that remedy them.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from jaxtyping import Bool, Float

from dlmexp.common.console import counted
from dlmexp.common.errors import UserError, nearest
from dlmexp.common.limits import converted
from dlmexp.common.literals import csv_setting
from dlmexp.common.reading.tables import read_table, separator
from dlmexp.core.folds import OWN_ROWS
from dlmexp.data.config import CsvConfig, DatasetConfig
from dlmexp.data.dataset import LOADERS, Dataset
from dlmexp.data.in_memory import MEMORY_FOLDER, MEMORY_TABLE
from dlmexp.data.published_splits import user_splits
from dlmexp.data.raw_files import SPLITS, TEST
from dlmexp.data.schema import Schema
from dlmexp.data.splits import Arrangement, folds_of_groups
from dlmexp.data.table_checks import check_table, is_row_numbering
from dlmexp.data.values import (
    Values,
    as_numbers,
    as_text,
    plain_values,
    value_kind,
    without_markers,
)
from dlmexp.data.written import Decimal, parse_written, sure_decimal

OPTIONS_OF_OTHER_MODULES = ("by_task", "checks")
"""Entries of a dataset's `options` that are not settings of the table."""
NAMES_OF_INDEX = ("", "Unnamed: 0", "__index_level_0__")
"""Names that the column of an index has, if pandas has saved it with a table."""
SHOWN_DUPLICATES = 5


@dataclass(frozen=True)
class UsedColumns:
    """The columns and rows of a file that are used.

    Attributes:
        values: The used columns by name, with the used rows only.
        left_out: Descriptions of the rows and columns that are not used.
        is_used: Whether each row of the file is used.
    """

    values: dict[str, np.ndarray]
    left_out: list[str]
    is_used: Bool[np.ndarray, " rows"]


@LOADERS.register("table")
def user_table(spec: DatasetConfig, files: Mapping[str, Path]) -> Dataset:
    """Return the column `options.target` as y and the other columns as features.

    The facts contain the schema, the names of the files, what was left out of them, and warnings.

    Raises:
        UserError: an option is wrong, or the table has problems; all of them are listed.
    """
    options = _table_options(spec.options)
    files = dict(files)
    splits_path = files.pop(SPLITS, None)
    path = _path_of_table(files)
    source = source_of(path)
    whole_table, options = _read_and_find_decimal(path, options)
    table, test_rows = _read_files(whole_table, files, options)
    features = _feature_names(table.values, options)
    schema, values = Schema.fit(table.values, features, spec.task, options)
    warnings = check_table(values, schema, spec.task, options, source)
    sources = [source_of(file) for file in files.values()]
    dropped = [f"column '{name}'" for name in options.drop]
    facts = {
        "schema": schema,
        "file": " and ".join(sources),
        "left_out": table.left_out + dropped,
        "warnings": warnings,
    }
    X = schema.encode(values, source=source)
    y = schema.encode_target(values[schema.target])
    if splits_path is not None:
        arrangement = _arrangement_of_splits(splits_path, table)
    else:
        arrangement = _arrangement_of_settings(values, options, test_rows)
    return Dataset(X, y, facts=facts, arrangement=arrangement)


def _path_of_table(files: Mapping[str, Path]) -> Path:
    """Return the file of the table itself, which stands before the user's further files."""
    return next(iter(files.values()))


def source_of(path: Path) -> str:
    """Return what messages call a table: the name of its file, or of the DataFrame stored in it."""
    match = MEMORY_TABLE.fullmatch(path.name)
    if match and path.parent.name == MEMORY_FOLDER:
        return f"DataFrame '{match[1]}'"
    return path.name


def _read_and_find_decimal(path: Path, options: CsvConfig) -> tuple[pa.Table, CsvConfig]:
    """Return the table of a file, and the options with the decimal mark of its numbers.

    If the user did not give the mark, the numbers may show it. It stays None if no number shows it,
    or if numbers contradict one another.
    """
    table = _read(path, options)
    if options.decimal is not None:
        return table, options
    decimals = _decimals_in_texts(table)
    is_text_file = bool(separator(path, options.sep))
    if is_text_file and decimals == {"comma"}:
        # Arrow has read "1.234" as 1.234. With decimal commas it is 1234: read the file again.
        comma_options = replace(options, decimal="comma")
        with_comma = _read(path, comma_options)
        if _points_are_thousands(table, with_comma):
            return with_comma, comma_options
        # Some points can only be decimal points, which contradict the commas.
        return table, options
    if is_text_file and not decimals and any(map(_has_decimals, table.columns)):
        # Arrow has read numbers with decimals, so their mark is a point.
        decimals = {"point"}
    # With both marks in `decimals`, columns of text contradict one another.
    decimal = decimals.pop() if len(decimals) == 1 else None
    return table, replace(options, decimal=decimal)


def _read(path: Path, options: CsvConfig) -> pa.Table:
    return read_table(
        path,
        sep=options.sep,
        missing=options.na,
        decimal=options.decimal,
        encoding=options.encoding,
    )


def _decimals_in_texts(table: pa.Table) -> set[Decimal]:
    """Return the decimal marks of all columns of text for which the mark is certain."""
    decimals = set[Decimal]()
    for column in table.columns:
        if not _is_text(column):
            continue
        decimal = sure_decimal(_texts(column))
        if decimal is not None:
            decimals.add(decimal)
    return decimals


def _points_are_thousands(with_point: pa.Table, with_comma: pa.Table) -> bool:
    """Return whether all points in numbers can be separators of thousands.

    Args:
        with_point: The table, read with decimal points.
        with_comma: The same table, read with decimal commas.
    """
    for column, comma_column in zip(with_point.columns, with_comma.columns, strict=True):
        # Numbers with points are text for a reader that expects decimal commas.
        has_points = pa.types.is_floating(column.type) and _is_text(comma_column)
        if has_points and parse_written(_texts(comma_column), "comma") is None:
            return False
    return True


def _is_text(column: pa.ChunkedArray) -> bool:
    return pa.types.is_string(column.type) or pa.types.is_large_string(column.type)


def _texts(column: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(column).astype(object)


def _has_decimals(column: pa.ChunkedArray) -> bool:
    """Return whether a column holds a number that is not whole."""
    if not pa.types.is_floating(column.type):
        return False
    numbers = np.asarray(column)
    finite = numbers[np.isfinite(numbers)]
    has_fraction = finite != np.trunc(finite)
    return bool(has_fraction.any())


def _arrangement_of_splits(path: Path, table: UsedColumns) -> Arrangement:
    """Return the user's own splits, without the rows of the table that are not used."""
    is_test = user_splits(path, len(table.is_used))
    return _arrangement_with_test_rows(is_test[:, table.is_used], origin=path.name)


def _arrangement_with_test_rows(
    is_test: Bool[np.ndarray, "K N"], origin: str, groups: Float[np.ndarray, " N"] | None = None
) -> Arrangement:
    """Return a division with known test rows in every split, as published splits have them.

    Args:
        is_test: The test rows of every split.
        origin: What the splits come from, for messages: a file or a setting.
        groups: The number of every row's group, if groups stay together.
    """
    return Arrangement("published", by=groups, column=origin, published=is_test, tag=OWN_ROWS)


def _table_options(options: Mapping[str, Any]) -> CsvConfig:
    """Return the settings `csv.*`, or `options:` of a dataset with `loader: table`.

    Raises:
        UserError: an option does not exist, or its value is not allowed.
    """
    values = {name: value for name, value in options.items() if value is not None}
    for name in OPTIONS_OF_OTHER_MODULES:
        values.pop(name, None)
    valid = list(CsvConfig.__dataclass_fields__)
    unknown = values.keys() - set(valid)
    if unknown:
        name = min(unknown)
        raise UserError(f"a table has no option '{name}': {nearest(name, valid)}")
    table_options = converted("csv", values, CsvConfig)
    _check_split(table_options)
    return table_options


def _check_split(options: CsvConfig) -> None:
    """Raise UserError if settings divide the rows in several ways, or lack one that they need."""
    is_random = options.split == "random"
    if options.splits is not None and (options.test or options.by or not is_random):
        rivals = "csv.test, csv.split and csv.by"
        raise UserError(f"csv.splits={options.splits}: leave out {rivals}, which divide rows, too")
    _check_folds(options)
    _check_sizes(options)
    # csv.by is needed for all divisions but the random one, which must not have it.
    if is_random and options.by is not None:
        raise UserError(f"csv.by={options.by}: add csv.split=time or csv.split=group")
    if not is_random and options.by is None:
        advice = f"add csv.by=COLUMN, the column with the {options.split} of each row"
        raise UserError(f"csv.split={options.split}: {advice}")


def _check_sizes(options: CsvConfig) -> None:
    """Raise UserError if a setting for the size of a part contradicts another setting."""
    if options.test_size is not None and (options.test or options.splits or options.folds):
        typed = f"csv.test_size={options.test_size:g}"
        rivals = "csv.test, csv.splits and csv.folds"
        raise UserError(f"{typed}: leave out {rivals}, which also decide this size")
    if options.validation_size is not None and (options.splits or options.folds):
        typed = f"csv.validation_size={options.validation_size:g}"
        rivals = "csv.splits and csv.folds"
        raise UserError(f"{typed}: leave out {rivals}, which also decide this size")


def _check_folds(options: CsvConfig) -> None:
    """Raise UserError if `csv.folds` is combined with another way to divide rows."""
    if options.folds is None:
        return
    typed = f"csv.folds={options.folds}"
    if options.splits is not None or options.test:
        raise UserError(f"{typed}: leave out csv.splits and csv.test, which divide rows, too")
    if options.split == "time":
        advice = "leave out csv.folds, so that the latest rows are the test rows"
        problem = "folds of earlier rows would be predicted from later ones"
        raise UserError(f"{typed}: {problem}: {advice}")


def _feature_names(values: Values, options: CsvConfig) -> list[str]:
    """Return the columns that are features, in the order of the setting or of the file."""
    candidates = options.columns or values
    excluded = {options.target, options.by, *options.drop}
    return [name for name in candidates if name not in excluded]


def _read_files(
    whole_table: pa.Table, files: Mapping[str, Path], options: CsvConfig
) -> tuple[UsedColumns, int]:
    """Return the used rows of all files, and how many of the last ones are the user's test rows.

    Args:
        whole_table: All columns of the first file.
        files: The file of the table, and maybe the file of test rows, with the key `TEST`.
        options: The settings `csv.*`.
    """
    path = _path_of_table(files)
    table = _read_columns(whole_table, path, options)
    test_path = files.get(TEST)
    if test_path is None:
        return table, 0
    whole_test_table = _read(test_path, options)
    test = _read_columns(whole_test_table, test_path, options, used=table.values)
    values = {}
    for name, column in table.values.items():
        test_column = test.values[name]
        kind = value_kind(column)
        test_kind = value_kind(test_column)
        if kind != test_kind:
            kinds = f"{kind} in {source_of(path)}, {test_kind} in {source_of(test_path)}"
            raise UserError(f"column '{name}' holds {kinds}")
        values[name] = np.concatenate([column, test_column])
    test_rows = _row_count(test.values)
    left_out = table.left_out + test.left_out
    is_used = np.concatenate([table.is_used, test.is_used])
    return UsedColumns(values=values, left_out=left_out, is_used=is_used), test_rows


def _row_count(values: Values) -> int:
    """Return the number of rows, which is the same in all columns."""
    column = next(iter(values.values()))
    return len(column)


def _read_columns(
    table: pa.Table, path: Path, options: CsvConfig, used: Collection[str] = ()
) -> UsedColumns:
    """Return the columns of a file that are used.

    Args:
        table: All columns of the file.
        path: The file, for messages.
        options: The settings `csv.*`.
        used: The columns to use: for a file of test rows, those of the training rows. Empty: the
            columns that the settings select.
    """
    names = table.column_names
    _check_duplicates(names, path)
    if used:
        setting_of_column = dict.fromkeys(used, "csv.test")
        _check_presence(setting_of_column, names, path)
    else:
        _check_presence(_columns_in_settings(options), names, path)
        used = _selected_columns(names, options)
    values = dict[str, np.ndarray]()
    left_out = []
    for number, (name, column) in enumerate(zip(names, table.columns, strict=True), start=1):
        if name not in used:
            continue
        array = _column_values(name, column, options, path)
        if not _may_be_saved_index(name, options):
            values[name] = array
        elif is_row_numbering(array):
            left_out.append("a column without a name that numbers the rows (an index of pandas)")
        else:
            advice = f"name it, or leave it out with {csv_setting('drop', [*options.drop, name])}"
            raise UserError(f"{source_of(path)}: column {number} has no name ('{name}'): {advice}")
    every_row = np.ones(table.num_rows, dtype=bool)
    columns = UsedColumns(values=values, left_out=left_out, is_used=every_row)
    return _without_incomplete_rows(columns, options, path)


def _check_duplicates(names: Sequence[str], path: Path) -> None:
    """Raise UserError if two columns have the same name."""
    counts = Counter(names)
    duplicates = [name for name, count in counts.items() if count > 1]
    if duplicates:
        # A name of blanks alone is shown in quotes.
        visible_names = [name.strip() or repr(name) for name in duplicates]
        listed = ", ".join(sorted(set(visible_names))[:SHOWN_DUPLICATES])
        raise UserError(f"{source_of(path)}: several columns are called {listed}: rename them")


def _columns_in_settings(options: CsvConfig) -> dict[str | None, str]:
    """Return the columns that settings name, each with its setting, such as `csv.drop=age`.

    Without `csv.target`, the result has the column None, which no file has: so the missing setting
    is reported as a column that is not in the file.
    """
    columns_by_option = {
        "target": [options.target],
        "by": [options.by] if options.by else [],
        "columns": options.columns,
        "drop": options.drop,
        "categories": options.categories,
    }
    setting_of_column = {}
    for option, names in columns_by_option.items():
        for name in names:
            setting_of_column[name] = f"csv.{option}={name}"
    return setting_of_column


def _check_presence(setting_of_column: Mapping[Any, str], names: Sequence[str], path: Path) -> None:
    """Raise UserError if a setting names a column that is not among the `names` of a file."""
    for name, typed in setting_of_column.items():
        if name not in names:
            advice = nearest(str(name), list(names))
            raise UserError(f"{typed}: {source_of(path)} has no column '{name}': {advice}")


def _selected_columns(names: Sequence[str], options: CsvConfig) -> set[Any]:
    """Return the features, the target and the column `csv.by`, which may be None."""
    features = options.columns or set(names).difference(options.drop)
    return {*features, options.target, options.by}


def _column_values(
    name: str, column: pa.ChunkedArray, options: CsvConfig, path: Path
) -> np.ndarray:
    """Return a column as an array of numbers, text or dates (see `Values`)."""
    if name == options.target and pa.types.is_boolean(column.type):
        # A target of truth values is binary: its labels are the words True and False, not 1 and 0.
        words = [None if value is None else str(value) for value in column.to_pylist()]
        return np.array(words, dtype=object)
    return without_markers(plain_values(name, column, source_of(path)), options.na)


def _may_be_saved_index(name: str, options: CsvConfig) -> bool:
    """Return whether a column may be an index that pandas has saved.

    It has such a name, and no setting names it.
    """
    named_in_settings = (*options.columns, options.target, options.by)
    return name in NAMES_OF_INDEX and name not in named_in_settings


def _without_incomplete_rows(table: UsedColumns, options: CsvConfig, path: Path) -> UsedColumns:
    """Return the table without rows that have missing values, if `csv.missing=drop`.

    Raises:
        UserError: no row is left.
    """
    n_rows = len(table.is_used)
    if n_rows == 0:
        raise UserError(f"{source_of(path)} has no rows")
    is_complete = np.ones(n_rows, dtype=bool)
    if options.missing == "drop":
        for column in table.values.values():
            is_complete &= ~pd.isna(column)
    if not is_complete.any():
        raise UserError(f"{source_of(path)} has no rows in which all values are there")
    if is_complete.all():
        return table
    dropped = counted(int((~is_complete).sum()), "row")
    left_out = [*table.left_out, f"{dropped} with missing values (csv.missing=drop)"]
    values = {name: column[is_complete] for name, column in table.values.items()}
    return UsedColumns(values=values, left_out=left_out, is_used=is_complete)


def _arrangement_of_folds(values: Values, folds: int, by: str | None) -> Arrangement:
    """Return a division into as many splits as folds: split k has fold k as its test rows.

    Args:
        values: The columns of the table.
        folds: The number of folds, `csv.folds`.
        by: The column of groups that stay together, `csv.by`; None: rows are divided one by one.
    """
    typed = f"csv.folds={folds}"
    if by is None:
        unit = "row"
        group_of_row = np.arange(_row_count(values))  # each row is a group of its own
        groups = None
    else:
        unit = "group"
        group_of_row = _group_numbers(values[by])
        groups = group_of_row.astype(np.float64)
    fold_of_row = folds_of_groups(group_of_row, folds)
    is_test = fold_of_row == np.arange(folds)[:, None]
    if not is_test.any(axis=1).all():
        count = counted(len(np.unique(group_of_row)), unit)
        raise UserError(f"{typed}: there are only {count}")
    return _arrangement_with_test_rows(is_test, origin=typed, groups=groups)


def _group_numbers(column: np.ndarray) -> np.ndarray:
    """Return for every row the number of its group, from 0."""
    texts = as_text(column).astype(str)
    _, numbers = np.unique(texts, return_inverse=True)
    return numbers


def _arrangement_of_settings(values: Values, options: CsvConfig, test_rows: int) -> Arrangement:
    """Return how the settings divide the rows.

    Args:
        values: The columns of the table.
        options: The settings `csv.*`.
        test_rows: How many of the last rows are the user's own test rows.
    """
    if options.folds is not None:
        return _arrangement_of_folds(values, options.folds, options.by)
    arrangement = _arrangement_into_parts(values, options, test_rows)
    return replace(
        arrangement, test_share=options.test_size, validation_share=options.validation_size
    )


def _arrangement_into_parts(values: Values, options: CsvConfig, test_rows: int) -> Arrangement:
    """Return a division into parts at random, by groups or by time (`csv.split`).

    Raises:
        UserError: the rows are to be divided by time, but the column holds text.
    """
    if options.by is None:
        return Arrangement(test=test_rows, tag=OWN_ROWS)
    column = values[options.by]
    if options.split == "group":
        groups = _group_numbers(column).astype(np.float64)
        return Arrangement("group", by=groups, column=options.by, test=test_rows, tag=OWN_ROWS)
    if value_kind(column) == "text":
        advice = "write dates as 2020-12-31, or say how they are written with csv.date_format"
        raise UserError(f"csv.by={options.by}: text such as '{column[0]}' is no time: {advice}")
    times = as_numbers(column)
    return Arrangement("time", by=times, column=options.by, test=test_rows, tag=OWN_ROWS)
