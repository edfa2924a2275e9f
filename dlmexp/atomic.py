"""Files that appear under their name once all of them is written, and never outside the folder they belong to."""

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

TEMPORARY = ".tmp"


def within(root: Path, path: Path) -> Path:
    """`path`, which is to be written or deleted in the folder `root`. `OSError` if it is, or leads through, a symbolic
    link to a folder: whoever made the contents of `root` must not choose what is changed elsewhere. `root` itself may
    be a link."""
    below = path.relative_to(root)
    for folder in (path, *(root / part for part in below.parents if part != Path())):
        if folder.is_symlink() and folder.is_dir():
            why = "it is a symbolic link, through which nothing is written or deleted; put a folder in its place"
            raise OSError(errno.ELOOP, why, str(folder))
    return path


@contextlib.contextmanager
def replacing(path: Path, writer: str = "") -> Iterator[Path]:
    """A temporary path in the same folder. The file there takes the name `path` at the end of the context; after an
    error it is removed, and what was at `path` stays. `writer` becomes part of the temporary name."""
    unique = f"{uuid.uuid4().hex[:12]}{TEMPORARY}"
    temporary = path.with_name(".".join(["", path.name, *filter(None, [writer]), unique]))
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
