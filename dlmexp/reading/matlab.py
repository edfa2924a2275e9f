"""MATLAB 5 files. Their structure is checked, and unfolded within a limit, before SciPy reads them.

SciPy allocates what a file claims: a cell array of a thousand million cells, a compressed variable of any size. So the
elements of a file are walked through first (`Elements` of the MAT-file format, level 5: a tag of type and bytes, then
the bytes), compressed ones are unfolded, and SciPy gets a file that claims no more than it has.
"""

import io
import struct
import warnings
import zlib
from collections.abc import Iterator
from itertools import islice
from math import prod
from pathlib import Path

import numpy as np

from dlmexp.errors import Unreadable
from dlmexp.reading.archives import open_raw

MAX_BYTES = 1 << 28  # unfolded
MAX_PARTS = 100_000  # of a cell array or a struct, each of which takes memory many times its bytes
MAX_DEPTH = 20  # of cells and structs in one another
HEADER = 128
INT8, INT32, UINT32, MATRIX, COMPRESSED, UTF8 = 1, 5, 6, 14, 15, 16  # types of elements
BYTES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8, 16: 1, 17: 2, 18: 4}  # that each takes
NUMBERS, LETTERS = (1, 2, 3, 4, 5, 6, 7, 9, 12, 13), (1, 2, 4, 16, 17, 18)
COMPLEX = 0x800  # a flag
CELL, STRUCT, CHAR, DOUBLE, UINT64 = 1, 2, 4, 6, 15  # classes of variables
BAD_FILE = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    NotImplementedError,
    OSError,
    EOFError,
    OverflowError,
    zlib.error,
)
"""What SciPy raises for elements that do not fit together. Nothing is read from disk by then, so OSError is one too."""


def read_variables(path: Path, *names: str, member: str | None = None) -> tuple[np.ndarray, ...]:
    """The named variables of a MATLAB 5 file, or of the member of an archive that is one."""
    from scipy.io import loadmat

    with open_raw(path, member, MAX_BYTES) as stream:
        data = stream.read(MAX_BYTES + 1)
    sound = _checked(data, path, names)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about variables of the same name and the like
            found = loadmat(io.BytesIO(sound), variable_names=list(names), verify_compressed_data_integrity=False)
    except BAD_FILE as error:
        raise Unreadable(f"{path} is damaged, or not a MATLAB 5 file: {error}") from error
    for name in names:
        if not isinstance(found.get(name), np.ndarray):
            raise Unreadable(f"{path} has no variable '{name}'")
    return tuple(found[name] for name in names)


def _checked(data: bytes, path: Path, names: tuple[str, ...]) -> bytes:
    """A file of the named variables alone, unfolded; all their elements have been found sound."""
    order = {b"IM": "<", b"MI": ">"}.get(data[126:128])
    if len(data) < HEADER or order is None or len(data) > MAX_BYTES:
        raise Unreadable(f"{path} is not a MATLAB 5 file of at most {MAX_BYTES} bytes")
    found, total = [data[:HEADER]], HEADER
    try:
        for kind, start, end in _elements(data, HEADER, len(data), order):
            element = data[start:end]
            if kind == COMPRESSED:
                unfolding = zlib.decompressobj()
                element = unfolding.decompress(element, max(MAX_BYTES - total, 1))
                if not unfolding.eof:
                    raise Unreadable(f"{path} is torn, or decompresses to more than {MAX_BYTES} bytes: refused")
                total += len(element)  # of variables that nobody asked for, too
                ((kind, start, end),) = _elements(element, 0, len(element), order)
                element = element[start:end]
            if kind != MATRIX:
                raise Unreadable(f"{path} has an element of type {kind} where a variable should be: refused")
            if _name(element, order) not in names:
                continue
            _check_matrix(element, order)
            tag = struct.pack(f"{order}II", kind, len(element))
            found += [tag, element]
    except (struct.error, zlib.error, _Wrong, ValueError) as error:
        raise Unreadable(f"{path} is damaged: {error}") from error
    return b"".join(found)


class _Wrong(Exception):
    """An element that claims more than it has."""


def _elements(data: bytes, at: int, end: int, order: str) -> Iterator[tuple[int, int, int]]:
    """Type, first and last byte of each element of `data[at:end]`."""
    while at < end:
        kind, size = struct.unpack_from(f"{order}II", data, at)
        if kind >> 16:  # small: the size is in the upper half, up to four bytes follow at once
            kind, size, start, step = kind & 0xFFFF, kind >> 16, at + 4, 8
            if size > 4:
                raise _Wrong(f"a small element has {size} bytes")
        else:
            start = at + 8
            step = 8 + size + (0 if kind == COMPRESSED else -size % 8)
        if start + size > end:
            raise _Wrong(f"an element claims {size} bytes, {max(end - start, 0)} are left")
        yield kind, start, start + size
        at += step


def _name(data: bytes, order: str) -> str:
    """The name of a variable: the third of its elements."""
    for number, (_, start, end) in enumerate(_elements(data, 0, len(data), order), 1):
        if number == 3:
            return data[start:end].decode("latin-1")
    return ""


def _check_matrix(data: bytes, order: str, depth: int = 0) -> None:
    """The content of a matrix element: flags, dimensions, name, then what its class says."""
    if not data:
        return  # an empty cell
    if depth > MAX_DEPTH:
        raise _Wrong(f"cells or structs lie {depth} deep in one another")
    parts = list(islice(_elements(data, 0, len(data), order), MAX_PARTS + 1))
    if len(parts) > MAX_PARTS:
        raise _Wrong(f"a variable has more than {MAX_PARTS} parts")
    if [kind for kind, *_ in parts[:3]] != [UINT32, INT32, INT8] or parts[0][2] - parts[0][1] != 8:
        raise _Wrong("a variable without dimensions or name")
    flags = struct.unpack_from(f"{order}I", data, parts[0][1])[0]
    kind = flags & 0xFF
    shape = [struct.unpack_from(f"{order}i", data, at)[0] for at in range(parts[1][1], parts[1][2] - 3, 4)]
    if len(shape) < 2 or len(shape) > 32 or min(shape) < 0:
        raise _Wrong(f"a variable of shape {shape[:8]}")
    count, rest = prod(shape), parts[3:]
    if kind in (CELL, STRUCT):
        if kind == STRUCT:
            count *= _fields(data, rest[:2], order)
            rest = rest[2:]
        if len(rest) != count or any(part[0] != MATRIX for part in rest):
            raise _Wrong(f"{count} cells are claimed, {len(rest)} are there")
        for _, start, end in rest:
            _check_matrix(data[start:end], order, depth + 1)
    elif kind == CHAR or DOUBLE <= kind <= UINT64:
        if len(rest) != (2 if flags & COMPLEX else 1):
            raise _Wrong(f"a variable of shape {shape[:8]} has {len(rest)} parts")
        for stored, start, end in rest:
            letters = kind == CHAR and stored == UTF8 and end - start >= count  # a letter may take several bytes
            known = stored in (LETTERS if kind == CHAR else NUMBERS)  # SciPy dies of others (segmentation fault)
            if not known or not (letters or end - start == count * BYTES[stored]):
                raise _Wrong(f"a variable of shape {shape[:8]} has {end - start} bytes of type {stored}")
    else:
        raise _Wrong(f"a variable of class {kind}, which is neither numbers in full, text, cells nor a struct")


def _fields(data: bytes, parts: list[tuple[int, int, int]], order: str) -> int:
    """How many fields a struct has: the length of a name, then all names, padded to it."""
    if [kind for kind, *_ in parts] != [INT32, INT8]:
        raise _Wrong("a struct without field names")
    (_, at, end), (_, first, last) = parts
    width = struct.unpack_from(f"{order}i", data, at)[0] if end - at == 4 else 0
    if width < 1 or (last - first) % width:
        raise _Wrong("a struct without field names")
    return (last - first) // width
