"""Parsed arrays kept on disk, so that a second load maps them instead of parsing again."""

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
from dlmexp.data.places import writable

log = logging.getLogger(__name__)


def content_checksum(task: str, X: np.ndarray, y: np.ndarray) -> str:
    """Identity of a dataset by its values: the same whichever of several formats it was read from."""
    digest = hashlib.sha256(json.dumps([task, X.shape]).encode())
    for array in (X, y):
        digest.update(np.ascontiguousarray(array, dtype="<f8").data)
    return digest.hexdigest()


def definition_checksum(definition: Any) -> str:
    """Hash of anything that JSON can hold, independent of the order of keys."""
    return hashlib.sha256(json.dumps(definition, sort_keys=True).encode()).hexdigest()


def store(folders: list[Path], entry: str, X: np.ndarray, y: np.ndarray, about: Mapping[str, Any]) -> None:
    """Writes `<folder>/<entry>/{X.npy, y.npy, about.json}` in the first writable folder, whole or not at all.

    A machine without any writable folder goes on without a cache.
    """
    for folder in filter(writable, folders):
        try:
            _store(folder, entry, X, y, about)
        except OSError as error:
            log.warning("parsed arrays could not be kept in %s (%s); they will be parsed again", folder, error)
            continue
        return


def _store(folder: Path, entry: str, X: np.ndarray, y: np.ndarray, about: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder, prefix=f".{entry}."))
    try:
        for name, array in (("X.npy", X), ("y.npy", y)):
            with (temporary / name).open("wb") as out:
                np.save(out, np.ascontiguousarray(array, dtype=np.float64), allow_pickle=False)
                out.flush()
                os.fsync(out.fileno())
        sums = {name: sha256(temporary / name) for name in ("X.npy", "y.npy")}
        write_json(temporary / "about.json", dict(about) | {"shape": list(X.shape), "arrays": sums})
        os.chmod(temporary, 0o755)
        target = folder / entry
        if target.exists() and find([folder], entry) is None:
            shutil.rmtree(target, ignore_errors=True)
        try:
            os.rename(temporary, target)
        except OSError:
            # Another process was first; its entry is as good.
            if find([folder], entry) is None:
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def find(folders: list[Path], entry: str) -> tuple[np.ndarray, np.ndarray, dict[str, Any]] | None:
    """The arrays of an entry, mapped read-only, and what is known about them; None if there is no sound one."""
    for folder in folders:
        try:
            about = json.loads((folder / entry / "about.json").read_text())
            X = np.load(folder / entry / "X.npy", mmap_mode="r", allow_pickle=False)
            y = np.load(folder / entry / "y.npy", mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError):
            continue
        if list(X.shape) == about.get("shape") and y.shape == X.shape[:1] and X.dtype == y.dtype == np.float64:
            return X, y, about
    return None


def damaged(folder: Path) -> str | None:
    """Re-reads an entry's arrays against the checksums noted when they were written; says what is wrong, or None."""
    try:
        about = json.loads((folder / "about.json").read_text())
        wrong = [name for name, value in about["arrays"].items() if sha256(folder / name) != value]
    except (OSError, ValueError, KeyError) as error:
        return f"{folder}: unreadable ({error})"
    return f"{folder}: {', '.join(wrong)} changed since written" if wrong else None
