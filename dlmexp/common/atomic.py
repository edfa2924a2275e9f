"""Files that are written completely or not at all, and only inside the folder they belong to.

A file appears under its name once it is complete. Until then it has a temporary name that contains
the process that writes it. This name shows whether the file is still being written, or is left over
from a process that has ended.
"""

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
# Errors of `open` which mean that there is no file of that name.
ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
WRITE_BITS = 0o222  # of owner, group and others
MAX_PID_DIGITS = 9  # every number of so many digits fits into the 32 bits that `os.kill` takes


def path_inside(root: Path, path: Path) -> Path:
    """Return `path` if no symbolic link leads from it out of the folder `root`.

    Call it before the path is written or deleted. Results folders may come from strangers, whose
    symbolic links must not lead to changes elsewhere. `root` itself may be a symbolic link. A link
    to a file is harmless: `write_atomically` and `unlink` replace or delete the link itself.

    Raises:
        OSError: the path is, or leads through, a symbolic link to a folder.
        ValueError: the path is not below `root`.
    """
    parents = path.relative_to(root).parents[:-1]  # without the last one, which is `root` itself
    for folder in (path, *[root / parent for parent in parents]):
        if folder.is_symlink() and folder.is_dir():
            reason = (
                "it is a symbolic link, through which nothing is written or deleted; "
                "put a folder in its place"
            )
            raise OSError(errno.ELOOP, reason, str(folder))
    return path


def is_writable(folder: Path) -> bool:
    """Return whether a folder can be written to, or created.

    A folder without any write bit counts as read-only for root too.
    """
    existing = folder
    while not existing.exists() and existing != existing.parent:  # `/` is its own parent
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        return False
    return bool(existing.stat().st_mode & WRITE_BITS)


def check_output(path: Path, typed: str, suffixes: tuple[str, ...] = ()) -> None:
    """Check that a file can be written.

    Args:
        path: the file.
        typed: what the user typed; messages begin with it.
        suffixes: the endings that it may have; empty: any.

    Raises:
        UserError: the file has another ending, it would replace something that is not a plain
            file, or its folder does not exist or is read-only.
    """
    if suffixes and path.suffix not in suffixes:
        raise UserError(f"{typed}: name a file that ends in {' or '.join(suffixes)}")
    check_replaceable(path, typed)
    if path.is_dir() or not path.parent.is_dir() or not is_writable(path.parent):
        raise UserError(
            f"{typed}: can't write there: name a file in an existing folder that is not read-only"
        )


def check_replaceable(path: Path, typed: str) -> None:
    """Raise `UserError` if a file at this path would replace a device, a pipe or the like."""
    is_special = path.exists() and not path.is_file() and not path.is_dir()
    if is_special:
        raise UserError(f"{typed}: it exists and is not a plain file: name another one")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Provide a temporary path in the same folder, to be written to in this context.

    At the end of the context, the file at the temporary path is renamed to `path`. After an error
    it is removed, and the file at `path` stays as it was.
    """
    unique = uuid.uuid4().hex[:12]
    temporary = path.with_name(f".{path.name}.{this_process()}.{unique}{TEMPORARY}")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None:
            # The error names the temporary path, or no path at all if a disk was full. Users know
            # the final path.
            error.filename = str(path)
            error.filename2 = None
        raise


def write_atomically(path: Path, content: bytes, durable: bool = True) -> None:
    """Write a file completely or not at all.

    Args:
        path: the file; its folder is made.
        content: what it will contain.
        durable: whether the file has to survive a loss of power. If not, such a loss may leave a
            damaged file, which readers can only recognise by a checksum that is kept elsewhere.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    if durable:
        _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    """Flush the names in a folder to disk."""
    with contextlib.suppress(OSError):  # some network disks refuse to do so
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@cache
def machine() -> str:
    """Return a hash of the place where the ids of this machine's processes are valid.

    The place is this host since its last boot, or this container, which has its own namespace of
    process ids. The name of the host is not enough: two hosts or containers may have the same name,
    and each would take the other's processes for dead.
    """
    identity = socket.gethostname()
    with contextlib.suppress(OSError):  # only Linux has these files
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        identity += boot + os.readlink("/proc/self/ns/pid")
    return hashlib.sha256(identity.encode()).hexdigest()[:12]


def this_process() -> str:
    """Return this process as `MACHINE-PID`, for names of files."""
    return f"{machine()}-{os.getpid()}"


def writer_of(path: Path) -> str | None:
    """Return the process that wrote a temporary file, as `MACHINE-PID`.

    None if the file does not have a temporary name of `replacing`.
    """
    if not path.name.startswith(".") or path.suffix != TEMPORARY:
        return None
    parts = path.name.rsplit(".", 3)
    if len(parts) != 4:
        return None
    _name, process, _unique, _suffix = parts
    return process


def is_dead(process: str) -> bool | None:
    """Return whether a process has ended; None if it runs elsewhere or is not named correctly.

    Args:
        process: The process as `MACHINE-PID`, the text that `this_process()` returns in it.
    """
    process_machine, _, pid = process.partition("-")
    if process_machine != machine():
        return None
    if not pid.isascii() or not pid.isdigit() or len(pid) > MAX_PID_DIGITS:
        return None
    return not is_running(int(pid))


def is_running(pid: int) -> bool:
    """Return whether a process of this machine is running.

    A zombie is not: it has ended, but its parent has not yet asked for its exit code.
    """
    try:
        os.kill(pid, 0)  # signal 0 only checks whether the process exists
        status = Path(f"/proc/{pid}/stat").read_text()
    except ProcessLookupError:
        return False
    except OSError:  # a process of another user, or a system without /proc
        return True
    # The name of the program, in parentheses, comes before the state and may contain anything.
    state = status.rpartition(")")[2].split()[0]
    return state != "Z"
