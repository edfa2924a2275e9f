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
"""The column that says why a row has no prediction; written only if there is such a row."""


@dataclass(frozen=True)
class RowOptions:
    """How rows are treated that have gaps, or levels of a category that training did not have.

    Attributes:
        unseen: `error`: a row with an unseen level has no prediction; `base`: the row is predicted
            from its other columns.
        fill: Whether rows with gaps have predictions even if there were no gaps in training.
    """

    unseen: Unseen = "error"
    fill: bool = False


@dataclass
class PredictionCounts:
    """How many rows of a file have predictions, and how many values were special.

    Attributes:
        rows: The number of rows.
        unpredicted: The number of rows without a prediction.
        first_problem: The number of the first row without a prediction, and the reason.
        gaps: By column, the number of missing values that were filled.
        unseen: By column, the number of levels of a category that training did not have.
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
    row_options: RowOptions | None = None,
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
        row_options: How rows with gaps and unseen levels are treated.

    Raises:
        UserError: no row can have a prediction.
    """
    schema = predictor.schema
    row_options = row_options or RowOptions()
    outputs = outputs or Outputs()
    predictor.check(outputs)
    counts = _counts(path, schema, row_options)
    random = np.random.default_rng(0)
    with ExitStack() as stack:
        writer = _writer(out, stack)
        for piece in open_rows(path, schema):
            encoded = schema.encode_rows(piece, str(path), row_options.unseen, row_options.fill)
            unpredicted = list(encoded.problems)
            X = encoded.X.copy()
            X[unpredicted] = 0.0  # any number will do: these predictions are not written
            predictions = predictor.predict(X, outputs=outputs, random=random)
            new_columns = _with_empty_cells(predictions, unpredicted)
            # All pieces have the same columns: this one has reasons if any piece has.
            if counts.unpredicted:
                reasons = map(encoded.problems.get, range(len(X)))  # None for a predicted row
                new_columns[REASON] = pa.array(list(reasons), pa.string())
            writer.write(_joined(piece, new_columns, path))
    return counts


def _joined(piece: pa.RecordBatch, new_columns: dict[str, Any], path: Path) -> pa.Table:
    """Return the columns of a piece of a file, followed by those of its predictions.

    Raises:
        UserError: the file and the predictions have columns of the same name.
    """
    columns = dict(zip(piece.schema.names, piece.columns, strict=True))
    shared_names = sorted(columns.keys() & new_columns.keys())
    if shared_names:
        raise UserError(f"{path} has a column '{shared_names[0]}', as predictions have: rename it")
    return pa.table(columns | new_columns)


def _counts(path: Path, schema: Schema, row_options: RowOptions) -> PredictionCounts:
    """Return the counts of a file, which is read once for them before anything is predicted.

    They are needed before the first row is written, since there is a column of reasons only if some
    row has no prediction.

    Raises:
        UserError: there are no rows, or no row can have a prediction.
    """
    counts = PredictionCounts()
    for piece in open_rows(path, schema):
        encoded = schema.encode_rows(piece, str(path), row_options.unseen, row_options.fill)
        if encoded.problems and not counts.unpredicted:
            position = min(encoded.problems)  # in this piece
            number = counts.rows + position + 1  # in the file; people count from 1
            counts.first_problem = f"row {number}, {encoded.problems[position]}"
        if schema.fill or row_options.fill:
            counts.gaps.update(_count_gaps(piece, schema))
        if row_options.unseen == "base":
            counts.unseen.update(_count_unseen(encoded.X, schema))
        counts.rows += piece.num_rows
        counts.unpredicted += len(encoded.problems)
    if not counts.rows:
        raise UserError(f"{path} has columns but no rows")
    if counts.unpredicted == counts.rows:
        raise UserError(f"{path}: no row can be predicted on; {counts.first_problem}")
    return counts


def _with_empty_cells(predictions: Columns, rows: Sequence[int]) -> dict[str, Any]:
    """Return columns of predictions whose cells in these rows are empty."""
    if not rows:
        return dict(predictions)
    # A mask makes cells empty for all types of columns, also for integers, which have no NaN.
    columns = {}
    for name, values in predictions.items():
        is_empty = np.zeros(len(values), dtype=bool)
        is_empty[list(rows)] = True
        columns[name] = pa.array(values, mask=is_empty)
    return columns


def _count_unseen(X: Float[np.ndarray, "N D"], schema: Schema) -> dict[str, int]:
    """Return the number of rows with an unknown or missing level, by category.

    A category has a feature of this name only if it is encoded by indicators of its levels.
    """
    counts = {}
    for position, name in enumerate(schema.features):
        column, _, level = name.rpartition("=")
        if level == OTHER_LEVEL:
            counts[column] = int(X[:, position].sum())
    return counts


def _count_gaps(piece: pa.RecordBatch, schema: Schema) -> dict[str, int]:
    """Return the number of missing values, by column of the schema."""
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
        """Append a table; texts are in quotes only where CSV requires it.

        Raises:
            UserError: the output is a terminal, and the table has control characters.
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
        # This stream does not sanitize text, as other output does: a file or a pipe gets the data
        # unchanged, and the writer checks what goes to a terminal.
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
