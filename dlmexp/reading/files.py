"""The bytes of a file that may be anything: only plain files are read, and only up to a limit."""

import os
import stat
from pathlib import Path

from dlmexp.errors import Unreadable

MIB = 1 << 20
GIB = 1 << 30


def content(path: Path, limit: int = GIB) -> bytes:
    """All bytes of a plain file. A pipe or a device is refused before anything is read of it."""
    # Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise Unreadable(f"{path} is not a plain file: refused")
        if about.st_size > limit:
            raise Unreadable(f"{path} has {about.st_size} bytes, more than {limit}: refused")
        return file.read(about.st_size)


def lines(path: Path, limit: int = GIB) -> list[str]:
    """The lines of a text file; what is not ASCII becomes a replacement character."""
    return content(path, limit).decode("ascii", errors="replace").splitlines()
