"""The engine: a queue of batches of cells. On a CPU one trains at a time; on a GPU as many as fill it, each on a stream
of its own."""

import contextlib
import time
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

import torch

from dlmexp.errors import UserError
from dlmexp.plan.batches import bytes_of, entries_of
from dlmexp.plan.cell import Cell
from dlmexp.running import checkpoint
from dlmexp.running.device import Target, is_out_of_memory
from dlmexp.running.leases import Leases
from dlmexp.running.programs import needs_the_device
from dlmexp.running.progress import Progress
from dlmexp.running.recording import Recorder
from dlmexp.running.signals import Stop, StopRequest
from dlmexp.running.trainer import Flight, Trainer

POLL_SECONDS = 2.0  # between looks at other processes
DEVICE_POLL_SECONDS = 2e-4
# Measured on an H200: from so many entries of [B, M, n] arrays in flight, more batches at once gain nothing.
ENTRIES_PER_PROCESSOR = 400_000
MOST_AT_ONCE = 12  # their kernels are launched by one thread, and torch has 32 streams (two for each batch)
MEMORY_SHARE = 0.8  # of what is free when the run starts
LESS = 0.8  # of what batches were expected to need together that did not fit
LONG_ONES = 2  # batches at once that are chosen for their number of steps; the others are the next in the queue

Batch = tuple[Cell, ...]


class Capacity(NamedTuple):
    """What may train at the same time: so many batches, entries of their largest arrays, and bytes."""

    most: int = 1
    entries: float = 0.0
    bytes: float = 0.0

    @classmethod
    def of(cls, device: torch.device) -> "Capacity":
        """How much may train at once on a device, going by its size and free memory."""
        if device.type != "cuda":
            return cls()
        processors = torch.cuda.get_device_properties(device).multi_processor_count
        free = torch.cuda.mem_get_info(device)[0]
        return cls(MOST_AT_ONCE, processors * ENTRIES_PER_PROCESSOR, MEMORY_SHARE * free)

    def room(self, batch: Batch, together: Sequence[Flight]) -> bool:
        """Whether another batch may join: the first always, another until the device is full. Cells that have left
        their batch take no time, but their memory is kept."""
        return not together or (
            not any(map(needs_the_device, (batch, *(flight.pending for flight in together))))
            and len(together) < self.most
            and sum(entries_of(flight.pending[:1]) * flight.inside for flight in together) < self.entries
            and sum(bytes_of(flight.pending) for flight in together) + bytes_of(batch) <= self.bytes
        )

    def longest_first(self, queue: deque[Batch], together: Sequence[Flight]) -> None:
        """Where batches train at once, put some first so that `LONG_ONES` of those in training have as many steps as
        any that waits. Many small steps cost little beside others, and much if they are left over at the end."""
        most = max((batch[0].iterations for batch in queue), default=0)
        wanted = LONG_ONES - sum(flight.pending[0].iterations >= most for flight in together)
        if self.most == 1 or wanted <= 0:
            return
        able = [batch for batch in queue if not needs_the_device(batch)]
        chosen = sorted(able, key=lambda batch: -batch[0].iterations)[:wanted]
        for batch in chosen:
            queue.remove(batch)
        queue.extendleft(reversed(chosen))

    def comes_last(self, batch: Batch, together: Sequence[Flight]) -> bool:
        """Whether others go before it: it needs the device for itself, and others train."""
        return self.most > 1 and len(together) > 0 and needs_the_device(batch)


class Engine:
    """Trains batches. Other processes may train batches of the same results folder: `leases` says which."""

    def __init__(
        self,
        target: Target,
        recorder: Recorder,
        progress: Progress,
        stop: StopRequest,
        leases: Leases,
        checkpoint_seconds: float,
    ):
        self.recorder, self.progress, self.stop, self.leases = recorder, progress, stop, leases
        self.store, self.writer = recorder.store, recorder.writer
        self.capacity = Capacity.of(target.device)
        self.running: list[Flight] = []
        on_gpu = target.device.type == "cuda"
        self._streams = [torch.cuda.Stream(target.device) if on_gpu else None for _ in range(self.capacity.most)]
        self._open: set[str] = set()  # cells that want a record, as of the last start
        self._seen = (0, 0)  # `_state` after the last start
        self.trainer = Trainer(target, recorder, progress, stop, checkpoint_seconds, lambda: max(1, len(self.running)))

    def run(self, batches: Iterable[tuple[Batch, Batch]]) -> None:
        """Train batches (`checkpoint.resumed_first`). Those that another process trains come last; should it die, they
        are trained here."""
        batches = list(batches)
        self._open = {cell.key for _, pending in batches for cell in pending}
        queue = deque(batch for batch, _ in batches)
        with self.writer:
            while queue or self.running:
                if not self.running:  # where some are, each of them saves its state before it stops
                    self.stop.raise_if_requested()
                self._start(queue)
                ready = [flight for flight in self.running if flight.ready]
                for flight in ready:
                    self._go_on(flight, queue)
                if self.running and not ready:
                    time.sleep(DEVICE_POLL_SECONDS)

    @property
    def _state(self) -> tuple[int, int]:
        """Cells in training, which shrink where there is room for more, and base fits with a record."""
        return sum(flight.inside for flight in self.running), self.recorder.base_fits

    def _start(self, queue: deque[Batch]) -> None:
        """Start batches while the device has room for them, if something has changed since the last time."""
        if not self.running or (self._state != self._seen and self.stop.received is None):
            self._fill(queue)
            self._seen = self._state

    def _fill(self, queue: deque[Batch]) -> None:
        """Batches that start from a fit that is trained here keep their place in the queue; those that another process
        trains come last."""
        self.capacity.longest_first(queue, self.running)
        first = next((batch for batch in queue if not self.capacity.comes_last(batch, self.running)), None)
        if first is None or not self.capacity.room(first, self.running):
            return  # without a look at all records, which takes a while where there are many
        done, failed = self.recorder.keys()
        self._open -= self.recorder.written.keys()
        here = {cell.key for batch in (*queue, *(flight.pending for flight in self.running)) for cell in batch}
        holder, waiting = None, list[Batch]()
        for _ in range(len(queue)):
            if self.capacity.comes_last(queue[0], self.running):
                queue.rotate(-1)
                continue
            if not self.capacity.room(queue[0], self.running):
                break
            batch = queue.popleft()
            if skipped := tuple(cell for cell in batch if cell.key in self._open and cell.key in done):
                self.progress.skipped(skipped)
                self._open -= {cell.key for cell in skipped}
            pending = tuple(cell for cell in batch if cell.key in self._open)
            if not pending:
                continue
            # A needed ELBO fit that no process trains and no batch here will train is not waited for: it never comes.
            needed = {cell.base for cell in pending if cell.base} - done - failed
            if needed & here:
                waiting.append(batch)
                continue
            flight = Flight(batch, pending)
            if (other := self.leases.take(flight.keys, needed)) is not None:
                queue.append(batch)
                holder = other
                continue
            flight.stream, flight.work = self._streams.pop(), self.trainer.work(flight)
            self.running.append(flight)
        queue.extendleft(reversed(waiting))
        if queue and not self.running and holder is not None:
            self.progress.waiting(holder.description)
            time.sleep(POLL_SECONDS)

    def _go_on(self, flight: Flight, queue: deque[Batch]) -> None:
        """Let a batch go on until it waits for the device, or has ended: then there is room for another one."""
        instead: list[Batch] = []
        try:
            if flight.go_on():
                return
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            instead = self._out_of_memory(flight)
        except Stop:
            for other in self.running:
                with contextlib.suppress(Stop):
                    while other is not flight and other.go_on():
                        pass
            raise
        self.running.remove(flight)
        self._streams.append(flight.stream)
        # The lease is released before the same cells are leased again.
        self.writer.do(partial(self.leases.release, flight.keys), wait=bool(instead))
        self.writer.do(self.recorder.drop_models)
        queue.extendleft(instead)

    def _out_of_memory(self, flight: Flight) -> list[Batch]:
        """What to train instead of a batch that did not fit: the same with fewer beside it, or its halves."""
        batch, pending = flight.batch, flight.pending
        resumes = checkpoint.path_of(self.store, batch).exists()
        together = batch if resumes else pending  # what is resumed has all cells of its checkpoint
        if len(self.running) == len(together) == 1:
            raise UserError(
                f"{pending[0].describe()} does not fit into memory, not even alone: free some, or leave it out with "
                "sizes= or dataset=; what is finished is safe"
            ) from None
        torch.cuda.empty_cache()
        if len(self.running) > 1:
            needed = sum(bytes_of(other.pending) for other in self.running)
            self.capacity = self.capacity._replace(bytes=min(self.capacity.bytes, LESS * needed))
            self.progress.out_of_memory(batches=len(self.running))
            return [together]
        half = len(pending) // 2
        parts = [part for part in (pending[half:], pending[:half]) if part]
        self.progress.out_of_memory(cells=len(together), parts=len(parts))
        for saved in (batch, pending):
            self.recorder.discard(saved)
        return parts
