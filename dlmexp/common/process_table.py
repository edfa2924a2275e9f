"""Facts about other processes: when one started, what it runs, which folders it has open.

A results folder names processes by their numbers. When one has ended, another process may get its
number; these facts tell the two apart. They are read from `/proc`, which only Linux has. On other
systems, `start_time` returns None, and the other functions return False.
"""

import contextlib
import os
from pathlib import Path

# The position of the start time among the fields of `/proc/PID/stat` after the program's name.
START_TIME_FIELD = 19


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None if that is not known."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        status = Path(f"/proc/{pid}/stat").read_text()
        # The name of the program, in parentheses, may contain blanks and parentheses.
        _, _, after_name = status.rpartition(")")
        return int(after_name.split()[START_TIME_FIELD])
    return None


def is_python(pid: int) -> bool:
    """Return whether a process runs a Python interpreter."""
    try:
        program = os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return False
    return "python" in Path(program).name.lower()


def has_open(pid: int, folder: Path) -> bool:
    """Return whether a process has a folder open; False if this process may not look."""
    try:
        folder_status = folder.stat()
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
    for descriptor in descriptors:
        with contextlib.suppress(OSError):  # it has been closed in the meantime
            if os.path.samestat(descriptor.stat(), folder_status):
                return True
    return False
