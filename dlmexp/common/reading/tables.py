"""Tables: CSV and Parquet files through pyarrow, whole or in pieces, with limits on columns and
bytes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyarrow import csv, parquet

from dlmexp.common.errors import Unreadable, UserError
from dlmexp.common.reading.files import GIB, MIB, check_plain, open_raw, reading

SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")
SEPARATORS = {"comma": ",", "tab": "\t", "\\t": "\t", "semicolon": ";", "space": " ", "pipe": "|"}
MAX_COLUMNS = 20_000
MAX_BYTES = 8 * GIB  # of a table in memory
MAX_RATIO = 300  # of bytes in memory to bytes of the file; below SMALL it does not matter
SMALL = GIB
MAX_STREAM_BYTES = 4096 * GIB  # that a gzipped file may unfold to, piece by piece
BLOCK_BYTES = 4 * MIB  # of a CSV file, read at once; the header must fit
BLOCK_ROWS = 1 << 16  # of a Parquet file
NO_CSV = "is not a CSV file in UTF-8 with a header"
MISSING = (
    "",
    "NA",
    "N/A",
    "NaN",
    "nan",
    "null",
    "NULL",
    "None",
    "#N/A",
    "-NaN",
    "-nan",
    "n/a",
    "<NA>",
)


def separator(path: Path, typed: str | None = None) -> str:
    """The character between the columns of a text file: what the user typed (it, or its name), or
    by the ending of the file's name; '' for Parquet."""
    suffix = next((suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)), None)
    if suffix is None:
        raise UserError(
            f"{path}: '{path.suffix}' is not one of {', '.join(SUFFIXES)}: save the table as such"
        )
    if suffix == ".parquet":
        return ""
    sep = (
        SEPARATORS.get(typed, typed)
        if typed is not None
        else "\t"
        if suffix.startswith(".tsv")
        else ","
    )
    if len(sep) != 1 or not sep.isascii() or sep in '\r\n"':
        raise UserError(f"csv.sep={typed}: give one character, or one of {', '.join(SEPARATORS)}")
    return sep


def read_table(path: Path, sep: str | None = None, missing: Sequence[str] = ()) -> pa.Table:
    """A table in memory; the columns of a text file have the types that all their values fit. `sep`
    is what the user typed for the separator, `missing` are further words for a missing value."""
    limit = _limit(path)
    if between := separator(path, sep):
        header = _checked_header(path, between)
        likely = [
            word for word in ("semicolon", "tab", "comma", "pipe") if SEPARATORS[word] in header
        ]
        if likely and between not in header:
            raise UserError(
                f"{path} has a single column '{header[:60]}': give its separator, csv.sep={likely[0]}"
            )
        with open_raw(path, limit=limit) as stream, reading(path, NO_CSV):
            table = csv.read_csv(stream, **_options(between, missing))
            "".join(
                table.column_names
            )  # pyarrow decodes them when asked, and takes other text that it can't for bytes
            if "binary" in map(str, table.schema.types):
                raise ValueError("it has text in another encoding")
            return table
    names, pieces = stream_table(path)
    kept, total = [], 0
    for piece in pieces:
        kept.append(piece)
        if (total := total + piece.nbytes) > limit:
            raise Unreadable(f"{path} unfolds to more than {limit} bytes: refused")
    return pa.Table.from_batches(kept) if kept else pa.table(dict.fromkeys(names, pa.nulls(0)))


def stream_table(
    path: Path, sep: str | None = None, missing: Sequence[str] = ()
) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    """The names of all columns of a table, and its rows in pieces of bounded size. Values of a text
    file are text, as a type that fits the first piece may not fit the next."""
    between = separator(path, sep)
    if not between:
        return _parquet_pieces(path)
    _checked_header(path, between)
    with _csv_reader(path, _options(between)) as reader:
        names = list(reader.schema.names)
    types = dict.fromkeys(names, pa.string())

    def pieces() -> Iterator[pa.RecordBatch]:
        with _csv_reader(path, _options(between, missing, types)) as reader:
            yield from reader

    return names, pieces()


def read_columns(
    path: Path,
    columns: Sequence[str],
    text: Sequence[str] = (),
    member: str | None = None,
    header: bool = True,
) -> pd.DataFrame:
    """The given columns of a published CSV as numbers, those in `text` as strings. Without a
    `header` the columns are all that a line has, in their order."""
    types = {name: pa.string() if name in text else pa.float64() for name in columns}
    convert = csv.ConvertOptions(
        column_types=types, include_columns=list(types), strings_can_be_null=True
    )
    read = csv.ReadOptions(column_names=None if header else list(columns))
    kind = (
        f"CSV with the columns {', '.join(columns)}"
        if header
        else f"table of {len(columns)} numbers per line"
    )
    with open_raw(path, member) as stream, reading(path, f"is not a {kind}"):
        return csv.read_csv(stream, read, convert_options=convert).to_pandas()


def _limit(path: Path) -> int:
    """How many bytes a file may unfold to."""
    return min(MAX_BYTES, max(SMALL, MAX_RATIO * check_plain(path, MAX_BYTES)))


def _checked_header(path: Path, sep: str) -> str:
    """The first line of a text file, which has not too many columns."""
    with open_raw(path, limit=MAX_STREAM_BYTES) as stream:
        header = stream.readline(BLOCK_BYTES).decode("utf-8-sig", errors="replace").strip()
    if (columns := header.count(sep) + 1) > MAX_COLUMNS:
        raise Unreadable(
            f"{path} has {columns} columns, more than {MAX_COLUMNS}: leave out those you do not need"
        )
    return header


def _options(
    sep: str, missing: Sequence[str] = (), types: dict[str, pa.DataType] | None = None
) -> dict[str, Any]:
    """How Arrow reads a user's CSV file: only the columns with `types`, if there are any."""
    words = {"null_values": [*MISSING, *missing], "strings_can_be_null": True}
    convert = csv.ConvertOptions(column_types=types, include_columns=list(types or ()), **words)
    return {
        "parse_options": csv.ParseOptions(delimiter=sep, newlines_in_values=True),
        "convert_options": convert,
    }


@contextmanager
def _csv_reader(path: Path, options: dict[str, Any]) -> Iterator[Any]:
    """A plain file is opened by Arrow: its threads read ahead, and one that were in a read of
    Python's when the program ends, after an error say, would abort it."""
    read = csv.ReadOptions(block_size=BLOCK_BYTES)
    opened: Any = (
        open_raw(path, limit=MAX_STREAM_BYTES)
        if path.suffix.lower() == ".gz"
        else pa.OSFile(str(path))
    )
    with opened as stream, reading(path, NO_CSV), csv.open_csv(stream, read, **options) as reader:
        yield reader


def _parquet_pieces(path: Path) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    limit, problem = _limit(path), "is not a parquet file with named columns"
    with reading(path, problem):
        file = parquet.ParquetFile(path)
        names = list(file.schema_arrow.names)
        if len(names) > MAX_COLUMNS:
            raise ValueError(f"it has {len(names)} columns, more than {MAX_COLUMNS}")
        if any(
            file.metadata.row_group(k).total_byte_size > limit
            for k in range(file.metadata.num_row_groups)
        ):
            raise ValueError(f"it claims to unfold to more than {limit} bytes")
    wanted = [name for name in names if names.count(name) == 1]

    def pieces() -> Iterator[pa.RecordBatch]:
        with reading(path, problem):
            for piece in file.iter_batches(batch_size=BLOCK_ROWS, columns=wanted):
                piece.validate(full=True)
                yield piece

    return names, pieces()
