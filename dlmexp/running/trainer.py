"""A batch from its start to its records: trained by Adam with checkpoints, solved, or its gradients measured."""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from dlmexp.errors import Unreadable
from dlmexp.plan.cell import Cell
from dlmexp.reading.json_text import typed_value
from dlmexp.running import checkpoint
from dlmexp.running.device import Target
from dlmexp.running.programs import Hyperparameters, program, settings
from dlmexp.running.progress import Progress
from dlmexp.running.recording import Recorder
from dlmexp.running.signals import StopRequest
from dlmexp.training.gradients import gradient_statistics
from dlmexp.training.program import Program
from dlmexp.training.state import Settings, State
from dlmexp.training.train import Curve, Training, train
from dlmexp.training.variants import Fixed, solve

Batch = tuple[Cell, ...]
NO_BASE = "the ELBO fit whose hyperparameters it takes has no sound record"


@dataclass(eq=False)
class Flight:
    """A batch in training: its cells, those that want a record, and its work, which yields where it waits for the
    device. On a GPU it has a stream: its kernels run in order, beside those of other flights."""

    batch: Batch
    pending: Batch
    stream: torch.cuda.Stream | None = None
    work: Iterator[None] = field(default_factory=lambda: iter(()))
    inside: int = field(init=False)  # cells that have not left the batch
    _event: Any = field(default=None, init=False)  # after the last that the device was given

    def __post_init__(self) -> None:
        self.inside = len(self.pending)

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(cell.key for cell in self.pending)

    @property
    def ready(self) -> bool:
        """Whether the device has done all that this flight has given to it."""
        return self._event is None or self._event.query()

    def go_on(self) -> bool:
        """Work until it waits for the device again. False when it has ended."""
        with torch.cuda.stream(self.stream):  # does nothing where there is none
            goes_on = next(self.work, "ended") is None
        if self.stream is not None:
            self._event = self.stream.record_event(self._event)
        return goes_on


@dataclass(frozen=True)
class Trainer:
    """Does the work of batches. `at_once` gives the number of batches that share the device."""

    target: Target
    recorder: Recorder
    progress: Progress
    stop: StopRequest
    checkpoint_seconds: float
    at_once: Callable[[], int]

    def work(self, flight: Flight) -> Iterator[None]:
        """Train a batch and write records for its `pending` cells. Yields where it waits for the device."""
        batch, pending = flight.batch, flight.pending
        self.progress.started(pending)
        bases = {cell.base: cell for cell in pending if cell.base}
        lost = {base for base, cell in bases.items() if self.recorder.base(cell) is None}
        if orphans := {cell for cell in pending if cell.base in lost}:
            for cell in orphans:
                self.recorder.failure(cell, NO_BASE)
            self.recorder.discard(batch)
            batch = pending = tuple(cell for cell in pending if cell not in orphans)
        if not pending:
            return
        if batch[0].kind == "gradient":
            yield from self._gradients(pending)
        elif batch[0].solved:
            made = self._program(pending)
            assert isinstance(made, Fixed)
            for finished in solve(made, self.at_once):
                self.recorder.fit(pending[finished.cell], finished)
        else:
            yield from self._train(batch, pending, flight)

    def _program(self, cells: Batch) -> Program:
        return program(cells, self.recorder.split, self._base, self.target)

    def _base(self, cell: Cell) -> Hyperparameters:
        base = self.recorder.base(cell)
        assert base is not None, NO_BASE
        return base

    def _train(self, batch: Batch, pending: Batch, flight: Flight) -> Iterator[None]:
        """Train a batch by Adam, from its checkpoint if there is one, until every cell has stopped."""
        how = settings(batch[0], self.target)
        resumed = self._resume(batch, how)
        training, cells = resumed or (Training.start(self._program(pending), how), pending)
        path = checkpoint.path_of(self.recorder.store, cells)
        if not resumed:
            checkpoint.save(path, cells, checkpoint.Notes(list(range(len(cells)))), {})
        saved, wanted = time.monotonic(), {cell.key for cell in pending}

        def between(training: Training) -> None:
            nonlocal saved
            self.progress.tick(cells, training)
            flight.inside = len(training.cells)
            requested = self.stop.received is not None
            if training.unreported().any() and (requested or time.monotonic() - saved >= self.checkpoint_seconds):
                notes, arrays = _notes(training), training.state.arrays()
                self.recorder.writer.do(partial(checkpoint.save, path, cells, notes, arrays))
                saved = time.monotonic()
            if requested:  # one that came since then is not acted on before the state is saved, at the next call
                self.stop.raise_if_requested()

        try:
            for finished in train(training, how, between, self.at_once):
                if finished is None:
                    yield
                elif cells[finished.cell].key in wanted:
                    self.recorder.fit(cells[finished.cell], finished)
        finally:
            self.progress.ended(training)
        self.recorder.discard(cells)

    def _resume(self, batch: Batch, how: Settings) -> tuple[Training, Batch] | None:
        """The training as the checkpoint of the batch has it, and all its cells; None without a readable checkpoint.

        Cells that got a record after the checkpoint are trained again with the others: see `Checkpoint`.
        """
        store = self.recorder.store
        path = checkpoint.path_of(store, batch)
        saved = checkpoint.read(store, path)
        if saved is None:
            return None
        notes = saved.notes
        if notes.iteration is None:
            return Training.start(self._program(saved.cells), how), saved.cells
        made = self._program(tuple(saved.cells[i] for i in notes.cells))
        try:
            state = State.from_arrays(checkpoint.read_tensors(path), self.target.device)
            state.check(State.fresh(made.initial(), how))
            curves = [typed_value(curve, Curve) for curve in notes.curves]
        except (Unreadable, TypeError) as why:
            store.quarantine(path, f"the checkpoint can't be read: {why}")
            return None
        self.progress.resumed(notes.iteration)
        return Training(made, state, notes.cells, notes.seconds, curves, notes.alone), saved.cells

    def _gradients(self, cells: Batch) -> Iterator[None]:
        """Measure bias and variance of the estimators' gradients; nothing is trained."""
        waiting = iter(cells)
        for measured in gradient_statistics(self._program(cells)):
            if measured is None:
                self.stop.raise_if_requested()
                yield
            else:
                self.recorder.gradient(next(waiting), *measured)


def _notes(training: Training) -> checkpoint.Notes:
    return checkpoint.Notes(
        open=[training.cells[i] for i in np.flatnonzero(training.unreported())],
        cells=training.cells,
        seconds=training.seconds,
        alone=training.alone,
        curves=[asdict(curve) for curve in training.curves],
        iteration=int(training.state.iteration),
    )
