"""Which process a file belongs to, so that what a killed one left can be told from what a live one is writing."""

import hashlib
import os
import socket
from functools import cache
from pathlib import Path


@cache
def machine() -> str:
    """A name for what process ids are counted in: this host since it was booted, or this container.

    The host's name alone would not do: two containers, or two machines made from one image, may share it, and each
    would take the other's processes for dead.
    """
    about = socket.gethostname()
    for read in (lambda: Path("/proc/sys/kernel/random/boot_id").read_text(), lambda: os.readlink("/proc/self/ns/pid")):
        try:
            about += read()
        except OSError:  # not Linux
            about += "?"
    return hashlib.sha256(about.encode()).hexdigest()[:12]


def owner() -> str:
    """This process, as it is written into names of files."""
    return f"{machine()}-{os.getpid()}"


def is_dead(who: str) -> bool | None:
    """Whether the process that `owner()` named so has ended; None if it is not one of this machine."""
    where, _, pid = who.partition("-")
    if where != machine() or not (pid.isascii() and pid.isdigit() and len(pid) < 10):
        return None
    return not alive(int(pid))


def alive(pid: int) -> bool:
    """Whether a process of this machine runs. A zombie (ended, but its parent has not waited for it) does not; in
    containers zombies may stay for good."""
    try:
        os.kill(pid, 0)
        status = Path(f"/proc/{pid}/stat").read_text()
    except ProcessLookupError:
        return False
    except OSError:  # another user's, or no /proc here
        return True
    return status.rpartition(")")[2].split()[0] != "Z"
