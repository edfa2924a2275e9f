"""Rows to predict on, from a table in a file or in memory, and predictions as a table: in pieces of bounded memory.

The columns are found by name, in whatever order; text becomes the binary features of training. What can't be predicted
on is refused in a sentence that names row and column.
"""

import os
import sys
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

from dlmexp.atomic import replacing
from dlmexp.console import counted, unchanged
from dlmexp.data.schema import Column, Schema
from dlmexp.data.table_columns import as_text, days, from_arrow, kind_of, missing
from dlmexp.data.table_files import SUFFIXES, separator
from dlmexp.errors import UserError, nearest
from dlmexp.reading.streams import csv_pieces, feather_pieces, parquet_pieces

SHOWN = 8  # names or values in a message
TRUTH = {"true": 1.0, "false": 0.0}


def open_rows(path: Path, schema: Schema) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    """The names of a file's columns, and its rows in pieces, with the columns that the schema names."""
    if not path.is_file():
        raise UserError(f"{path}: there is no such file")
    readable = [one for one in SUFFIXES if one != ".npz"]  # which has no names of columns
    suffix = next((one for one in readable if path.name.lower().endswith(one)), None)
    if suffix is None:
        raise UserError(f"{path}: '{path.suffix}' is not one of {', '.join(readable)}")
    wanted = [column.name for column in schema.columns]
    if suffix in (".parquet", ".feather"):
        names, pieces = (parquet_pieces if suffix == ".parquet" else feather_pieces)(path, wanted)
    else:
        names, pieces = csv_pieces(path, wanted, separator(schema.sep, suffix), schema.na)
    check_columns(names, schema, str(path))
    return names, pieces


def check_columns(names: list[str], schema: Schema, source: str) -> None:
    """UserError for columns that are missing or there twice."""
    wanted = [column.name for column in schema.columns]
    if missing := [name for name in wanted if name not in names]:
        close = nearest(missing[0], names).replace("valid:", "it has") if names else "it has none"
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
        values = _encoded(column, table.column(column.name), first, source, schema.fill)
        found[:, at : at + values.shape[1]] = values
        at += values.shape[1]
    return found


def frame_features(schema: Schema, X: Any) -> Float[np.ndarray, "N D"]:
    """A DataFrame by the names of its columns; anything else as an array with the columns in the order of training."""
    if isinstance(X, pd.DataFrame):
        names = [str(name) for name in X.columns]
        check_columns(names, schema, "X")
        named = {column.name: _from_memory(X.iloc[:, names.index(column.name)]) for column in schema.columns}
        return features(schema, pa.table(named), 1, "X")
    array = np.asarray(X)
    if array.ndim != 2 or array.shape[1] != len(schema.columns):
        more = ", ..." if len(schema.columns) > SHOWN else ""
        raise UserError(
            f"X has shape {array.shape}: give rows with the {counted(len(schema.columns), 'column')} of training "
            f"({', '.join(column.name for column in schema.columns[:SHOWN])}{more}), or a DataFrame with these names"
        )
    named = {column.name: _from_memory(array[:, k].tolist()) for k, column in enumerate(schema.columns)}
    return features(schema, pa.table(named), 1, "X")


def _from_memory(values: Any) -> Any:
    """A column for Arrow. Values that Arrow has no common type for are taken as text, which names the odd one later."""
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError):
        return pa.array([None if pd.isna(value) is True else str(value) for value in values], pa.string())


@contextmanager
def written(out: str) -> Iterator[Callable[[dict[str, np.ndarray]], None]]:
    """A function that appends predictions to the file `out` (CSV, or Parquet by its suffix; `-`: CSV on standard
    output). The file appears under its name when all is written, and not at all after an error."""
    if out == "-":
        with_header = True

        def print_rows(columns: dict[str, np.ndarray]) -> None:
            nonlocal with_header
            stream = sys.stdout if sys.stdout.isatty() else unchanged(sys.stdout)
            pd.DataFrame(columns).to_csv(stream, index=False, header=with_header, lineterminator="\n")
            with_header = False

        yield print_rows
        return
    writers: list[Any] = []

    def append(columns: dict[str, np.ndarray]) -> None:
        table = pa.table(columns)
        if not writers and out.endswith(".parquet"):
            writers.append(parquet.ParquetWriter(str(temporary), table.schema))
        elif not writers:
            file = open(temporary, "wb")  # noqa: SIM115  (closed with the writers)
            file.write((",".join(map(_quoted, columns)) + "\n").encode())  # pyarrow would quote every name
            options = csv.WriteOptions(include_header=False, quoting_style="needed")
            writers.extend([csv.CSVWriter(file, table.schema, write_options=options), file])
        writers[0].write_table(table)

    with replacing(Path(out)) as temporary:
        try:
            yield append
            for writer in writers:
                writer.close()
        except BaseException:
            for writer in writers:
                with suppress(Exception):
                    writer.close()
            raise


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if set(name) & set(',"\r\n') else name


def check_output(out: str) -> None:
    """UserError for a name that no table can be written to."""
    if out == "-":
        return
    path = Path(out)
    if path.suffix not in (".csv", ".parquet"):
        raise UserError(f"--out {out}: '{path.suffix}' is not one of .csv, .parquet (or - for standard output)")
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise UserError(f"--out {out}: can't write there; name a file in a folder that is there")


def _encoded(column: Column, values: Any, first: int, source: str, fill: bool) -> Float[np.ndarray, "N k"]:
    """One column as its features, missing values as NaN."""
    array = _typed(column, pa.chunked_array([values]) if isinstance(values, pa.Array) else values, first, source)
    lacking = missing(array)
    if lacking.any() and not fill:
        row = int(np.argmax(lacking))
        raise UserError(f"{source}: row {first + row}, column '{column.name}': the value is missing; fill it in")
    if column.kind == "date":
        return days(array)[:, None]
    if column.kind == "number":
        if (infinite := np.isinf(array)).any():
            row = int(np.argmax(infinite))
            raise UserError(f"{source}: row {first + row}, column '{column.name}': the value is infinite")
        return array[:, None]
    texts, levels = (pa.array(some, pa.string()) for some in (as_text(array), column.levels))
    codes = pc.index_in(texts, levels)  # pyright: ignore[reportAttributeAccessIssue]
    found = codes.to_numpy(zero_copy_only=False)
    unknown = np.isnan(found) & ~lacking if codes.null_count else np.zeros(len(found), dtype=bool)
    if unknown.any():
        row = int(np.argmax(unknown))
        known = ", ".join(column.levels[:SHOWN]) + (", ..." if len(column.levels) > SHOWN else "")
        raise UserError(
            f"{source}: row {first + row}, column '{column.name}': '{as_text(array)[row]}' is not a value that the "
            f"model was trained on; there were {known}"
        )
    features = (found[:, None] == np.arange(1, len(column.levels))).astype(np.float64)
    features[lacking] = np.nan
    return features


def _typed(column: Column, values: pa.ChunkedArray, first: int, source: str) -> np.ndarray:
    """The values as training reads them: numbers, text (None: missing) or dates."""
    wanted = {"number": "numbers", "date": "dates"}.get(column.kind, column.of)
    found = from_arrow(column.name, values, source)
    if found.dtype == object and wanted != "text":
        return _parsed(column.name, found, wanted, first, source)
    if wanted == "text" and kind_of(found) == "numbers":
        found = as_text(found)
    if kind_of(found) != wanted:
        raise UserError(f"{source}: column '{column.name}' holds {kind_of(found)}; the model was trained on {wanted}")
    return found


def _parsed(name: str, texts: np.ndarray, wanted: str, first: int, source: str) -> np.ndarray:
    """Text as numbers or dates; None stays what is missing. Dates with an offset are taken in UTC, as in training."""
    trimmed = pc.utf8_trim_whitespace(pa.array(texts, pa.string()))  # pyright: ignore[reportAttributeAccessIssue]
    if wanted == "dates":
        return _dates(name, trimmed, first, source)
    try:
        found = trimmed.cast(pa.float64()).to_numpy(zero_copy_only=False)
        if not (np.isnan(found) & ~missing(texts)).any():
            return found
    except pa.ArrowInvalid:
        pass
    numbers = np.full(len(texts), np.nan)
    for row, text in enumerate(trimmed.to_pylist()):
        if text is None:
            continue
        if text.lower() in TRUTH:
            numbers[row] = TRUTH[text.lower()]
            continue
        if not _reads_as(text, pa.float64()):
            raise UserError(f"{source}: row {first + row}, column '{name}': '{text}' is not a number")
        numbers[row] = float(text)
    return numbers


def _dates(name: str, texts: pa.Array, first: int, source: str) -> np.ndarray:
    kinds = (pa.timestamp("us"), pa.timestamp("us", "UTC"))
    for kind in kinds:
        with suppress(pa.ArrowInvalid):
            return texts.cast(kind).to_numpy(zero_copy_only=False).astype("datetime64[us]")
    present = [(row, text) for row, text in enumerate(texts.to_pylist()) if text is not None]
    usual = next((kind for kind in kinds if _reads_as(present[0][1], kind)), kinds[0])
    row, text = next((row, text) for row, text in present if not _reads_as(text, usual))
    like = "2020-12-31" if usual == kinds[0] else "2020-12-31T12:00Z, with an offset as in the first row"
    raise UserError(f"{source}: row {first + row}, column '{name}': '{text}' is not a date such as {like}")


def _reads_as(text: str, kind: pa.DataType) -> bool:
    try:
        pa.scalar(text, pa.string()).cast(kind)
    except pa.ArrowInvalid:
        return False
    return True
