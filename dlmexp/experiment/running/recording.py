"""What a run writes: the record, arrays and model of a cell, beside training, and checkpoints of
batches, saved at intervals and resumed by the next run of the same cells. All that a run asks of
`dlmexp.experiment.records` while it trains is asked here."""

import hashlib
import io
import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from dlmexp.common.atomic import within, write_atomically
from dlmexp.common.errors import Unreadable
from dlmexp.common.provenance import made_here, made_now
from dlmexp.common.reading.files import json_value, read_npz
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.core.training.metrics import trivial_metrics
from dlmexp.core.training.program import Posterior
from dlmexp.core.training.train import Curve, Finished, curve_arrays
from dlmexp.data.splits import Normalisation, Prepared
from dlmexp.experiment.models.file import encoded
from dlmexp.experiment.models.predictor import Predictor, errors_in_own_units
from dlmexp.experiment.plan.cell import Batch, Cell
from dlmexp.experiment.records.record import Record, Result
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running.process import Stop
from dlmexp.experiment.running.programs import Hyperparameters, trained_model
from dlmexp.experiment.running.sweep import Sweep, prepared_splits

Arrays = dict[str, np.ndarray]
LOSSES = ("nll", "mse", "error", "mre")
Place = Annotated[int, msgspec.Meta(ge=0)]  # of a cell in `Checkpoint.cells`


class Writer(AbstractContextManager):
    """Does jobs one after the other: at once, or with `beside` in a thread of its own. After one
    that fails (a full disk, say) no other is done, and the next call here raises its error. On exit
    it replaces `Stop`, which says that all is saved, but no other error."""

    def __init__(self, beside: bool):
        self._pool = ThreadPoolExecutor(1, "writer") if beside else None
        self._last = Future[None]()
        self._last.set_result(None)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        if kind is None or issubclass(kind, Stop):
            self._last.result()

    def do(self, job: Callable[[], object], wait: bool = False) -> None:
        """Do this after all that was given before; with `wait`, return when it is done."""
        if self._pool is None:
            job()
            return
        if self._last.done():
            self._last.result()
        self._last = self._pool.submit(_after, self._last, job)
        if wait:
            self._last.result()


def _after(earlier: "Future[None]", job: Callable[[], object]) -> None:
    earlier.result()  # raises what an earlier job has raised
    job()


class AboutSplit(NamedTuple):
    """What records and models say of their split."""

    features: Normalisation
    y_mean: float
    y_std: float
    trivial: dict[str, dict[str, float]]  # metrics of the trivial predictor


@dataclass(eq=False)
class Recorder:
    """Writes a record per cell, and knows those that are written or wait for the writer."""

    sweep: Sweep
    store: Store
    finished: Callable[[Record], None]  # called with every record
    device: str
    again: frozenset[Cell] = (
        frozenset()
    )  # packed fits that are trained again, for fixed variants to start from
    alone: bool = True  # no other process of the run shares the device

    def __post_init__(self) -> None:
        self.writer = Writer(beside=self.device != "cpu")
        self.prepared, datasets = prepared_splits(self.sweep), self.sweep.datasets.values()
        self.written: dict[str, bool] = {}  # by key: done?
        self._made = made_here(self.device)
        self.bases: dict[
            str, Hyperparameters
        ] = {}  # of fits that fixed variants start from, written or not yet
        self._schemas = {data.name: data.schema for _, data in datasets}
        self._own = {data.name for spec, data in datasets if spec.loader == "table"}
        self._splits: dict[tuple, AboutSplit] = {}

    def keys(self) -> tuple[set[str], set[str]]:
        """Keys of done and of failed cells; a cell that is trained again is done once the folder
        has a record of its own, by whatever process."""
        done, failed = self.store.keys()
        for key, record_done in self.written.items():
            (done if record_done else failed).add(key)
        waiting = (cell for cell in self.again if cell.key not in self.written)
        return done - {
            cell.key for cell in waiting if not self.store.path(cell.dataset, cell.key).exists()
        }, failed

    def split(self, cell: Cell) -> Prepared:
        """The data to train a cell on. What its record says of them is noted: large ones take long
        to prepare again."""
        split, of = self.prepared(cell), _split_of(cell)
        if of not in self._splits:
            parts = {"validation": split.y_val, "test": split.y_test}
            trivial = trivial_metrics(cell.task, split.y_train, parts)
            self._splits[of] = AboutSplit(split.features, split.y_mean, split.y_std, trivial)
        return split

    def base(self, cell: Cell) -> Hyperparameters | None:
        """Hyperparameters of the base fit that this cell starts from; None if it has no sound
        record."""
        assert cell.base is not None
        return self.bases.get(cell.base) or self.store.base(cell.dataset, cell.base)

    def fit(self, cell: Cell, finished: Finished) -> None:
        """Write the record of a fit, as failed if its training failed or a number of its result is
        not finite."""
        if why := finished.stopped if finished.failed else _not_finite(finished):
            self.failure(cell, why, finished.iterations)
            return
        split, objective = self._splits[_split_of(cell)], finished.objective
        all_iterations = (
            finished.stopped == "limit" and cell.window is None
        )  # as many as were asked for
        result = Result(
            validation=finished.metrics.get("validation", {}),
            test=self._own_units(cell, finished.posterior) | finished.metrics.get("test", {}),
            trivial=split.trivial,
            iterations=finished.iterations,
            converged=finished.stopped != "limit" or all_iterations,
            stopped=("epochs" if cell.epochs else "iterations")
            if all_iterations
            else finished.stopped,
            seconds=float(finished.seconds),
            alone=finished.alone and self.alone,
            acceptance=finished.acceptance,
            objective_value=float(objective[-1]) if len(objective) else None,
            y_mean=split.y_mean,
            y_std=split.y_std,
            hyperparameters={
                k: float(np.mean(v)) for k, v in finished.hyperparameters.items() if k != "Z"
            },
            note=OBJECTIVES[cell.objective].note(cell.variant, cell.beta, cell.task),
        )
        arrays = dict(finished.reliability)
        if len(objective):
            arrays["objective"] = objective.astype(np.float32)
        if finished.acceptance is not None:
            arrays["acceptance"] = finished.block_acceptance.astype(
                np.float32
            )  # by 100 iterations: claim 16
        if cell.evaluate != "end":
            arrays |= curve_arrays(finished.curve)
            arrays["epochs"] = arrays["evaluated_at"] / cell.iterations_per_epoch
        if gives_hyperparameters(cell):
            arrays |= finished.hyperparameters
            self.bases[cell.key] = finished.hyperparameters
        self.write(cell, result, arrays, finished.posterior)

    def _own_units(self, cell: Cell, posterior: Posterior) -> dict[str, float]:
        """Test errors of a model of a user's own table, in the units of its target."""
        if (
            cell.dataset not in self._own
            or cell.task == "binary"
            or not len((split := self.prepared(cell)).y_test)
        ):
            return {}
        model = trained_model(cell, self._schemas[cell.dataset], split, posterior)
        predictions = Predictor([model]).predict(
            split.X_test * split.features.std + split.features.mean
        )
        targets = split.y_test * split.y_std + split.y_mean
        return errors_in_own_units(predictions, np.exp(targets) if model.schema.log else targets)

    def failure(self, cell: Cell, reason: str, iterations: int = 0) -> None:
        """Write that a cell failed, and why."""
        self.write(cell, Result(reason=reason, iterations=iterations), {})

    def write(
        self, cell: Cell, result: Result, arrays: Arrays, posterior: Posterior | None = None
    ) -> None:
        """Write the record of a cell, with its arrays, and its model where that is kept."""
        status = "failed" if result.reason else "done"
        record = Record(
            key=cell.key, status=status, cell=cell, result=result, made=made_now(self._made)
        )

        def store() -> None:
            model = None
            if self.sweep.cfg.keep != "none" and posterior is not None:
                split = self._splits[_split_of(cell)]
                model = encoded(trained_model(cell, self._schemas[cell.dataset], split, posterior))
            self.store.write(record, arrays, model)

        self.writer.do(store)
        self.written[cell.key] = record.done
        self.finished(record)

    def discard(self, batch: Batch) -> None:
        """Delete the checkpoint of a batch, once what was given before is written."""
        self.writer.do(partial(checkpoint_path(self.store, batch).unlink, missing_ok=True))


def gives_hyperparameters(cell: Cell) -> bool:
    """Whether fixed variants can take their hyperparameters from this fit."""
    return (
        OBJECTIVES[cell.objective].gives_hyperparameters
        and cell.variant == "joint"
        and cell.beta == 1.0
    )


def _split_of(cell: Cell) -> tuple:
    return cell.dataset, cell.split, cell.task, cell.seed, cell.n


def _not_finite(finished: Finished) -> str:
    """The reason why a result with NaN or infinite numbers counts as failed; '' if all are finite.
    Other scores than `LOSSES` are recorded as they are: they neither train nor select."""
    values = {"the objective": finished.objective[-1] if len(finished.objective) else 0.0}
    for part, metrics in finished.metrics.items():
        values |= {f"the {part} {name}": value for name, value in metrics.items() if name in LOSSES}
    return next(
        (f"{name} is not finite" for name, value in values.items() if not np.isfinite(value)), ""
    )


class Checkpoint(msgspec.Struct, omit_defaults=True):
    """The saved state of a batch, but for its tensors.

    It is written when training starts, still without tensors. Its list of cells is needed even
    then: the last bit of a result depends on which cells are in the batch, so a resumed batch has
    the same cells."""

    cells: Batch
    unrecorded: list[Place]
    inside: list[Place] = []  # those in the tensors
    seconds: list[float] = []  # of each of these
    curves: list[Curve] = []
    alone: bool = False  # whether no other batch trained beside it, so that the seconds are its own
    iteration: int | None = None  # None: nothing is trained yet, and there are no tensors

    @property
    def open(self) -> Batch:
        """The cells without a record when the checkpoint was written."""
        return tuple(self.cells[i] for i in self.unrecorded)


def checkpoint_path(store: Store, cells: Batch) -> Path:
    """The checkpoint file of a batch; its name is a hash of the cells, in whatever order."""
    name = hashlib.sha256("".join(sorted(cell.key for cell in cells)).encode()).hexdigest()[:20]
    return within(store.root, store.root / "checkpoints" / f"{name}.npz")


def save_checkpoint(store: Store, checkpoint: Checkpoint, arrays: Arrays) -> None:
    """Write a checkpoint in place of the earlier one; a reader never sees a half-written file."""
    # As JSON by Python, in which NaN stays NaN; msgspec would write null.
    about = json.dumps(msgspec.to_builtins(checkpoint, enc_hook=np.generic.item))
    buffer = io.BytesIO()
    np.savez(buffer, about=np.frombuffer(about.encode(), dtype=np.uint8), **arrays)  # pyright: ignore[reportArgumentType]
    write_atomically(checkpoint_path(store, checkpoint.cells), buffer.getvalue())


def find_checkpoints(store: Store) -> dict[Path, Checkpoint]:
    """All readable checkpoints of a results folder."""
    paths = sorted((store.root / "checkpoints").glob("*.npz"))
    return {path: saved for path in paths if (saved := read_checkpoint(store, path)) is not None}


def read_checkpoint(store: Store, path: Path) -> Checkpoint | None:
    """A checkpoint; None if there is none. A damaged one is quarantined, so that its cells start
    anew."""
    try:
        about = read_npz(path, only="about").get("about", np.empty(0))
        saved = json_value(about.tobytes(), Checkpoint)
        places = max([*saved.unrecorded, *saved.inside], default=0)
        if (
            checkpoint_path(store, saved.cells) != path
            or len({cell.group for cell in saved.cells}) > 1
        ):
            raise Unreadable("its cells are not those of its batch")
        if places >= len(saved.cells) or not len(saved.inside) == len(saved.seconds) == len(
            saved.curves
        ):
            raise Unreadable("its numbers are not those of its cells")
        return saved
    except (
        FileNotFoundError
    ):  # perhaps since the folder was listed, by the process that has finished the batch
        return None
    except Unreadable as why:
        store.quarantine(path, f"the checkpoint can't be read: {why}")
        return None


def resumed_first(store: Store, batches: Sequence[Batch]) -> list[tuple[Batch, Batch]]:
    """What to train, in order: the cells that train together, and those of them that want a record.
    First the batches of all checkpoints with a cell of these batches, finished even if this run did
    not ask for all of their cells; then the batches without those cells. Checkpoints of which every
    cell has its record are deleted: they are of a process that was killed just before it did so."""
    pending, begun = {cell.key for batch in batches for cell in batch}, list[tuple[Batch, Batch]]()
    done = store.keys()[0] - pending
    for path, saved in find_checkpoints(store).items():
        if all(cell.key in done for cell in saved.open):
            if not store.read_only:
                path.unlink(missing_ok=True)
        elif any(cell.key in pending for cell in saved.open):
            begun.append((saved.cells, tuple(cell for cell in saved.open if cell.key not in done)))
            pending -= {cell.key for cell in saved.open}
    rest = (tuple(cell for cell in batch if cell.key in pending) for batch in batches)
    return begun + [(batch, batch) for batch in rest if batch]
