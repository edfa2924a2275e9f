"""Archives: one member of a zip or tar file, a bz2 file, all members of a compressed tar file.

Nothing is unpacked to disk: a member is read as a stream of at most `limit` bytes. So an archive with a member such as
`../../x` could not overwrite anything (it is refused nevertheless), and a decompression bomb stops at the limit.
"""

import bz2
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EINVAL
from pathlib import Path, PurePosixPath
from struct import error as StructError
from typing import IO

from dlmexp.errors import Unreadable
from dlmexp.reading.files import GIB, MIB

MAX_MEMBERS = 10_000
MAX_PACK_MEMBERS = 1_000_000
MAX_PACK_BYTES = 4 * GIB
MAX_PACK_RATIO = 300  # unfolded to packed; packs of ours have 5 to 20. Below SMALL it does not matter.
SMALL = 64 * MIB
DAMAGE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, StructError, NotImplementedError, ValueError)
"""What the decoders of the standard library raise for damaged archives (besides OSError, see `damage`)."""

BLOCK = 512  # of a tar file
REGULAR, SKIPPED = (b"0", b"\0", b"7"), (b"5", b"x", b"g", b"L", b"K")  # folders and headers with longer names
KINDS = {b"1": "link", b"2": "link", b"3": "device", b"4": "device", b"6": "pipe"}


@contextmanager
def damage(path: Path) -> Iterator[None]:
    """What decoders raise inside becomes `Unreadable`; other errors of the operating system stay what they are."""
    try:
        yield
    except DAMAGE as error:
        raise Unreadable(f"{path} is damaged ({error or type(error).__name__}): copy or download it again") from error
    except OSError as error:
        if error.errno not in (None, EINVAL):  # bz2 and gzip give none; EINVAL comes of a seek to a place that is none
            raise
        raise Unreadable(f"{path} is damaged ({error}): copy or download it again") from error


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
    label = f"{path}" if member is None else f"{path}: member {member}"
    with damage(path):
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                infos = {info.filename: info for info in archive.infolist()}
                info = infos[_find_member(list(infos), _require_name(member, path), path)]
                with open_member(archive, info, label) as stream:
                    yield bounded(stream, limit, label)
        elif path.name.endswith((".tgz", ".tar.gz", ".tar")):
            with path.open("rb") if path.suffix == ".tar" else gzip.open(path) as packed:
                yield io.BytesIO(_tar_member(bounded(packed, limit, str(path)), _require_name(member, path), path))
        elif path.suffix in (".bz2", ".gz"):
            with bz2.open(path) if path.suffix == ".bz2" else gzip.open(path) as stream:
                yield bounded(stream, limit, label)
        else:
            with path.open("rb") as stream:
                yield stream


def gunzipped(content: bytes, limit: int, label: str) -> bytes:
    """What gzipped bytes, of a member of an archive say, decompress to."""
    with damage(Path(label)):
        return bounded(gzip.GzipFile(fileobj=io.BytesIO(content)), limit, label).read()


def open_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, label: str) -> IO[bytes]:
    """A member of a zip file; one that is encrypted, or packed in another way than deflated, is refused."""
    if info.flag_bits & 1:
        raise Unreadable(f"{label} is encrypted: save it without a password")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Unreadable(f"{label} is compressed by method {info.compress_type}; only 'deflate' is read")
    return archive.open(info)


def pack_members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of each member of a `.tar.xz` file, in its order."""
    limit = min(MAX_PACK_BYTES, max(SMALL, MAX_PACK_RATIO * path.stat().st_size))
    with damage(path), lzma.open(path) as packed:
        for name, read in tar_members(bounded(packed, limit, str(path)), path, MAX_PACK_MEMBERS):
            yield name, read()


def tar_members(stream: IO[bytes], path: Path, most: int = MAX_MEMBERS) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Name of each plain file in a tar stream, and a function that reads it (to be called before the next one).

    Links and devices are refused. The headers are read here and not by `tarfile`, which takes 0.1 ms for each, follows
    links, and allocates what headers of headers claim.
    """
    number = 0
    while (header := stream.read(BLOCK)).strip(b"\0"):
        number += 1
        name, size, kind = _header(header, path)
        if number > most:
            raise Unreadable(f"{path} has more than {most} members: refused")
        if kind in REGULAR:
            content: list[bytes] = []

            def read(size: int = size, content: list[bytes] = content) -> bytes:
                content.append(_exactly(stream, size, path))
                return content[0]

            yield name, read
            left = 0 if content else size
        elif kind in SKIPPED:
            left = size
        else:
            raise Unreadable(f"{path}: member {name} is a {KINDS.get(kind, 'special file')}: refused")
        left += -size % BLOCK
        while left:
            left -= len(_exactly(stream, min(left, MIB), path))
    while stream.read(MIB):  # so that the checksums at the end of a compressed stream are verified
        pass


def _header(header: bytes, path: Path) -> tuple[str, int, bytes]:
    """Name, size and kind of a tar member."""
    if len(header) < BLOCK:
        raise Unreadable(f"{path} is damaged (it ends within a header): copy or download it again")
    try:
        checksum = int(header[148:156].rstrip(b"\0 ") or b"0", 8)
        size = int(header[124:136].rstrip(b"\0 ") or b"0", 8)
        name = header[:100].rstrip(b"\0").decode()
        prefix = header[345:500].rstrip(b"\0").decode() if header[257:263] == b"ustar\0" else ""
    except ValueError:
        checksum, size, name, prefix = -1, -1, "", ""
    if size < 0 or sum(header) - sum(header[148:156]) + 8 * 32 != checksum:
        raise Unreadable(f"{path} is damaged (a header is none): copy or download it again")
    return (f"{prefix}/{name}" if prefix else name), size, header[156:157]


def _exactly(stream: IO[bytes], size: int, path: Path) -> bytes:
    parts, left = [], size
    while left:  # in parts: a size that is only claimed allocates nothing
        parts.append(stream.read(min(left, MIB)))
        left -= len(parts[-1])
        if not parts[-1]:
            raise Unreadable(f"{path} is damaged (it ends within a member): copy or download it again")
    return b"".join(parts)


def _tar_member(stream: IO[bytes], member: str, path: Path) -> bytes:
    names, content = [], None
    for name, read in tar_members(stream, path):
        _refuse_outside(name, path)
        names.append(name)
        if content is None and PurePosixPath(name).name == member:
            content = read()
    return content if content is not None else _missing(names, member, path)


def _require_name(member: str | None, path: Path) -> str:
    if member is None:
        raise Unreadable(f"{path} is an archive where a plain file was expected")
    return member


def _find_member(names: list[str], member: str, path: Path) -> str:
    if len(names) > MAX_MEMBERS:
        raise Unreadable(f"{path} has {len(names)} members, more than {MAX_MEMBERS}: refused")
    for name in names:
        _refuse_outside(name, path)
    return next((name for name in names if PurePosixPath(name).name == member), None) or _missing(names, member, path)


def _refuse_outside(name: str, path: Path) -> None:
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts:
        raise Unreadable(f"{path} has a member '{name}' that points outside the archive: refused")


def _missing(names: list[str], member: str, path: Path):
    raise Unreadable(f"{path} has no member '{member}'; it has {', '.join(names[:8]) or 'none'}")
