"""Archives: a member of a zip or tar file, a bz2 or gzipped file.

Nothing is unpacked to disk: a member is read as a stream of at most `limit` bytes. So a member such as `../../x` could
not overwrite anything (it is refused nevertheless), and a decompression bomb stops at the limit.
"""

import bz2
import gzip
import io
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from dlmexp.errors import Unreadable
from dlmexp.reading.files import GIB, MIB, reading

MAX_MEMBERS = 10_000
PACKED = {".bz2": bz2.open, ".gz": gzip.open, ".tgz": gzip.open}


class BoundedStream(io.RawIOBase):
    """A stream that raises `Unreadable` after `limit` bytes."""

    def __init__(self, inner: IO[bytes] | io.BufferedIOBase, limit: int, label: str):
        self._inner, self._left, self._limit, self._label = inner, limit, limit, label

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        chunk = self._inner.read(len(buffer))
        self._left -= len(chunk)
        if self._left < 0:
            raise Unreadable(f"{self._label} decompresses to more than {self._limit} bytes: refused")
        buffer[: len(chunk)] = chunk
        return len(chunk)


def bounded(inner: IO[bytes] | io.BufferedIOBase, limit: int, label: str) -> io.BufferedReader:
    return io.BufferedReader(BoundedStream(inner, limit, label), MIB)


@contextmanager
def open_raw(path: Path, member: str | None = None, limit: int = 2 * GIB) -> Iterator[IO[bytes]]:
    """A stream of bytes: of a zip or tar archive, those of the member with file name `member`; of a `.bz2` or `.gz`
    file, its decompressed content. `Unreadable` for archives that are damaged, dangerous or without the member."""
    is_tar = path.name.endswith((".tgz", ".tar.gz", ".tar"))
    if member is None and (is_tar or path.suffix == ".zip"):
        raise Unreadable(f"{path} is an archive where a plain file was expected")
    with reading(path, limit=GIB * 64), ExitStack() as stack:
        if path.suffix == ".zip":
            archive = stack.enter_context(zipfile.ZipFile(path))
            name = _chosen([info.filename for info in archive.infolist()], str(member), path)
            stream = stack.enter_context(archive.open(name))
            yield bounded(stream, limit, f"{path}: member {member}")
            return
        plain = stack.enter_context(PACKED.get(path.suffix, open)(path, "rb"))
        if not is_tar:
            yield bounded(plain, limit, str(path)) if path.suffix in PACKED else plain
            return
        found: dict[str, bytes] = {}
        for name, content in _tar_members(bounded(plain, limit, str(path)), path, str(member)):
            found.setdefault(name, content)
        yield io.BytesIO(found[_chosen(list(found), str(member), path)])


def gunzipped(content: bytes, limit: int, label: str) -> bytes:
    """What gzipped bytes, of a member of an archive say, decompress to."""
    with reading(label):
        return bounded(gzip.GzipFile(fileobj=io.BytesIO(content)), limit, label).read()


def _tar_members(stream: IO[bytes], path: Path, only: str) -> Iterator[tuple[str, bytes]]:
    """Name of each plain file in a tar stream, and the content of those called `only`. Others are refused."""
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for number, info in enumerate(archive, start=1):
            if number > MAX_MEMBERS:
                raise Unreadable(f"{path} has more than {MAX_MEMBERS} members: refused")
            if info.isdir():
                continue
            file = archive.extractfile(info) if info.isreg() and not info.issparse() else None
            if file is None:
                raise Unreadable(f"{path}: member {info.name} is a link, a device or another special file: refused")
            yield info.name, file.read() if PurePosixPath(info.name).name == only else b""
    while stream.read(MIB):  # so that the checksums at the end of a compressed stream are verified
        pass


def _chosen(names: list[str], member: str, path: Path) -> str:
    """The name in an archive whose last part is `member`; `Unreadable` for a name that points outside the archive."""
    if len(names) > MAX_MEMBERS:
        raise Unreadable(f"{path} has {len(names)} members, more than {MAX_MEMBERS}: refused")
    for name in names:
        parts = PurePosixPath(name.replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts:
            raise Unreadable(f"{path} has a member '{name}' that points outside the archive: refused")
    found = next((name for name in names if PurePosixPath(name).name == member), None)
    if found is None:
        raise Unreadable(f"{path} has no member '{member}'; it has {', '.join(names[:8]) or 'none'}")
    return found
