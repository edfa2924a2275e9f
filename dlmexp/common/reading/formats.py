"""Helpers of `tables`: readers of Feather, JSON lines and Excel, zip archives and encodings.

Each reader returns an Arrow table of bounded size.
"""

import codecs
import zipfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any

import pyarrow as pa
from pyarrow import ipc
from pyarrow import json as arrow_json

from dlmexp.common.errors import Unreadable, UserError
from dlmexp.common.reading.files import MIB, open_raw, reading

TEXT_MEMBERS = (".csv", ".tsv", ".txt")
"""Endings of the files in a zip archive that may be tables."""
SHOWN_TABLES = 5
"""The number of tables in an archive that a message names."""
# What `reading` says after the name of a file.
NOT_FEATHER = "is not a Feather file"
NOT_JSON_LINES = "is not a file of JSON lines, one object with the columns per line"
NOT_EXCEL = "is not an Excel workbook"
MAX_EXCEL_BYTES = 512 * MIB
"""The largest decompressed size of a workbook; its cells take many times as much memory."""


def zip_member(path: Path) -> str | None:
    """Return the name of the only table in a zip archive; None if the file is not a zip archive.

    The name is without folders: `open_raw` finds members in any folder.

    Raises:
        Unreadable: the archive has no table, or several.
    """
    if path.suffix.lower() != ".zip":
        return None
    with reading(path, "is not a zip archive"), zipfile.ZipFile(path) as archive:
        members = [PurePosixPath(name) for name in archive.namelist()]
    tables = [member for member in members if _is_table(member)]
    if len(tables) != 1:
        listed = ", ".join(map(str, tables[:SHOWN_TABLES])) or "none"
        endings = ", ".join(TEXT_MEMBERS)
        raise Unreadable(
            f"{path}: a zip archive with one file that ends in {endings} is needed; it has {listed}"
        )
    return tables[0].name


def _is_table(member: PurePosixPath) -> bool:
    # For every file in an archive, macOS adds a hidden file of the same name with its own notes.
    is_hidden = "__MACOSX" in member.parts or member.name.startswith(".")
    return member.suffix.lower() in TEXT_MEMBERS and not is_hidden


def encoding_of(path: Path, member: str | None, limit: int, typed: str | None = None) -> str:
    """Return the encoding of a text file.

    It is UTF-16 if the file begins with the byte order mark of UTF-16, UTF-8 if all bytes are valid
    UTF-8, and otherwise the encoding that the user typed.

    Args:
        path: The file.
        member: The name of the table in an archive.
        limit: The largest number of bytes.
        typed: The encoding that the user typed, for files that are not in UTF-8.

    Raises:
        UserError: there is no such encoding, or none was typed where one is needed.
    """
    if typed is not None:
        try:
            typed = codecs.lookup(typed).name
        except LookupError:
            advice = "give one that Python knows, such as latin-1, cp1252 or utf-16"
            raise UserError(f"csv.encoding={typed}: {advice}") from None
    with open_raw(path, member, limit) as stream:
        first = stream.read(MIB)
        if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return "utf-16"
        if _is_utf8(first, stream):
            return "utf-8"
    if typed is None:
        advice = "name its encoding, such as csv.encoding=latin-1"
        raise UserError(f"{path} is not a CSV file in UTF-8 or UTF-16: {advice}")
    return typed


def _is_utf8(first: bytes, rest: Iterable[bytes]) -> bool:
    """Return whether all bytes are valid UTF-8, and none of the first ones is 0.

    A zero byte is valid UTF-8, but shows that a file is not a text.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    with suppress(UnicodeDecodeError):
        decoder.decode(first)
        for line in rest:
            decoder.decode(line)
        decoder.decode(b"", final=True)
        return b"\0" not in first
    return False


def arrow_copy(stream: IO[bytes], encoding: str = "utf-8") -> pa.BufferReader:
    """Return the content of a stream, in UTF-8, as a buffer that Arrow owns.

    Arrow could read the Python stream itself. But Arrow's threads may release their input only when
    the program ends, for instance after an error. Releasing a Python object then aborts the
    program.
    """
    copy = pa.BufferOutputStream()
    if encoding == "utf-8":
        while block := stream.read(MIB):
            copy.write(block)
        return pa.BufferReader(copy.getvalue())
    decoder = codecs.getincrementaldecoder(encoding)()
    while block := stream.read(MIB):
        copy.write(decoder.decode(block).encode())
    copy.write(decoder.decode(b"", final=True).encode())
    return pa.BufferReader(copy.getvalue())


def read_feather(path: Path, limit: int) -> pa.Table:
    """Return the table of a Feather file (Arrow's file format).

    Raises:
        Unreadable: it is damaged, or takes more than `limit` bytes in memory.
    """
    batches = []
    n_bytes = 0
    with reading(path, NOT_FEATHER), pa.OSFile(str(path)) as file, ipc.open_file(file) as reader:
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            batch.validate(full=True)
            n_bytes += batch.nbytes
            if n_bytes > limit:
                raise Unreadable(f"{path} takes more than {limit} bytes in memory: refused")
            batches.append(batch)
        return pa.Table.from_batches(batches, reader.schema)


def read_json_lines(path: Path, limit: int) -> pa.Table:
    """Return the table of a file with a JSON object per line, whose keys are the columns.

    Texts stay texts; whether they are numbers or dates is decided later, as for CSV files.
    """
    with open_raw(path, limit=limit) as stream, reading(path, NOT_JSON_LINES):
        table = arrow_json.read_json(arrow_copy(stream))
        return _with_microseconds(table)


def _with_microseconds(table: pa.Table) -> pa.Table:
    """Return a table whose timestamps are in microseconds, as those of CSV files are."""
    for position, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            column = table.column(position).cast(pa.timestamp("us"))
            table = table.set_column(position, field.name, column)
    return table


def read_excel(path: Path) -> pa.Table:
    """Return the table of a workbook, whose first row has the names of the columns.

    Raises:
        UserError: openpyxl is not installed, or not exactly one sheet has values.
        Unreadable: the workbook is damaged, or too large.
    """
    try:
        import openpyxl  # pyright: ignore[reportMissingModuleSource]
    except ImportError:
        advice = "pip install openpyxl, or save the table as CSV"
        raise UserError(f"{path}: Excel files are read by openpyxl: {advice}") from None
    with reading(path, NOT_EXCEL):
        _check_excel_size(path)
        workbook = openpyxl.load_workbook(path, read_only=True, data_only=True)
        rows_by_sheet = _rows_by_sheet(workbook)
        workbook.close()
    if not rows_by_sheet:
        raise UserError(f"{path} has no sheet with values: write a table into it")
    if len(rows_by_sheet) > 1:
        sheets = ", ".join(rows_by_sheet)
        advice = "save the one with the table as CSV"
        raise UserError(f"{path} has {len(rows_by_sheet)} sheets ({sheets}): {advice}")
    (rows,) = rows_by_sheet.values()
    with reading(path, NOT_EXCEL):
        return _table_of_rows(rows)


def _check_excel_size(path: Path) -> None:
    """Raise Unreadable if a workbook is too large when decompressed."""
    with zipfile.ZipFile(path) as archive:
        n_bytes = sum(info.file_size for info in archive.infolist())
    if n_bytes > MAX_EXCEL_BYTES:
        raise Unreadable(f"{path} decompresses to {n_bytes} bytes, more than {MAX_EXCEL_BYTES}")


def _rows_by_sheet(workbook: Any) -> dict[str, list[tuple]]:
    """Return the rows that have values, by the title of their sheet; empty sheets are left out."""
    rows_by_sheet: dict[str, list[tuple]] = {}
    for sheet in workbook:
        rows = [row for row in sheet.iter_rows(values_only=True) if _has_value(row)]
        if rows:
            rows_by_sheet[sheet.title] = rows
    return rows_by_sheet


def _has_value(row: tuple) -> bool:
    return any(value is not None for value in row)


def _table_of_rows(rows: list[tuple]) -> pa.Table:
    """Return a table of Python values, of which the first row has the names of the columns."""
    names = ["" if name is None else str(name) for name in rows[0]]
    while names and not names[-1]:  # the sheet may be wider than the table
        names.pop()
    columns = []
    for position in range(len(names)):
        values = [_value_at(row, position) for row in rows[1:]]
        columns.append(_arrow_column(values))
    return pa.Table.from_arrays(columns, names=names)


def _value_at(row: tuple, position: int) -> Any:
    """Return the value in a column of a row; None if the row is too short."""
    return row[position] if position < len(row) else None


def _arrow_column(values: list) -> pa.Array:
    """Return the values of a column as an Arrow array, in a type that fits all of them.

    Numbers of several types become floating-point numbers, and truth values among numbers become 0
    and 1. Any other mixture of types becomes text.
    """
    types = {type(value) for value in values if value is not None}
    if len(types) > 1 and types <= {bool, int, float}:
        number = float if float in types else int
        values = _converted(values, number)
        types = {number}
    if types == {int} and not _fit_int64(values):
        values = _converted(values, float)
    if len(types) == 1:
        with suppress(pa.ArrowException):
            return pa.array(values)
    return pa.array(_converted(values, str), pa.string())


def _converted(values: list, to_type: Callable[[Any], Any]) -> list:
    """Return the values converted to a type; gaps stay None."""
    return [None if value is None else to_type(value) for value in values]


def _fit_int64(values: list[int | None]) -> bool:
    """Return whether all integers can be numbers of 64 bits, the largest that Arrow has."""
    return all(value is None or -(1 << 63) <= value < 1 << 63 for value in values)
