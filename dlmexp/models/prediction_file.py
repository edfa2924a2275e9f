"""Predictions on the rows of a file, as another file: read, predicted and written in pieces of bounded memory."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from dlmexp.atomic import replacing
from dlmexp.console import counted, unchanged
from dlmexp.data.schema import MISSING_LEVEL, Schema
from dlmexp.errors import UserError
from dlmexp.models.predictor import Predictor
from dlmexp.reading.tables import stream_table


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
    wanted = [column.name for column in schema.columns] if only else None
    names, pieces = stream_table(path, schema.sep, schema.na, wanted)
    schema.check_columns(names, str(path))
    return pieces


def describe_gaps(gaps: Counter, schema: Schema) -> list[str]:
    """Sentences that say how many missing values a model filled, and with what."""
    levels = {column.name for column in schema.columns if MISSING_LEVEL in column.levels}
    ways = {"filled with the mean of the training rows": set(gaps) - levels, "taken as a level of their own": levels}
    filled = {how: {name: gaps[name] for name in gaps if gaps[name] and name in some} for how, some in ways.items()}
    return [
        f"{counted(sum(counts.values()), 'missing value')} {how}: "
        + ", ".join(f"{name} {count}" for name, count in counts.items())
        for how, counts in filled.items()
        if counts
    ]


@contextmanager
def table_file(out: str) -> Iterator[Callable[[pa.Table], object]]:
    """A function that appends rows to the file `out` (CSV, or Parquet by its suffix; `-`: CSV on standard output). The
    file appears under its name when all is written, and not at all after an error."""
    if out == "-":
        stream = sys.stdout if sys.stdout.isatty() else unchanged(sys.stdout)
        yield _csv_rows(stream.write)
        return
    with replacing(Path(out)) as temporary:
        if not out.endswith(".parquet"):
            with open(temporary, "w", encoding="utf-8", newline="") as file:
                yield _csv_rows(file.write)
            return
        with open(temporary, "wb") as file, ExitStack() as writers:
            append: list[Callable[[pa.Table], object]] = []

            def write(table: pa.Table) -> None:
                if not append:
                    append.append(writers.enter_context(parquet.ParquetWriter(file, table.schema)).write_table)
                append[0](table)

            yield write


def _csv_rows(write: Callable[[str], object]) -> Callable[[pa.Table], None]:
    """A function that writes rows, before the first ones a header; only what needs quotes has them."""
    header = True

    def append(table: pa.Table) -> None:
        nonlocal header
        frame = table.to_pandas(types_mapper=pd.ArrowDtype)
        write(frame.to_csv(index=False, header=header, lineterminator="\n"))
        header = False

    return append


def check_output(out: str) -> None:
    """UserError for a name that no table can be written to."""
    path = Path(out)
    if out != "-" and path.suffix not in (".csv", ".parquet"):
        raise UserError(f"--out {out}: '{path.suffix}' is not one of .csv, .parquet (or - for standard output)")
    if out != "-" and (path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK)):
        raise UserError(f"--out {out}: can't write there; name a file in a folder that is there")
