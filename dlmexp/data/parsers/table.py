"""A user's own table (`dataset=csv`): CSV with a header, Parquet, or npz."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from dlmexp.data.archives import read_npz
from dlmexp.data.parsers.registry import Parsed, parser
from dlmexp.data.schema import Column, Label, Schema, labels_of
from dlmexp.data.spec import DatasetSpec
from dlmexp.errors import UserError, nearest

if TYPE_CHECKING:
    import pyarrow as pa

MAX_CATEGORIES = 100
"""A text column with more distinct values is assumed to hold names or identifiers, not categories."""


@parser("table", version=2)
def table(spec: DatasetSpec, files: Mapping[str, Path]) -> Parsed:
    """Column `options.target` is y, the others are features. A text column with K distinct values becomes K - 1 binary
    columns, all 0 for the value that is first in alphabetical order."""
    ((_, path),) = files.items()
    columns = _columns(path)
    target = spec.options.get("target")
    if target is None:
        raise UserError(f"csv.target is not set: name the column to predict, one of {', '.join(columns)}")
    if target not in columns:
        raise UserError(f"csv.target={target}: {path.name} has no such column: {nearest(str(target), list(columns))}")
    y, labels = _target(columns.pop(target), target, spec.task)
    described: list[Column] = []
    arrays: list[np.ndarray] = []
    for name, column in columns.items():
        added, array = _features(name, column)
        described += added
        arrays.append(array)
    schema = Schema(str(target), tuple(described), labels)
    if not schema.features:
        raise UserError(f"{path.name} has no feature besides the target '{target}'")
    if any(len(array) != len(y) for array in arrays):
        raise UserError(f"{path.name}: arrays of different lengths: {[len(array) for array in arrays]} and {len(y)}")
    facts = {"features": list(schema.features), "schema": msgspec.to_builtins(schema)}
    return Parsed(np.concatenate(arrays, axis=1), y, facts)


def _columns(path: Path) -> dict[str, np.ndarray]:
    """Columns by name, without missing values: float64 for numbers and booleans, object arrays of str for text."""
    readers = {".csv": _csv, ".parquet": _parquet}
    if path.suffix == ".npz":
        return read_npz(path)
    if path.suffix not in readers:
        raise UserError(f"csv.path={path}: '{path.suffix}' is not one of .csv, .parquet, .npz")
    arrow = readers[path.suffix](path)
    if duplicates := {name for name in arrow.column_names if arrow.column_names.count(name) > 1}:
        raise UserError(f"{path.name}: several columns are called {', '.join(sorted(duplicates))}")
    if arrow.num_rows == 0:
        raise UserError(f"{path.name} has columns but no rows")
    return {name: _values(name, arrow.column(name), path) for name in arrow.column_names}


def _csv(path: Path) -> "pa.Table":
    import pyarrow as pa
    from pyarrow import csv

    try:
        found = csv.read_csv(
            path,
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(strings_can_be_null=True),
        )
    except pa.ArrowInvalid as error:
        raise UserError(f"{path} is not a CSV file with a header: {error}") from error
    if not _is_utf8(found):
        raise UserError(f"{path} is not text in UTF-8 (perhaps in Latin-1): save it as UTF-8")
    return found


def _is_utf8(table: "pa.Table") -> bool:
    """pyarrow accepts column names in any encoding, and returns a column of text that is not UTF-8 as bytes."""
    import pyarrow as pa

    try:
        "".join(table.column_names)
    except UnicodeDecodeError:
        return False
    return not any(map(pa.types.is_binary, table.schema.types))


def _parquet(path: Path) -> "pa.Table":
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return parquet.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path} is not a Parquet file: {error}") from error


def _values(name: str, column: "pa.ChunkedArray", path: Path) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy())) + 1
        raise UserError(f"{path.name}: a value is missing in row {row}, column '{name}'; fill it in or drop the row")
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if (
        pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
    ):
        # A safe cast refuses integers beyond 2^53; rounding them is fine for features and targets.
        return pc.cast(column, pa.float64(), safe=False).to_numpy()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.to_numpy().astype(object)
    raise UserError(f"{path.name}: column '{name}' holds {kind}; only numbers, booleans and text can be used")


def _features(name: str, column: np.ndarray) -> tuple[list[Column], np.ndarray]:
    """The features (float64 [rows, k]) from one column, or from a 2-D array of an npz file, and what they are."""
    if column.ndim not in (1, 2):
        raise UserError(f"array '{name}' has {column.ndim} dimensions: features are 1-D or 2-D")
    if column.ndim == 2:
        return [Column(f"{name}[{k}]") for k in range(column.shape[1])], _as_float(name, column)
    if column.dtype.kind not in "OUS":
        return [Column(name)], _as_float(name, column)[:, None]
    levels = np.unique(column.astype(str))
    if len(levels) > MAX_CATEGORIES:
        raise UserError(
            f"column '{name}' is text with {len(levels)} distinct values (e.g. '{levels[0]}'), more than "
            f"{MAX_CATEGORIES}: drop it or turn it into numbers"
        )
    described = Column(name, tuple(levels.tolist()))
    return [described], (column.astype(str)[:, None] == levels[1:]).astype(np.float64)


def _target(column: np.ndarray, name: str, task: str) -> tuple[np.ndarray, tuple[Label, Label] | None]:
    """The targets as numbers; of a binary one also its two labels."""
    column = column.ravel() if column.ndim and column.size == len(column) else column
    if column.ndim != 1:
        raise UserError(f"csv.target={name} has shape {column.shape}: a target is one column")
    text = column.dtype.kind in "OUS"
    if not text:
        column = _as_float(name, column)
    if task == "binary":
        classes, codes = np.unique(column.astype(str) if column.dtype.kind == "O" else column, return_inverse=True)
        if len(classes) != 2:
            shown = ", ".join(str(value) for value in classes[:5])
            raise UserError(f"csv.target={name}: a binary target has two values, this one has {len(classes)} ({shown})")
        return codes.astype(np.float64), labels_of(classes)
    if text:
        raise UserError(f"csv.target={name} is text (e.g. '{column[0]}'): a {task} target is a number")
    return column, None


def _as_float(name: str, column: np.ndarray) -> np.ndarray:
    if column.dtype.kind not in "biuf":
        raise UserError(f"array '{name}' has type {column.dtype}: only numbers can be used")
    values = column.astype(np.float64)
    if not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values.reshape(len(values), -1)).all(axis=1))) + 1
        raise UserError(f"a value is missing or infinite in row {row}, column '{name}'; fill it in or drop the row")
    return values
