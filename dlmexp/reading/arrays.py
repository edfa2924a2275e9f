"""Arrays: npz files, read by numpy without pickles, and rows of text."""

import io
import warnings
import zipfile
from pathlib import Path
from typing import IO

import numpy as np

from dlmexp.errors import Unreadable
from dlmexp.reading.files import GIB, reading

MAX_MEMBERS = 10_000
NO_ARRAYS = "can't be read as an npz file without pickles"


def read_npz(path: Path, limit: int = 8 * GIB, only: str | None = None) -> dict[str, np.ndarray]:
    """All arrays of an npz file, or `only` one of them; texts as `str`. Refused if the file holds Python objects or
    more than `limit` bytes."""
    with reading(path, NO_ARRAYS, limit), path.open("rb") as file:
        return _arrays(file, str(path), limit, only)


def unpack_arrays(content: bytes, label: str = "it", limit: int = GIB) -> dict[str, np.ndarray]:
    """The arrays of an npz file's bytes."""
    with reading(label, NO_ARRAYS):
        return _arrays(io.BytesIO(content), label, limit)


def parse_numbers(rows: list[str], path: Path, columns: int | None = None) -> np.ndarray:
    """Rows of text with blanks between numbers, from the file `path`, as float64 [rows, columns]."""
    kind = f"table of {columns} numbers per line" if columns else "table of numbers"
    with reading(path, f"is not a {kind}"):
        if not rows:
            raise ValueError("it has no rows")
        table = np.loadtxt(rows, dtype=np.float64, comments=None, ndmin=2)
        if table.shape[1] != (columns or table.shape[1]):
            raise ValueError(f"it has {table.shape[1]}")
        return table


def _arrays(file: IO[bytes], label: str, limit: int, only: str | None = None) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(file) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        if len(archive.infolist()) > min(MAX_MEMBERS, len(sizes)):
            raise Unreadable(f"{label} has {len(archive.infolist())} arrays, too many or two of one name: refused")
    if (total := sum(sizes.values())) > limit:
        raise Unreadable(f"{label} decompresses to {total} bytes, more than {limit}: refused")
    file.seek(0)
    # numpy allocates what the header of an array claims, but fills only as much as the file has.
    with warnings.catch_warnings(action="ignore"), np.load(file, allow_pickle=False) as arrays:
        return {name: _array(arrays, name, label) for name in arrays.files if only in (None, name)}


def _array(arrays: np.lib.npyio.NpzFile, name: str, label: str) -> np.ndarray:
    """An array; text as `str`, in which half a letter, which nobody could write again, raises."""
    with reading(f"{label}: array '{name}'", "is damaged or holds Python objects: refused"):
        array = arrays[name]
        if not isinstance(array, np.ndarray) or not array.dtype.itemsize:
            raise ValueError("it is none")
        if array.dtype.kind not in "SU":
            return array
        texts = [text if isinstance(text, str) else text.decode() for text in array.ravel().tolist()]
        "".join(texts).encode()
        return np.array(texts, dtype=np.str_ if texts else object).reshape(array.shape)
