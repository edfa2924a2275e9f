"""Checkpoints of batches in training: saved at intervals, resumed by the next run of the same cells."""

import contextlib
import hashlib
import io
import json
import stat
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from dlmexp.atomic import within, write_atomically
from dlmexp.errors import Unreadable
from dlmexp.plan.batches import Plan
from dlmexp.plan.cell import Cell
from dlmexp.reading.arrays import read_npz
from dlmexp.reading.json_text import json_value, typed_value
from dlmexp.records.record import plain
from dlmexp.records.store import Store

Batch = tuple[Cell, ...]
Place = Annotated[int, msgspec.Meta(ge=0)]


@dataclass(frozen=True)
class Checkpoint:
    """The saved state of a batch: its cells in order, JSON values (`notes`), and tensors, which `arrays` reads.

    A checkpoint is written when training starts, still without tensors. Its list of cells is needed even then: the last
    bit of a result depends on which cells are in the batch, so a resumed batch has the same cells.
    """

    path: Path
    cells: Batch
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

    cells: Batch
    notes: Notes


def path_of(store: Store, cells: Batch) -> Path:
    """The checkpoint file of a batch; its name is a hash of the cells, in whatever order."""
    name = hashlib.sha256("".join(sorted(cell.key for cell in cells)).encode()).hexdigest()[:20]
    return within(store.root, store.root / "checkpoints" / f"{name}.npz")


def save(path: Path, cells: Batch, notes: Notes, arrays: dict[str, np.ndarray]) -> None:
    """Write a checkpoint in place of the earlier one; a reader never sees a half-written file."""
    # NaN stays NaN; msgspec would write null.
    about = json.dumps(msgspec.to_builtins(About(cells, notes), enc_hook=plain))
    buffer = io.BytesIO()
    np.savez(buffer, about=np.frombuffer(about.encode(), dtype=np.uint8), **arrays)  # pyright: ignore[reportArgumentType]
    write_atomically(path, buffer.getvalue())


def find(store: Store) -> list[Checkpoint]:
    """All readable checkpoints of a results folder."""
    paths = sorted((store.root / "checkpoints").glob("*.npz"))
    return [found for path in paths if (found := read(store, path)) is not None]


def read(store: Store, path: Path) -> Checkpoint | None:
    """A checkpoint; None if there is none. A damaged one is quarantined, so that its cells start anew."""
    try:
        return _read(store, path)
    except FileNotFoundError:  # perhaps since the folder was listed, by the process that has finished the batch
        return None
    except Unreadable as why:
        store.quarantine(path, f"the checkpoint can't be read: {why}")
        return None


def _read(store: Store, path: Path) -> Checkpoint:
    if not stat.S_ISREG(path.stat().st_mode):  # to open a pipe would be to wait for ever
        raise Unreadable("it is not a plain file")
    about = typed_value(json_value(read_npz(path, only="about").get("about", np.empty(0)).tobytes()), About)
    cells, notes = about.cells, about.notes
    if max([*notes.open, *notes.cells], default=0) >= len(cells) or path_of(store, cells) != path:
        raise Unreadable("its cells are not those of its name")
    if len({cell.group for cell in cells}) > 1:
        raise Unreadable("its cells are not those of one batch")
    if not len(notes.cells) == len(notes.seconds) == len(notes.curves):
        raise Unreadable("its numbers are not those of its cells")
    return Checkpoint(path, cells, [cells[i] for i in notes.open], notes)


def resumable(store: Store, batches: Sequence[Batch]) -> tuple[list[Checkpoint], list[Batch]]:
    """The checkpoints that these batches go on from, and the batches without the cells of those."""
    pending, begun = {cell.key for batch in batches for cell in batch}, list[Checkpoint]()
    for found in find(store):
        if any(cell.key in pending for cell in found.open):
            begun.append(found)
            pending -= {cell.key for cell in found.open}
    rest = (tuple(cell for cell in batch if cell.key in pending) for batch in batches)
    return begun, [batch for batch in rest if batch]


def with_resumed(plan: Plan, store: Store) -> Plan:
    """The plan with all that its checkpoints bring: their cells are trained to the end together, also those that it
    does not ask for."""
    begun, rest = resumable(store, plan.batches)
    done = store.keys()[0] - {cell.key for batch in plan.batches for cell in batch}
    resumed = (tuple(cell for cell in found.open if cell.key not in done) for found in begun)
    return replace(plan, batches=(*resumed, *rest))


def discard_finished(store: Store, done: Collection[str]) -> None:
    """Delete the checkpoints of which every cell has its record: those of a process that was killed just before."""
    for found in find(store):
        if all(cell.key in done for cell in found.open):
            discard(found.path)


def discard(path: Path) -> None:
    """Delete the checkpoint of a finished batch, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
