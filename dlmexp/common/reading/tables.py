"""Readers of tables: users' files, whole or in pieces, and published text files.

The numbers of columns and of bytes are limited. pyarrow reads all tables, except for text files of
words with blanks or commas between them (`read_rows`).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv, parquet

from dlmexp.common.errors import Unreadable, UserError
from dlmexp.common.reading.files import GIB, MIB, check_plain, open_raw, reading
from dlmexp.common.reading.formats import (
    arrow_copy,
    encoding_of,
    read_excel,
    read_feather,
    read_json_lines,
    zip_member,
)

PARQUET = ".parquet"
FEATHER = (".feather", ".arrow")
JSON_LINES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
EXCEL = ".xlsx"
TEXT_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".zip")
SUFFIXES = (*TEXT_SUFFIXES, PARQUET, *FEATHER, *JSON_LINES, EXCEL)
SEPARATORS = {"comma": ",", "tab": "\t", "\\t": "\t", "semicolon": ";", "space": " ", "pipe": "|"}
"""The character between columns, by what users type for it."""
LIKELY_SEPARATORS = ("semicolon", "tab", "comma", "pipe")
MAX_COLUMNS = 20_000
MAX_BYTES = 8 * GIB
"""The largest size of a table in memory."""
MAX_RATIO = 300
"""The largest ratio of a table's bytes in memory to the bytes of its file."""
ALWAYS_ALLOWED_BYTES = GIB
"""A table in memory may have this size, whatever its ratio to the file."""
MAX_STREAM_BYTES = 4096 * GIB
"""The largest decompressed size of a gzipped file that is read in pieces."""
MAX_TEXT_BYTES = 32 * MIB
"""The largest size of a published text file, whose words take ten times as much memory."""
BLOCK_BYTES = 4 * MIB
"""The size of a piece of a CSV file; the header must fit into it."""
BLOCK_ROWS = 1 << 16
"""The number of rows in a piece of a Parquet file."""
NOT_CSV = "is not a CSV file in UTF-8 with a header"
NOT_PARQUET = "is not a parquet file with named columns"
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
"""Texts that mark a missing value."""
BLANKS_FOR_MARKS = str.maketrans(",'\"", "   ")
"""For `str.translate`: replaces commas and quotes by blanks."""


def separator(path: Path, typed: str | None = None) -> str:
    """Return the character between the columns of a text file; '' for other formats.

    Args:
        path: The file, whose suffix decides.
        typed: The character or its name, if the user typed one; it takes precedence.

    Raises:
        UserError: the file has another suffix, or `typed` is not a separator.
    """
    name = path.name.lower()
    if not name.endswith(SUFFIXES):
        endings = ", ".join(SUFFIXES)
        raise UserError(f"{path}: '{path.suffix}' is not one of {endings}: save the table as such")
    if not name.endswith(TEXT_SUFFIXES):
        return ""
    if typed is not None:
        return _typed_separator(typed)
    if name.endswith(".zip"):
        is_tsv = ".tsv" in str(zip_member(path)).lower()
    else:
        is_tsv = name.endswith((".tsv", ".tsv.gz"))
    return "\t" if is_tsv else ","


def _typed_separator(typed: str) -> str:
    """Return the separator that a user typed as a character or by its name.

    Raises:
        UserError: it is neither one character that can separate columns, nor a name.
    """
    character = SEPARATORS.get(typed, typed)
    if len(character) != 1 or not character.isascii() or character in '\r\n"':
        names = ", ".join(SEPARATORS)
        raise UserError(f"csv.sep={typed}: give one character, or one of {names}")
    return character


def read_table(
    path: Path,
    sep: str | None = None,
    missing: Sequence[str] = (),
    decimal: str | None = None,
    encoding: str | None = None,
) -> pa.Table:
    """Return the table of a file.

    A column of a text file has the narrowest type that fits all of its values.

    Args:
        path: The file.
        sep: The separator that the user typed; None: the suffix of the file decides.
        missing: Texts that mark a missing value, besides those of `MISSING`.
        decimal: `comma` if numbers have a decimal comma.
        encoding: The encoding of a text file that is neither in UTF-8 nor in UTF-16.

    Raises:
        UserError: the file is not a table, or too large.
    """
    limit = _memory_limit(path)
    character = separator(path, sep)
    if not character:
        return _read_binary(path, limit)
    options = _options(character, missing, decimal=decimal)
    member = zip_member(path)
    actual_encoding = encoding_of(path, member, limit, encoding)
    header = _checked_header(path, character, member, actual_encoding)
    _check_separator(path, character, header)
    return _read_text(path, member, actual_encoding, limit, options)


def _read_text(
    path: Path, member: str | None, encoding: str, limit: int, options: dict[str, Any]
) -> pa.Table:
    """Return the table of a text file."""
    with _open_text(path, member, encoding, limit) as text:
        return csv.read_csv(text, **options)


@contextmanager
def _open_text(
    path: Path, member: str | None, encoding: str, limit: int
) -> Iterator[pa.NativeFile]:
    """Open a text file for Arrow; `encoding_of` has checked its size.

    Arrow itself opens plain and gzipped files in UTF-8. It reads a copy of all others in memory.
    """
    if member is not None or encoding != "utf-8":
        with open_raw(path, member, limit) as stream, reading(path, NOT_CSV):
            yield arrow_copy(stream, encoding)
        return
    with reading(path, NOT_CSV), pa.OSFile(str(path)) as file:
        is_gzipped = path.suffix.lower() == ".gz"
        yield pa.CompressedInputStream(file, "gzip") if is_gzipped else file


def _read_binary(path: Path, limit: int) -> pa.Table:
    """Return the table of a file in a format without separators between columns."""
    name = path.name.lower()
    if name.endswith(FEATHER):
        return read_feather(path, limit)
    if name.endswith(JSON_LINES):
        return read_json_lines(path, limit)
    if name.endswith(EXCEL):
        return read_excel(path)
    return _read_parquet(path, limit)


def _check_separator(path: Path, character: str, header: str) -> None:
    """Raise UserError if a text file seems to have another separator.

    Then the header does not contain `character`, but contains another usual separator.
    """
    likely = [word for word in LIKELY_SEPARATORS if SEPARATORS[word] in header]
    if likely and character not in header:
        problem = f"{path} has a single column '{header[:60]}'"
        raise UserError(f"{problem}: give its separator, csv.sep={likely[0]}")


def _read_parquet(path: Path, limit: int) -> pa.Table:
    """Return the table of a Parquet file.

    Raises:
        Unreadable: it takes more than `limit` bytes in memory.
    """
    names, pieces = _parquet_pieces(path)
    batches = []
    n_bytes = 0
    for piece in pieces:
        batches.append(piece)
        n_bytes += piece.nbytes
        if n_bytes > limit:
            raise Unreadable(f"{path} takes more than {limit} bytes in memory: refused")
    if not batches:
        return pa.table(dict.fromkeys(names, pa.nulls(0)))
    return pa.Table.from_batches(batches)


def stream_table(
    path: Path,
    sep: str | None = None,
    missing: Sequence[str] = (),
    encoding: str | None = None,
) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    """Return the names of all columns of a table, and its rows in pieces of bounded size.

    All values of a text file stay text: a type that fits the first piece may not fit the next.
    `read_table` describes the arguments.
    """
    character = separator(path, sep)
    if path.name.lower().endswith(PARQUET):
        return _parquet_pieces(path)
    if not character:
        return _pieces_of(_read_binary(path, _memory_limit(path)))
    member = zip_member(path)
    actual_encoding = encoding_of(path, member, MAX_STREAM_BYTES, encoding)
    _checked_header(path, character, member, actual_encoding)
    if member is not None or actual_encoding != "utf-8":
        return _text_pieces(path, member, actual_encoding, character, missing)
    with _csv_reader(path, _options(character)) as reader:
        names = list(reader.schema.names)
    types = dict.fromkeys(names, pa.string())

    def pieces() -> Iterator[pa.RecordBatch]:
        with _csv_reader(path, _options(character, missing, types)) as reader:
            yield from reader

    return names, pieces()


def _text_pieces(
    path: Path, member: str | None, encoding: str, character: str, missing: Sequence[str]
) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    """Return names and rows of a text file that is read as a whole, with all values as text."""
    limit = _memory_limit(path)
    # Arrow has to know the names of columns before it can read them all as text.
    names = _read_text(path, member, encoding, limit, _options(character)).column_names
    types = dict.fromkeys(names, pa.string())
    options = _options(character, missing, types)
    return _pieces_of(_read_text(path, member, encoding, limit, options))


def _pieces_of(table: pa.Table) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    """Return the names and the rows of a table in memory."""
    return table.column_names, iter(table.to_batches(BLOCK_ROWS))


def read_columns(
    path: Path,
    columns: Sequence[str],
    text: Sequence[str] = (),
    member: str | None = None,
    header: bool = True,
    sep: str = ",",
) -> pd.DataFrame:
    """Return columns of a published CSV.

    Args:
        path: The file, or an archive.
        columns: The names of the columns to read. Without a `header`, they name all columns of the
            file, in their order.
        text: The names of columns of text; all other columns are numbers.
        member: The name of the CSV in an archive.
        header: Whether the first line names the columns.
        sep: The character between columns.
    """
    types = {name: pa.string() if name in text else pa.float64() for name in columns}
    convert = csv.ConvertOptions(
        column_types=types, include_columns=list(types), strings_can_be_null=True
    )
    read = csv.ReadOptions(column_names=None if header else list(columns))
    kind = f"table of {len(columns)} numbers per line"
    if header:
        kind = f"CSV with the columns {', '.join(columns)}"
    with open_raw(path, member) as stream, reading(path, f"is not a {kind}"):
        parse = csv.ParseOptions(delimiter=sep)
        table = csv.read_csv(arrow_copy(stream), read, parse, convert)
        return table.to_pandas()


def read_rows(path: Path) -> np.ndarray:
    """Return the words of a text file [rows, columns], numbers among them as text.

    Commas, tabs or blanks separate the words. Comments, empty lines and the headers of ARFF and
    KEEL files are left out.
    """
    with open_raw(path, limit=MAX_TEXT_BYTES) as stream, reading(path, "is not a table"):
        text = stream.read().decode("utf-8", errors="replace")
        text = text.translate(BLANKS_FOR_MARKS)
        rows = [line.split() for line in _data_lines(text)]
        if not rows:
            raise ValueError("it has no rows")
        lengths = set(map(len, rows))
        if len(lengths) > 1:
            raise ValueError("its rows have different numbers of columns")
        return np.array(rows, dtype=object)


def _data_lines(text: str) -> list[str]:
    """Return the lines of a text that are rows: only lines after `@data`, if there is this line."""
    lines: list[str] = []
    is_after_header = False
    for line in map(str.strip, text.splitlines()):
        if line.lower().startswith("@data") and not is_after_header:
            is_after_header = True
            lines.clear()
        elif line and not line.startswith(("%", "@")):
            lines.append(line)
    return lines


def _memory_limit(path: Path) -> int:
    """Return how many bytes the table of a file may take in memory."""
    file_bytes = check_plain(path, MAX_BYTES)
    by_ratio = max(ALWAYS_ALLOWED_BYTES, MAX_RATIO * file_bytes)
    return min(MAX_BYTES, by_ratio)


def _checked_header(
    path: Path, character: str, member: str | None = None, encoding: str = "utf-8"
) -> str:
    """Return the first line of a text file.

    Raises:
        Unreadable: the line has too many columns.
    """
    with open_raw(path, member, MAX_STREAM_BYTES) as stream:
        # `readline` ends at a byte, but a line break in UTF-16 has two: read a whole block.
        read = stream.read if encoding == "utf-16" else stream.readline
        beginning = read(BLOCK_BYTES).decode(encoding, errors="replace")
    first_line, _, _ = beginning.partition("\n")
    header = first_line.removeprefix("\ufeff").strip()
    n_columns = header.count(character) + 1
    if n_columns > MAX_COLUMNS:
        count = f"{path} has {n_columns} columns, more than {MAX_COLUMNS}"
        raise Unreadable(f"{count}: leave out those you do not need")
    return header


def _options(
    character: str,
    missing: Sequence[str] = (),
    types: dict[str, pa.DataType] | None = None,
    decimal: str | None = None,
) -> dict[str, Any]:
    """Return the options with which Arrow reads a user's CSV file.

    Args:
        character: The separator of columns.
        missing: Texts that mark a missing value, besides those of `MISSING`.
        types: The columns to read, with their types. None: all columns, whose types Arrow infers.
        decimal: `comma` if numbers have a decimal comma.
    """
    convert = csv.ConvertOptions(
        column_types=types,
        include_columns=list(types or ()),
        null_values=[*MISSING, *missing],
        strings_can_be_null=True,
        decimal_point="," if decimal == "comma" else ".",
    )
    parse = csv.ParseOptions(delimiter=character, newlines_in_values=True)
    return {"parse_options": parse, "convert_options": convert}


@contextmanager
def _csv_reader(path: Path, options: dict[str, Any]) -> Iterator[Any]:
    """Open a CSV file for reading in pieces."""
    read = csv.ReadOptions(block_size=BLOCK_BYTES)
    with (
        _open_text(path, None, "utf-8", MAX_STREAM_BYTES) as text,
        csv.open_csv(text, read, **options) as reader,
    ):
        yield reader


def _parquet_pieces(path: Path) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    """Return the names of all columns of a Parquet file, and its rows in pieces.

    Columns whose name occurs twice are not in the pieces; callers report the names.

    Raises:
        Unreadable: the file is damaged, has too many columns, or claims too many bytes.
    """
    limit = _memory_limit(path)
    with reading(path, NOT_PARQUET):
        file = parquet.ParquetFile(path)
        names = list(file.schema_arrow.names)
        if len(names) > MAX_COLUMNS:
            raise ValueError(f"it has {len(names)} columns, more than {MAX_COLUMNS}")
        for group in range(file.metadata.num_row_groups):
            if file.metadata.row_group(group).total_byte_size > limit:
                raise ValueError(f"it claims to take more than {limit} bytes in memory")
    unique = [name for name in names if names.count(name) == 1]

    def pieces() -> Iterator[pa.RecordBatch]:
        with reading(path, NOT_PARQUET):
            for piece in file.iter_batches(batch_size=BLOCK_ROWS, columns=unique):
                piece.validate(full=True)
                yield piece

    return names, pieces()
