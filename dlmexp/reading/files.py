"""Files that may be anything: only plain files are read, up to a limit, and a library's errors get the file's name.
Members of archives, and decompressed files, as streams; JSON as values or as typed structs."""

import bz2
import gzip
import io
import json
import os
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from errno import EINVAL
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, Any, TypeVar, cast

import msgspec

from dlmexp.errors import Unreadable, UserError

T = TypeVar("T")
MIB = 1 << 20
GIB = 1 << 30
MAX_MEMBERS = 10_000
PACKED = {".bz2": bz2.open, ".gz": gzip.open, ".tgz": gzip.open}


@contextmanager
def reading(
    path: Path | str, problem: str = "is damaged: copy or download it again", limit: int | None = None
) -> Iterator[None]:
    """Whatever a library raises inside becomes `Unreadable`: the file, the `problem`, the first line of the reason. A
    `limit` is checked first (`check_plain`). Errors of the operating system itself stay `OSError`."""
    if limit is not None:
        check_plain(Path(path), limit)
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in (None, EINVAL):  # EINVAL: a seek to a place that is none
            raise
        reason = (str(error) or type(error).__name__).partition("\n")[0]
        raise Unreadable(f"{path} {problem} ({reason})") from error


def check_plain(path: Path, limit: int) -> int:
    """The number of bytes of a plain file; `Unreadable` for anything else, and for more than `limit`."""
    about = os.stat(path)
    if not stat.S_ISREG(about.st_mode):
        raise Unreadable(f"{path} is not a plain file: refused")
    if about.st_size > limit:
        raise Unreadable(f"{path} has {about.st_size} bytes, more than {limit}: refused")
    return about.st_size


def content(path: Path, limit: int = GIB) -> bytes:
    """All bytes of a plain file of at most `limit` bytes."""
    size = check_plain(path, limit)
    # Without O_NONBLOCK, opening a pipe that took the place of the file meanwhile would wait for ever.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        return file.read(size)


class BoundedStream(io.RawIOBase):
    """A stream that raises `Unreadable` after `limit` bytes, where a decompression bomb stops."""

    def __init__(self, inner: Any, limit: int, label: str):
        self._inner, self._left, self._limit, self._label = inner, limit, limit, label

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._inner.readinto(buffer)
        self._left -= count
        if self._left < 0:
            raise Unreadable(f"{self._label} decompresses to more than {self._limit} bytes: refused")
        return count


@contextmanager
def open_raw(path: Path, member: str | None = None, limit: int = 2 * GIB) -> Iterator[IO[bytes]]:
    """A stream of at most `limit` bytes: of a `.zip` or `.tgz` archive, those of the first plain file in it that is
    called `member`, in any folder; of a `.bz2` or `.gz` file, its decompressed content. Nothing is unpacked to disk."""
    with reading(path, limit=64 * GIB), ExitStack() as stack:
        if path.suffix == ".zip":
            archive = stack.enter_context(zipfile.ZipFile(path))
            stream = archive.open(_member([info.filename for info in archive.infolist()], member, path))
        else:
            stream = PACKED.get(path.suffix, open)(path, "rb")
        stack.enter_context(stream)
        if path.suffix in (*PACKED, ".zip"):
            stream = io.BufferedReader(BoundedStream(stream, limit, str(path)), MIB)
        if path.suffix == ".tgz":
            archive = stack.enter_context(tarfile.open(fileobj=io.BytesIO(stream.read())))
            plain = (info for info in islice(archive, MAX_MEMBERS + 1) if info.isreg() and not info.issparse())
            infos = {info.name: info for info in plain}
            stream = cast(IO[bytes], archive.extractfile(infos[_member(list(infos), member, path)]))
        yield stream


def _member(names: list[str], member: str | None, path: Path) -> str:
    """The first of an archive's `names` whose last part is `member`."""
    if len(names) > MAX_MEMBERS:
        raise Unreadable(f"{path} has more than {MAX_MEMBERS} members: refused")
    last = {name: PurePosixPath(name).name for name in names}
    if wanted := [name for name in names if last[name] == member]:
        return wanted[0]
    raise Unreadable(f"{path} has no file '{member}' in it; it has {', '.join([*last.values()][:8]) or 'none'}")


@contextmanager
def _reading_json() -> Iterator[None]:
    try:
        yield
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Unreadable(str(error)) from None


def json_value(text: bytes) -> Any:
    """The value of a JSON text, in which NaN and infinity are numbers too."""
    with _reading_json():
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:  # standard JSON has no NaN; Python's own reader, five times slower, takes it
            value = json.loads(text)
            if b"\\ud" in text.lower():  # it would take half a letter, too, which nobody could write again
                json.dumps(value, ensure_ascii=False).encode()
            return value


def typed_json(text: bytes, kind: type[T]) -> T:
    """The value of a JSON text as the given type."""
    with _reading_json():
        return msgspec.json.decode(text, type=kind)


def typed_value(value: Any, kind: type[T]) -> T:
    """A decoded JSON value as the given type."""
    with _reading_json():
        return msgspec.convert(value, kind)
