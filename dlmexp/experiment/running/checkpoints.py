"""Checkpoints of batches: a run saves them at intervals, the next run of the cells resumes them."""

import hashlib
import io
import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from dlmexp.common.atomic import path_inside, write_atomically
from dlmexp.common.errors import Unreadable
from dlmexp.common.reading.files import json_value, read_npz
from dlmexp.core.training.batch import Training
from dlmexp.core.training.finished import Curve
from dlmexp.experiment.plan.cell import Batch, keys_of, without_keys
from dlmexp.experiment.records.store import Store

Index = Annotated[int, msgspec.Meta(ge=0)]  # of a cell in `Checkpoint.cells`
NAME_DIGITS = 20  # of a hash, in the name of a checkpoint


class QueuedBatch(NamedTuple):
    """A batch that waits to be trained.

    Attributes:
        batch: The cells that train together.
        pending: The cells of `batch` that need a record.
    """

    batch: Batch
    pending: Batch


class Checkpoint(msgspec.Struct, omit_defaults=True):
    """The saved state of a batch without its tensors.

    The file of a checkpoint is an npz archive: this object as JSON (`about`), and the tensors. The
    first checkpoint of a batch is written when training starts, and has no tensors. Its list of
    cells is needed even then: the last bit of a result depends on which cells are in the batch, so
    a resumed batch must have the same cells.
    """

    cells: Batch  # all cells of the batch when training started
    unrecorded: list[Index]  # the cells without a record
    inside: list[Index] = []  # the cells of the tensors: those that have not left the batch
    seconds: list[float] = []  # the training time of each cell in `inside`
    curves: list[Curve] = []  # the learning curve of each cell in `inside`
    alone: bool = False  # no other batch trained at the same time, so `seconds` were not shared
    iteration: int | None = None  # None: before the first step, when there are no tensors

    @classmethod
    def of(cls, cells: Batch, training: Training) -> "Checkpoint":
        """Return the checkpoint of a training; `cells` are all cells that it was started with."""
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
    """Return the checkpoint file of a batch, whose name is the same for any order of the cells."""
    keys = "".join(sorted(cell.key for cell in cells))
    name = hashlib.sha256(keys.encode()).hexdigest()[:NAME_DIGITS]
    return path_inside(store.root, store.root / "checkpoints" / f"{name}.npz")


def save_checkpoint(store: Store, checkpoint: Checkpoint, arrays: dict[str, np.ndarray]) -> None:
    """Write the checkpoint of a batch atomically, in place of an earlier one.

    Args:
        store: The results folder.
        checkpoint: The state without tensors.
        arrays: The tensors by name.
    """
    # Python's JSON keeps NaN, where msgspec would write null.
    text = json.dumps(msgspec.to_builtins(checkpoint, enc_hook=np.generic.item))
    text_bytes = np.frombuffer(text.encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, about=text_bytes, **arrays)  # pyright: ignore[reportArgumentType]
    write_atomically(checkpoint_path(store, checkpoint.cells), buffer.getvalue())


def read_checkpoint(store: Store, path: Path) -> Checkpoint | None:
    """Return the checkpoint in a file, without its tensors; None if there is no readable one.

    A damaged checkpoint is moved to the quarantine, so that its cells are trained from the start.
    """
    try:
        arrays = read_npz(path, only=lambda name: name == "about")
        text = arrays.get("about", np.empty(0)).tobytes()
        checkpoint = json_value(text, Checkpoint)
        _check_consistency(checkpoint, store, path)
    except FileNotFoundError:
        # No checkpoint was saved, or the process that finished the batch has deleted it.
        return None
    except Unreadable as error:
        store.quarantine(path, f"the checkpoint can't be read: {error}")
        return None
    return checkpoint


def _check_consistency(checkpoint: Checkpoint, store: Store, path: Path) -> None:
    """Raise `Unreadable` if the parts of a checkpoint do not fit together, or to its file."""
    groups = {cell.shared_values for cell in checkpoint.cells}
    if checkpoint_path(store, checkpoint.cells) != path or len(groups) > 1:
        raise Unreadable("its cells are not a batch, or not the one of this file")
    largest_index = max([*checkpoint.unrecorded, *checkpoint.inside], default=0)
    lengths = {len(checkpoint.inside), len(checkpoint.seconds), len(checkpoint.curves)}
    if largest_index >= len(checkpoint.cells) or len(lengths) > 1:
        raise Unreadable("its lists of numbers do not fit its cells")


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

    A checkpoint whose cells all have a record is deleted. It was left by a process that was killed
    between its last record and the deletion of the checkpoint.
    """
    pending_keys = keys_of(chain.from_iterable(batches))
    recorded, _ = store.keys()
    # Cells of `batches` are not done, even if they have a record: such cells are trained again.
    done = recorded - pending_keys
    resumed: list[QueuedBatch] = []
    for path, checkpoint in find_checkpoints(store).items():
        unrecorded_keys = keys_of(checkpoint.unrecorded_cells)
        is_finished = unrecorded_keys <= done
        if is_finished and not store.read_only:
            path.unlink(missing_ok=True)
        if is_finished or unrecorded_keys.isdisjoint(pending_keys):
            continue
        unrecorded = without_keys(checkpoint.unrecorded_cells, done)
        resumed.append(QueuedBatch(batch=checkpoint.cells, pending=unrecorded))
        pending_keys -= unrecorded_keys
    return resumed + _without_other_cells(batches, pending_keys)


def _without_other_cells(batches: Sequence[Batch], pending_keys: set[str]) -> list[QueuedBatch]:
    """Return each batch with only those of its cells that are pending; empty ones are left out."""
    reduced: list[QueuedBatch] = []
    for batch in batches:
        cells = tuple(cell for cell in batch if cell.key in pending_keys)
        if cells:
            reduced.append(QueuedBatch(batch=cells, pending=cells))
    return reduced
