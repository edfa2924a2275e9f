"""Predictions on the rows of a file, read, predicted and written in pieces of bounded memory."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float
from pyarrow import parquet

from dlmexp.common.atomic import replacing
from dlmexp.common.console import raw_stream, sanitized
from dlmexp.common.errors import UserError
from dlmexp.common.reading.tables import stream_table
from dlmexp.data.schema import OTHER_LEVEL, Schema, Unseen
from dlmexp.experiment.models.predictor import Columns, Outputs, Predictor

STDOUT = "-"
REASON = "reason"
"""The column that says why a row has no prediction; it is there only if one has none."""


@dataclass(frozen=True)
class RowOptions:
    """How rows are treated that have gaps, or levels of a category that training did not have.

    Attributes:
        unseen: `error`: a row with an unseen level has no prediction; `base`: it has one from its
            other columns.
        fill: Whether rows with gaps have predictions, even if there were no gaps in training.
    """

    unseen: Unseen = "error"
    fill: bool = False


@dataclass
class PredictionCounts:
    """How many rows of a file have predictions, and how many values were special.

    Attributes:
        rows: The number of rows.
        unpredicted: The number of rows without a prediction.
        first_problem: The number of the first of these rows, and why it has no prediction.
        gaps: By column, the number of missing values that were filled.
        unseen: By column, the number of values that training did not have.
    """

    rows: int = 0
    unpredicted: int = 0
    first_problem: str = ""
    gaps: Counter[str] = field(default_factory=Counter)
    unseen: Counter[str] = field(default_factory=Counter)


def predict_file(
    predictor: Predictor,
    path: Path,
    out: str,
    outputs: Outputs | None = None,
    reading: RowOptions | None = None,
) -> PredictionCounts:
    """Predict on the rows of a file, and write its columns followed by those of the predictions.

    A row without a prediction has empty cells, and a last column `reason` says why. The output
    appears when it is complete, and not at all after an error.

    Args:
        predictor: The model.
        path: The file.
        out: The output: a CSV file, or a Parquet file if it ends in .parquet; `-`: CSV on standard
            output.
        outputs: The columns of predictions.
        reading: How rows with gaps and unseen levels are treated.

    Raises:
        UserError: no row can have a prediction.
    """
    schema = predictor.schema
    reading = reading or RowOptions()
    outputs = outputs or Outputs()
    predictor.check(outputs)
    predicted = _survey(path, schema, reading)
    random = np.random.default_rng(0)
    with ExitStack() as stack:
        writer = _writer(out, stack)
        for piece in open_rows(path, schema):
            encoded = schema.encode_rows(piece, str(path), reading.unseen, reading.fill)
            without = list(encoded.problems)
            X = encoded.X.copy()
            X[without] = 0.0  # any numbers will do: their predictions are not written
            predictions = predictor.predict(X, outputs=outputs, random=random)
            added = _with_empty_cells(predictions, without)
            if predicted.unpredicted:
                reasons = map(encoded.problems.get, range(len(X)))
                added[REASON] = pa.array(list(reasons), pa.string())
            writer.write(_joined(piece, added, path))
    return predicted


def _joined(piece: pa.RecordBatch, added: dict[str, Any], path: Path) -> pa.Table:
    """Return the columns of a piece of a file, followed by those of its predictions.

    Raises:
        UserError: the file has a column of the same name as one of the predictions.
    """
    columns = dict(zip(piece.schema.names, piece.columns, strict=True))
    both = sorted(columns.keys() & added.keys())
    if both:
        raise UserError(f"{path} has a column '{both[0]}', as predictions have: rename it")
    return pa.table(columns | added)


def _survey(path: Path, schema: Schema, reading: RowOptions) -> PredictionCounts:
    """Return the counts of `PredictionCounts`, from a first reading of the file without predictions.

    They are needed before the first row is written: there is a column of reasons only if some row
    has no prediction.

    Raises:
        UserError: there are no rows, or no row can have a prediction.
    """
    predicted = PredictionCounts()
    for piece in open_rows(path, schema):
        encoded = schema.encode_rows(piece, str(path), reading.unseen, reading.fill)
        if encoded.problems and not predicted.unpredicted:
            row = min(encoded.problems)
            number = predicted.rows + row + 1
            predicted.first_problem = f"row {number}, {encoded.problems[row]}"
        if schema.fill or reading.fill:
            predicted.gaps.update(_count_gaps(piece, schema))
        if reading.unseen == "base":
            predicted.unseen.update(_count_unseen(encoded.X, schema))
        predicted.rows += piece.num_rows
        predicted.unpredicted += len(encoded.problems)
    if not predicted.rows:
        raise UserError(f"{path} has columns but no rows")
    if predicted.unpredicted == predicted.rows:
        raise UserError(f"{path}: no row can be predicted on; {predicted.first_problem}")
    return predicted


def _with_empty_cells(predictions: Columns, rows: Sequence[int]) -> dict[str, Any]:
    """Return columns of predictions whose cells in these rows are empty."""
    if not rows:
        return dict(predictions)
    columns = {}
    for name, values in predictions.items():
        is_empty = np.zeros(len(values), dtype=bool)
        is_empty[list(rows)] = True
        columns[name] = pa.array(values, mask=is_empty)
    return columns


def _count_unseen(X: Float[np.ndarray, "N D"], schema: Schema) -> dict[str, int]:
    """Return the number of rows with an unknown or missing level, by category."""
    counts = {}
    for position, name in enumerate(schema.features):
        column, _, level = name.rpartition("=")
        if level == OTHER_LEVEL:
            counts[column] = int(X[:, position].sum())
    return counts


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
    """Appends tables to a CSV file."""

    def __init__(self, file: Any, is_terminal: bool = False):
        self._file = file
        self._is_terminal = is_terminal
        self._has_header = False

    def write(self, table: pa.Table) -> None:
        """Append a table; only texts that need quotes have them.

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
    """Appends tables to a Parquet file."""

    def __init__(self, path: Path, stack: ExitStack):
        self._path = path
        self._stack = stack
        self._writer: parquet.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        """Append a table; the types of all columns are those of the first table."""
        if self._writer is None:
            writer = parquet.ParquetWriter(self._path, table.schema)
            self._writer = self._stack.enter_context(writer)
        self._writer.write_table(table)


def _writer(out: str, stack: ExitStack) -> _CsvWriter | _ParquetWriter:
    """Return a writer to a file, or to standard output; `stack` closes it."""
    if out == STDOUT:
        # Without the sanitizing of other output: a file or a pipe gets the data unchanged, and the
        # writer checks what goes to a terminal.
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
    names, pieces = stream_table(path, schema.sep, schema.na, schema.encoding)
    schema.check_columns(names, str(path))
    return pieces
