"""What a Parquet or Feather file would take in memory, from what it says of itself, before it is unfolded."""

import struct
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from dlmexp.errors import Unreadable
from dlmexp.reading.files import GIB

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet

    Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)

MAX_TABLE_BYTES = 8 * GIB
MAX_RATIO = 300  # of bytes in memory to bytes of the file; below SMALL it does not matter
SMALL = GIB
MAGIC = b"ARROW1"
DICTIONARY, RECORDS = 2, 3  # kinds of messages


def check_claim(path: Path, claimed: int) -> None:
    """`Unreadable` for more than a file of this size is believed to hold."""
    limit = min(MAX_TABLE_BYTES, max(SMALL, MAX_RATIO * path.stat().st_size))
    if claimed > limit:
        raise Unreadable(f"{path} unfolds to {claimed} bytes, more than {limit}: refused")


def open_parquet(path: Path) -> "parquet.ParquetFile":
    """A Parquet file whose columns of text are read as `plain` takes them: a word that is there a million times is one
    word in the file."""
    import pyarrow as pa
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        text = [one.name for one in file.schema_arrow if pa.types.is_string(one.type) or pa.types.is_binary(one.type)]
    return parquet.ParquetFile(path, read_dictionary=text)


def plain(path: Path, rows: "Rows") -> "Rows":
    """Columns of numbers into a list of words as the words themselves, if that is not too much."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns, claimed = list(rows.columns), 0
    for i, column in enumerate(columns):
        if not pa.types.is_dictionary(column.type):
            continue
        of_text = pa.types.is_string(column.type.value_type) or pa.types.is_binary(column.type.value_type)
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            claimed += 8 * len(chunk)
            if of_text:
                of_words = pc.call_function("binary_length", [chunk.dictionary])
                claimed += pc.call_function("sum", [of_words.take(chunk.indices)]).as_py() or 0
        check_claim(path, claimed)
        columns[i] = column.cast(column.type.value_type)
    return type(rows).from_arrays(columns, names=rows.column_names)


def open_feather(path: Path, whole: bool) -> "pa.RecordBatchStreamReader":
    """A Feather file as a stream of pieces, none of which is too large, nor (`whole`) all of them."""
    import pyarrow as pa

    with pa.memory_map(str(path)) as file:
        content = file.read_buffer()
    if content.slice(0, len(MAGIC)).to_pybytes() != MAGIC:
        raise Unreadable(f"{path} is not a Feather file of version 2")
    stream, total = content.slice(8), 0  # behind the magic words a file is a stream
    for message in pa.ipc.MessageReader.open_stream(stream):
        claimed = _unfolded(message, path)
        total = total + claimed if whole else claimed
        check_claim(path, total)
    return pa.ipc.open_stream(stream)


def _unfolded(message: "pa.ipc.Message", path: Path) -> int:
    """The bytes of a message's buffers in memory. Its description is a flatbuffer (Message.fbs of Apache Arrow);
    a compressed buffer begins with its length, or with -1 if it is not compressed after all."""
    about, body = memoryview(message.metadata), message.body
    try:
        top = _number("<I", about, 0)
        kind = _number("<B", about, _field(about, top, 1))
        if kind not in (DICTIONARY, RECORDS):
            return 0
        batch = _inner(about, top, 2)
        if kind == DICTIONARY:
            batch = _inner(about, batch, 1)
        buffers, compressed = _inner(about, batch, 2), _field(about, batch, 3)
        total = 0
        for k in range(_number("<I", about, buffers)):
            start, length = (_number("<q", about, buffers + 4 + 16 * k + word) for word in (0, 8))
            claimed = _number("<q", memoryview(body), start) if compressed and length else -1
            total += length if claimed == -1 else claimed
        return total
    except (struct.error, ValueError) as error:
        raise Unreadable(f"{path} is damaged: {error}") from error


def _number(form: str, data: memoryview, at: int) -> int:
    if at < 0:
        raise ValueError("a place before the beginning")
    found = struct.unpack_from(form, data, at)[0]
    if found < -1:
        raise ValueError("a negative length")
    return found


def _field(about: memoryview, table: int, index: int) -> int:
    """Where the field of a table lies; 0 if it has its default value."""
    names = table - struct.unpack_from("<i", about, table)[0]
    if 6 + 2 * index > _number("<H", about, names):
        return 0
    offset = _number("<H", about, names + 4 + 2 * index)
    return table + offset if offset else 0


def _inner(about: memoryview, table: int, index: int) -> int:
    """Where the table or vector in a field lies."""
    at = _field(about, table, index)
    if not at:
        raise ValueError("a part is missing")
    return at + _number("<I", about, at)
