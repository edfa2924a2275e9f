"""What remains of a run that could not read or write a file, in words."""

import errno
from pathlib import Path

REMOVED = "what was removed is lost"


def what_remains(error: OSError, file: str) -> str:
    """Return what is safe after an error of the disk, and what to do."""
    in_the_way = Path(file).is_dir() or error.errno in (errno.EISDIR, errno.ENOTDIR, errno.ELOOP)
    if in_the_way:
        return "what is finished is safe; move that away, then the same command goes on from there"
    if error.errno == errno.ENOENT:
        return f"{REMOVED}; the same command trains it again, and nothing that is there"
    return "what is finished is safe, the same command goes on from there"
