"""Arrays: npz files and the npy files in them, read by numpy without pickles."""

import io
import warnings
import zipfile
from pathlib import Path
from typing import IO

import numpy as np

from dlmexp.errors import Unreadable
from dlmexp.reading.files import GIB, content, reading

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


def mapped_array(path: Path) -> np.ndarray:
    """An npy file, memory-mapped read-only."""
    with reading(path):
        return np.load(path, mmap_mode="r", allow_pickle=False)


def read_whitespace_separated(path: Path, blank: str = " ") -> np.ndarray:
    """A text file of numbers as float64 [rows, columns], between which are blanks or the character `blank`."""
    with reading(path, "is not a table of numbers"):
        text = content(path).decode("ascii").replace(blank, " ")
        return np.loadtxt(text.splitlines(), dtype=np.float64, ndmin=2)


def _arrays(file: IO[bytes], label: str, limit: int, only: str | None = None) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(file) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's about headers of its older versions
        infos = archive.infolist()
        names = [info.filename.removesuffix(".npy") for info in infos]
        if len(names) > MAX_MEMBERS or len(set(names)) < len(names):
            raise Unreadable(f"{label} has {len(names)} arrays, too many or two of one name: refused")
        if (total := sum(info.file_size for info in infos)) > limit:
            raise Unreadable(f"{label} decompresses to {total} bytes, more than {limit}: refused")
        found: dict[str, np.ndarray] = {}
        for info, name in zip(infos, names, strict=True):
            if only in (None, name):
                with archive.open(info) as stream:
                    found[name] = _array(stream, info.file_size, f"{label}: array '{name}'")
        return found


def _array(stream: IO[bytes], size: int, label: str) -> np.ndarray:
    """An npy file of `size` bytes. numpy allocates what its header claims, so a claim of more is refused first."""
    start = np.lib.format.read_magic(stream)
    read_header = np.lib.format.read_array_header_1_0 if start == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(stream)
    if dtype.hasobject:
        raise Unreadable(f"{label} holds Python objects; only files without pickles are read")
    if np.prod(shape, dtype=object) * dtype.itemsize != size - stream.tell() or not dtype.itemsize:
        raise Unreadable(f"{label} claims shape {str(shape)[:80]} of {dtype}, but has other than that: refused")
    stream.seek(0)
    array = np.lib.format.read_array(stream, allow_pickle=False)
    if stream.read(1):  # reading to the end also verifies the checksum
        raise Unreadable(f"{label} is torn: refused")
    if dtype.kind not in "SU":
        return array
    try:
        texts = [text if isinstance(text, str) else text.decode() for text in array.ravel().tolist()]
        "".join(texts).encode()  # half a letter, which nobody could write again, fails here
    except ValueError as error:
        raise Unreadable(f"{label} is not text in UTF-8: save it as such") from error
    return np.array(texts, dtype=object if not texts else np.str_).reshape(array.shape)
