"""Messages for a run that ends because a file can't be read or written."""

import errno
from pathlib import Path

# Part of the message of a run whose results folder, or a file in it, was removed.
REMOVED = "what was removed is lost"


def advice_after(error: OSError, file: str) -> str:
    """Return which results are safe after an error of the disk, and what to do about it.

    Args:
        error: The error.
        file: The file that could not be read or written.
    """
    # A folder or a link is in the place of the file, or of a folder above it.
    is_blocked = Path(file).is_dir() or error.errno in (errno.EISDIR, errno.ENOTDIR, errno.ELOOP)
    if is_blocked:
        return "what is finished is safe; move that away, then the same command goes on from there"
    if error.errno == errno.ENOENT:
        return f"{REMOVED}; the same command trains it again, and keeps what is left"
    return "what is finished is safe, the same command goes on from there"
