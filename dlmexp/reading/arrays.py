"""Arrays: npz files and the npy files in them. A header is checked before memory is allocated; pickles are refused."""

import io
import tokenize
import zipfile
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from dlmexp.errors import Unreadable
from dlmexp.reading.archives import MAX_MEMBERS, damage, open_member
from dlmexp.reading.files import GIB

DEFLATE_RATIO = 1032  # no deflated byte stands for more
TEXT = "SU"
BAD_HEADER = (
    ValueError,
    TypeError,
    IndexError,
    KeyError,
    SyntaxError,
    tokenize.TokenError,
    EOFError,
    OverflowError,
    RecursionError,
    MemoryError,
)
"""What numpy raises for a header that is none. It is evaluated as a Python literal of at most 10 000 letters."""


def read_npz(path: Path, limit: int = 8 * GIB, only: str | None = None) -> dict[str, np.ndarray]:
    """All arrays of an npz file, or `only` one of them; texts as `str`. Refused if the file holds Python objects or
    more than `limit` bytes."""
    with damage(path), path.open("rb") as file:
        return _arrays(file, path.stat().st_size, str(path), limit, only)


def unpack_arrays(content: bytes, label: str = "it", limit: int = GIB) -> dict[str, np.ndarray]:
    """The arrays of an npz file's bytes."""
    with damage(Path(label)):
        return _arrays(io.BytesIO(content), len(content), label, limit)


def mapped_array(path: Path) -> np.ndarray:
    """An npy file, memory-mapped read-only."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except BAD_HEADER as error:
        raise Unreadable(f"{path} is damaged ({error})") from error


def _arrays(file: IO[bytes], size: int, label: str, limit: int, only: str | None = None) -> dict[str, np.ndarray]:
    try:
        archive = zipfile.ZipFile(file)
    except zipfile.BadZipFile as error:
        raise Unreadable(f"{label} cannot be read as an npz file without pickles: {error}") from error
    with archive:
        infos = archive.infolist()
        if len(infos) > MAX_MEMBERS:
            raise Unreadable(f"{label} has {len(infos)} members, more than {MAX_MEMBERS}: refused")
        if (total := sum(info.file_size for info in infos)) > limit:
            raise Unreadable(f"{label} decompresses to {total} bytes, more than {limit}: refused")
        found: dict[str, np.ndarray] = {}
        for info in infos:
            name = info.filename.removesuffix(".npy")
            if only not in (None, name):
                continue
            if name in found:
                raise Unreadable(f"{label} has two arrays '{name}': refused")
            if info.compress_size > size or info.file_size > DEFLATE_RATIO * info.compress_size + DEFLATE_RATIO:
                raise Unreadable(f"{label}: array '{name}' claims more bytes than there are: refused")
            with open_member(archive, info, f"{label}: array '{name}'") as stream:
                found[name] = _array(stream, info.file_size, f"{label}: array '{name}'")
        return found


def _array(stream: IO[bytes], size: int, label: str) -> np.ndarray:
    """One npy file of `size` bytes."""
    try:
        version = npy.read_magic(stream)
        read: Any = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
        if read is None:
            raise ValueError(f"version {version} of the format")
        shape, fortran, dtype = read(stream)
    except BAD_HEADER as error:
        raise Unreadable(f"{label} has no sound header ({error}): refused") from error
    if dtype.hasobject:
        raise Unreadable(f"{label} holds Python objects; only files without pickles are read")
    bytes_left = size - stream.tell()
    if min(shape, default=0) < 0 or prod(shape) * dtype.itemsize != bytes_left or not dtype.itemsize:
        raise Unreadable(f"{label} claims shape {_shown(shape)} of {dtype}, but has {bytes_left} bytes: refused")
    buffer = bytearray(bytes_left)
    view, done = memoryview(buffer), 0
    while done < bytes_left and (got := stream.readinto(view[done:])):  # pyright: ignore[reportAttributeAccessIssue]
        done += got
    if done < bytes_left or stream.read(1):  # reading to the end also verifies the checksum
        raise Unreadable(f"{label} is torn: refused")
    if dtype.kind == "U":
        codes = np.frombuffer(buffer, dtype=np.dtype("u4").newbyteorder(dtype.byteorder))
        if ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any():
            raise Unreadable(f"{label} is text of letters that there are not: refused")
    array = np.frombuffer(buffer, dtype=dtype).reshape(shape, order="F" if fortran else "C")
    return _text(array, label) if dtype.kind in TEXT else array


def _shown(shape: tuple[int, ...]) -> str:
    return str(shape) if len(str(shape)) < 80 else f"{str(shape)[:76]}...)"


def _text(array: np.ndarray, label: str) -> np.ndarray:
    """Texts as Python's; bytes that are no text in UTF-8 are refused."""
    try:
        texts = [value if isinstance(value, str) else value.decode() for value in array.ravel().tolist()]
    except ValueError as error:
        raise Unreadable(f"{label} is not text in UTF-8: save it as such") from error
    return np.array(texts, dtype=object if not texts else np.str_).reshape(array.shape)
