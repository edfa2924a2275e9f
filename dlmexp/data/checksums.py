"""Checksums of files, remembered as long as size, modification time and inode stay the same."""

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from dlmexp.data.places import cache_folders, writable
from dlmexp.data.spec import FileSpec

CHUNK = 1 << 20


def sha256(path: Path) -> str:
    """SHA-256 of the file's bytes, read now."""
    return _digest(path, hashlib.sha256())


def git_blob(path: Path) -> str:
    """The hash under which git stores the file (SHA-1 over a header with the size, then the bytes)."""
    return _digest(path, hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False))


def remembered_sha256(path: Path, root: Path, afresh: bool = False) -> str:
    """SHA-256 without reading a file again that has not changed since the last time; `root` is the data root.

    `afresh` reads it all the same, and remembers what it finds.
    """
    stat = path.stat()
    identity = {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "inode": stat.st_ino}
    folders = cache_folders(path, root)
    for folder in [] if afresh else folders:
        try:
            note = json.loads((folder / f"{path.name}.sha256.json").read_text())
        except (OSError, ValueError):
            continue
        if isinstance(note, dict) and {key: note.get(key) for key in identity} == identity:
            return note["sha256"]
    value = sha256(path)
    for folder in filter(writable, folders):
        try:
            write_json(folder / f"{path.name}.sha256.json", identity | {"sha256": value})
        except OSError:
            continue  # a full or vanished disk only costs the memory of this checksum
        break
    return value


def mismatch(entry: FileSpec, path: Path, found_sha256: str | None = None) -> str | None:
    """What is wrong with a file according to its spec, or None."""
    size = path.stat().st_size
    if entry.size is not None and size != entry.size:
        return f"{path} has {size} bytes, the published file has {entry.size}"
    if entry.sha256 is not None:
        found = found_sha256 or sha256(path)
        if found != entry.sha256:
            return f"{path} has SHA-256 {found}, the published file has {entry.sha256}"
    if entry.git_blob is not None and (found := git_blob(path)) != entry.git_blob:
        return f"{path} has git blob hash {found}, the published file has {entry.git_blob}"
    return None


def write_json(path: Path, value: Any) -> None:
    """Writes beside the final name and renames, so that nobody ever reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as out:
            json.dump(value, out)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _digest(path: Path, digest: "hashlib._Hash") -> str:
    with path.open("rb") as file:
        while block := file.read(CHUNK):
            digest.update(block)
    return digest.hexdigest()
