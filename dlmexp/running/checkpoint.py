"""Checkpoints of batches in training: saved at intervals, resumed by the next run of the same cells."""

import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from dlmexp.atomic import within, write_atomically
from dlmexp.errors import Unreadable
from dlmexp.plan.cell import Cell
from dlmexp.reading.arrays import read_npz
from dlmexp.reading.files import json_value, typed_value
from dlmexp.records.record import plain
from dlmexp.records.store import Store

Batch = tuple[Cell, ...]
Place = Annotated[int, msgspec.Meta(ge=0)]  # of a cell in `Checkpoint.cells`


class Checkpoint(msgspec.Struct, omit_defaults=True):
    """The saved state of a batch, but for its tensors (`read_tensors`).

    It is written when training starts, still without tensors. Its list of cells is needed even then: the last bit of a
    result depends on which cells are in the batch, so a resumed batch has the same cells.
    """

    cells: Batch
    unrecorded: list[Place]
    inside: list[Place] = []  # those in the tensors
    seconds: list[float] = []  # of each of these
    curves: list[dict[str, Any]] = []
    alone: bool = False  # whether no other batch trained beside it, so that the seconds are its own
    iteration: int | None = None  # None: nothing is trained yet, and there are no tensors

    @property
    def open(self) -> Batch:
        """The cells without a record when the checkpoint was written."""
        return tuple(self.cells[i] for i in self.unrecorded)


def path_of(store: Store, cells: Batch) -> Path:
    """The checkpoint file of a batch; its name is a hash of the cells, in whatever order."""
    name = hashlib.sha256("".join(sorted(cell.key for cell in cells)).encode()).hexdigest()[:20]
    return within(store.root, store.root / "checkpoints" / f"{name}.npz")


def save(path: Path, checkpoint: Checkpoint, arrays: dict[str, np.ndarray]) -> None:
    """Write a checkpoint in place of the earlier one; a reader never sees a half-written file."""
    about = json.dumps(msgspec.to_builtins(checkpoint, enc_hook=plain))  # NaN stays NaN; msgspec would write null
    buffer = io.BytesIO()
    np.savez(buffer, about=np.frombuffer(about.encode(), dtype=np.uint8), **arrays)  # pyright: ignore[reportArgumentType]
    write_atomically(path, buffer.getvalue())


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """The tensors of the training state, by name."""
    return {name: array for name, array in read_npz(path).items() if name != "about"}


def find(store: Store) -> dict[Path, Checkpoint]:
    """All readable checkpoints of a results folder."""
    paths = sorted((store.root / "checkpoints").glob("*.npz"))
    return {path: saved for path in paths if (saved := read(store, path)) is not None}


def read(store: Store, path: Path) -> Checkpoint | None:
    """A checkpoint; None if there is none. A damaged one is quarantined, so that its cells start anew."""
    try:
        about = read_npz(path, only="about").get("about", np.empty(0))
        saved = typed_value(json_value(about.tobytes()), Checkpoint)
        places = max([*saved.unrecorded, *saved.inside], default=0)
        if path_of(store, saved.cells) != path or len({cell.group for cell in saved.cells}) > 1:
            raise Unreadable("its cells are not those of its batch")
        if places >= len(saved.cells) or not len(saved.inside) == len(saved.seconds) == len(saved.curves):
            raise Unreadable("its numbers are not those of its cells")
        return saved
    except FileNotFoundError:  # perhaps since the folder was listed, by the process that has finished the batch
        return None
    except Unreadable as why:
        store.quarantine(path, f"the checkpoint can't be read: {why}")
        return None


def resumed_first(store: Store, batches: Sequence[Batch]) -> list[tuple[Batch, Batch]]:
    """What to train, in order: the cells that train together, and those of them that want a record. First the batches
    of all checkpoints with a cell of these batches, finished even if this run did not ask for all of their cells;
    then the batches without those cells. Checkpoints of which every cell has its record are deleted: they are of
    a process that was killed just before it did so."""
    pending, begun = {cell.key for batch in batches for cell in batch}, list[tuple[Batch, Batch]]()
    done = store.keys()[0] - pending
    for path, saved in find(store).items():
        if all(cell.key in done for cell in saved.open):
            if not store.read_only:
                path.unlink(missing_ok=True)
        elif any(cell.key in pending for cell in saved.open):
            begun.append((saved.cells, tuple(cell for cell in saved.open if cell.key not in done)))
            pending -= {cell.key for cell in saved.open}
    rest = (tuple(cell for cell in batch if cell.key in pending) for batch in batches)
    return begun + [(batch, batch) for batch in rest if batch]
