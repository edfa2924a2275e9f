"""How many batches train at the same time: one on a CPU; on a GPU as many as fill it, each on a stream of its own."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from dlmexp.plan.batches import bytes_of
from dlmexp.plan.cell import Cell
from dlmexp.running.schedule import ONE_AT_A_TIME, Capacity

Batch = tuple[Cell, ...]

# Measured on an H200: from so many entries of [B, M, n] arrays in flight, more batches at once gain nothing.
ENTRIES_PER_PROCESSOR = 400_000
MOST = 12  # batches at once: their kernels are launched by one thread, and torch has 32 streams (two for each batch)
MEMORY_SHARE = 0.8  # of what is free when the run starts
LESS = 0.8  # of what batches were expected to need together that did not fit


def capacity(device: torch.device) -> Capacity:
    """How much may train at once on a device, going by its size and free memory."""
    if device.type != "cuda":
        return ONE_AT_A_TIME
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    return Capacity(MOST, processors * ENTRIES_PER_PROCESSOR, MEMORY_SHARE * torch.cuda.mem_get_info(device)[0])


class Lane:
    """Where one batch trains. On a GPU it is a stream: its kernels run in order, beside those of other lanes."""

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
class InFlight:
    """A batch in training, the cells of it that want a record, and its work, which yields where it waits."""

    batch: Batch
    pending: Batch
    lane: Lane
    work: Iterator[None] = field(default_factory=lambda: iter(()))
    inside: int = 0  # cells that have not left it

    def __post_init__(self) -> None:
        self.inside = len(self.pending)


class Lanes:
    """The lanes of a device, and whether another batch has room beside those in training."""

    def __init__(self, device: torch.device):
        self.capacity = capacity(device)
        self._all = self.capacity.most
        self._free = [Lane(device) for _ in range(self._all)]
        self.freed = False  # a batch has ended, or cells have left one; whoever acts on it makes this False

    def have_room(self, batch: Batch, running: list[InFlight]) -> bool:
        """The first batch always has; another one until the device is full."""
        together, inside = [flight.pending for flight in running], [flight.inside for flight in running]
        return self.capacity.room(batch, together, inside)

    def longest_first(self, queue: deque[Batch], running: list[InFlight]) -> None:
        """Put batches of many steps first, if too few of them are among those in training."""
        self.capacity.longest_first(queue, [flight.pending for flight in running])

    def comes_last(self, batch: Batch, running: list[InFlight]) -> bool:
        """Whether others go before it: it needs the device for itself, and others train."""
        return self.capacity.comes_last(batch, [flight.pending for flight in running])

    @property
    def used(self) -> int:
        """How many batches share the device."""
        return self._all - len(self._free)

    def take(self) -> Lane:
        return self._free.pop()

    def give_back(self, lane: Lane) -> None:
        self._free.append(lane)
        self.freed = True

    def hold(self, flight: InFlight, inside: int) -> None:
        """So many cells are in this batch now."""
        self.freed |= inside < flight.inside
        flight.inside = inside

    def fewer(self, running: list[InFlight]) -> None:
        """Memory ran out with these batches at once: from now on batches train together only if they need less."""
        needed = sum(bytes_of(flight.pending) for flight in running)
        self.capacity = self.capacity._replace(bytes=min(self.capacity.bytes, LESS * needed))
