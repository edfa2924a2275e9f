"""Batches under way, on disk: written now and then, read by whoever runs the same cells next."""

import contextlib
import hashlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dlmexp.plan.cell import Cell
from dlmexp.records.files import write_atomically
from dlmexp.records.store import Store


@dataclass(frozen=True)
class Checkpoint:
    """Where a batch was: its cells in order, what is known besides tensors, and the tensors (read when asked for).

    A batch that has only begun has no tensors; then it is its cells that matter, since who trains with whom decides the
    last bit of a result.
    """

    path: Path
    cells: tuple[Cell, ...]
    open: list[Cell]  # those of them that had left no record when it was written
    notes: dict[str, Any]

    def arrays(self) -> dict[str, np.ndarray]:
        with open(self.path, "rb") as file, np.load(file, allow_pickle=False) as content:
            return {name: content[name] for name in content.files if name != "about"}


def path_of(store: Store, cells: tuple[Cell, ...]) -> Path:
    """One file per set of cells that were started together."""
    name = hashlib.sha256("".join(sorted(cell.key for cell in cells)).encode()).hexdigest()[:20]
    return store.root / "checkpoints" / f"{name}.npz"


def save(path: Path, cells: tuple[Cell, ...], notes: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Replace the batch's checkpoint; a half-written one never takes its name."""
    about = json.dumps({"cells": msgspec.to_builtins(cells), "notes": notes})
    buffer = io.BytesIO()
    np.savez(buffer, about=np.frombuffer(about.encode(), dtype=np.uint8), **arrays)  # pyright: ignore[reportArgumentType]
    write_atomically(path, buffer.getvalue())


def find(store: Store) -> list[Checkpoint]:
    """All sound checkpoints; a torn one is quarantined and its cells start again."""
    found = []
    for path in sorted((store.root / "checkpoints").glob("*.npz")):
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as content:
                about = json.loads(content["about"].tobytes())
            cells = msgspec.convert(about["cells"], tuple[Cell, ...])
            notes = about["notes"]
            found.append(Checkpoint(path, cells, [cells[i] for i in notes["open"]], notes))
        except FileNotFoundError:
            continue  # finished by another process in this moment
        except Exception:  # a damaged archive can raise nearly anything
            store.quarantine(path, "the checkpoint can't be read")
    return found


def discard(path: Path) -> None:
    """A finished batch needs no checkpoint."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
