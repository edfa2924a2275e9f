"""The version of a plugin's code: a hash of its source files."""

import hashlib
import sys
from functools import cache
from pathlib import Path

from dlmexp.common.errors import Unreadable
from dlmexp.common.reading.files import MIB, read_content

DIGITS = 12  # the length of a version
MAX_FILES = 2000  # a larger package is not a plugin, and would take long to hash


@cache
def code_version(module: str) -> str | None:
    """Return a hash of the source of an imported module, or of the package that it belongs to.

    None if there is no source file, as in a notebook. The hash is cached because a process imports
    a module once, whatever happens to its files later.
    """
    package = module.partition(".")[0]
    digest = hashlib.sha256()
    try:
        for name, path in _source_files(package):
            digest.update(f"{name}\0".encode())
            digest.update(hashlib.sha256(read_content(path, MIB)).digest())
    except (OSError, Unreadable):
        return None
    return digest.hexdigest()[:DIGITS]


def _source_files(package: str) -> list[tuple[str, Path]]:
    """Return the Python files of a module or package, each with its path inside the package.

    Raises:
        FileNotFoundError: The package has no Python files, or more than MAX_FILES.
    """
    imported = sys.modules.get(package)
    folders = list(map(Path, getattr(imported, "__path__", ())))  # none for a single module
    files: list[tuple[str, Path]] = []
    for folder in folders:
        paths = sorted(folder.rglob("*.py"))
        files += [(str(path.relative_to(folder)), path) for path in paths]
    source = getattr(imported, "__file__", None)
    if not folders and source:
        path = Path(source)
        files.append((path.name, path))
    if not 0 < len(files) <= MAX_FILES:
        raise FileNotFoundError(package)
    return files
