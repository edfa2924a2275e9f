"""The engine: a queue of batches of cells. On a CPU one trains at a time; on a GPU as many as fill it, each on a stream
of its own."""

import contextlib
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
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
from dlmexp.running.trainer import BatchTraining, Trainer

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

    def room(self, batch: Batch, together: Sequence[BatchTraining]) -> bool:
        """Whether another batch may join: the first always, another until the device is full. Cells that have left
        their batch take no time, but their memory is kept."""
        return not together or (
            not any(map(needs_the_device, (batch, *(one.pending for one in together))))
            and len(together) < self.most
            and sum(entries_of(one.pending[:1]) * one.inside for one in together) < self.entries
            and sum(bytes_of(one.pending) for one in together) + bytes_of(batch) <= self.bytes
        )

    def longest_first(self, queue: deque[Batch], together: Sequence[BatchTraining]) -> None:
        """Where batches train at once, put some first so that `LONG_ONES` of those in training have as many steps as
        any that waits. Many small steps cost little beside others, and much if they are left over at the end."""
        most = max((batch[0].iterations for batch in queue), default=0)
        wanted = LONG_ONES - sum(one.pending[0].iterations >= most for one in together)
        if self.most == 1 or wanted <= 0:
            return
        able = [batch for batch in queue if not needs_the_device(batch)]
        chosen = sorted(able, key=lambda batch: -batch[0].iterations)[:wanted]
        for batch in chosen:
            queue.remove(batch)
        queue.extendleft(reversed(chosen))

    def comes_last(self, batch: Batch, together: Sequence[BatchTraining]) -> bool:
        """Whether others go before it: it needs the device for itself, and others train."""
        return self.most > 1 and len(together) > 0 and needs_the_device(batch)

    def alike(self, batch: Batch) -> int:
        """How many such batches may train at once."""
        together = [BatchTraining(batch, batch)]
        while self.room(batch, together):
            together.append(together[0])
        return len(together)


class Lane:
    """Where a batch trains. On a GPU it is a stream: its kernels run in order, beside those of other lanes."""

    def __init__(self, device: torch.device):
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._event = torch.cuda.Event() if device.type == "cuda" else None

    @property
    def ready(self) -> bool:
        """Whether the device has done all that this lane has given to it."""
        return self._event is None or self._event.query()

    def go_on(self, work: Iterator[None]) -> bool:
        """Let the work go on until it waits for the device again. False when it has ended."""
        if self._stream is None or self._event is None:
            return next(work, "ended") is None
        with torch.cuda.stream(self._stream):
            goes_on = next(work, "ended") is None
            self._event.record(self._stream)
        return goes_on


@dataclass
class Flight(BatchTraining):
    """A batch in training on its lane, and its work, which yields where it waits."""

    lane: Lane = field(kw_only=True)
    work: Iterator[None] = field(default_factory=lambda: iter(()), kw_only=True)

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(cell.key for cell in self.pending)


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
        self._lanes = [Lane(target.device) for _ in range(self.capacity.most)]
        self._open: set[str] = set()  # cells that want a record, as of the last start
        self._seen = (0, 0)  # `_state` after the last start
        self.trainer = Trainer(target, recorder, progress, stop, checkpoint_seconds, lambda: max(1, len(self.running)))

    def run(self, batches: Iterable[Batch]) -> None:
        """Train the batches. Those that another process trains come last; should it die, they are trained here."""
        batches = list(batches)
        self.recorder.expect(batches)
        queue = deque(self._resumable(batches))
        with self.writer:
            while queue or self.running:
                if not self.running:  # where some are, each of them saves its state before it stops
                    self.stop.raise_if_requested()
                self._start(queue)
                ready = [flight for flight in self.running if flight.lane.ready]
                for flight in ready:
                    self._go_on(flight, queue)
                if self.running and not ready:
                    time.sleep(DEVICE_POLL_SECONDS)

    def _start(self, queue: deque[Batch]) -> None:
        """Start batches while the device has room for them. Those that start from a fit that is trained here keep their
        place in the queue; those that another process trains come last."""
        if self.running and (self._state == self._seen or self.stop.received is not None):
            return
        self._fill(queue)
        self._seen = self._state

    @property
    def _state(self) -> tuple[int, int]:
        """Cells in training, which shrink where there is room for more, and base fits with a record."""
        return sum(flight.inside for flight in self.running), self.recorder.base_fits

    def _fill(self, queue: deque[Batch]) -> None:
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
            flight = Flight(batch, pending, lane=self._lanes[-1])
            if (other := self.leases.take(flight.keys, needed)) is not None:
                queue.append(batch)
                holder = other
                continue
            self._lanes.pop()
            flight.work = self.trainer.work(flight)
            self.running.append(flight)
        queue.extendleft(reversed(waiting))
        if queue and not self.running and holder is not None:
            self.progress.waiting(holder.description)
            time.sleep(POLL_SECONDS)

    def _go_on(self, flight: Flight, queue: deque[Batch]) -> None:
        """Let a batch go on until it waits for the device, or has ended: then its lane is free for another one."""
        instead: list[Batch] = []
        try:
            if flight.lane.go_on(flight.work):
                return
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            instead = self._out_of_memory(flight)
        except Stop:
            for other in self.running:
                with contextlib.suppress(Stop):
                    while other is not flight and other.lane.go_on(other.work):
                        pass
            raise
        self.running.remove(flight)
        self._lanes.append(flight.lane)
        self.writer.do(partial(self.leases.release, flight.keys))
        self.writer.do(self.recorder.drop_models)
        if instead:
            self.writer.wait()  # else the release would come after the same cells are leased again
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
            needed = sum(bytes_of(one.pending) for one in self.running)
            self.capacity = self.capacity._replace(bytes=min(self.capacity.bytes, LESS * needed))
            self.progress.out_of_memory(batches=len(self.running))
            return [together]
        half = len(pending) // 2
        parts = [part for part in (pending[half:], pending[:half]) if part]
        self.progress.out_of_memory(cells=len(together), parts=len(parts))
        for one in (batch, pending):
            self.recorder.discard(one)
        return parts

    def _resumable(self, batches: list[Batch]) -> list[Batch]:
        """The batches of all checkpoints of pending cells, then the given batches without those cells."""
        done, _ = self.recorder.keys()
        checkpoint.discard_finished(self.store, done)
        begun, rest = checkpoint.resumable(self.store, batches)
        self._open = {cell.key for batch in batches for cell in batch}
        self._open |= {cell.key for found in begun for cell in found.open} - done
        return [found.cells for found in begun] + rest
