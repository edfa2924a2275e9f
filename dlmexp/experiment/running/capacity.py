"""Which batches may train at the same time on a device."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from dlmexp.experiment.plan.cell import Batch, keys_of
from dlmexp.experiment.running.programs import bytes_of, entries_of, must_train_alone

# Measured on an H200: with this many entries of [B, M, n] arrays in training for each processor,
# further batches at the same time gain nothing.
ENTRIES_PER_PROCESSOR = 400_000
# A batch uses up to two streams, its own and one that an estimator forks off. As torch has only 32,
# 12 batches do not have to share any. One thread launches the kernels of all batches.
MAX_CONCURRENT_BATCHES = 12
MEMORY_SHARE = 0.8  # of the memory that is free when the run starts
# Up to this many of the batches in training are those with the most steps. The others start in the
# order of the queue.
MAX_LONG_BATCHES = 2


@dataclass(eq=False)
class BatchJob:
    """A batch that waits or trains.

    On a GPU a batch in training has a stream: its kernels run in order, at the same time as those
    of other batches.
    """

    batch: Batch
    pending: Batch  # the cells of `batch` that need a record
    live_cells: int = 0  # cells that have not left the batch in training
    stream: torch.cuda.Stream | None = None
    work: Iterator[None] = field(default_factory=lambda: iter(()))  # yields to wait for the device

    @property
    def keys(self) -> frozenset[str]:
        """The keys of the pending cells."""
        return frozenset(keys_of(self.pending))

    # The next three properties are equal for all cells of a batch, so the first cell has them.

    @property
    def iterations(self) -> int:
        """The limit of steps of each cell."""
        return self.batch[0].iterations

    @property
    def entries_per_cell(self) -> int:
        """The entries of the largest arrays in a step of one cell."""
        return entries_of(self.batch[:1])

    @property
    def must_train_alone(self) -> bool:
        """Whether no other batch may train at the same time."""
        return must_train_alone(self.batch[0])

    @property
    def is_ready(self) -> bool:
        """Whether the device has finished everything that this batch has launched."""
        return self.stream is None or self.stream.query()

    def advance(self) -> bool:
        """Work until the batch waits for the device again. Return False when it has ended."""
        with torch.cuda.stream(self.stream):  # without a stream, this does nothing
            # `work` yields None when it waits for the device. After its end `next` returns "ended".
            return next(self.work, "ended") is None


@dataclass(frozen=True)
class Capacity:
    """Limits for the batches in training together.

    With a single batch at a time, as on a CPU, the limits of entries and bytes are not used.
    """

    batches: int = 1
    entries: float = 0.0  # of the largest arrays of all batches
    bytes: float = 0.0

    @classmethod
    def of(cls, device: torch.device) -> "Capacity":
        """Return the capacity of a device, from its size and its free memory."""
        if device.type != "cuda":
            return cls()
        processors = torch.cuda.get_device_properties(device).multi_processor_count
        free_bytes, _ = torch.cuda.mem_get_info(device)
        return cls(
            batches=MAX_CONCURRENT_BATCHES,
            entries=processors * ENTRIES_PER_PROCESSOR,
            bytes=MEMORY_SHARE * free_bytes,
        )

    @property
    def is_concurrent(self) -> bool:
        """Whether several batches may train at the same time."""
        return self.batches > 1

    def admits(self, batch: Batch, training: Sequence[BatchJob]) -> bool:
        """Return whether a batch may start while others are in training.

        The first batch always may. Another one may while the batches in training leave processors
        idle, and if its memory is free. Cells that have left their batch take no time, but their
        memory stays allocated.
        """
        if not training:
            return True
        if len(training) >= self.batches:
            return False
        if must_train_alone(batch[0]):
            return False
        if any(job.must_train_alone for job in training):
            return False
        entries = 0
        allocated = 0.0
        for job in training:
            entries += job.entries_per_cell * job.live_cells
            allocated += bytes_of(job.pending)
        return entries < self.entries and allocated + bytes_of(batch) <= self.bytes

    def move_longest_forward(self, queue: deque[BatchJob], training: Sequence[BatchJob]) -> None:
        """Move batches with the most steps to the front of the queue.

        A long batch costs little time while others train at the same time, and much if it trains
        alone at the end. So `MAX_LONG_BATCHES` batches in training should have at least as many
        steps as any batch in the queue. If there are fewer in training, the others are moved.
        """
        longest = max((job.iterations for job in queue), default=0)
        long_in_training = [job for job in training if job.iterations >= longest]
        wanted = MAX_LONG_BATCHES - len(long_in_training)
        if not self.is_concurrent or wanted <= 0:
            return
        candidates = [job for job in queue if not job.must_train_alone]
        candidates.sort(key=lambda job: job.iterations, reverse=True)
        chosen = candidates[:wanted]
        for job in chosen:
            queue.remove(job)
        queue.extendleft(reversed(chosen))
