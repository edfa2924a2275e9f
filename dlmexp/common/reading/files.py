"""Readers of untrusted plain files, archives, JSON and npz files.

No file is read beyond a limit of bytes, and errors of libraries are reported with the name of the
file. Members of archives, and compressed files, are read as streams. JSON becomes plain values or
typed structs. NumPy reads npz files without pickles, which could execute code.
"""

import bz2
import gzip
import io
import json
import os
import stat
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from errno import EINVAL
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import msgspec
import numpy as np

from dlmexp.common.errors import Unreadable, UserError

MIB = 1 << 20
GIB = 1 << 30
MAX_MEMBERS = 10_000
"""The largest number of members of an archive, or of arrays in an npz file."""
MAX_ARCHIVE_BYTES = 64 * GIB
SHOWN_MEMBERS = 8
"""The number of members that a message names."""
OPENERS = {".bz2": bz2.open, ".gz": gzip.open, ".tgz": gzip.open}
"""The functions that open compressed files, by suffix."""
NOT_NPZ = "can't be read as an npz file without pickles"
NUMERIC_KINDS = "biufc"
"""NumPy's letters for dtypes of numbers and truth values."""


@contextmanager
def reading(
    path: Path | str,
    problem: str = "is damaged: copy or download it again",
    limit: int | None = None,
) -> Iterator[None]:
    """Turn whatever a library raises in this context into `Unreadable`.

    The message has the file, the `problem`, and the first line of the library's message. Errors of
    the operating system itself stay `OSError`.

    Args:
        path: The file, for messages.
        problem: What the message says about the file if the library fails.
        limit: The largest number of bytes of the file, which is checked before the context begins.
            None: it is not checked.
    """
    if limit is not None:
        check_plain(Path(path), limit)
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        # Errors of the operating system have a number; a library raises OSError without one. EINVAL
        # is the file's fault, too: a damaged file leads to a seek to an invalid position.
        is_system_error = isinstance(error, OSError) and error.errno not in (None, EINVAL)
        if is_system_error:
            raise
        message = str(error) or type(error).__name__
        first_line, _, _ = message.partition("\n")
        raise Unreadable(f"{path} {problem} ({first_line})") from error


def check_plain(path: Path, limit: int) -> int:
    """Return the number of bytes of a plain file.

    Raises:
        Unreadable: it is not a plain file, or has more than `limit` bytes.
    """
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable(f"{path} is not a plain file: refused")
    if status.st_size > limit:
        raise Unreadable(f"{path} has {status.st_size} bytes, more than {limit}: refused")
    return status.st_size


def read_content(path: Path, limit: int = GIB) -> bytes:
    """Return all bytes of a plain file of at most `limit` bytes."""
    size = check_plain(path, limit)
    with path.open("rb") as file:
        return file.read(size)


def last_bytes(path: Path, limit: int) -> tuple[bytes, int]:
    """Return the last bytes of a plain file, at most `limit`, and the number of bytes before them.

    Raises:
        Unreadable: it is a symbolic link, or not a plain file.
    """
    if path.is_symlink():
        raise Unreadable(f"{path} is a link: refused")
    size = check_plain(path, MAX_ARCHIVE_BYTES)
    n_before = max(0, size - limit)
    with path.open("rb") as file:
        file.seek(n_before)
        return file.read(limit), n_before


class BoundedStream(io.RawIOBase):
    """A stream that raises `Unreadable` after `limit` bytes.

    It defends against decompression bombs: small files that decompress to more bytes than memory
    can hold.
    """

    def __init__(self, inner: Any, limit: int, label: str):
        self._inner = inner
        self._remaining = limit
        self._limit = limit
        self._label = label

    def readable(self) -> bool:
        """Return True; `io.BufferedReader` requires it."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read bytes into a buffer and return their number."""
        count = self._inner.readinto(buffer)
        self._remaining -= count
        if self._remaining < 0:
            raise Unreadable(f"{self._label} has more than {self._limit} bytes: refused")
        return count


@contextmanager
def open_raw(path: Path, member: str | None = None, limit: int = 2 * GIB) -> Iterator[IO[bytes]]:
    """Open a file, or a member of an archive, as a stream of decompressed bytes.

    Nothing is unpacked to disk.

    Args:
        path: A `.zip` or `.tgz` archive; a `.bz2` or `.gz` file, which is decompressed; or another
            file.
        member: The name of a plain file in any folder of an archive; the first file of that name is
            read. None if `path` is not an archive.
        limit: The largest number of decompressed bytes; for a `.tgz` archive, of all members
            together.
    """
    with reading(path, limit=MAX_ARCHIVE_BYTES), ExitStack() as stack:
        if path.suffix == ".zip":
            archive = stack.enter_context(zipfile.ZipFile(path))
            name = _member(archive.namelist(), member, path)
            stream = archive.open(name)
        else:
            opener = OPENERS.get(path.suffix, open)
            stream = opener(path, "rb")
        stack.enter_context(stream)
        bounded = io.BufferedReader(BoundedStream(stream, limit, str(path)), MIB)
        if path.suffix == ".tgz":
            # tarfile needs to seek, which a stream can't: read the whole archive into memory.
            in_memory = io.BytesIO(bounded.read())
            archive = stack.enter_context(tarfile.open(fileobj=in_memory))
            yield _tar_member(archive, member, path)
        else:
            yield bounded


def _tar_member(archive: tarfile.TarFile, member: str | None, path: Path) -> IO[bytes]:
    """Return the first plain file in a tar archive that is called `member`."""
    plain_files = {}
    for info in islice(archive, MAX_MEMBERS + 1):
        if info.isreg() and not info.issparse():
            plain_files[info.name] = info
    name = _member(list(plain_files), member, path)
    return cast(IO[bytes], archive.extractfile(plain_files[name]))


def _member(names: Sequence[str], member: str | None, path: Path) -> str:
    """Return the first of an archive's `names` whose last part is `member`.

    Raises:
        Unreadable: there is none, or there are too many names.
    """
    if len(names) > MAX_MEMBERS:
        raise Unreadable(f"{path} has more than {MAX_MEMBERS} members: refused")
    last_parts = [PurePosixPath(name).name for name in names]
    if member in last_parts:
        return names[last_parts.index(member)]
    listed = ", ".join(last_parts[:SHOWN_MEMBERS]) or "none"
    raise Unreadable(f"{path} has no file '{member}' in it; it has {listed}")


def json_value(text: bytes, kind: Any = Any) -> Any:
    """Return the value of a JSON text, in which NaN and Infinity are allowed.

    Args:
        text: The text.
        kind: The type that the value must have.

    Raises:
        Unreadable: the text is no JSON, or its value has another type.
    """
    try:
        # msgspec refuses NaN, as standard JSON has none. So a text that msgspec refuses is read
        # again by Python's own reader, which accepts NaN but is much slower.
        with suppress(msgspec.DecodeError):
            return msgspec.json.decode(text, type=kind)
        value = json.loads(text)
        # Python's reader also accepts a lone surrogate, half of the code of a character, which
        # can't be written as UTF-8: try to write it here, where the error is reported.
        may_have_surrogate = b"\\ud" in text.lower()
        if may_have_surrogate:
            json.dumps(value, ensure_ascii=False).encode()
        return msgspec.convert(value, kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Unreadable(str(error)) from None


def read_npz(
    source: Path | bytes,
    label: str = "it",
    limit: int = 8 * GIB,
    only: Callable[[str], bool] | None = None,
) -> dict[str, np.ndarray]:
    """Return the arrays of an npz file by name.

    Args:
        source: The file, or its bytes.
        label: What messages call the source, if it is bytes.
        limit: The largest number of bytes, both compressed and decompressed.
        only: Takes the name of an array and returns whether to read it. None: all arrays are read.

    Raises:
        Unreadable: the file is damaged, holds anything but numbers, or is too large.
    """
    if isinstance(source, Path):
        check_plain(source, limit)
        label = str(source)
    arrays = dict[str, np.ndarray]()
    opened = source.open("rb") if isinstance(source, Path) else io.BytesIO(source)
    with (
        opened as file,
        reading(label, NOT_NPZ),
        warnings.catch_warnings(action="ignore"),
        np.load(file, allow_pickle=False) as archive,
    ):
        _check_archive(archive, label, limit)
        for name in archive.files:
            if only is None or only(name):
                arrays[name] = _numeric_array(archive, name, label)
    return arrays


def _check_archive(archive: Any, label: str, limit: int) -> None:
    """Check the number of arrays in an npz file, their names and their size.

    Raises:
        Unreadable: there are too many arrays, two of one name, or too many bytes.
    """
    names = archive.files
    if len(names) > MAX_MEMBERS or len(names) > len(set(names)):
        raise Unreadable(f"{label} has {len(names)} arrays, too many or two of one name: refused")
    total = sum(info.file_size for info in archive.zip.infolist())
    if total > limit:
        raise Unreadable(f"{label} decompresses to {total} bytes, more than {limit}: refused")


def _numeric_array(archive: Any, name: str, label: str) -> np.ndarray:
    """Return an array of an npz file.

    The header of an array may claim a huge size. NumPy then allocates address space for it, but
    uses only as much memory as the file has bytes.

    Raises:
        Unreadable: the array is damaged, or does not hold numbers.
    """
    with reading(f"{label}: array '{name}'", "is damaged or holds Python objects: refused"):
        array = archive[name]
        if array.dtype.kind not in NUMERIC_KINDS:
            raise ValueError("it does not hold numbers")
        return array
