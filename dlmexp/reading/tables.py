"""Tables: CSV, Parquet and Feather through pyarrow, with a limit on columns and on bytes in memory."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dlmexp.errors import Unreadable
from dlmexp.reading.archives import open_raw
from dlmexp.reading.arrow_files import MAX_TABLE_BYTES, check_claim, open_feather, open_parquet, plain
from dlmexp.reading.files import MIB, content

if TYPE_CHECKING:
    import pyarrow as pa

MAX_COLUMNS = 20_000
MAX_TEXT_RATIO = 50  # of a gzipped text file, unfolded; below SMALL_TEXT it does not matter
SMALL_TEXT = 256 * MIB  # as numbers it takes four times as much, or more
MAX_HEADER = 64 * MIB  # of a text file
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "#N/A", "-NaN", "-nan", "n/a", "<NA>")


@contextmanager
def translated(problem: str) -> Iterator[None]:
    """What pyarrow raises about content becomes `Unreadable`; about memory, too, for the content claimed it."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError, MemoryError) as error:
        raise Unreadable(f"{problem}: {_first_line(error)}") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise Unreadable(f"{problem}: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def read_csv(path: Path, sep: str = ",", missing: Sequence[str] = ()) -> "pa.Table":
    """A text file with a header, in UTF-8, perhaps gzipped; `missing` are further words for a missing value."""
    from pyarrow import csv

    limit = min(MAX_TABLE_BYTES, max(SMALL_TEXT, MAX_TEXT_RATIO * path.stat().st_size))
    check_header(path, sep, limit)
    with open_raw(path, limit=limit) as stream, translated(f"{path} is not a CSV file with a header"):
        found = csv.read_csv(
            stream,
            parse_options=csv.ParseOptions(delimiter=sep, newlines_in_values=True),
            convert_options=csv.ConvertOptions(strings_can_be_null=True, null_values=[*MISSING, *missing]),
        )
    if not _is_utf8(found):
        raise Unreadable(f"{path} is not text in UTF-8 (perhaps in Latin-1): save it as UTF-8")
    return found


def first_line(path: Path, limit: int = MAX_TABLE_BYTES) -> bytes:
    """The first line of a text file, perhaps gzipped."""
    with open_raw(path, limit=limit) as stream:
        return stream.readline(MAX_HEADER)


def read_feather(path: Path) -> "pa.Table":
    """A Feather file; what it claims to hold is checked before it is unfolded."""
    with translated(f"{path} is not a Feather file"):
        found = open_feather(path, whole=True).read_all()
        check_columns(path, found.num_columns)
        found.validate(full=True)
        "".join(found.column_names)
        return plain(path, found)


def _is_utf8(table: "pa.Table") -> bool:
    """pyarrow accepts column names in any encoding, and returns a column of text that is not UTF-8 as bytes."""
    import pyarrow as pa

    try:
        "".join(table.column_names)
    except UnicodeDecodeError:
        return False
    return not any(map(pa.types.is_binary, table.schema.types))


def read_parquet(path: Path) -> "pa.Table":
    """A Parquet file; what it claims to hold is checked before it is unfolded."""
    with translated(f"{path} is not a Parquet file"):
        with open_parquet(path) as file:
            about = file.metadata
            check_columns(path, about.num_columns)
            check_claim(path, 8 * about.num_rows * about.num_columns)
            check_claim(path, sum(about.row_group(k).total_byte_size for k in range(about.num_row_groups)))
            found = file.read()
        found.validate(full=True)
        "".join(found.column_names)
        return plain(path, found)


def check_header(path: Path, sep: str, limit: int) -> None:
    """`Unreadable` for a text file in UTF-16, or whose first line has too many columns."""
    header = first_line(path, limit)
    if header.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Unreadable(f"{path} is text in UTF-16: save it as UTF-8")
    check_columns(path, header.count(sep.encode()) + 1)


def check_columns(path: Path, columns: int) -> None:
    """`Unreadable` for more columns than anyone needs."""
    if columns > MAX_COLUMNS:
        raise Unreadable(f"{path} has {columns} columns, more than {MAX_COLUMNS}: leave out those you do not need")


def csv_chunks(
    path: Path, columns: list[str], text: list[str] | None = None, member: str | None = None
) -> Iterator["pa.RecordBatch"]:
    """The given columns of a large CSV with a header, in chunks of rows: as numbers, those in `text` as strings."""
    import pyarrow as pa
    from pyarrow import csv

    types = {name: pa.string() if name in (text or []) else pa.float64() for name in columns}
    with open_raw(path, member) as stream, translated(f"{path} is not a CSV with the columns {', '.join(columns)}"):
        yield from csv.open_csv(
            stream,
            read_options=csv.ReadOptions(block_size=1 << 24),
            convert_options=csv.ConvertOptions(column_types=types, include_columns=columns, strings_can_be_null=True),
        )


def read_numbers(path: Path, columns: int, member: str | None = None) -> np.ndarray:
    """A comma-separated file without a header as float64 [rows, columns]; an empty field becomes NaN."""
    import pyarrow as pa
    from pyarrow import csv

    names = [f"column {k + 1}" for k in range(columns)]
    with open_raw(path, member) as stream, translated(f"{path} is not a table of {columns} numbers per line"):
        reader = csv.open_csv(
            stream,
            read_options=csv.ReadOptions(column_names=names, block_size=1 << 23),
            convert_options=csv.ConvertOptions(column_types=dict.fromkeys(names, pa.float64())),
        )
        chunks = [
            np.column_stack([column.to_numpy(zero_copy_only=False) for column in chunk.columns])
            for chunk in reader
            if chunk.num_rows
        ]
    return np.concatenate([np.empty((0, columns)), *chunks])


def read_whitespace_separated(path: Path) -> np.ndarray:
    """A text file of numbers as float64 [rows, columns]."""
    try:
        return np.loadtxt(content(path).decode("ascii").splitlines(), dtype=np.float64, ndmin=2)
    except ValueError as error:
        raise Unreadable(f"{path} is not a table of numbers: {error}") from error
