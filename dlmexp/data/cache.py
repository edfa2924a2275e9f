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

import numpy as np

from dlmexp.data.checksums import sha256, write_json
from dlmexp.data.folders import is_writable

log = logging.getLogger(__name__)


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


def store(folders: list[Path], entry: str, X: np.ndarray, y: np.ndarray, metadata: Mapping[str, Any]) -> None:
    """Writes `<folder>/<entry>/{X.npy, y.npy, about.json}` atomically in the first folder that is writable.

    Nothing is cached if none is.
    """
    for folder in filter(is_writable, folders):
        try:
            _write_entry(folder, entry, X, y, metadata)
        except OSError as error:
            log.warning("could not cache parsed arrays in %s (%s); parsing will be repeated", folder, error)
            continue
        return


def _write_entry(folder: Path, entry: str, X: np.ndarray, y: np.ndarray, metadata: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder, prefix=f".{entry}."))
    try:
        for name, array in (("X.npy", X), ("y.npy", y)):
            with (temporary / name).open("wb") as out:
                np.save(out, np.ascontiguousarray(array, dtype=np.float64), allow_pickle=False)
                out.flush()
                os.fsync(out.fileno())
        checksums = {name: sha256(temporary / name) for name in ("X.npy", "y.npy")}
        write_json(temporary / "about.json", dict(metadata) | {"shape": list(X.shape), "arrays": checksums})
        os.chmod(temporary, 0o755)
        target = folder / entry
        if target.exists() and find([folder], entry) is None:
            shutil.rmtree(target, ignore_errors=True)
        try:
            os.rename(temporary, target)
        except OSError:
            # Another process wrote the same entry first.
            if find([folder], entry) is None:
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def find(folders: list[Path], entry: str) -> tuple[np.ndarray, np.ndarray, dict[str, Any]] | None:
    """X and y of an entry, memory-mapped read-only, and its metadata; None if there is no valid entry."""
    for folder in folders:
        try:
            metadata = json.loads((folder / entry / "about.json").read_text())
            X = np.load(folder / entry / "X.npy", mmap_mode="r", allow_pickle=False)
            y = np.load(folder / entry / "y.npy", mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError):
            continue
        if list(X.shape) == metadata.get("shape") and y.shape == X.shape[:1] and X.dtype == y.dtype == np.float64:
            return X, y, metadata
    return None


def find_damage(folder: Path) -> str | None:
    """Compares an entry's arrays with the checksums stored with them; describes what is wrong, or None."""
    try:
        metadata = json.loads((folder / "about.json").read_text())
        wrong = [name for name, value in metadata["arrays"].items() if sha256(folder / name) != value]
    except (OSError, ValueError, KeyError) as error:
        return f"{folder}: unreadable ({error})"
    return f"{folder}: {', '.join(wrong)} changed after they were written" if wrong else None
