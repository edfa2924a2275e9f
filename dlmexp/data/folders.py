"""Folders to write to: where parsed arrays and checksums are cached, and whether a folder is writable."""

import hashlib
import os
from pathlib import Path

from dlmexp.paths import user_cache


def cache_folders(raw_file: Path, root: Path) -> list[Path]:
    """Folders that may hold what was computed from `raw_file`, in order of preference; `root` is the data root.

    `DLMEXP_CACHE` if set. Otherwise `.cache` next to a file inside the data root, then the user's cache folder. Nothing
    is written next to files elsewhere, such as a user's table or those of an installed package.
    """
    name = hashlib.sha256(str(raw_file.parent.resolve()).encode()).hexdigest()[:16]
    inside = raw_file.resolve().is_relative_to(root.resolve()) and not os.environ.get("DLMEXP_CACHE")
    return [*([raw_file.parent / ".cache"] if inside else []), user_cache() / name]


def is_writable(folder: Path) -> bool:
    """Whether `folder` can be written to, or created. A folder without any write bit is read-only for root too."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    return existing.is_dir() and os.access(existing, os.W_OK) and bool(existing.stat().st_mode & 0o222)
