"""Checkpoints of batches: saved at intervals, and resumed by the next run of the same cells."""

import hashlib
import io
import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from dlmexp.common.atomic import within, write_atomically
from dlmexp.common.errors import Unreadable
from dlmexp.common.reading.files import json_value, read_npz
from dlmexp.core.training.batch import Training
from dlmexp.core.training.finished import Curve
from dlmexp.experiment.plan.cell import Batch, keys_of, without_keys
from dlmexp.experiment.records.store import Store

Index = Annotated[int, msgspec.Meta(ge=0)]  # of a cell in `Checkpoint.cells`
NAME_DIGITS = 20


class QueuedBatch(NamedTuple):
    """A batch that waits to be trained.

    Attributes:
        batch: The cells that train together.
        pending: Those of them that need a record.
    """

    batch: Batch
    pending: Batch


class Checkpoint(msgspec.Struct, omit_defaults=True):
    """The saved state of a batch, except for its tensors, which are beside it in the file.

    The first checkpoint of a batch is written when training starts, still without tensors. Its list
    of cells is needed even then: the last bit of a result depends on which cells are in the batch,
    so a resumed batch has the same cells.
    """

    cells: Batch  # all cells of the batch when training started
    unrecorded: list[Index]  # the cells without a record
    inside: list[Index] = []  # the cells that are still in the tensors
    seconds: list[float] = []  # the training time of each cell in `inside`
    curves: list[Curve] = []  # the learning curve of each cell in `inside`
    alone: bool = False  # no other batch trained at the same time, so that the seconds are its own
    iteration: int | None = None  # None: no step was made yet, and there are no tensors

    @classmethod
    def of(cls, cells: Batch, training: Training) -> "Checkpoint":
        """Return the checkpoint of a training that was started with these cells."""
        unreported = np.flatnonzero(training.unreported())
        return cls(
            cells=cells,
            unrecorded=[training.cells[i] for i in unreported],
            inside=training.cells,
            seconds=training.seconds,
            curves=list(map(list, training.curves)),
            alone=training.alone,
            iteration=int(training.state.iteration),
        )

    @property
    def unrecorded_cells(self) -> Batch:
        """The cells that had no record when the checkpoint was written."""
        return tuple(self.cells[i] for i in self.unrecorded)


def checkpoint_path(store: Store, cells: Batch) -> Path:
    """Return the checkpoint file of a batch. Its name does not depend on the order of the cells."""
    keys = "".join(sorted(cell.key for cell in cells))
    name = hashlib.sha256(keys.encode()).hexdigest()[:NAME_DIGITS]
    return within(store.root, store.root / "checkpoints" / f"{name}.npz")


def save_checkpoint(store: Store, checkpoint: Checkpoint, arrays: dict[str, np.ndarray]) -> None:
    """Replace the checkpoint of a batch. A reader never sees a half-written file."""
    # Python's JSON keeps NaN, where msgspec would write null.
    text = json.dumps(msgspec.to_builtins(checkpoint, enc_hook=np.generic.item))
    text_bytes = np.frombuffer(text.encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, about=text_bytes, **arrays)  # pyright: ignore[reportArgumentType]
    write_atomically(checkpoint_path(store, checkpoint.cells), buffer.getvalue())


def read_checkpoint(store: Store, path: Path) -> Checkpoint | None:
    """Return the checkpoint in a file without its tensors; None if there is none.

    A damaged one is moved to the quarantine, so that its cells are trained from the start.
    """
    try:
        text = read_npz(path, only=lambda name: name == "about").get("about", np.empty(0))
        checkpoint = json_value(text.tobytes(), Checkpoint)
        _check(checkpoint, store, path)
    except FileNotFoundError:
        # The process that has finished the batch may have deleted it since the folder was listed.
        return None
    except Unreadable as error:
        store.quarantine(path, f"the checkpoint can't be read: {error}")
        return None
    return checkpoint


def _check(checkpoint: Checkpoint, store: Store, path: Path) -> None:
    """Check that the parts of a checkpoint fit together.

    Raises:
        Unreadable: they do not.
    """
    groups = {cell.group for cell in checkpoint.cells}
    if checkpoint_path(store, checkpoint.cells) != path or len(groups) > 1:
        raise Unreadable("its cells are not those of its batch")
    largest_index = max([*checkpoint.unrecorded, *checkpoint.inside], default=0)
    lengths = {len(checkpoint.inside), len(checkpoint.seconds), len(checkpoint.curves)}
    if largest_index >= len(checkpoint.cells) or len(lengths) > 1:
        raise Unreadable("its numbers are not those of its cells")


def find_checkpoints(store: Store) -> dict[Path, Checkpoint]:
    """Return all readable checkpoints of a results folder."""
    checkpoints: dict[Path, Checkpoint] = {}
    for path in sorted((store.root / "checkpoints").glob("*.npz")):
        checkpoint = read_checkpoint(store, path)
        if checkpoint is not None:
            checkpoints[path] = checkpoint
    return checkpoints


def training_queue(store: Store, batches: Sequence[Batch]) -> list[QueuedBatch]:
    """Return the batches to train, in order.

    First come the batches of all checkpoints that contain a cell of `batches`. All of their cells
    are trained, even those that this run did not request. Then come `batches` without these cells.
    A checkpoint whose cells all have a record is deleted. Such a checkpoint is there if a process
    was killed after it had written the last record, and before it deleted the checkpoint.
    """
    pending = keys_of(chain.from_iterable(batches))
    recorded, _ = store.keys()
    done = recorded - pending  # cells that are trained again have a record, and are not done
    resumed: list[QueuedBatch] = []
    for path, checkpoint in find_checkpoints(store).items():
        open_keys = keys_of(checkpoint.unrecorded_cells)
        is_finished = open_keys <= done
        if is_finished and not store.read_only:
            path.unlink(missing_ok=True)
        if is_finished or open_keys.isdisjoint(pending):
            continue
        unrecorded = without_keys(checkpoint.unrecorded_cells, done)
        resumed.append(QueuedBatch(checkpoint.cells, unrecorded))
        pending -= open_keys
    return resumed + _fresh(batches, pending)


def _fresh(batches: Sequence[Batch], pending: set[str]) -> list[QueuedBatch]:
    """Return the batches with their pending cells alone, which all need a record."""
    fresh: list[QueuedBatch] = []
    for batch in batches:
        cells = tuple(cell for cell in batch if cell.key in pending)
        if cells:
            fresh.append(QueuedBatch(cells, cells))
    return fresh
