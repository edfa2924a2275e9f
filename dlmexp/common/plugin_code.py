"""The version of a plugin's code: a hash of its source files."""

import hashlib
import sys
from functools import cache
from pathlib import Path

from dlmexp.common.errors import Unreadable
from dlmexp.common.reading.files import MIB, content

DIGITS = 12
MAX_FILES = 2000  # of a package; one with more is no plugin


@cache
def code_version(module: str) -> str | None:
    """Return a hash of the source of an imported module, or of the package that it belongs to.

    It is taken once in a process, as Python imports a module once. None where there is no source:
    in a notebook, for instance.
    """
    package = module.partition(".")[0]
    digest = hashlib.sha256()
    try:
        for name, path in _source_files(package):
            digest.update(f"{name}\0".encode())
            digest.update(hashlib.sha256(content(path, MIB)).digest())
    except (OSError, Unreadable):
        return None
    return digest.hexdigest()[:DIGITS]


def _source_files(package: str) -> list[tuple[str, Path]]:
    """Return the Python files of a module or package, with their names in it.

    Raises:
        FileNotFoundError: There are none, or far too many.
    """
    imported = sys.modules.get(package)
    folders = [Path(folder) for folder in getattr(imported, "__path__", ())]
    source = getattr(imported, "__file__", None)
    files: list[tuple[str, Path]] = []
    for folder in folders:
        paths = sorted(folder.rglob("*.py"))
        files += [(str(path.relative_to(folder)), path) for path in paths]
    if not folders and source:
        path = Path(source)
        files.append((path.name, path))
    if not 0 < len(files) <= MAX_FILES:
        raise FileNotFoundError(package)
    return files
