"""Archives: a member of a zip or tar file, a bz2 or gzipped file.

Nothing is unpacked to disk: a member is read as a stream of at most `limit` bytes, so a decompression bomb stops there.
"""

import bz2
import gzip
import io
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, TypeVar

from dlmexp.errors import Unreadable
from dlmexp.reading.files import GIB, MIB, reading

T = TypeVar("T", zipfile.ZipInfo, tarfile.TarInfo)
MAX_MEMBERS = 10_000
PACKED = {".bz2": bz2.open, ".gz": gzip.open, ".tgz": gzip.open}


class BoundedStream(io.RawIOBase):
    """A stream that raises `Unreadable` after `limit` bytes."""

    def __init__(self, inner: Any, limit: int, label: str):
        self._inner, self._read, self._limit, self._label = inner, 0, limit, label

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._inner.readinto(buffer)
        self._read += count
        if self._read > self._limit:
            raise Unreadable(f"{self._label} decompresses to more than {self._limit} bytes: refused")
        return count


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
            info = _member(((info.filename, info) for info in archive.infolist()), str(member), path)
            member_stream = BoundedStream(stack.enter_context(archive.open(info)), limit, f"{path}: member {member}")
            yield io.BufferedReader(member_stream, MIB)
            return
        stream = stack.enter_context(PACKED.get(path.suffix, open)(path, "rb"))
        if path.suffix in PACKED or is_tar:
            stream = io.BufferedReader(BoundedStream(stream, limit, str(path)), MIB)
        if is_tar:
            archive = stack.enter_context(tarfile.open(fileobj=io.BytesIO(stream.read())))
            stream = archive.extractfile(_member(((info.name, info) for info in archive), str(member), path))
        assert stream is not None
        yield stream


def _member(infos: Iterable[tuple[str, T]], member: str, path: Path) -> T:
    """The first entry with file name `member`; `Unreadable` if an entry is a link, a device or points outside."""
    found: dict[str, T] = {}
    for number, (name, info) in enumerate(infos, start=1):
        parts = PurePosixPath(name.replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts:
            raise Unreadable(f"{path} has a member '{name}' that points outside the archive: refused")
        if isinstance(info, tarfile.TarInfo) and (not (info.isreg() or info.isdir()) or info.issparse()):
            raise Unreadable(f"{path}: member {name} is a link, a device or another special file: refused")
        if number > MAX_MEMBERS:
            raise Unreadable(f"{path} has more than {MAX_MEMBERS} members: refused")
        found.setdefault(parts.name, info)
    if member not in found:
        raise Unreadable(f"{path} has no member '{member}'; it has {', '.join(list(found)[:8]) or 'none'}")
    return found[member]
