"""Which batches may train at the same time on a device."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from dlmexp.experiment.plan.cell import Batch, keys_of
from dlmexp.experiment.running.programs import bytes_of, entries_of, must_train_alone

# Entries of the [B, M, n] arrays of all batches in training, per multiprocessor of a GPU. Above
# this number, training one more batch at the same time gains nothing (measured on an H200).
ENTRIES_PER_PROCESSOR = 400_000
# A batch uses up to two streams: its own, and one that an estimator forks off. 12 batches use 24 of
# the 32 streams that torch has, so no two of them share one. Many more would not help, as a single
# thread launches the kernels of all batches.
MAX_CONCURRENT_BATCHES = 12
MEMORY_SHARE = 0.8  # of the memory that is free when the run starts
# How many of the batches in training are chosen because they have the most steps. The others start
# in the order of the queue.
MAX_LONG_BATCHES = 2


@dataclass(eq=False)
class BatchJob:
    """A batch that waits or trains.

    On a GPU each batch in training has a stream. The kernels of one stream run in order, and at the
    same time as those of other streams.
    """

    batch: Batch
    pending: Batch  # the cells of `batch` that need a record
    live_cells: int = 0  # while it trains: cells that have not left it
    stream: torch.cuda.Stream | None = None
    work: Iterator[None] = field(
        default_factory=lambda: iter(())
    )  # yields None while the device works

    @property
    def keys(self) -> frozenset[str]:
        """The keys of the pending cells."""
        return frozenset(keys_of(self.pending))

    # All cells of a batch agree in the next three properties, so they are read from the first.

    @property
    def iterations(self) -> int:
        """The largest number of steps that a cell may make."""
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
            # `work` yields None when it waits for the device. When it is exhausted, `next` returns
            # its default, which is not None.
            return next(self.work, "ended") is None


@dataclass(frozen=True)
class Capacity:
    """Limits for all batches in training together.

    The limits of entries and bytes are not used where `batches` is 1, as on a CPU.
    """

    batches: int = 1
    entries: float = 0.0  # of the largest arrays
    bytes: float = 0.0  # of memory

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
        """Return whether a batch may start while the batches `training` are in training.

        It may if nothing trains. Otherwise it may if the batches in training leave processors idle
        and enough memory. Cells that have left their batch take no time, but their memory stays
        allocated.
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
        steps as any batch in the queue. As many as are missing for that move to the front.
        """
        most_iterations = max((job.iterations for job in queue), default=0)
        long_in_training = [job for job in training if job.iterations >= most_iterations]
        missing = MAX_LONG_BATCHES - len(long_in_training)
        if not self.is_concurrent or missing <= 0:
            return
        movable = [job for job in queue if not job.must_train_alone]
        movable.sort(key=lambda job: job.iterations, reverse=True)
        longest = movable[:missing]
        for job in longest:
            queue.remove(job)
        queue.extendleft(reversed(longest))  # `extendleft` reverses the order
