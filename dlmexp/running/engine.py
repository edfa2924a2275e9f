"""The engine: trains batches of cells, several at once on a GPU, with checkpoints."""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dlmexp.data.splits import Prepared
from dlmexp.errors import Unreadable, UserError
from dlmexp.objectives import OBJECTIVES
from dlmexp.plan.cell import Cell
from dlmexp.reading.json_text import typed_value
from dlmexp.records.store import Store
from dlmexp.running import checkpoint
from dlmexp.running.device import Target, is_out_of_memory
from dlmexp.running.keeping import Keeper
from dlmexp.running.lanes import InFlight, Lanes
from dlmexp.running.presence import Presence
from dlmexp.running.programs import Hyperparameters, program, settings
from dlmexp.running.progress import Progress
from dlmexp.running.recording import Recorder
from dlmexp.running.signals import Stop, StopRequest
from dlmexp.running.writer import Writer
from dlmexp.training.gradients import gradient_statistics
from dlmexp.training.settings import Settings
from dlmexp.training.solve import solve
from dlmexp.training.state import State
from dlmexp.training.train import Curve, Training, train

POLL_SECONDS = 2.0  # between looks at other processes
DEVICE_POLL_SECONDS = 2e-4

Batch = tuple[Cell, ...]
TOO_LARGE = (
    "{cell} does not fit into memory, not even alone: free some, or leave it out with sizes= or dataset=; what is "
    "finished is safe"
)
NO_BASE = "the ELBO fit whose hyperparameters it takes has no sound record"


@dataclass
class Engine:
    """Trains batches. Other processes may train batches of the same results folder; `presence` says which."""

    store: Store
    target: Target
    prepared: Callable[[Cell], Prepared]
    progress: Progress
    stop: StopRequest
    presence: Presence
    experiment: str
    checkpoint_seconds: float
    keeper: Keeper | None = None  # of trained models
    again: frozenset[str] = frozenset()  # done cells that are trained once more, to keep their models
    lanes: Lanes = field(init=False)
    writer: Writer = field(init=False)
    recorder: Recorder = field(init=False)
    _refit: dict[str, Cell] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)  # cells that want a record, as of the last start

    def run(self, batches: Iterable[Batch]) -> None:
        """Train the batches. Those that another process trains come last; should it die, they are trained here."""
        batches = list(batches)
        # Cells that are done but planned all the same: ELBO fits that were packed without hyperparameters, and `again`.
        twice = self.again | self.store.packs.records.keys()
        self._refit = {cell.key: cell for batch in batches for cell in batch if cell.key in twice}
        device = self.target.device
        with Writer(beside=device.type == "cuda") as self.writer:
            self.recorder = Recorder(
                self.store, self.writer, self.prepared, self.progress, str(device), self.experiment, self.keeper
            )
            self._run(deque(self._resumable(batches)))

    def _run(self, queue: deque[Batch]) -> None:
        self.lanes, running = Lanes(self.target.device), list[InFlight]()
        while queue or running:
            if not running:  # where some are, each of them saves its state before it stops
                self.stop.raise_if_requested()
            if self.lanes.freed or self.recorder.new_bases or not running:
                self.lanes.freed = self.recorder.new_bases = False
                self._start(queue, running)
            ready = [flight for flight in running if flight.lane.ready]
            for flight in ready:
                self._go_on(flight, queue, running)
            if running and not ready:
                time.sleep(DEVICE_POLL_SECONDS)

    def _start(self, queue: deque[Batch], running: list[InFlight]) -> None:
        """Start batches while the device has room for them. Those that start from a fit that is trained here keep their
        place in the queue; those that another process trains come last."""
        if running and self.stop.received is not None:
            return
        self.lanes.longest_first(queue, running)
        first = next((batch for batch in queue if not self.lanes.comes_last(batch, running)), None)
        if first is None or not self.lanes.have_room(first, running):
            return  # without a look at all records, which takes a while where there are many
        done, failed = self._keys()
        self._open -= self.recorder.written.keys()
        here = {cell.key for batch in (*queue, *(flight.pending for flight in running)) for cell in batch}
        holder, waiting = None, list[Batch]()
        for _ in range(len(queue)):
            if self.lanes.comes_last(queue[0], running):
                queue.rotate(-1)
                continue
            if not self.lanes.have_room(queue[0], running):
                break
            batch = queue.popleft()
            if skipped := tuple(cell for cell in batch if cell.key in self._open and cell.key in done):
                self.progress.skipped(skipped)
                self._open -= {cell.key for cell in skipped}
            pending = tuple(cell for cell in batch if cell.key in self._open)
            if not pending:
                continue
            keys = {cell.key for cell in pending}
            # A needed ELBO fit that no process trains and no batch here will train is not waited for: it never comes.
            needed = {cell.base for cell in pending if cell.base} - done - failed
            if needed & here:
                waiting.append(batch)
                continue
            self.presence.announce(keys)
            if holders := self.presence.announced_earlier(keys | needed):
                self.presence.withdraw(keys)
                queue.append(batch)
                holder = holders[0]
                continue
            flight = InFlight(batch, pending, self.lanes.take())
            flight.work = self._batch(flight)
            running.append(flight)
        queue.extendleft(reversed(waiting))
        if queue and not running and holder is not None:
            self.progress.waiting(holder.description)
            time.sleep(POLL_SECONDS)

    def _go_on(self, flight: InFlight, queue: deque[Batch], running: list[InFlight]) -> None:
        """Let a batch go on until it waits for the device, or has ended: then its lane is free for another one."""
        instead: list[Batch] = []
        try:
            if flight.lane.go_on(flight.work):
                return
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            instead = self._out_of_memory(flight, running)
        except Stop:
            for other in running:
                with contextlib.suppress(Stop):
                    while other is not flight and other.lane.go_on(other.work):
                        pass
            raise
        running.remove(flight)
        self.lanes.give_back(flight.lane)
        self.writer.do(partial(self.presence.withdraw, [cell.key for cell in flight.pending]))
        if self.keeper is not None:
            self.writer.do(partial(self.keeper.drop_unselected, {cell.key for cell in flight.batch}))
        if instead:
            self.writer.wait()  # else the withdrawal would come after the same cells are announced again
            queue.extendleft(instead)

    def _out_of_memory(self, flight: InFlight, running: list[InFlight]) -> list[Batch]:
        """What to train instead of a batch that did not fit: the same with fewer beside it, or its halves."""
        batch, pending = flight.batch, flight.pending
        own = checkpoint.path_of(self.store, batch)
        together = batch if own.exists() else pending  # what is resumed has all cells of its checkpoint
        if len(running) == len(together) == 1:
            raise UserError(TOO_LARGE.format(cell=pending[0].describe())) from None
        torch.cuda.empty_cache()
        if len(running) > 1:
            self.lanes.fewer(running)
            self.progress.fewer(len(running))
            return [batch]
        half = len(pending) // 2
        parts = [part for part in (pending[half:], pending[:half]) if part]
        self.progress.halved(len(together), len(parts))
        for path in (own, checkpoint.path_of(self.store, pending)):
            self.writer.do(partial(checkpoint.discard, path))
        return parts

    def _keys(self) -> tuple[set[str], set[str]]:
        """Keys of done and of failed cells; a cell to be fitted again is done once it has a record outside packs, and a
        model if that is what it is fitted again for."""
        done, failed = self.store.keys()
        for key, record_done in self.recorder.written.items():
            (done if record_done else failed).add(key)
        return done - {key for key, cell in self._refit.items() if not self._fitted_again(cell)}, failed

    def _fitted_again(self, cell: Cell) -> bool:
        if cell.key in self.recorder.written:
            return True
        path = self.store.path(cell.dataset, cell.key)
        if cell.key not in self.again:
            return path.exists()
        record = self.store.read(path)
        return record is not None and self.store.has_model(record)

    def _resumable(self, batches: list[Batch]) -> list[Batch]:
        """The batches of all checkpoints of pending cells, then the given batches without those cells."""
        done, _ = self._keys()
        checkpoint.discard_finished(self.store, done)
        begun, rest = checkpoint.resumable(self.store, batches)
        self._open = {cell.key for batch in batches for cell in batch}
        self._open |= {cell.key for found in begun for cell in found.open} - done
        return [found.cells for found in begun] + rest

    def _batch(self, flight: InFlight) -> Iterator[None]:
        """Write records for the `pending` cells of a batch. Yields where it waits for the device."""
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
