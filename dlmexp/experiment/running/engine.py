"""The engine: a queue of batches of cells, each trained from its start to its records. On a CPU one
trains at a time; on a GPU as many as fill it, each on a stream of its own."""

import contextlib
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from dlmexp.common.console import counted
from dlmexp.common.errors import Unreadable, UserError
from dlmexp.common.reading.files import read_npz
from dlmexp.core.training.program import Program
from dlmexp.core.training.state import Settings, State
from dlmexp.core.training.train import Training, train
from dlmexp.core.training.variants import Fixed, gradient_statistics, solve
from dlmexp.experiment.plan.cell import Batch
from dlmexp.experiment.records.record import Result
from dlmexp.experiment.running import recording
from dlmexp.experiment.running.leases import Leases
from dlmexp.experiment.running.process import Stop, StopRequest, Target, is_out_of_memory
from dlmexp.experiment.running.programs import (
    bytes_of,
    entries_of,
    needs_the_device,
    program,
    settings,
)
from dlmexp.experiment.running.progress import Progress

NO_BASE = "the base fit whose hyperparameters it takes has no sound record"
POLL_SECONDS = 2.0  # between looks at other processes
DEVICE_POLL_SECONDS = 2e-4
# Measured on an H200: from so many entries of [B, M, n] arrays in flight, more batches at once gain
# nothing.
ENTRIES_PER_PROCESSOR = 400_000
MOST_AT_ONCE = (
    12  # their kernels are launched by one thread, and torch has 32 streams (two for each batch)
)
MEMORY_SHARE = 0.8  # of what is free when the run starts
LESS = 0.8  # the new limit, as a share of the expected bytes that did not fit
# batches at once that are chosen for their number of steps; the others are the next in the queue
LONG_ONES = 2


@dataclass(eq=False)
class Flight:
    """A batch that waits or trains: its cells, and those that want a record. In training it has
    work, which yields where it waits for the device, and on a GPU a stream: its kernels run in
    order, beside those of other flights."""

    batch: Batch
    pending: Batch
    inside: int = 0  # cells that have not left the batch
    stream: torch.cuda.Stream | None = None
    work: Iterator[None] = field(default_factory=lambda: iter(()))

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(cell.key for cell in self.pending)

    @property
    def ready(self) -> bool:
        """Whether the device has done all that this flight has given to it."""
        return self.stream is None or self.stream.query()

    def go_on(self) -> bool:
        """Work until it waits for the device again. False when it has ended."""
        with torch.cuda.stream(self.stream):  # does nothing where there is none
            return next(self.work, "ended") is None


class Capacity(NamedTuple):
    """What may train at the same time: so many batches, entries of their largest arrays, and
    bytes."""

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
        """Whether another batch may join: the first always, another until the device is full. Cells
        that have left their batch take no time, but their memory is kept."""
        return not together or (
            not any(
                needs_the_device(some[0])
                for some in (batch, *(flight.pending for flight in together))
            )
            and len(together) < self.most
            and sum(entries_of(flight.pending[:1]) * flight.inside for flight in together)
            < self.entries
            and sum(bytes_of(flight.pending) for flight in together) + bytes_of(batch) <= self.bytes
        )

    def longest_first(self, queue: deque[Flight], together: Sequence[Flight]) -> None:
        """Where batches train concurrently, move the longest forward until `LONG_ONES` in training
        have as many steps as any that waits. Many small steps cost little beside others, and much
        if they are left over at the end."""
        most = max((waiting.batch[0].iterations for waiting in queue), default=0)
        wanted = LONG_ONES - sum(flight.pending[0].iterations >= most for flight in together)
        if self.most == 1 or wanted <= 0:
            return
        able = [waiting for waiting in queue if not needs_the_device(waiting.batch[0])]
        chosen = sorted(able, key=lambda waiting: -waiting.batch[0].iterations)[:wanted]
        for waiting in chosen:
            queue.remove(waiting)
        queue.extendleft(reversed(chosen))


@dataclass
class Engine:
    """Trains batches. Other processes may train batches of the same results folder: `leases` says
    which."""

    target: Target
    recorder: recording.Recorder
    progress: Progress
    stop: StopRequest
    leases: Leases
    checkpoint_seconds: float

    def __post_init__(self) -> None:
        self.store, self.writer = self.recorder.store, self.recorder.writer
        device = self.target.device
        self.capacity, on_gpu = Capacity.of(device), device.type == "cuda"
        self.running: list[Flight] = []
        self._streams = [
            torch.cuda.Stream(device) if on_gpu else None for _ in range(self.capacity.most)
        ]
        self._seen = (0, 0)  # `_state` after the last start

    def run(self, batches: Iterable[tuple[Batch, Batch]]) -> None:
        """Train batches (`recording.resumed_first`). Those that need the device for themselves come
        after others that can share it, and last those that another process trains; should it die,
        they are trained here."""
        queue = deque(Flight(*each) for each in batches)
        if self.capacity.most > 1:
            queue = deque(sorted(queue, key=lambda each: needs_the_device(each.batch[0])))
        with self.writer:
            while queue or self.running:
                if not self.running:  # where some are, each of them saves its state before it stops
                    self.stop.raise_if_requested()
                if not self.running or (self._state != self._seen and self.stop.stop is None):
                    self._fill(queue)
                    self._seen = self._state
                ready = [flight for flight in self.running if flight.ready]
                for flight in ready:
                    self._go_on(flight, queue)
                if self.running and not ready:
                    time.sleep(DEVICE_POLL_SECONDS)

    @property
    def _state(self) -> tuple[int, int]:
        """Numbers of cells in training and of recorded base fits."""
        return sum(flight.inside for flight in self.running), len(self.recorder.bases)

    def _fill(self, queue: deque[Flight]) -> None:
        """Start batches while the device has room for them. Those that start from a fit that is
        trained here keep their place in the queue; those that another process trains come last."""
        self.capacity.longest_first(queue, self.running)
        if not queue or not self.capacity.room(queue[0].batch, self.running):
            return  # without a look at all records, which takes a while where there are many
        (done, failed), written = self.recorder.keys(), self.recorder.written.keys()
        finished, by_others = done | written, done - written
        here = {cell.key for flight in queue for cell in flight.batch}.union(
            *(flight.keys for flight in self.running)
        )
        holder, waiting = None, list[Flight]()
        for _ in range(len(queue)):
            if not self.capacity.room(queue[0].batch, self.running):
                break
            flight = queue.popleft()
            self.progress.skipped(tuple(cell for cell in flight.pending if cell.key in by_others))
            flight.pending = tuple(cell for cell in flight.pending if cell.key not in finished)
            if not flight.pending:
                continue
            # Do not wait for a base fit that no process trains and no batch here will train: it
            # never comes.
            needed = {cell.base for cell in flight.pending if cell.base} - done - failed
            if needed & here:
                waiting.append(flight)
            elif (other := self.leases.take(flight.keys, needed)) is not None:
                queue.append(flight)
                holder = other
            else:
                flight.inside, flight.stream, flight.work = (
                    len(flight.pending),
                    self._streams.pop(),
                    self.work(flight),
                )
                self.running.append(flight)
        queue.extendleft(reversed(waiting))
        if queue and not self.running and holder is not None:
            self.progress.waiting(holder.description)
            time.sleep(POLL_SECONDS)

    def _go_on(self, flight: Flight, queue: deque[Flight]) -> None:
        """Let a batch go on until it waits for the device, or has ended: then there is room for
        another one."""
        instead: list[Flight] = []
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
        queue.extendleft(instead)

    def _out_of_memory(self, flight: Flight) -> list[Flight]:
        """What to train instead of a batch that did not fit: the same with fewer beside it, or its
        halves."""
        batch, pending = flight.batch, flight.pending
        resumes = recording.checkpoint_path(self.store, batch).exists()
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
            self.progress.out_of_memory(counted(len(self.running), "batch"))
            return [Flight(together, pending)]
        half = len(pending) // 2
        parts = [part for part in (pending[half:], pending[:half]) if part]
        self.progress.out_of_memory(counted(len(together), "cell"), len(parts))
        for saved in (batch, pending):
            self.recorder.discard(saved)
        return [Flight(part, part) for part in parts]

    def work(self, flight: Flight) -> Iterator[None]:
        """Train a batch by Adam, solve it, or measure its gradients, and write records for its
        `pending` cells. Yields where it waits for the device."""
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
            waiting = iter(pending)
            for measured in gradient_statistics(self._program(pending)):
                if measured is not None:
                    self.recorder.write(next(waiting), Result(**measured[0]), measured[1])
                    continue
                self.stop.raise_if_requested()
                yield
        elif batch[0].solved:
            made = self._program(pending)
            assert isinstance(made, Fixed)
            for finished in solve(made, lambda: len(self.running)):
                self.recorder.fit(pending[finished.cell], finished)
        else:
            yield from self._train(batch, pending, flight)

    def _program(self, cells: Batch) -> Program:
        return program(cells, self.recorder.split, self.recorder.base, self.target)

    def _train(self, batch: Batch, pending: Batch, flight: Flight) -> Iterator[None]:
        """Train a batch by Adam, from its checkpoint if there is one, until every cell has
        stopped."""
        how = settings(batch[0], self.target)
        resumed = self._resume(batch, how)
        training, cells = resumed or (Training.start(self._program(pending), how), pending)
        if not resumed:
            recording.save_checkpoint(
                self.store, recording.Checkpoint(cells, list(range(len(cells)))), {}
            )
        saved, wanted = time.monotonic(), {cell.key for cell in pending}

        def between(training: Training) -> None:
            nonlocal saved
            self.progress.tick(cells, training)
            flight.inside = len(training.cells)
            requested = self.stop.stop
            if training.unreported().any() and (
                requested or time.monotonic() - saved >= self.checkpoint_seconds
            ):
                about = recording.Checkpoint(
                    cells,
                    unrecorded=[training.cells[i] for i in np.flatnonzero(training.unreported())],
                    inside=training.cells,
                    seconds=training.seconds,
                    curves=[list(curve) for curve in training.curves],
                    alone=training.alone,
                    iteration=int(training.state.iteration),
                )
                self.writer.do(
                    partial(recording.save_checkpoint, self.store, about, training.state.arrays())
                )
                saved = time.monotonic()
            # one that came since then is not acted on before the state is saved, at the next call
            if requested:
                raise requested

        try:
            for finished in train(training, how, between, lambda: len(self.running)):
                if finished is None:
                    yield
                elif cells[finished.cell].key in wanted:
                    self.recorder.fit(cells[finished.cell], finished)
        finally:
            self.progress.ended(training)
        self.recorder.discard(cells)

    def _resume(self, batch: Batch, how: Settings) -> tuple[Training, Batch] | None:
        """The training as the checkpoint of the batch has it, and all its cells; None without a
        readable checkpoint. Cells that got a record after the checkpoint are trained again with the
        others: see `Checkpoint`."""
        path = recording.checkpoint_path(self.store, batch)
        if (saved := recording.read_checkpoint(self.store, path)) is None:
            return None
        if saved.iteration is None:
            return Training.start(self._program(saved.cells), how), saved.cells
        made = self._program(tuple(saved.cells[i] for i in saved.inside))
        try:
            arrays = {name: array for name, array in read_npz(path).items() if name != "about"}
            state = State.from_arrays(arrays, self.target.device)
            state.check(State.fresh(made.initial(), how))
        except (Unreadable, TypeError) as why:
            self.store.quarantine(path, f"the checkpoint can't be read: {why}")
            return None
        self.progress.message(f"  resumes at iteration {saved.iteration}")
        return Training(
            made, state, saved.inside, saved.seconds, saved.curves, saved.alone
        ), saved.cells
