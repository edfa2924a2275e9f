"""Files that may be anything: only plain files are read, up to a limit, and a library's errors get
the file's name.

Members of archives, and decompressed files, as streams; JSON as values or as typed structs; arrays
from npz files, by numpy without pickles, from rows of text, and from MATLAB 5 files, by SciPy in a
process of its own with limits: SciPy allocates what a file claims, and a damaged one can end the
process that reads it."""

import bz2
import gzip
import io
import json
import os
import stat
import subprocess
import sys
import tarfile
import warnings
import zipfile
from collections.abc import Iterator
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
PACKED = {".bz2": bz2.open, ".gz": gzip.open, ".tgz": gzip.open}
NO_ARRAYS = "can't be read as an npz file without pickles"
MAX_TEXT_BYTES = 32 * MIB  # of a published file of text, whose words take ten times as much memory
MAX_MATLAB_BYTES = 256 * MIB  # of the file, or of the member of an archive
MAX_MATLAB_MEMORY = 2048 * MIB  # address space of the process that reads it
MAX_MATLAB_SECONDS = 120
PROGRAM = """
import io, resource, sys, warnings
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
warnings.simplefilter("ignore")
import numpy as np
from scipy.io import loadmat

names = sys.argv[2:]
read, arrays = loadmat(io.BytesIO(sys.stdin.buffer.read()), variable_names=[name.split(".")[0] for name in names]), {}
for name in names:
    variable, *parts = name.split(".")
    value = read[variable]
    for part in parts:
        value = value[part].ravel()[0] if value.dtype.names else value.ravel()[int(part) - 1]
    if value.dtype.kind not in "biuf":
        raise TypeError(f"{name} holds no numbers")
    arrays[name] = value.astype(np.float64)
np.savez(sys.stdout.buffer, **arrays)
"""


@contextmanager
def reading(
    path: Path | str,
    problem: str = "is damaged: copy or download it again",
    limit: int | None = None,
) -> Iterator[None]:
    """Whatever a library raises inside becomes `Unreadable`: the file, the `problem`, the first
    line of the reason. A `limit` is checked first (`check_plain`). Errors of the operating system
    itself stay `OSError`."""
    if limit is not None:
        check_plain(Path(path), limit)
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in (
            None,
            EINVAL,
        ):  # EINVAL: a seek to a place that is none
            raise
        reason = (str(error) or type(error).__name__).partition("\n")[0]
        raise Unreadable(f"{path} {problem} ({reason})") from error


def check_plain(path: Path, limit: int) -> int:
    """The number of bytes of a plain file; `Unreadable` for anything else, and for more than
    `limit`."""
    about = os.stat(path)
    if not stat.S_ISREG(about.st_mode):
        raise Unreadable(f"{path} is not a plain file: refused")
    if about.st_size > limit:
        raise Unreadable(f"{path} has {about.st_size} bytes, more than {limit}: refused")
    return about.st_size


def content(path: Path, limit: int = GIB) -> bytes:
    """All bytes of a plain file of at most `limit` bytes."""
    size = check_plain(path, limit)
    with path.open("rb") as file:
        return file.read(size)


class BoundedStream(io.RawIOBase):
    """A stream that raises `Unreadable` after `limit` bytes: a decompression bomb stops there."""

    def __init__(self, inner: Any, limit: int, label: str):
        self._inner, self._left, self._limit, self._label = inner, limit, limit, label

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._inner.readinto(buffer)
        self._left -= count
        if self._left < 0:
            raise Unreadable(f"{self._label} has more than {self._limit} bytes: refused")
        return count


@contextmanager
def open_raw(path: Path, member: str | None = None, limit: int = 2 * GIB) -> Iterator[IO[bytes]]:
    """A stream of at most `limit` bytes: of a `.zip` or `.tgz` archive, those of the first plain
    file in it that is called `member`, in any folder; of a `.bz2` or `.gz` file, its decompressed
    content. Nothing is unpacked to disk."""
    with reading(path, limit=64 * GIB), ExitStack() as stack:
        if path.suffix == ".zip":
            archive = stack.enter_context(zipfile.ZipFile(path))
            stream = archive.open(_member(archive.namelist(), member, path))
        else:
            stream = PACKED.get(path.suffix, open)(path, "rb")
        stack.enter_context(stream)
        stream = io.BufferedReader(BoundedStream(stream, limit, str(path)), MIB)
        if path.suffix == ".tgz":
            archive = stack.enter_context(tarfile.open(fileobj=io.BytesIO(stream.read())))
            plain = (
                info
                for info in islice(archive, MAX_MEMBERS + 1)
                if info.isreg() and not info.issparse()
            )
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
    raise Unreadable(
        f"{path} has no file '{member}' in it; it has {', '.join([*last.values()][:8]) or 'none'}"
    )


def json_value(text: bytes, kind: Any = Any) -> Any:
    """The value of a JSON text as the given type; NaN and infinity are numbers too."""
    try:
        with suppress(
            msgspec.DecodeError
        ):  # standard JSON has no NaN; Python's own reader, much slower, takes it
            return msgspec.json.decode(text, type=kind)
        value = json.loads(text)
        if (
            b"\\ud" in text.lower()
        ):  # it would take half a letter, too, which nobody could write again
            json.dumps(value, ensure_ascii=False).encode()
        return msgspec.convert(value, kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Unreadable(str(error)) from None


def read_npz(
    source: Path | bytes, label: str = "it", limit: int = 8 * GIB, only: str | None = None
) -> dict[str, np.ndarray]:
    """All arrays of an npz file, or of its bytes, which errors call `label`; or `only` one of them.
    Refused if it holds anything but numbers, or more than `limit` bytes."""
    if isinstance(source, Path):
        check_plain(source, limit)
        label = str(source)
    opened = source.open("rb") if isinstance(source, Path) else io.BytesIO(source)
    found, quiet = dict[str, np.ndarray](), warnings.catch_warnings(action="ignore")
    with (
        opened as file,
        reading(label, NO_ARRAYS),
        quiet,
        np.load(file, allow_pickle=False) as archive,
    ):
        names = archive.files
        if len(names) > min(MAX_MEMBERS, len(set(names))):
            raise Unreadable(
                f"{label} has {len(names)} arrays, too many or two of one name: refused"
            )
        if (total := sum(info.file_size for info in archive.zip.infolist())) > limit:
            raise Unreadable(f"{label} decompresses to {total} bytes, more than {limit}: refused")
        for name in (name for name in names if only in (None, name)):
            # numpy allocates what the header of an array claims, but fills only as much as the file
            # has.
            with reading(f"{label}: array '{name}'", "is damaged or holds Python objects: refused"):
                found[name] = archive[name]
                if found[name].dtype.kind not in "biufc":
                    raise ValueError("it holds no numbers")
    return found


def read_rows(path: Path) -> np.ndarray:
    """The rows of a text file [rows, columns], numbers or words with commas, tabs or blanks between
    them; without the header of ARFF and KEEL, comments and empty lines."""
    with open_raw(path, limit=MAX_TEXT_BYTES) as stream, reading(path, "is not a table"):
        text = (
            stream.read().decode("utf-8", errors="replace").translate(str.maketrans(",'\"", "   "))
        )
        lines = [
            line.strip()
            for line in text.splitlines()
            if line.strip() and not line.lstrip().startswith("%")
        ]
        begins = next(
            (k for k, line in enumerate(lines, start=1) if line.lower().startswith("@data")), 0
        )
        rows = [line for line in lines[begins:] if not line.startswith("@")]
        if not rows:
            raise ValueError("it has no rows")
        words = [row.split() for row in rows]
        if len({*map(len, words)}) > 1:
            raise ValueError("its rows have different numbers of columns")
        return np.array(words, dtype=object)


def read_variables(path: Path, *names: str, member: str | None = None) -> list[np.ndarray]:
    """The named variables of a MATLAB 5 file, or of the member of an archive that is one, as arrays
    of float64: `a.b` is field b of the struct a, `a.2` the second entry of the cell array a."""
    with open_raw(path, member, MAX_MATLAB_BYTES) as stream:
        data = stream.read()
    command = [sys.executable, "-P", "-c", PROGRAM, str(MAX_MATLAB_MEMORY), *names]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with reading(path, f"is not a sound MATLAB 5 file with the variables {', '.join(names)}"):
        done = subprocess.run(
            command, input=data, capture_output=True, timeout=MAX_MATLAB_SECONDS, env=environment
        )
        if done.returncode:
            raise ValueError(
                done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
                or "it ends its reader"
            )
    arrays = read_npz(done.stdout, str(path))
    return [arrays[name] for name in names]
