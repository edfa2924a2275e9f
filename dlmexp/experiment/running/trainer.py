"""Train one batch: from its start or its checkpoint to the records of its cells."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from dlmexp.common.errors import Unreadable
from dlmexp.common.plugin_errors import describe_error
from dlmexp.common.reading.files import read_npz
from dlmexp.core.training.batch import Training
from dlmexp.core.training.fixed import Fixed
from dlmexp.core.training.gradients import gradient_statistics
from dlmexp.core.training.program import Program
from dlmexp.core.training.settings import Settings
from dlmexp.core.training.solve import solve
from dlmexp.core.training.state import State
from dlmexp.core.training.train import train
from dlmexp.experiment.plan.cell import Batch, Cell, keys_of, without_keys
from dlmexp.experiment.records.record import Result
from dlmexp.experiment.running.capacity import BatchJob
from dlmexp.experiment.running.checkpoints import (
    Checkpoint,
    checkpoint_path,
    read_checkpoint,
    save_checkpoint,
)
from dlmexp.experiment.running.plugin_errors import is_error_of_plugin
from dlmexp.experiment.running.process import StopRequest, Target
from dlmexp.experiment.running.programs import program, settings
from dlmexp.experiment.running.progress import Progress
from dlmexp.experiment.running.recording import Recorder

# Why a cell fails without training.
NO_BASE = "the base fit whose hyperparameters it takes has no sound record"


@dataclass
class BatchTrainer:
    """Trains batches and writes records.

    Its methods are generators. They yield while they wait for the device, so that another batch can
    go on meanwhile.
    """

    target: Target
    recorder: Recorder
    progress: Progress
    stop: StopRequest
    checkpoint_seconds: float
    batches_at_once: Callable[[], int]  # the number of batches in training at this moment

    def work(self, job: BatchJob) -> Iterator[None]:
        """Train, solve or measure a batch, and write a record for each of its pending cells."""
        self.progress.note_start(job.pending)
        orphans = self._cells_without_base(job.pending)
        batch = job.batch
        pending = job.pending
        if orphans:
            for cell in orphans:
                self.recorder.write_failure(cell, NO_BASE)
            # A checkpoint is for all cells of a batch, so it is of no use without the orphans: the
            # other cells start from the beginning.
            self.recorder.discard_checkpoint(job.batch)
            pending = without_keys(job.pending, keys_of(orphans))
            batch = pending
        if not pending:
            return
        try:
            yield from self._record_results(batch, pending, job)
        except Exception as error:
            if not is_error_of_plugin(error, pending[0]):
                raise
            self._record_error(error, pending)
            self.recorder.discard_checkpoint(batch)

    def _record_results(self, batch: Batch, pending: Batch, job: BatchJob) -> Iterator[None]:
        """Compute and record the results of the pending cells of a batch."""
        if batch[0].kind == "gradient":
            yield from self._measure_gradients(pending)
        elif batch[0].is_solved:
            self._solve(pending)
        else:
            yield from self._train(batch, pending, job)

    def _record_error(self, error: Exception, cells: Batch) -> None:
        """Record an exception as the failure of all cells that have no record yet."""
        text = describe_error(error)
        for cell in cells:
            if cell.key not in self.recorder.written:
                self.recorder.write_failure(cell, text.reason, traceback=text.traceback or None)

    def _cells_without_base(self, cells: Batch) -> set[Cell]:
        """Return the cells that start from a base fit without a sound record."""
        has_base: dict[str, bool] = {}  # by the key of the base fit, so that each is read once
        orphans: set[Cell] = set()
        for cell in cells:
            if cell.base is None:
                continue
            if cell.base not in has_base:
                has_base[cell.base] = self.recorder.base_hyperparameters(cell) is not None
            if not has_base[cell.base]:
                orphans.add(cell)
        return orphans

    def _program(self, cells: Batch) -> Program:
        """Return the program of cells, with their data on the device."""
        recorder = self.recorder
        return program(
            cells,
            recorder.prepare_split,
            recorder.base_hyperparameters,
            self.target,
            recorder.recalibration_factor_of_folds,
        )

    def _measure_gradients(self, cells: Batch) -> Iterator[None]:
        """Record statistics of the estimators' gradients; there are no checkpoints."""
        unmeasured_cells = iter(cells)
        for measurement in gradient_statistics(self._program(cells)):
            # None says that the device is busy.
            if measurement is None:
                self.stop.raise_if_requested()
                yield
                continue
            statistics, arrays = measurement
            cell = next(unmeasured_cells)  # the measurements come in the order of the cells
            self.recorder.write_record(cell, Result(**statistics), arrays)

    def _solve(self, cells: Batch) -> None:
        """Record cells whose q has a closed form at fixed hyperparameters (`Cell.is_solved`)."""
        fixed = self._program(cells)
        assert isinstance(fixed, Fixed)
        for fit in solve(fixed, self.batches_at_once):
            self.recorder.write_fit(cells[fit.cell], fit)

    def _train(self, batch: Batch, pending: Batch, job: BatchJob) -> Iterator[None]:
        """Train a batch until every cell has stopped; go on from its checkpoint if there is one."""
        config = settings(batch[0], self.target)
        training, cells = self._resume(batch, config) or self._start(pending, config)
        after_step = BetweenSteps(self, job, cells, saved_at=time.monotonic())
        pending_keys = keys_of(pending)
        try:
            for fit in train(training, config, after_step, self.batches_at_once):
                if fit is None:  # the device is busy
                    yield
                elif cells[fit.cell].key in pending_keys:
                    self.recorder.write_fit(cells[fit.cell], fit)
        finally:
            self.progress.note_end(training)
        self.recorder.discard_checkpoint(cells)

    def _start(self, cells: Batch, config: Settings) -> tuple[Training, Batch]:
        """Return a new training of these cells; save a checkpoint with their list."""
        training = Training.start(self._program(cells), config)
        checkpoint = Checkpoint(cells, unrecorded=list(range(len(cells))))
        save_checkpoint(self.recorder.store, checkpoint, arrays={})
        return training, cells

    def _resume(self, batch: Batch, config: Settings) -> tuple[Training, Batch] | None:
        """Return the training in the checkpoint of a batch, and all cells of the checkpoint.

        None without a readable checkpoint. Cells that got a record after the checkpoint was saved
        are trained again: without them, the last bits of the other cells would change
        (`Checkpoint`).
        """
        store = self.recorder.store
        path = checkpoint_path(store, batch)
        saved = read_checkpoint(store, path)
        if saved is None:
            return None
        if saved.iteration is None:
            return Training.start(self._program(saved.cells), config), saved.cells
        remaining = self._program(tuple(saved.cells[i] for i in saved.inside))
        try:
            arrays = read_npz(path)
            arrays.pop("about", None)
            state = State.from_arrays(arrays, self.target.device)
            state.check(State.fresh(remaining.initial(), config))
        except (Unreadable, TypeError) as error:
            store.quarantine(path, f"the checkpoint can't be read: {error}")
            return None
        self.progress.message(f"  resumes at iteration {saved.iteration}")
        training = Training(
            remaining, state, saved.inside, saved.seconds, saved.curves, saved.alone
        )
        return training, saved.cells


@dataclass
class BetweenSteps:
    """A function that `train` calls between steps of a batch.

    It shows progress, saves checkpoints, and stops the batch on request.
    """

    trainer: BatchTrainer
    job: BatchJob
    cells: Batch  # all cells of the batch when its training started
    saved_at: float  # when the last checkpoint was saved, by `time.monotonic`

    def __call__(self, training: Training) -> None:
        """Show the progress of a training, and save it if that is due.

        Raises:
            Stop: the run was asked to stop. The state is saved.
        """
        self.trainer.progress.tick(self.cells, training)
        self.job.live_cells = len(training.cells)
        # Read the request once. If it came between the two conditions, the batch would stop without
        # having saved its state.
        request = self.trainer.stop.requested
        if (request or self._is_due()) and training.unreported().any():
            self._save(training)
        if request:
            raise request

    def _is_due(self) -> bool:
        return time.monotonic() - self.saved_at >= self.trainer.checkpoint_seconds

    def _save(self, training: Training) -> None:
        checkpoint = Checkpoint.of(self.cells, training)
        # Copy the arrays from the device now, since training goes on while the writer saves them.
        arrays = training.state.arrays()
        recorder = self.trainer.recorder
        recorder.writer.do(partial(save_checkpoint, recorder.store, checkpoint, arrays))
        self.saved_at = time.monotonic()
