"""Files that appear under their name once all of them is written."""

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

TEMPORARY = ".tmp"


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
