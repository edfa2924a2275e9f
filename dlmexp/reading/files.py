"""Files that may be anything: only plain files are read, up to a limit, and a library's errors get the file's name."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EINVAL
from pathlib import Path

from dlmexp.errors import Unreadable, UserError

MIB = 1 << 20
GIB = 1 << 30
DAMAGED = "is damaged: copy or download it again"


@contextmanager
def reading(path: Path | str, problem: str = DAMAGED, limit: int | None = None) -> Iterator[None]:
    """Whatever a library raises inside becomes `Unreadable`: the file, the `problem`, the first line of the reason.

    A file of more than `limit` bytes, or one that is no plain file (a pipe, a device), is refused before that. Errors
    of the operating system itself stay `OSError`.
    """
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
