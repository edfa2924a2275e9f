"""Reads untrusted archives: one member of a zip or tar file, a bz2 file, the arrays of an npz file.

Nothing is unpacked to disk: a member is read as a stream of at most `limit` bytes. So an archive with a member such as
`../../x` could not overwrite anything (it is refused nevertheless), and a decompression bomb stops at the limit.
"""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

import numpy as np

from dlmexp.errors import UserError

MAX_MEMBERS = 10_000
GIB = 1 << 30


class BoundedStream(io.RawIOBase):
    """A stream that raises UserError after `limit` bytes."""

    def __init__(self, inner: IO[bytes] | io.BufferedIOBase, limit: int, label: str):
        self._inner, self._left, self._limit, self._label = inner, limit, limit, label

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        chunk = self._inner.read(len(buffer))
        self._left -= len(chunk)
        if self._left < 0:
            raise UserError(f"{self._label} decompresses to more than {self._limit} bytes: refused")
        buffer[: len(chunk)] = chunk
        return len(chunk)


@contextmanager
def open_raw(path: Path, member: str | None = None, limit: int = 2 * GIB) -> Iterator[IO[bytes]]:
    """A stream of bytes: of a zip or tar archive, those of the member with file name `member`; of a `.bz2` or `.gz`
    file, its decompressed content. Raises UserError for archives that are damaged, dangerous or without the member."""
    label = f"{path}" if member is None else f"{path}: member {member}"
    try:
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                name = _find_member([info.filename for info in archive.infolist()], _require_name(member, path), path)
                with archive.open(name) as stream:
                    yield io.BufferedReader(BoundedStream(stream, limit, label), 1 << 20)
        elif path.name.endswith((".tgz", ".tar.gz", ".tar")):
            with tarfile.open(path) as archive:
                infos = {info.name: info for info in _bounded_members(archive, path, limit)}
                info = infos[_find_member(list(infos), _require_name(member, path), path)]
                stream = archive.extractfile(info) if info.isreg() else None
                if stream is None:
                    raise UserError(f"{label} is a link or a device, not a file: refused")
                yield io.BufferedReader(BoundedStream(stream, limit, label), 1 << 20)
        elif path.suffix in (".bz2", ".gz"):
            with bz2.open(path) if path.suffix == ".bz2" else gzip.open(path) as stream:
                yield io.BufferedReader(BoundedStream(stream, limit, label), 1 << 20)
        else:
            with path.open("rb") as stream:
                yield stream
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError) as error:
        raise UserError(f"{path} is damaged ({error}): download it again") from error
    except OSError as error:
        if path.suffix in (".bz2", ".tgz", ".gz") and error.errno is None:
            raise UserError(f"{path} is damaged ({error}): download it again") from error
        raise


def _require_name(member: str | None, path: Path) -> str:
    if member is None:
        raise UserError(f"{path} is an archive where a plain file was expected")
    return member


def _bounded_members(archive: tarfile.TarFile, path: Path, limit: int) -> Iterator[tarfile.TarInfo]:
    # Listing a compressed tar decompresses it, so the limit applies to the sizes declared so far.
    total = 0
    for number, info in enumerate(archive):
        total += info.size
        if number >= MAX_MEMBERS or total > limit:
            raise UserError(f"{path} decompresses to more than {limit} bytes or {MAX_MEMBERS} members: refused")
        yield info


def _find_member(names: list[str], member: str, path: Path) -> str:
    if len(names) > MAX_MEMBERS:
        raise UserError(f"{path} has {len(names)} members, more than {MAX_MEMBERS}: refused")
    for name in names:
        parts = PurePosixPath(name.replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts:
            raise UserError(f"{path} has a member '{name}' that points outside the archive: refused")
    for name in names:
        if PurePosixPath(name).name == member:
            return name
    raise UserError(f"{path} has no member '{member}'; it has {', '.join(names[:8])}")


def read_npz(path: Path, limit: int = 8 * GIB) -> dict[str, np.ndarray]:
    """All arrays of an npz file; refused if it holds Python objects or decompresses to more than `limit` bytes."""
    try:
        with zipfile.ZipFile(path) as archive:
            # zipfile never reads more of a member than the size declared for it, so the declared sizes are a bound.
            if (total := sum(info.file_size for info in archive.infolist())) > limit:
                raise UserError(f"{path} decompresses to {total} bytes, more than {limit}: refused")
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} cannot be read as an npz file without pickles: {error}") from error
