"""Batches under way, on disk: written now and then, read by whoever runs the same cells next."""

import contextlib
import hashlib
import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dlmexp.sweep.cell import Cell
from dlmexp.sweep.store import Store, write_atomically


@dataclass(frozen=True)
class Checkpoint:
    """Where a batch was: its cells in order, what is known besides tensors, and the tensors (read when asked for)."""

    path: Path
    cells: tuple[Cell, ...]
    notes: dict[str, Any]

    def arrays(self) -> dict[str, np.ndarray]:
        with np.load(self.path, allow_pickle=False) as content:
            return {name: content[name] for name in content.files if name != "about"}


def path_of(store: Store, cells: tuple[Cell, ...]) -> Path:
    """One file per set of cells that were started together."""
    name = hashlib.sha256("".join(sorted(cell.key for cell in cells)).encode()).hexdigest()[:20]
    return store.root / "checkpoints" / f"{name}.npz"


def save(path: Path, cells: tuple[Cell, ...], notes: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Replace the batch's checkpoint; a half-written one never takes its name."""
    about = json.dumps({"cells": [vars(cell) for cell in cells], "notes": notes})
    buffer = io.BytesIO()
    np.savez(buffer, about=np.frombuffer(about.encode(), dtype=np.uint8), **arrays)  # pyright: ignore[reportArgumentType]
    write_atomically(path, buffer.getvalue())


def find(store: Store) -> list[Checkpoint]:
    """All sound checkpoints; a torn one is set aside and its cells start again."""
    found = []
    for path in sorted((store.root / "checkpoints").glob("*.npz")):
        try:
            with np.load(path, allow_pickle=False) as content:
                about = json.loads(content["about"].tobytes())
            cells = tuple(Cell.from_dict(cell) for cell in about["cells"])
            found.append(Checkpoint(path, cells, about["notes"]))
        except FileNotFoundError:
            continue  # finished by another process in this moment
        except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
            store.set_aside(path, "the checkpoint can't be read")
    return found


def discard(path: Path) -> None:
    """A finished batch needs no checkpoint."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
