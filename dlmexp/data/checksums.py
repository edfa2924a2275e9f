"""Checksums of files, cached for as long as size, modification time and inode of a file stay the same."""

import hashlib
import json
from pathlib import Path
from typing import Any

from dlmexp.atomic import replacing
from dlmexp.data.folders import cache_folders, is_writable
from dlmexp.data.spec import FileSpec
from dlmexp.errors import Unreadable
from dlmexp.reading.files import content
from dlmexp.reading.json_text import typed_json

CHUNK = 1 << 20


def sha256(path: Path) -> str:
    """SHA-256 of a file, which is read."""
    return _digest(path, hashlib.sha256())


def git_blob(path: Path) -> str:
    """The hash under which git stores the file (SHA-1 over a header with the size, then the bytes)."""
    return _digest(path, hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False))


def cached_sha256(path: Path, root: Path, reread: bool = False) -> str:
    """SHA-256 of a file, which is read only if it changed since the last time; `root` is the data root.

    With `reread` it is always read, and the cached value updated.
    """
    stat = path.stat()
    identity = {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "inode": stat.st_ino}
    folders = cache_folders(path, root)
    for folder in [] if reread else folders:
        try:
            cached = typed_json(content(folder / f"{path.name}.sha256.json"), dict[str, int | str])
        except (OSError, Unreadable):
            continue
        if {key: cached.get(key) for key in identity} == identity:
            return str(cached.get("sha256"))
    value = sha256(path)
    for folder in filter(is_writable, folders):
        try:
            write_json(folder / f"{path.name}.sha256.json", identity | {"sha256": value})
        except OSError:
            continue  # without a cache the file is read again next time
        break
    return value


def mismatch(entry: FileSpec, path: Path, found_sha256: str | None = None) -> str | None:
    """Describes how a file differs from its spec (size or checksum); None if it does not."""
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
    """Write a file of which no reader ever sees a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value))


def _digest(path: Path, digest: "hashlib._Hash") -> str:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
