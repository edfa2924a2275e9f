"""Train one batch: from its checkpoint or its start, to the records of its cells."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from dlmexp.common.errors import Unreadable
from dlmexp.common.plugin_errors import raised
from dlmexp.common.reading.files import read_npz
from dlmexp.core.training.batch import Training
from dlmexp.core.training.fixed import Fixed
from dlmexp.core.training.gradients import gradient_statistics
from dlmexp.core.training.program import Program
from dlmexp.core.training.settings import Settings
from dlmexp.core.training.solve import solve
from dlmexp.core.training.state import State
from dlmexp.core.training.train import train
from dlmexp.experiment.plan.cell import Batch, Cell
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

NO_BASE = "the base fit whose hyperparameters it takes has no sound record"


@dataclass
class BatchTrainer:
    """Turns batches into records. All work is done in generators that yield to wait for the GPU."""

    target: Target
    recorder: Recorder
    progress: Progress
    stop: StopRequest
    checkpoint_seconds: float
    batches_at_once: Callable[[], int]  # the number of batches in training at this moment

    def work(self, job: BatchJob) -> Iterator[None]:
        """Train, solve or measure a batch, and write a record for each of its pending cells."""
        self.progress.started(job.pending)
        orphans = self._cells_without_base(job.pending)
        batch = job.batch
        pending = job.pending
        if orphans:
            for cell in orphans:
                self.recorder.failure(cell, NO_BASE)
            self.recorder.discard(job.batch)
            pending = tuple(cell for cell in job.pending if cell not in orphans)
            batch = pending
        if not pending:
            return
        try:
            yield from self._results(batch, pending, job)
        except Exception as error:
            if not is_error_of_plugin(error, pending[0]):
                raise
            self._record_error(error, pending)
            self.recorder.discard(batch)

    def _results(self, batch: Batch, pending: Batch, job: BatchJob) -> Iterator[None]:
        if batch[0].kind == "gradient":
            yield from self._measure_gradients(pending)
        elif batch[0].solved:
            self._solve(pending)
        else:
            yield from self._train(batch, pending, job)

    def _record_error(self, error: Exception, cells: Batch) -> None:
        """Write that the cells without a result failed by an exception."""
        text = raised(error)
        for cell in cells:
            if cell.key not in self.recorder.written:
                self.recorder.failure(cell, text.reason, traceback=text.traceback or None)

    def _cells_without_base(self, cells: Batch) -> set[Cell]:
        """Return the cells that start from a base fit without a sound record."""
        cell_by_base = {cell.base: cell for cell in cells if cell.base}
        lost: set[str | None] = set()
        for base, cell in cell_by_base.items():
            if self.recorder.base(cell) is None:
                lost.add(base)
        return {cell for cell in cells if cell.base in lost}

    def _program(self, cells: Batch) -> Program:
        recorder = self.recorder
        return program(cells, recorder.split, recorder.base, self.target, recorder.temperature)

    def _measure_gradients(self, cells: Batch) -> Iterator[None]:
        unmeasured = iter(cells)
        for measured in gradient_statistics(self._program(cells)):
            if measured is None:
                self.stop.raise_if_requested()
                yield
                continue
            statistics, arrays = measured
            self.recorder.write(next(unmeasured), Result(**statistics), arrays)

    def _solve(self, cells: Batch) -> None:
        fixed = self._program(cells)
        assert isinstance(fixed, Fixed)
        for finished in solve(fixed, self.batches_at_once):
            self.recorder.fit(cells[finished.cell], finished)

    def _train(self, batch: Batch, pending: Batch, job: BatchJob) -> Iterator[None]:
        """Train a batch by Adam until every cell has stopped."""
        config = settings(batch[0], self.target)
        training, cells = self._resume(batch, config) or self._start(pending, config)
        between = BetweenSteps(self, job, cells, saved_at=time.monotonic())
        wanted = {cell.key for cell in pending}
        try:
            for finished in train(training, config, between, self.batches_at_once):
                if finished is None:
                    yield
                elif cells[finished.cell].key in wanted:
                    self.recorder.fit(cells[finished.cell], finished)
        finally:
            self.progress.ended(training)
        self.recorder.discard(cells)

    def _start(self, cells: Batch, config: Settings) -> tuple[Training, Batch]:
        """Return a new training of these cells; their list is saved before the first step."""
        training = Training.start(self._program(cells), config)
        every_cell = list(range(len(cells)))
        save_checkpoint(self.recorder.store, Checkpoint(cells, unrecorded=every_cell), {})
        return training, cells

    def _resume(self, batch: Batch, config: Settings) -> tuple[Training, Batch] | None:
        """Return the training in the checkpoint of a batch, and all cells of the checkpoint.

        None without a readable checkpoint. Cells that got a record after the checkpoint was saved
        are trained again with the others: see `Checkpoint`.
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
    """Called between steps of a batch: shows progress, saves checkpoints, and stops on request."""

    trainer: BatchTrainer
    job: BatchJob
    cells: Batch  # all cells of the batch when its training started
    saved_at: float  # by `time.monotonic`

    def __call__(self, training: Training) -> None:
        """Look at a training whose state is consistent.

        Raises:
            Stop: the run was asked to stop. The state is saved.
        """
        self.trainer.progress.tick(self.cells, training)
        self.job.live_cells = len(training.cells)
        # A request that comes after this line is acted on at the next call, which saves the state.
        request = self.trainer.stop.requested
        if (request or self._is_due()) and training.unreported().any():
            self._save(training)
        if request:
            raise request

    def _is_due(self) -> bool:
        return time.monotonic() - self.saved_at >= self.trainer.checkpoint_seconds

    def _save(self, training: Training) -> None:
        checkpoint = Checkpoint.of(self.cells, training)
        # The arrays are taken from the device now; the writer may save them while training goes on.
        arrays = training.state.arrays()
        recorder = self.trainer.recorder
        recorder.writer.do(partial(save_checkpoint, recorder.store, checkpoint, arrays))
        self.saved_at = time.monotonic()
