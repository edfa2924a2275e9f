"""The engine: trains a queue of batches, each from its start to its records.

On a CPU one batch trains at a time. On a GPU several batches train at the same time, as many as
fill it, each on its own stream.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, replace
from functools import partial

import torch

from dlmexp.common.console import counted
from dlmexp.common.errors import UserError
from dlmexp.experiment.plan.cell import Batch, base_keys, keys_of, without_keys
from dlmexp.experiment.running.capacity import BatchJob, Capacity
from dlmexp.experiment.running.checkpoints import QueuedBatch, checkpoint_path
from dlmexp.experiment.running.leases import ActiveProcess, Leases
from dlmexp.experiment.running.process import Stop, StopRequest, Target, is_out_of_memory
from dlmexp.experiment.running.programs import bytes_of
from dlmexp.experiment.running.progress import Progress
from dlmexp.experiment.running.recording import Recorder
from dlmexp.experiment.running.trainer import BatchTrainer

POLL_SECONDS = 2.0  # between checks whether other processes have finished
DEVICE_POLL_SECONDS = 2e-4  # between checks whether the device has finished
# After memory ran out, the new limit is this share of the expected bytes that did not fit.
REDUCED_SHARE = 0.8


@dataclass(frozen=True)
class KeysByState:
    """Keys of cells by their state, at one moment."""

    done: Set[str]  # with a result, from any process
    failed: Set[str]  # in any process
    finished: Set[str]  # done, or failed in this process
    done_by_others: Set[str]  # with a result from another process
    trained_here: Set[str]  # in training or in the queue of this process

    def unfinished_bases(self, cells: Batch) -> set[str]:
        """Return the keys of the base fits of these cells that have no record yet."""
        return base_keys(cells) - self.done - self.failed


@dataclass
class Engine:
    """Trains batches.

    Other processes may train batches of the same results folder; `leases` says which ones.
    """

    target: Target
    recorder: Recorder
    progress: Progress
    stop: StopRequest
    leases: Leases
    checkpoint_seconds: float

    def __post_init__(self) -> None:
        device = self.target.device
        self.writer = self.recorder.writer
        self.capacity = Capacity.of(device)
        self.training: list[BatchJob] = []
        self.trainer = BatchTrainer(
            self.target,
            self.recorder,
            self.progress,
            self.stop,
            self.checkpoint_seconds,
            batches_at_once=lambda: len(self.training),
        )
        # One stream for each batch that may train at the same time; None on a CPU.
        self._free_streams: list[torch.cuda.Stream | None] = []
        for _ in range(self.capacity.batches):
            stream = torch.cuda.Stream(device) if device.type == "cuda" else None
            self._free_streams.append(stream)

    def run(
        self,
        batches: Iterable[QueuedBatch],
        follow_up: Callable[[], Iterable[QueuedBatch]] | None = None,
    ) -> None:
        """Train batches.

        Batches that need the whole device come after those that can share it. Batches that another
        process trains come last. If that process dies, they are trained here.

        Args:
            batches: The batches to train first.
            follow_up: A function that returns further batches. It is called when all cells of
                `batches` have a record.
        """
        with self.writer:
            self._train_all(self._queue(batches))
            if follow_up is not None:
                # Wait for the records: the writer runs this empty job after all jobs before it.
                self.writer.do(lambda: None, wait=True)
                self._train_all(self._queue(follow_up()))

    def _queue(self, batches: Iterable[QueuedBatch]) -> deque[BatchJob]:
        """Return jobs for batches, those that need the whole device last."""
        queue = [BatchJob(batch=queued.batch, pending=queued.pending) for queued in batches]
        if self.capacity.is_concurrent:
            queue.sort(key=lambda job: job.must_train_alone)  # False before True
        return deque(queue)

    def _train_all(self, queue: deque[BatchJob]) -> None:
        """Train the batches of a queue."""
        counts_at_last_start = None
        while queue or self.training:
            # 1. Obey a request to stop here if nothing trains. A batch in training obeys it by
            #    itself, after it has saved its state.
            if not self.training:
                self.stop.raise_if_requested()
            # 2. Start batches if nothing trains, or if there may be more room, or a new base fit,
            #    than when batches were started last.
            has_changed = self._counts_that_matter() != counts_at_last_start
            if not self.training or (has_changed and not self.stop.requested):
                self._start_batches(queue)
                counts_at_last_start = self._counts_that_matter()
            # 3. Let every batch go on that does not wait for the device. If all batches wait, give
            #    the device a moment.
            is_device_busy = self._advance_ready(queue) == 0
            if self.training and is_device_busy:
                time.sleep(DEVICE_POLL_SECONDS)

    def _advance_ready(self, queue: deque[BatchJob]) -> int:
        """Let every batch go on that does not wait for the device, and return their number."""
        ready = [job for job in self.training if job.is_ready]
        for job in ready:
            self._advance(job, queue)
        return len(ready)

    def _counts_that_matter(self) -> tuple[int, int]:
        """Return the numbers of cells in training and of recorded base fits.

        As long as neither of them changes, no further batch can start.
        """
        live_cells = sum(job.live_cells for job in self.training)
        return live_cells, len(self.recorder.bases)

    def _start_batches(self, queue: deque[BatchJob]) -> None:
        """Start batches from the queue while the device has room for them."""
        # 1. The longest batches go first, so that none of them is left over at the end.
        self.capacity.move_longest_forward(queue, self.training)
        # 2. Without room, return before the records are listed, as many records take a while.
        if not self._has_room_for_next(queue):
            return
        states = self._cell_states(queue)
        deferred: list[BatchJob] = []
        holder: ActiveProcess | None = None
        # 3. Go through the queue once, as long as there is room.
        for _ in range(len(queue)):
            if not self._has_room_for_next(queue):
                break
            job = queue.popleft()
            # 4. Other processes and earlier batches may have recorded some of its cells.
            self._drop_finished_cells(job, states)
            if not job.pending:
                continue
            # 5. A batch waits for base fits that are trained here, and keeps its place in the
            #    queue. It does not wait for a base fit that no process will train.
            bases = states.unfinished_bases(job.pending)
            if bases & states.trained_here:
                deferred.append(job)
                continue
            # 6. A batch whose cells or base fits another process trains goes to the end of the
            #    queue: by the time it comes up again, it may be finished.
            other_process = self.leases.take(job.keys, bases)
            if other_process is not None:
                queue.append(job)
                holder = other_process
                continue
            self._start(job)
        queue.extendleft(reversed(deferred))  # `extendleft` reverses the order
        # 7. If only other processes have work, wait for them.
        if queue and not self.training and holder is not None:
            self.progress.note_waiting(holder.description)
            time.sleep(POLL_SECONDS)

    def _has_room_for_next(self, queue: deque[BatchJob]) -> bool:
        return bool(queue) and self.capacity.admits(queue[0].batch, self.training)

    def _cell_states(self, queue: deque[BatchJob]) -> KeysByState:
        """Return the states of all cells at this moment."""
        done, failed = self.recorder.keys()
        written = self.recorder.written.keys()
        trained_here: set[str] = set()
        for job in queue:
            trained_here |= keys_of(job.batch)
        for job in self.training:
            trained_here |= job.keys
        return KeysByState(
            done=done,
            failed=failed,
            finished=done | written,
            done_by_others=done - written,
            trained_here=trained_here,
        )

    def _drop_finished_cells(self, job: BatchJob, states: KeysByState) -> None:
        """Remove cells that need no record any more from the pending cells of a batch.

        Only results of other processes are accepted: cells that failed there are trained here.
        """
        recorded_elsewhere = tuple(
            cell for cell in job.pending if cell.key in states.done_by_others
        )
        self.progress.note_records_elsewhere(recorded_elsewhere)
        job.pending = without_keys(job.pending, states.finished)

    def _start(self, job: BatchJob) -> None:
        """Prepare a batch for training, which `_advance` then does step by step."""
        job.live_cells = len(job.pending)
        job.stream = self._free_streams.pop()
        job.work = self.trainer.work(job)
        self.training.append(job)

    def _advance(self, job: BatchJob, queue: deque[BatchJob]) -> None:
        """Let a batch work until it waits for the device or has ended.

        A batch that has ended frees its stream and its lease. If it did not fit into memory, the
        batches that replace it go to the front of the queue.
        """
        replacements: list[BatchJob] = []
        try:
            if job.advance():
                return
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            replacements = self._replace_after_out_of_memory(job)
        except Stop:
            self._stop_others(job)
            raise
        self.training.remove(job)
        self._free_streams.append(job.stream)
        # Release the lease after the records are written. Replacements will lease the same cells
        # again: then wait for the release.
        self.writer.do(partial(self.leases.release, job.keys), wait=bool(replacements))
        queue.extendleft(replacements)

    def _stop_others(self, stopped: BatchJob) -> None:
        """Let all other batches work until they have saved their state and stopped."""
        for job in self.training:
            if job is stopped:
                continue
            with contextlib.suppress(Stop):
                while job.advance():
                    pass

    def _replace_after_out_of_memory(self, job: BatchJob) -> list[BatchJob]:
        """Return what to train instead of a batch that did not fit into memory.

        If other batches are in training, the same batch is returned, and the limit of memory is
        lowered. A batch that trained alone is cut into halves.

        The order is that of `extendleft`: the first batch to train is the last in the list.

        Raises:
            UserError: a single cell does not fit.
        """
        is_resumed = checkpoint_path(self.recorder.store, job.batch).exists()
        # A resumed batch trains all cells of its checkpoint, a fresh one only its pending cells.
        cells = job.batch if is_resumed else job.pending
        if len(self.training) == 1 and len(cells) == 1:
            raise UserError(
                f"{job.pending[0].describe()} does not fit into memory, not even alone: free "
                "some memory, or leave it out with sizes= or dataset=; what is finished is safe"
            ) from None
        torch.cuda.empty_cache()
        if len(self.training) > 1:
            self._lower_memory_limit()
            return [BatchJob(batch=cells, pending=job.pending)]
        return self._halves(job, len(cells))

    def _lower_memory_limit(self) -> None:
        """Let fewer batches train at the same time from now on."""
        expected = sum(bytes_of(job.pending) for job in self.training)
        limit = min(self.capacity.bytes, REDUCED_SHARE * expected)
        self.capacity = replace(self.capacity, bytes=limit)
        self.progress.note_out_of_memory(counted(len(self.training), "batch"))

    def _halves(self, job: BatchJob, cells_in_memory: int) -> list[BatchJob]:
        """Return the second and the first half of a batch's pending cells; delete its checkpoints.

        A single pending cell, which trained with the other cells of a checkpoint, is not divided.
        """
        middle = len(job.pending) // 2
        halves = [job.pending[middle:], job.pending[:middle]]
        halves = [half for half in halves if half]
        self.progress.note_out_of_memory(counted(cells_in_memory, "cell"), parts=len(halves))
        # A resumed batch has its checkpoint under all cells, a fresh one under the pending cells.
        for cells in (job.batch, job.pending):
            self.recorder.discard_checkpoint(cells)
        return [BatchJob(batch=half, pending=half) for half in halves]
