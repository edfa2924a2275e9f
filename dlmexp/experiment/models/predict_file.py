"""Predictions on the rows of a file, read, predicted and written in pieces of bounded memory."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from dlmexp.common.atomic import replacing
from dlmexp.common.console import raw_stream, sanitized
from dlmexp.common.errors import UserError
from dlmexp.common.reading.tables import stream_table
from dlmexp.data.schema import Schema
from dlmexp.experiment.models.predictor import Predictor

STDOUT = "-"


def predict_file(
    predictor: Predictor, path: Path, out: str, level: float
) -> tuple[int, Counter[str]]:
    """Predict on the rows of a file, and write its columns followed by those of the predictions.

    The output appears when all is written, and not at all after an error.

    Args:
        predictor: The model.
        path: The file.
        out: The output, as CSV or by its suffix as Parquet; `-`: CSV on standard output.
        level: The probability of the intervals.

    Returns:
        The number of rows, and by column the number of missing values, which the model fills.
    """
    schema = predictor.schema
    gaps: Counter[str] = Counter()
    n_rows = 0
    with ExitStack() as stack:
        writer = _writer(out, stack)
        for piece in open_rows(path, schema):
            X = schema.encode(piece, n_rows + 1, str(path))
            predictions = predictor.predict(X, level)
            gaps.update(_count_gaps(piece, schema))
            columns = dict(zip(piece.schema.names, piece.columns, strict=True))
            both = sorted(columns.keys() & predictions.keys())
            if both:
                raise UserError(f"{path} has a column '{both[0]}', as predictions have: rename it")
            writer.write(pa.table({**columns, **predictions}))
            n_rows += piece.num_rows
        if not n_rows:
            raise UserError(f"{path} has columns but no rows")
    return n_rows, gaps


def _count_gaps(piece: pa.RecordBatch, schema: Schema) -> dict[str, int]:
    """Return the number of missing values by column of features."""
    gaps = {}
    for column in schema.columns:
        values = piece.column(column.name)
        is_gap = pc.is_null(values, nan_is_null=True)  # pyright: ignore[reportAttributeAccessIssue]
        n_gaps = pc.sum(is_gap).as_py()  # pyright: ignore[reportAttributeAccessIssue]
        gaps[column.name] = n_gaps or 0
    return gaps


class _CsvWriter:
    """Writes tables below one another as CSV."""

    def __init__(self, file: Any, is_terminal: bool = False):
        self._file = file
        self._is_terminal = is_terminal
        self._has_header = False

    def write(self, table: pa.Table) -> None:
        """Write a table; only texts that need quotes have them.

        Raises:
            UserError: a terminal would obey characters in the table.
        """
        frame = table.to_pandas(types_mapper=pd.ArrowDtype)
        text = frame.to_csv(index=False, header=not self._has_header, lineterminator="\n")
        if self._is_terminal and sanitized(text) != text:
            problem = "the table has control characters, which a terminal would obey"
            raise UserError(f"{problem}: write it to a file, --out FILE")
        self._file.write(text)
        self._has_header = True


class _ParquetWriter:
    """Writes tables below one another as Parquet."""

    def __init__(self, path: Path, stack: ExitStack):
        self._path = path
        self._stack = stack
        self._writer: parquet.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        """Write a table; the first one decides on the types."""
        if self._writer is None:
            writer = parquet.ParquetWriter(self._path, table.schema)
            self._writer = self._stack.enter_context(writer)
        self._writer.write_table(table)


def _writer(out: str, stack: ExitStack) -> _CsvWriter | _ParquetWriter:
    """Return a writer to a file, or to standard output; `stack` closes it."""
    if out == STDOUT:
        # A file or a pipe gets the data as they are.
        return _CsvWriter(raw_stream(sys.stdout), is_terminal=sys.stdout.isatty())
    temporary = stack.enter_context(replacing(Path(out)))
    if out.endswith(".parquet"):
        return _ParquetWriter(temporary, stack)
    file = open(temporary, "w", encoding="utf-8", newline="")  # noqa: SIM115 - the stack closes it
    return _CsvWriter(stack.enter_context(file))


def open_rows(path: Path, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Return the rows of a file in pieces, with all of its columns.

    Raises:
        UserError: the file lacks a column of the schema.
    """
    names, pieces = stream_table(path, schema.sep, schema.na)
    schema.check_columns(names, str(path))
    return pieces
