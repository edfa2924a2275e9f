"""Rows to predict on, from a table in a file or in memory, and predictions as a table: in pieces of bounded memory.

The columns are found by name, in whatever order; text becomes the binary features of training. What can't be predicted
on is refused in a sentence that names row and column.
"""

import os
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float
from pyarrow import csv, parquet

from dlmexp.data.schema import Column, Schema
from dlmexp.errors import UserError, nearest

BLOCK_BYTES = 1 << 22  # of a CSV file, read at once
BLOCK_ROWS = 1 << 16  # of a Parquet file
SHOWN = 8  # names or values in a message
NUMERIC = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
TRUTH = {"true": 1.0, "false": 0.0}


def open_rows(path: Path, schema: Schema) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    """The names of a file's columns, and its rows in pieces, with the columns that the schema names."""
    if not path.is_file():
        raise UserError(f"{path}: there is no such file")
    readers = {".csv": _csv, ".parquet": _parquet}
    if path.suffix not in readers:
        raise UserError(f"{path}: '{path.suffix}' is not one of {', '.join(readers)}")
    try:
        names, pieces = readers[path.suffix](path, [column.name for column in schema.columns])
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path} is not a {path.suffix[1:]} file with named columns: {_first_line(error)}") from error
    check_columns(names, schema, str(path))
    return names, pieces


def check_columns(names: list[str], schema: Schema, source: str) -> None:
    """UserError for columns that are missing or there twice."""
    wanted = [column.name for column in schema.columns]
    if missing := [name for name in wanted if name not in names]:
        close = nearest(missing[0], names) if names else "it has none"
        more = f" (and {len(missing) - 1} more: {', '.join(missing[1:SHOWN])})" if len(missing) > 1 else ""
        raise UserError(f"{source} has no column '{missing[0]}'{more}, which the model needs: {close}")
    if twice := sorted({name for name in wanted if names.count(name) > 1}):
        raise UserError(f"{source}: several columns are called {', '.join(twice)}")


def extra_columns(names: list[str], schema: Schema) -> list[str]:
    """Columns that the model does not use; the target, which may be there too, is not counted."""
    known = {schema.target, *(column.name for column in schema.columns)}
    return [name for name in names if name not in known]


def features(schema: Schema, table: pa.RecordBatch | pa.Table, first: int, source: str) -> Float[np.ndarray, "N D"]:
    """The rows of a table as features before normalisation; `first` is the number of its first row, from 1."""
    found = np.empty((table.num_rows, len(schema.features)))
    at = 0
    for column in schema.columns:
        values = _encoded(column, table.column(column.name), first, source)
        found[:, at : at + values.shape[1]] = values
        at += values.shape[1]
    return found


def frame_features(schema: Schema, X: Any) -> Float[np.ndarray, "N D"]:
    """A DataFrame by the names of its columns; anything else as an array with the columns in the order of training."""
    if isinstance(X, pd.DataFrame):
        names = [str(name) for name in X.columns]
        check_columns(names, schema, "X")
        wanted = [names.index(column.name) for column in schema.columns]
        chosen = X.iloc[:, wanted].set_axis([column.name for column in schema.columns], axis=1)
        return features(schema, pa.Table.from_pandas(chosen, preserve_index=False), 1, "X")
    array = np.asarray(X)
    if array.ndim != 2 or array.shape[1] != len(schema.columns):
        raise UserError(
            f"X has shape {array.shape}: give rows with the {len(schema.columns)} columns of training "
            f"({', '.join(column.name for column in schema.columns[:SHOWN])}, ...), or a DataFrame with these names"
        )
    named = {column.name: pa.array(array[:, k].tolist()) for k, column in enumerate(schema.columns)}
    return features(schema, pa.table(named), 1, "X")


@contextmanager
def written(out: str) -> Iterator[Callable[[dict[str, np.ndarray]], None]]:
    """A function that appends predictions to the file `out` (CSV, or Parquet by its suffix; `-`: CSV on standard
    output). The file appears under its name when all is written, and not at all after an error."""
    if out == "-":
        with_header = True

        def print_rows(columns: dict[str, np.ndarray]) -> None:
            nonlocal with_header
            pd.DataFrame(columns).to_csv(sys.stdout, index=False, header=with_header, lineterminator="\n")
            with_header = False

        yield print_rows
        return
    path = Path(out)
    temporary = path.parent / f".{path.name}.{uuid.uuid4().hex}.tmp"
    writers: list[Any] = []

    def append(columns: dict[str, np.ndarray]) -> None:
        table = pa.table(columns)
        if not writers:
            kind = parquet.ParquetWriter if path.suffix == ".parquet" else csv.CSVWriter
            writers.append(kind(str(temporary), table.schema))
        writers[0].write_table(table)

    try:
        yield append
        for writer in writers:
            writer.close()
        os.replace(temporary, path)
    except BaseException:
        for writer in writers:
            with suppress(Exception):
                writer.close()
        temporary.unlink(missing_ok=True)
        raise


def check_output(out: str) -> None:
    """UserError for a name that no table can be written to."""
    if out == "-":
        return
    path = Path(out)
    if path.suffix not in (".csv", ".parquet"):
        raise UserError(f"--out {out}: '{path.suffix}' is not one of .csv, .parquet (or - for standard output)")
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise UserError(f"--out {out}: can't write there; name a file in a folder that is there")


def _csv(path: Path, wanted: list[str]) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    read = csv.ReadOptions(block_size=BLOCK_BYTES)
    parse = csv.ParseOptions(newlines_in_values=True)
    with csv.open_csv(path, read_options=read, parse_options=parse) as header:
        try:
            names = list(header.schema.names)
        except UnicodeDecodeError:
            raise UserError(f"{path} is not text in UTF-8 (perhaps in Latin-1): save it as UTF-8") from None
    # Everything as text: a type that is guessed from the first piece may not fit the next.
    convert = csv.ConvertOptions(
        column_types={name: pa.string() for name in wanted},
        include_columns=[name for name in wanted if name in names],
        strings_can_be_null=True,
    )

    def pieces() -> Iterator[pa.RecordBatch]:
        try:
            with csv.open_csv(path, read_options=read, parse_options=parse, convert_options=convert) as reader:
                yield from reader
        except pa.ArrowInvalid as error:
            raise UserError(f"{path} can't be read: {_first_line(error)}") from error

    return names, pieces()


def _parquet(path: Path, wanted: list[str]) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    file = parquet.ParquetFile(path)
    names = list(file.schema_arrow.names)
    present = [name for name in wanted if name in names]
    return names, file.iter_batches(batch_size=BLOCK_ROWS, columns=present)


def _encoded(column: Column, values: Any, first: int, source: str) -> Float[np.ndarray, "N k"]:
    """One column as its features."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if values.null_count:
        row = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
        raise UserError(f"{source}: row {first + row}, column '{column.name}': the value is missing; fill it in")
    if column.levels is None:
        return _numbers(column.name, values, first, source)[:, None]
    text = values.cast(pa.string())
    codes = pc.index_in(text, pa.array(column.levels, pa.string()))
    if codes.null_count:
        row = int(np.argmax(codes.is_null().to_numpy(zero_copy_only=False)))
        known = ", ".join(column.levels[:SHOWN]) + (", ..." if len(column.levels) > SHOWN else "")
        raise UserError(
            f"{source}: row {first + row}, column '{column.name}': '{text[row]}' is not a value that the model was "
            f"trained on; there were {known}"
        )
    return (codes.to_numpy(zero_copy_only=False)[:, None] == np.arange(1, len(column.levels))).astype(np.float64)


def _numbers(name: str, values: pa.Array, first: int, source: str) -> Float[np.ndarray, " N"]:
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        trimmed = pc.utf8_trim_whitespace(values)
        try:
            numbers = trimmed.cast(pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            numbers = np.array([_number(text) for text in trimmed.to_pylist()])
    elif any(test(kind) for test in NUMERIC):
        numbers = pc.cast(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    else:
        raise UserError(f"{source}: column '{name}' holds {kind}; the model was trained on numbers there")
    finite = np.isfinite(numbers)
    if not finite.all():
        row = int(np.argmin(finite))
        raise UserError(f"{source}: row {first + row}, column '{name}': '{values[row]}' is not a finite number")
    return numbers


def _number(text: str) -> float:
    """NaN for what is no number."""
    if text.lower() in TRUTH:
        return TRUTH[text.lower()]
    try:
        return float(text)
    except ValueError:
        return np.nan


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
