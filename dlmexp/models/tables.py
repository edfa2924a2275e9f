"""Predictions on the rows of a file, as another file: read, predicted and written in pieces of bounded memory."""

import io
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from dlmexp.atomic import replacing
from dlmexp.console import counted, unchanged
from dlmexp.data.options import separator
from dlmexp.data.schema import MISSING_LEVEL, Schema
from dlmexp.errors import UserError
from dlmexp.models.predictor import Predictor
from dlmexp.reading.tables import SUFFIXES, stream_table, table_suffix


def predicted_tables(predictor: Predictor, path: Path, level: float, only: bool, gaps: Counter) -> Iterator[pa.Table]:
    """The rows of a file in pieces: its own columns, unless `only`, and those of the predictions. Missing values that
    the model fills are counted in `gaps`, by column."""
    schema, rows = predictor.schema, 0
    for piece in open_rows(path, schema, only):
        X = schema.encode(piece, rows + 1, str(path))
        for column in schema.columns:
            gaps[column.name] += pc.sum(pc.is_null(piece.column(column.name), nan_is_null=True)).as_py() or 0  # pyright: ignore[reportAttributeAccessIssue]
        predictions = predictor.predict(X, level)
        own = {} if only else dict(zip(piece.schema.names, piece.columns, strict=True))
        if both := sorted(own.keys() & predictions.keys()):
            raise UserError(f"{path} has a column '{both[0]}', as predictions have: rename it, or add --only")
        yield pa.table({**own, **predictions})
        rows += piece.num_rows
    if not rows:
        raise UserError(f"{path} has columns but no rows")


def open_rows(path: Path, schema: Schema, only: bool = False) -> Iterator[pa.RecordBatch]:
    """The rows of a file in pieces, with all of its columns or `only` those that the schema names."""
    if not path.is_file():
        raise UserError(f"{path}: there is no such file")
    if (suffix := table_suffix(path)) is None:
        raise UserError(f"{path}: '{path.suffix}' is not one of {', '.join(SUFFIXES)}")
    wanted = [column.name for column in schema.columns] if only else None
    names, pieces = stream_table(path, separator(schema.sep, suffix), schema.na, wanted)
    schema.check_columns(names, str(path))
    return pieces


def describe_gaps(gaps: Counter, schema: Schema) -> list[str]:
    """Sentences that say how many missing values a model filled, and with what."""
    levels = {column.name for column in schema.columns if MISSING_LEVEL in column.levels}
    ways = {"filled with the mean of the training rows": set(gaps) - levels, "taken as a level of their own": levels}
    found = {how: {name: gaps[name] for name in gaps if gaps[name] and name in some} for how, some in ways.items()}
    return [
        f"{counted(sum(counts.values()), 'missing value')} {how}: "
        + ", ".join(f"{name} {count}" for name, count in counts.items())
        for how, counts in found.items()
        if counts
    ]


@contextmanager
def table_file(out: str) -> Iterator[Callable[[pa.Table], object]]:
    """A function that appends rows to the file `out` (CSV, or Parquet by its suffix; `-`: CSV on standard output). The
    file appears under its name when all is written, and not at all after an error."""
    if out == "-":
        stream = sys.stdout if sys.stdout.isatty() else unchanged(sys.stdout)
        yield _csv_rows(lambda content: stream.write(content.decode()))
        return
    with replacing(Path(out)) as temporary, open(temporary, "wb") as file:
        if not out.endswith(".parquet"):
            yield _csv_rows(file.write)
            return
        writers: list[parquet.ParquetWriter] = []

        def append(table: pa.Table) -> None:
            if not writers:
                writers.append(parquet.ParquetWriter(file, table.schema))
            writers[0].write_table(table)

        yield append
        for writer in writers:
            writer.close()


def _csv_rows(write: Callable[[bytes], object]) -> Callable[[pa.Table], None]:
    """A function that writes rows, before the first ones a header. Only names that need quotes have them, where pyarrow
    would quote all."""
    first = True

    def append(table: pa.Table) -> None:
        nonlocal first
        if first:
            names = (
                f'"{n.replace(chr(34), 2 * chr(34))}"' if set(n) & set(',"\r\n') else n for n in table.schema.names
            )
            write((",".join(names) + "\n").encode())
        first, buffer = False, io.BytesIO()
        csv.write_csv(table, buffer, csv.WriteOptions(include_header=False, quoting_style="needed"))
        write(buffer.getvalue())

    return append


def check_output(out: str) -> None:
    """UserError for a name that no table can be written to."""
    path = Path(out)
    if out != "-" and path.suffix not in (".csv", ".parquet"):
        raise UserError(f"--out {out}: '{path.suffix}' is not one of .csv, .parquet (or - for standard output)")
    if out != "-" and (path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK)):
        raise UserError(f"--out {out}: can't write there; name a file in a folder that is there")
