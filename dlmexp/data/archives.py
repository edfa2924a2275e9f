"""Reading one file out of an archive that somebody else made.

Nothing is ever unpacked to disk: a member is read as a stream, at most `limit` bytes of it. So a member called
`../../x` has nowhere to escape to (such an archive is refused all the same), and a few kilobytes that unfold to
terabytes stop at the limit.
"""

import bz2
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from dlmexp.errors import UserError

MOST_MEMBERS = 10_000
GIB = 1 << 30


class Bounded(io.RawIOBase):
    """A stream that refuses to give more than `limit` bytes."""

    def __init__(self, inner: IO[bytes] | io.BufferedIOBase, limit: int, label: str):
        self._inner, self._left, self._limit, self._label = inner, limit, limit, label

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        block = self._inner.read(len(buffer))
        self._left -= len(block)
        if self._left < 0:
            raise UserError(f"{self._label} unfolds to more than {self._limit} bytes: refused")
        buffer[: len(block)] = block
        return len(block)


@contextmanager
def open_raw(path: Path, member: str | None = None, limit: int = 2 * GIB) -> Iterator[IO[bytes]]:
    """The bytes of a file as a stream; from a zip or tar archive those of `member`, found by its last component.

    A `.bz2` file is decompressed. Raises UserError for archives that are damaged, dangerous or without the member.
    """
    label = f"{path}" if member is None else f"{path}: member {member}"
    try:
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                name = _choose([info.filename for info in archive.infolist()], _named(member, path), path)
                with archive.open(name) as stream:
                    yield io.BufferedReader(Bounded(stream, limit, label), 1 << 20)
        elif path.name.endswith((".tgz", ".tar.gz", ".tar")):
            with tarfile.open(path) as archive:
                infos = {info.name: info for info in _bounded_members(archive, path, limit)}
                info = infos[_choose(list(infos), _named(member, path), path)]
                stream = archive.extractfile(info) if info.isreg() else None
                if stream is None:
                    raise UserError(f"{label} is a link or a device, not a file: refused")
                yield io.BufferedReader(Bounded(stream, limit, label), 1 << 20)
        elif path.suffix == ".bz2":
            with bz2.open(path) as stream:
                yield io.BufferedReader(Bounded(stream, limit, label), 1 << 20)
        else:
            with path.open("rb") as stream:
                yield stream
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError) as error:
        raise UserError(f"{path} is damaged ({error}): fetch it again") from error
    except OSError as error:
        if path.suffix in (".bz2", ".tgz", ".gz") and error.errno is None:
            raise UserError(f"{path} is damaged ({error}): fetch it again") from error
        raise


def _named(member: str | None, path: Path) -> str:
    if member is None:
        raise UserError(f"{path} is an archive where a plain file was expected")
    return member


def _bounded_members(archive: tarfile.TarFile, path: Path, limit: int) -> Iterator[tarfile.TarInfo]:
    # Listing a compressed tar decompresses it, so the declared sizes are bounded while going through it.
    total = 0
    for number, info in enumerate(archive):
        total += info.size
        if number >= MOST_MEMBERS or total > limit:
            raise UserError(f"{path} unfolds to more than {limit} bytes or {MOST_MEMBERS} members: refused")
        yield info


def _choose(names: list[str], member: str, path: Path) -> str:
    if len(names) > MOST_MEMBERS:
        raise UserError(f"{path} has {len(names)} members, more than {MOST_MEMBERS}: refused")
    for name in names:
        parts = PurePosixPath(name.replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts:
            raise UserError(f"{path} has a member '{name}' that points outside the archive: refused")
    for name in names:
        if PurePosixPath(name).name == member:
            return name
    raise UserError(f"{path} has no member '{member}'; it has {', '.join(names[:8])}")
