"""A cache of parsed arrays on disk: a second load memory-maps them instead of parsing the raw files again."""

import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dlmexp.data.raw_files import is_writable
from dlmexp.errors import Unreadable
from dlmexp.paths import user_cache
from dlmexp.reading.arrays import mapped_array
from dlmexp.reading.files import content
from dlmexp.reading.json_text import typed_json

log = logging.getLogger(__name__)


class About(msgspec.Struct):
    """What `about.json` says of the arrays beside it."""

    shape: list[int]
    checksum: str
    facts: dict[str, Any]


Entry = tuple[np.ndarray, np.ndarray, About]


def cache_folders(raw_file: Path, root: Path) -> list[Path]:
    """Folders that may hold what was parsed from `raw_file`, in order of preference; `root` is the data root.

    `DLMEXP_CACHE` if set. Otherwise `.cache` next to a file inside the data root, then the user's cache folder. Nothing
    is written next to files elsewhere, such as a user's table or those of an installed package.
    """
    name = hashlib.sha256(str(raw_file.parent.resolve()).encode()).hexdigest()[:16]
    inside = raw_file.resolve().is_relative_to(root.resolve()) and not os.environ.get("DLMEXP_CACHE")
    return [*([raw_file.parent / ".cache"] if inside else []), user_cache() / name]


def content_checksum(task: str, X: np.ndarray, y: np.ndarray, by: np.ndarray | None = None) -> str:
    """Hash of the task and the values, and of what rows are divided by: the same for every file format that a dataset
    can be read from."""
    digest = hashlib.sha256(json.dumps([task, X.shape]).encode())
    for array in (X, y) if by is None else (X, y, by):
        digest.update(np.ascontiguousarray(array, dtype="<f8").data)
    return digest.hexdigest()


def definition_checksum(definition: Any) -> str:
    """Hash of a value that JSON can represent; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()


def store(folders: list[Path], name: str, X: np.ndarray, y: np.ndarray, checksum: str, facts: Mapping) -> None:
    """Writes `<folder>/<name>/{X.npy, y.npy, about.json}`, which appear at once, in the first folder that is writable.
    Nothing is cached if none is."""
    about = About(list(X.shape), checksum, dict(facts))
    for folder in filter(is_writable, folders):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder, prefix=f".{name}.", ignore_cleanup_errors=True) as temporary:
                for file, array in (("X.npy", X), ("y.npy", y)):
                    np.save(Path(temporary, file), np.ascontiguousarray(array, dtype=np.float64), allow_pickle=False)
                Path(temporary, "about.json").write_bytes(msgspec.json.encode(about))
                os.chmod(temporary, 0o755)
                if find([folder], name) is None:
                    shutil.rmtree(folder / name, ignore_errors=True)
                    os.rename(temporary, folder / name)
            return
        except OSError as error:
            if find([folder], name) is not None:  # another process wrote it first
                return
            log.warning("could not cache parsed arrays in %s (%s); parsing will be repeated", folder, error)


def find(folders: list[Path], name: str) -> Entry | None:
    """X and y of an entry, memory-mapped read-only, and what is said of them; None if there is no valid entry."""
    for folder in folders:
        try:
            about = typed_json(content(folder / name / "about.json"), About)
            X, y = mapped_array(folder / name / "X.npy"), mapped_array(folder / name / "y.npy")
        except (OSError, Unreadable):
            continue
        if list(X.shape) == about.shape and y.shape == X.shape[:1] and X.dtype == y.dtype == np.float64:
            return X, y, about
    return None
