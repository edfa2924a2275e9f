"""Checkpoints of batches in training: saved at intervals, resumed by the next run of the same cells."""

import contextlib
import hashlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from dlmexp.errors import Unreadable
from dlmexp.plan.cell import Cell
from dlmexp.reading.arrays import read_npz
from dlmexp.reading.json_text import json_value, typed_value
from dlmexp.records.files import write_atomically
from dlmexp.records.schema import plain
from dlmexp.records.store import Store

Place = Annotated[int, msgspec.Meta(ge=0)]


@dataclass(frozen=True)
class Checkpoint:
    """The saved state of a batch: its cells in order, JSON values (`notes`), and tensors, which `arrays` reads.

    A checkpoint is written when training starts, still without tensors. Its list of cells is needed even then: the last
    bit of a result depends on which cells are in the batch, so a resumed batch has the same cells.
    """

    path: Path
    cells: tuple[Cell, ...]
    open: list[Cell]  # those without a record when the checkpoint was written
    notes: "Notes"

    def arrays(self) -> dict[str, np.ndarray]:
        """The tensors of the training state, by name."""
        return {name: array for name, array in read_npz(self.path).items() if name != "about"}


class Notes(msgspec.Struct, omit_defaults=True):
    """Where training stands. Numbers of cells are their places in `Checkpoint.cells`."""

    open: list[Place]  # those without a record
    cells: list[Place] = []  # those in the tensors
    seconds: list[float] = []
    curves: list[dict[str, Any]] = []
    alone: bool = False  # whether no other batch trained beside it, so that the seconds are its own
    iteration: int | None = None  # None: nothing is trained yet, and there are no tensors


class About(msgspec.Struct):
    """What a checkpoint says of itself."""

    cells: tuple[Cell, ...]
    notes: Notes


def path_of(store: Store, cells: tuple[Cell, ...]) -> Path:
    """The checkpoint file of a batch; its name is a hash of the cells, in whatever order."""
    name = hashlib.sha256("".join(sorted(cell.key for cell in cells)).encode()).hexdigest()[:20]
    return store.root / "checkpoints" / f"{name}.npz"


def save(path: Path, cells: tuple[Cell, ...], notes: Notes, arrays: dict[str, np.ndarray]) -> None:
    """Write a checkpoint in place of the earlier one; a reader never sees a half-written file."""
    # NaN stays NaN; msgspec would write null.
    about = json.dumps(msgspec.to_builtins(About(cells, notes), enc_hook=plain))
    buffer = io.BytesIO()
    np.savez(buffer, about=np.frombuffer(about.encode(), dtype=np.uint8), **arrays)  # pyright: ignore[reportArgumentType]
    write_atomically(path, buffer.getvalue())


def find(store: Store) -> list[Checkpoint]:
    """All readable checkpoints of a results folder; damaged ones are quarantined, so that their cells start anew."""
    found = []
    for path in sorted((store.root / "checkpoints").glob("*.npz")):
        try:
            found.append(_read(store, path))
        except FileNotFoundError:
            continue  # another process has finished this batch since the folder was listed
        except Unreadable as why:
            store.quarantine(path, f"the checkpoint can't be read: {why}")
    return found


def _read(store: Store, path: Path) -> Checkpoint:
    about = typed_value(json_value(read_npz(path, only="about").get("about", np.empty(0)).tobytes()), About)
    cells, notes = about.cells, about.notes
    if max([*notes.open, *notes.cells], default=0) >= len(cells) or path_of(store, cells) != path:
        raise Unreadable("its cells are not those of its name")
    if not len(notes.cells) == len(notes.seconds) == len(notes.curves):
        raise Unreadable("its numbers are not those of its cells")
    return Checkpoint(path, cells, [cells[i] for i in notes.open], notes)


def discard_finished(store: Store) -> None:
    """Delete the checkpoints of which every cell has its record: those of a process that was killed just before."""
    done, _ = store.keys()
    for found in find(store):
        if all(cell.key in done for cell in found.open):
            discard(found.path)


def discard(path: Path) -> None:
    """Delete the checkpoint of a finished batch, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
