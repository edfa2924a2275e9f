"""The engine: a queue of batches of cells, of which several train at once on a GPU."""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import torch

from dlmexp.data.splits import Prepared
from dlmexp.errors import UserError
from dlmexp.plan.cell import Cell
from dlmexp.records.store import Store
from dlmexp.running import checkpoint
from dlmexp.running.device import Target, is_out_of_memory
from dlmexp.running.keeping import Keeper
from dlmexp.running.lanes import InFlight, Lanes
from dlmexp.running.presence import Presence
from dlmexp.running.progress import Progress
from dlmexp.running.recording import Recorder
from dlmexp.running.signals import Stop, StopRequest
from dlmexp.running.trainer import Trainer
from dlmexp.running.writer import Writer

POLL_SECONDS = 2.0  # between looks at other processes
DEVICE_POLL_SECONDS = 2e-4

Batch = tuple[Cell, ...]
TOO_LARGE = (
    "{cell} does not fit into memory, not even alone: free some, or leave it out with sizes= or dataset=; what is "
    "finished is safe"
)


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
    trainer: Trainer = field(init=False)
    _refit: dict[str, Cell] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)  # cells that want a record, as of the last start

    def run(self, batches: Iterable[Batch]) -> None:
        """Train the batches. Those that another process trains come last; should it die, they are trained here."""
        batches = list(batches)
        # Cells that are done but planned all the same: ELBO fits that were packed without hyperparameters, and `again`.
        twice = self.again | self.store.packed
        self._refit = {cell.key: cell for batch in batches for cell in batch if cell.key in twice}
        device = self.target.device
        with Writer(beside=device.type == "cuda") as self.writer:
            self.recorder = Recorder(
                self.store, self.writer, self.prepared, self.progress, str(device), self.experiment, self.keeper
            )
            self.lanes = Lanes(device)
            self.trainer = Trainer(
                self.store, self.target, self.progress, self.stop, self.writer, self.recorder, self.lanes,
                self.checkpoint_seconds,
            )  # fmt: skip
            self._run(deque(self._resumable(batches)))

    def _run(self, queue: deque[Batch]) -> None:
        running = list[InFlight]()
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
            flight.work = self.trainer.work(flight)
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
            return [together]
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
        if record is None or record.model is None:
            return False
        return self.store.model_path(cell.dataset, cell.key, record.model).is_file()

    def _resumable(self, batches: list[Batch]) -> list[Batch]:
        """The batches of all checkpoints of pending cells, then the given batches without those cells."""
        done, _ = self._keys()
        checkpoint.discard_finished(self.store, done)
        begun, rest = checkpoint.resumable(self.store, batches)
        self._open = {cell.key for batch in batches for cell in batch}
        self._open |= {cell.key for found in begun for cell in found.open} - done
        return [found.cells for found in begun] + rest
