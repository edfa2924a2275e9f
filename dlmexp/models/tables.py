"""Rows to predict on, from a file in pieces of bounded memory, and predictions as a file, written piece by piece."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv, parquet

from dlmexp.atomic import replacing
from dlmexp.console import unchanged
from dlmexp.data.options import separator
from dlmexp.data.schema import Schema
from dlmexp.errors import UserError
from dlmexp.reading.tables import SUFFIXES, stream_table, table_suffix


def open_rows(path: Path, schema: Schema) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    """The names of a file's columns, and its rows in pieces, with the columns that the schema names."""
    if not path.is_file():
        raise UserError(f"{path}: there is no such file")
    if (suffix := table_suffix(path)) is None:
        raise UserError(f"{path}: '{path.suffix}' is not one of {', '.join(SUFFIXES)}")
    wanted = [column.name for column in schema.columns]
    names, pieces = stream_table(path, separator(schema.sep, suffix), schema.na, wanted)
    schema.check_columns(names, str(path))
    return names, pieces


def extra_columns(names: list[str], schema: Schema) -> list[str]:
    """Columns that the model does not use; the target, which may be there too, is not counted."""
    known = {schema.target, *(column.name for column in schema.columns)}
    return [name for name in names if name not in known]


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
