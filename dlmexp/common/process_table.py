"""What the system says of other processes: when one started, what it runs, what it has open.

A file can name any process; only the system knows what that process is. Where there is no `/proc`
(it is Linux's), nothing is known of other processes.
"""

import contextlib
import os
from pathlib import Path

START_TIME = 19  # the place of the start time in `/proc/PID/stat`, counted from the state


def start_time(pid: int) -> int | None:
    """Return when a process started, in ticks since the machine did; None if it is not known."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        status = Path(f"/proc/{pid}/stat").read_text()
        # The name of the program, in parentheses, may contain anything.
        return int(status.rpartition(")")[2].split()[START_TIME])
    return None


def is_python(pid: int) -> bool:
    """Return whether a process runs a Python interpreter."""
    try:
        program = os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return False
    return "python" in Path(program).name.lower()


def has_open(pid: int, folder: Path) -> bool:
    """Return whether a process has a folder open; False of processes that can't be looked into."""
    try:
        wanted = folder.stat()
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
    for descriptor in descriptors:
        with contextlib.suppress(OSError):  # closed just now
            if os.path.samestat(descriptor.stat(), wanted):
                return True
    return False
