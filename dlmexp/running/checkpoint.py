"""Checkpoints of batches in training: saved at intervals, resumed by the next run of the same cells."""

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
    """The saved state of a batch: its cells in order, JSON values (`notes`), and tensors, which `arrays` reads.

    A checkpoint is written when training starts, still without tensors. Its list of cells is needed even then: the last
    bit of a result depends on which cells are in the batch, so a resumed batch has the same cells.
    """

    path: Path
    cells: tuple[Cell, ...]
    open: list[Cell]  # those without a record when the checkpoint was written
    notes: dict[str, Any]

    def arrays(self) -> dict[str, np.ndarray]:
        """The tensors of the training state, by name."""
        with open(self.path, "rb") as file, np.load(file, allow_pickle=False) as content:
            return {name: content[name] for name in content.files if name != "about"}


def path_of(store: Store, cells: tuple[Cell, ...]) -> Path:
    """The checkpoint file of a batch; its name is a hash of the cells, in whatever order."""
    name = hashlib.sha256("".join(sorted(cell.key for cell in cells)).encode()).hexdigest()[:20]
    return store.root / "checkpoints" / f"{name}.npz"


def save(path: Path, cells: tuple[Cell, ...], notes: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write a checkpoint in place of the earlier one; a reader never sees a half-written file."""
    about = json.dumps({"cells": msgspec.to_builtins(cells), "notes": notes})
    buffer = io.BytesIO()
    np.savez(buffer, about=np.frombuffer(about.encode(), dtype=np.uint8), **arrays)  # pyright: ignore[reportArgumentType]
    write_atomically(path, buffer.getvalue())


def find(store: Store) -> list[Checkpoint]:
    """All readable checkpoints of a results folder; damaged ones are quarantined, so that their cells start anew."""
    found = []
    for path in sorted((store.root / "checkpoints").glob("*.npz")):
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as content:
                about = json.loads(content["about"].tobytes())
            cells = msgspec.convert(about["cells"], tuple[Cell, ...])
            notes = about["notes"]
            found.append(Checkpoint(path, cells, [cells[i] for i in notes["open"]], notes))
        except FileNotFoundError:
            continue  # another process has finished this batch since the folder was listed
        except Exception:  # a damaged archive can raise nearly anything
            store.quarantine(path, "the checkpoint can't be read")
    return found


def discard(path: Path) -> None:
    """Delete the checkpoint of a finished batch, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
