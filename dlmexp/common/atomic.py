"""Files that appear under their name once all of them is written, never outside the folder they
belong to, and whose unfinished remains can be told from what a live process is writing."""

import contextlib
import errno
import hashlib
import os
import socket
import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from dlmexp.common.errors import UserError

TEMPORARY = ".tmp"
ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)  # no file of that name


def within(root: Path, path: Path) -> Path:
    """`path`, which is to be written or deleted in the folder `root`. `OSError` if it is, or leads
    through, a symbolic link to a folder: whoever made the contents of `root` must not choose what
    is changed elsewhere. `root` itself may be a link."""
    below = path.relative_to(root)
    for folder in (path, *(root / part for part in below.parents if part != Path())):
        if folder.is_symlink() and folder.is_dir():
            why = "it is a symbolic link, through which nothing is written or deleted; put a folder in its place"
            raise OSError(errno.ELOOP, why, str(folder))
    return path


def is_writable(folder: Path) -> bool:
    """Whether `folder` can be written to, or created. A folder without any write bit is read-only
    for root too."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    return (
        existing.is_dir() and os.access(existing, os.W_OK) and bool(existing.stat().st_mode & 0o222)
    )


def check_output(path: Path, typed: str, suffixes: tuple[str, ...] = ()) -> None:
    """UserError that begins with what was `typed`, for a file that can't be written: one with none
    of the `suffixes` that it must have, or in a folder that is not there or read-only."""
    if suffixes and path.suffix not in suffixes:
        raise UserError(f"{typed}: name a file that ends in {' or '.join(suffixes)}")
    if path.is_dir() or not path.parent.is_dir() or not is_writable(path.parent):
        raise UserError(f"{typed}: can't write there; name a file in a folder that is there")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path in the same folder, with this process in its name. The file there takes the
    name `path` at the end of the context; after an error it is removed, and what was at `path`
    stays."""
    temporary = path.with_name(f".{path.name}.{owner()}.{uuid.uuid4().hex[:12]}{TEMPORARY}")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, content: bytes, durable: bool = True) -> None:
    """Write a file whole or not at all, flushed to disk. One that is not `durable` may be torn
    where the power fails: another file has its checksum."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    if not durable:
        return
    with contextlib.suppress(OSError):  # some network disks refuse to sync a folder
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@cache
def machine() -> str:
    """A name for what process ids are counted in: this host since it was booted, or this container.
    Hosts and containers may share a host's name, and each would take the other's processes for
    dead."""
    about = socket.gethostname()
    with contextlib.suppress(OSError):  # not Linux
        about += Path("/proc/sys/kernel/random/boot_id").read_text() + os.readlink(
            "/proc/self/ns/pid"
        )
    return hashlib.sha256(about.encode()).hexdigest()[:12]


def owner() -> str:
    """This process, as it is written into names of files."""
    return f"{machine()}-{os.getpid()}"


def writer_of(path: Path) -> str | None:
    """The process that wrote a temporary file, as `owner()` names it; None for other files."""
    parts = path.name.rsplit(".", 3)
    return (
        parts[1]
        if path.name.startswith(".") and path.suffix == TEMPORARY and len(parts) == 4
        else None
    )


def is_dead(who: str) -> bool | None:
    """Whether the process that `owner()` named so has ended; None if it is not one of this
    machine."""
    where, _, pid = who.partition("-")
    if where != machine() or not (pid.isascii() and pid.isdigit() and len(pid) < 10):
        return None
    return not alive(int(pid))


def alive(pid: int) -> bool:
    """Whether a process of this machine runs. A zombie, which its parent has not waited for, does
    not."""
    try:
        os.kill(pid, 0)
        status = Path(f"/proc/{pid}/stat").read_text()
    except ProcessLookupError:
        return False
    except OSError:  # another user's, or no /proc here
        return True
    return status.rpartition(")")[2].split()[0] != "Z"
