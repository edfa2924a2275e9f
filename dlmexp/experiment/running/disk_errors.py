"""Messages for a run that ends because a file can't be read or written."""

import errno
from pathlib import Path

REMOVED = "what was removed is lost"


def advice_after(error: OSError, file: str) -> str:
    """Return which results are safe after an error of the disk, and what to do."""
    is_no_file = Path(file).is_dir() or error.errno in (errno.EISDIR, errno.ENOTDIR, errno.ELOOP)
    if is_no_file:
        return "what is finished is safe; move that away, then the same command goes on from there"
    if error.errno == errno.ENOENT:
        return f"{REMOVED}; the same command trains it again, and nothing that is there"
    return "what is finished is safe, the same command goes on from there"
