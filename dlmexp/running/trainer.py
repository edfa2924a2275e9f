"""One batch from its start to its records: trained by Adam with checkpoints, solved, or its gradients measured."""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dlmexp.errors import Unreadable
from dlmexp.objectives import OBJECTIVES
from dlmexp.plan.cell import Cell
from dlmexp.reading.json_text import typed_value
from dlmexp.records.store import Store
from dlmexp.running import checkpoint
from dlmexp.running.device import Target
from dlmexp.running.lanes import InFlight, Lanes
from dlmexp.running.programs import Hyperparameters, program, settings
from dlmexp.running.progress import Progress
from dlmexp.running.recording import Recorder
from dlmexp.running.signals import StopRequest
from dlmexp.running.writer import Writer
from dlmexp.training.gradients import gradient_statistics
from dlmexp.training.settings import Settings
from dlmexp.training.solve import solve
from dlmexp.training.state import State
from dlmexp.training.train import Curve, Training, train

Batch = tuple[Cell, ...]
NO_BASE = "the ELBO fit whose hyperparameters it takes has no sound record"


@dataclass(frozen=True)
class Trainer:
    """Does the work of batches, each on its lane."""

    store: Store
    target: Target
    progress: Progress
    stop: StopRequest
    writer: Writer
    recorder: Recorder
    lanes: Lanes
    checkpoint_seconds: float

    def work(self, flight: InFlight) -> Iterator[None]:
        """Train a batch and write records for its `pending` cells. Yields where it waits for the device."""
        batch, pending = flight.batch, flight.pending
        self.progress.started(pending)
        if orphans := self._orphans(pending):
            for cell in orphans:
                self.recorder.failure(cell, NO_BASE)
            self.writer.do(partial(checkpoint.discard, checkpoint.path_of(self.store, batch)))
            batch = pending = tuple(cell for cell in pending if cell not in orphans)
        if not pending:
            return
        if batch[0].kind == "gradient":
            yield from self._gradients(pending)
        elif OBJECTIVES[batch[0].objective].solved(batch[0].variant):
            for finished in solve(self._program(pending), lambda: self.lanes.used):
                self.recorder.fit(pending[finished.cell], finished)
        else:
            yield from self._train(batch, pending, flight)

    def _orphans(self, cells: Batch) -> set[Cell]:
        """Cells that need an ELBO fit which has no sound record."""
        first = {cell.base: cell for cell in cells if cell.base}
        lost = {base for base, cell in first.items() if self.recorder.base(cell) is None}
        return {cell for cell in cells if cell.base in lost}

    def _program(self, cells: Batch) -> Any:
        return program(cells, self.recorder.split, self._base, self.target)

    def _base(self, cell: Cell) -> Hyperparameters:
        found = self.recorder.base(cell)
        assert found is not None, NO_BASE
        return found

    def _train(self, batch: Batch, pending: Batch, flight: InFlight) -> Iterator[None]:
        """Train a batch by Adam, from its checkpoint if there is one, until every cell has stopped."""
        how = settings(batch[0], self.target)
        resumed = self._resume(batch, how)
        training, cells = resumed or (Training.start(self._program(pending), how), pending)
        path = checkpoint.path_of(self.store, cells)
        if not resumed:
            checkpoint.save(path, cells, checkpoint.Notes(list(range(len(cells)))), {})
        saved, wanted = time.monotonic(), {cell.key for cell in pending}

        def between(training: Training) -> None:
            nonlocal saved
            self.progress.tick(cells, training)
            self.lanes.hold(flight, len(training.cells))
            requested = self.stop.received is not None
            if training.unreported().any() and (requested or time.monotonic() - saved >= self.checkpoint_seconds):
                self._save(path, cells, training)
                saved = time.monotonic()
            if requested:  # one that came since then is not acted on before the state is saved, at the next call
                self.stop.raise_if_requested()

        try:
            for finished in train(training, how, between, lambda: self.lanes.used):
                if finished is None:
                    yield
                elif cells[finished.cell].key in wanted:
                    self.recorder.fit(cells[finished.cell], finished)
        finally:
            self.progress.ended(training)
        self.writer.do(partial(checkpoint.discard, path))

    def _save(self, path: Path, cells: Batch, training: Training) -> None:
        notes = checkpoint.Notes(
            open=[training.cells[i] for i in np.flatnonzero(training.unreported())],
            cells=training.cells,
            seconds=training.seconds,
            alone=training.alone,
            curves=[asdict(curve) for curve in training.curves],
            iteration=int(training.state.iteration),
        )
        self.writer.do(partial(checkpoint.save, path, cells, notes, training.state.arrays()))

    def _resume(self, batch: Batch, how: Settings) -> tuple[Training, Batch] | None:
        """The training as the checkpoint of the batch has it, and all its cells; None without a readable checkpoint.

        Cells that got a record after the checkpoint are trained again with the others: see `Checkpoint`.
        """
        path = checkpoint.path_of(self.store, batch)
        found = checkpoint.read(self.store, path)
        if found is None:
            return None
        notes = found.notes
        if notes.iteration is None:
            return Training.start(self._program(found.cells), how), found.cells
        program = self._program(tuple(found.cells[i] for i in notes.cells))
        try:
            state = State.from_arrays(found.arrays(), self.target.device)
            state.check(State.fresh(program.initial(), how))
            curves = [typed_value(curve, Curve) for curve in notes.curves]
        except (Unreadable, TypeError) as why:
            self.store.quarantine(path, f"the checkpoint can't be read: {why}")
            return None
        self.progress.resumed(notes.iteration)
        return Training(program, state, notes.cells, notes.seconds, curves, notes.alone), found.cells

    def _gradients(self, cells: Batch) -> Iterator[None]:
        """Measure bias and variance of the estimators' gradients; nothing is trained."""
        waiting = iter(cells)
        for found in gradient_statistics(self._program(cells)):
            if found is None:
                self.stop.raise_if_requested()
                yield
            else:
                self.recorder.gradient(next(waiting), *found)
