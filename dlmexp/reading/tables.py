"""Tables: CSV, Parquet and Feather files through pyarrow, whole or in pieces, with limits on columns and bytes."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dlmexp.errors import Unreadable
from dlmexp.reading.archives import open_raw
from dlmexp.reading.files import GIB, MIB, check_plain, reading

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import csv

SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".feather")
MAX_COLUMNS = 20_000
MAX_BYTES = 8 * GIB  # of a table in memory
MAX_RATIO = 300  # of bytes in memory to bytes of the file; below SMALL it does not matter
SMALL = GIB
MAX_STREAM_BYTES = 4096 * GIB  # that a gzipped file may unfold to, piece by piece
MAX_HEADER = 64 * MIB
BLOCK_BYTES = 4 * MIB  # of a CSV file, read at once
BLOCK_ROWS = 1 << 16  # of a Parquet file
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "#N/A", "-NaN", "-nan", "n/a", "<NA>")


def table_suffix(path: Path) -> str | None:
    """The ending of a name that says how to read the file; None for one that is read by nobody here."""
    return next((one for one in sorted(SUFFIXES, key=len, reverse=True) if path.name.lower().endswith(one)), None)


def read_table(path: Path, sep: str = ",", missing: Sequence[str] = ()) -> "pa.Table":
    """A table in memory; the columns of a text file have the types that all their values fit. `sep` is between its
    columns, `missing` are further words for a missing value."""
    import pyarrow as pa
    from pyarrow import csv

    limit = min(MAX_BYTES, max(SMALL, MAX_RATIO * check_plain(path, MAX_BYTES)))
    if table_suffix(path) in (".parquet", ".feather"):
        names, pieces = stream_table(path)
        kept, total = [], 0
        for piece in pieces:
            total += piece.nbytes
            if total > limit:
                raise Unreadable(f"{path} unfolds to more than {limit} bytes: refused")
            kept.append(piece)
        return pa.Table.from_batches(kept) if kept else pa.table(dict.fromkeys(names, pa.nulls(0)))
    check_header(path, sep)
    convert = csv.ConvertOptions(strings_can_be_null=True, null_values=[*MISSING, *missing])
    with open_raw(path, limit=limit) as stream, reading(path, "is not a CSV file with a header"):
        parse = csv.ParseOptions(delimiter=sep, newlines_in_values=True)
        table = csv.read_csv(stream, parse_options=parse, convert_options=convert)
    return _in_utf8(path, table)


def stream_table(
    path: Path, sep: str = ",", missing: Sequence[str] = (), columns: Sequence[str] | None = None
) -> tuple[list[str], "Iterator[pa.RecordBatch]"]:
    """The names of all columns of a table, and its rows in pieces of bounded size, with the wanted `columns` (None:
    all). Values of a text file are text, as a type that fits the first piece may not fit the next."""
    import pyarrow as pa
    from pyarrow import csv

    suffix = table_suffix(path)
    problem = f"is not a {str(suffix)[1:]} file with named columns"
    if suffix in (".parquet", ".feather"):
        return _arrow_pieces(path, suffix, problem, columns)
    check_header(path, sep)
    with _csv_reader(path, sep, problem, csv.ConvertOptions()) as reader:
        names = _in_utf8(path, reader.schema.empty_table()).column_names
    present = [name for name in names if columns is None or name in columns]
    convert = csv.ConvertOptions(
        column_types={name: pa.string() for name in present},
        include_columns=list(dict.fromkeys(present)),
        strings_can_be_null=True,
        null_values=[*MISSING, *missing],
    )

    def pieces() -> "Iterator[pa.RecordBatch]":
        with _csv_reader(path, sep, problem, convert) as reader:
            yield from reader

    return names, pieces()


def _arrow_pieces(
    path: Path, suffix: str, problem: str, columns: Sequence[str] | None
) -> tuple[list[str], "Iterator[pa.RecordBatch]"]:
    import pyarrow as pa
    from pyarrow import parquet

    size = check_plain(path, MAX_BYTES)

    def opened() -> Any:
        return parquet.ParquetFile(path) if suffix == ".parquet" else pa.ipc.open_file(pa.memory_map(str(path)))

    with reading(path, problem):
        file = opened()
        names = list((file.schema_arrow if suffix == ".parquet" else file.schema).names)
        "".join(names).encode()
        if len(names) > MAX_COLUMNS:
            raise Unreadable(f"{path} has {len(names)} columns, more than {MAX_COLUMNS}: leave out what you don't need")
        if suffix == ".parquet":
            about = file.metadata
            groups = (about.row_group(k).total_byte_size for k in range(about.num_row_groups))
            if max(groups, default=0) > min(MAX_BYTES, max(SMALL, MAX_RATIO * size)):
                raise Unreadable(f"{path} claims to unfold to more than a file of {size} bytes holds: refused")
    wanted = [name for name in names if names.count(name) == 1 and (columns is None or name in columns)]

    def pieces() -> "Iterator[pa.RecordBatch]":
        with reading(path, problem):
            file = opened()
            if suffix == ".parquet":
                found = file.iter_batches(batch_size=BLOCK_ROWS, columns=wanted)
            else:
                found = (file.get_batch(k).select(wanted) for k in range(file.num_record_batches))
            for piece in found:
                piece.validate(full=True)
                yield piece

    return names, pieces()


@contextmanager
def _csv_reader(
    path: Path, sep: str, problem: str, convert: "csv.ConvertOptions"
) -> "Iterator[csv.CSVStreamingReader]":
    """A plain file is opened by Arrow: its threads read ahead, and one that were in a read of Python's when the program
    ends, after an error say, would abort it."""
    import pyarrow as pa
    from pyarrow import csv

    parse, read = csv.ParseOptions(delimiter=sep, newlines_in_values=True), csv.ReadOptions(block_size=BLOCK_BYTES)
    with ExitStack() as stack:
        packed = path.suffix.lower() == ".gz"
        opened: Any = open_raw(path, limit=MAX_STREAM_BYTES) if packed else pa.OSFile(str(path))
        stream = stack.enter_context(opened)
        stack.enter_context(reading(path, problem))
        yield stack.enter_context(csv.open_csv(stream, read, parse, convert))


def first_line(path: Path) -> bytes:
    """The first line of a text file, perhaps gzipped."""
    with open_raw(path, limit=MAX_STREAM_BYTES) as stream:
        return stream.readline(MAX_HEADER)


def check_header(path: Path, sep: str) -> None:
    """`Unreadable` for a text file in UTF-16, or whose first line has too many columns."""
    header = first_line(path)
    if header.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Unreadable(f"{path} is text in UTF-16: save it as UTF-8")
    if (count := header.count(sep.encode()) + 1) > MAX_COLUMNS:
        raise Unreadable(f"{path} has {count} columns, more than {MAX_COLUMNS}: leave out those you do not need")


def _in_utf8(path: Path, table: "pa.Table") -> "pa.Table":
    """pyarrow accepts column names in any encoding, and returns a column of text that is not UTF-8 as bytes."""
    import pyarrow as pa

    try:
        "".join(table.column_names)
        if not any(map(pa.types.is_binary, table.schema.types)):
            return table
    except UnicodeDecodeError:
        pass
    raise Unreadable(f"{path} is not text in UTF-8 (perhaps in Latin-1): save it as UTF-8")


def csv_chunks(
    path: Path, columns: list[str], text: Sequence[str] = (), member: str | None = None
) -> "Iterator[pa.RecordBatch]":
    """The given columns of a large CSV with a header, in chunks of rows: as numbers, those in `text` as strings."""
    import pyarrow as pa
    from pyarrow import csv

    types = {name: pa.string() if name in text else pa.float64() for name in columns}
    convert = csv.ConvertOptions(column_types=types, include_columns=columns, strings_can_be_null=True)
    problem = f"is not a CSV with the columns {', '.join(columns)}"
    with open_raw(path, member) as stream, reading(path, problem):
        yield from csv.open_csv(stream, csv.ReadOptions(block_size=16 * MIB), convert_options=convert)


def read_numbers(path: Path, columns: int, member: str | None = None) -> np.ndarray:
    """A comma-separated file without a header as float64 [rows, columns]; an empty field becomes NaN."""
    import pyarrow as pa
    from pyarrow import csv

    names = [f"column {k + 1}" for k in range(columns)]
    convert = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.float64()))
    with open_raw(path, member) as stream, reading(path, f"is not a table of {columns} numbers per line"):
        chunks = csv.open_csv(stream, csv.ReadOptions(column_names=names, block_size=8 * MIB), convert_options=convert)
        arrays = [np.column_stack([column.to_numpy(zero_copy_only=False) for column in chunk]) for chunk in chunks]
    return np.concatenate([np.empty((0, columns)), *arrays])
