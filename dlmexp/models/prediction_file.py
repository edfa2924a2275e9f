"""Predictions on the rows of a file, as another file: read, predicted and written in pieces of bounded memory."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from time import monotonic

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from dlmexp.atomic import replacing
from dlmexp.console import unchanged
from dlmexp.data.schema import Schema
from dlmexp.errors import UserError
from dlmexp.models.predictor import Predictor
from dlmexp.reading.tables import stream_table


def predict_file(predictor: Predictor, path: Path, out: str, level: float) -> tuple[int, Counter]:
    """Predict on the rows of a file and write its own columns and those of the predictions to `out`:
    CSV, or Parquet by its suffix; `-`: CSV on standard output. The file appears when all is written, and not at all
    after an error. Returns the number of rows, and by column that of missing values which the model fills."""
    gaps = Counter()
    tables = _predicted(predictor, path, level, gaps)
    if out == "-":
        stream = sys.stdout if sys.stdout.isatty() else unchanged(sys.stdout)
        return _write_csv(tables, stream.write), gaps
    with replacing(Path(out)) as temporary:
        if not out.endswith(".parquet"):
            with open(temporary, "w", encoding="utf-8", newline="") as file:
                return _write_csv(tables, file.write), gaps
        first = next(tables)
        with parquet.ParquetWriter(temporary, first.schema) as writer:
            rows = 0
            for table in chain([first], tables):
                writer.write_table(table)
                rows += table.num_rows
        return rows, gaps


def _predicted(predictor: Predictor, path: Path, level: float, gaps: Counter) -> Iterator[pa.Table]:
    """Pieces of the table to write, at least one; how far it is is said on standard error every few seconds."""
    schema, rows, said = predictor.schema, 0, monotonic()
    for piece in open_rows(path, schema):
        X = schema.encode(piece, rows + 1, str(path))
        for column in schema.columns:
            gaps[column.name] += pc.sum(pc.is_null(piece.column(column.name), nan_is_null=True)).as_py() or 0  # pyright: ignore[reportAttributeAccessIssue]
        predictions = predictor.predict(X, level)
        own = dict(zip(piece.schema.names, piece.columns, strict=True))
        if both := sorted(own.keys() & predictions.keys()):
            raise UserError(f"{path} has a column '{both[0]}', as predictions have: rename it")
        yield pa.table({**own, **predictions})
        rows += piece.num_rows
        if monotonic() - said > 10:  # seconds
            said = monotonic()
            print(f"{rows} rows", file=sys.stderr, flush=True)
    if not rows:
        raise UserError(f"{path} has columns but no rows")


def _write_csv(tables: Iterator[pa.Table], write: Callable[[str], object]) -> int:
    """A header and all rows; only what needs quotes has them."""
    rows = 0
    for table in tables:
        frame = table.to_pandas(types_mapper=pd.ArrowDtype)
        write(frame.to_csv(index=False, header=not rows, lineterminator="\n"))
        rows += len(frame)
    return rows


def open_rows(path: Path, schema: Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a file in pieces, with all of its columns."""
    names, pieces = stream_table(path, schema.sep, schema.na)
    schema.check_columns(names, str(path))
    return pieces
