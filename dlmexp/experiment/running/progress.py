"""The progress of a run: a bar on a terminal and in a notebook, plain lines elsewhere."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

import numpy as np
from jaxtyping import Bool
from rich.console import Console  # noqa: TID251 -- for annotations only

from dlmexp.common.console import counted, discard_stdout, duration
from dlmexp.core.training.batch import Training
from dlmexp.experiment.plan.cell import Batch
from dlmexp.experiment.records.record import Record
from dlmexp.experiment.running.bars import bar_for
from dlmexp.experiment.running.clock import Clock
from dlmexp.experiment.running.leases import BatchProgress
from dlmexp.experiment.running.process import SIGPIPE, StopRequest

# Seconds between updates of the numbers of a batch that trains alone.
LOOK_SECONDS = 0.25
# The same for a batch that trains at the same time as others. The time is longer, since on a GPU
# reading the objective waits for the device.
CONCURRENT_LOOK_SECONDS = 5.0
# Seconds between lines with numbers, where there is no bar.
LINE_SECONDS = 10.0


@dataclass
class _Look:
    """The last look at a batch in training, and when the first one was."""

    seen_at: float
    first_seen_at: float
    first_iteration: int
    progress: BatchProgress


class Progress:
    """Counts cells and batches, as the engine reports them, and shows the counts.

    With a bar, the numbers of the batches in training are below it, and only failures are printed
    as lines. Without a bar, all messages are printed as lines, and the numbers every ten seconds.
    """

    def __init__(self, clock: Clock, stop: StopRequest, console: Console | None = None):
        self.clock = clock
        self.stop = stop
        self.total = clock.cells
        self.failed = 0
        self.batch_count = clock.batches
        self.batch_number = 0  # of the batch that was started last
        self.current = ""  # what the run does at this moment
        self.began = time.monotonic()
        self._line_shown_at = self.began
        self._looks: dict[int, _Look] = {}  # by the id of a training
        self._bar = bar_for(console)

    def __enter__(self) -> "Progress":
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self.show()
            self._bar.stop()

    def say(self, line: str, style: str | None = None) -> None:
        """Print a line. If nobody can read it any more, ask the run to stop."""
        try:
            if self._bar:
                self._bar.say(line, style)
            else:
                print(line, flush=True)
        except BrokenPipeError:
            discard_stdout()
            self.stop.request(SIGPIPE)
        except OSError as error:
            discard_stdout()
            reason = f"can't write to the standard output: {error.strerror}"
            self.stop.fail(OSError(error.errno, reason))

    def message(self, line: str) -> None:
        """Print a line, unless there is a bar, which shows the same numbers."""
        if self._bar:
            self.show()
        else:
            self.say(line)

    def show(self) -> None:
        """Show the current numbers: in a bar at once, as a line if it is time for the next one."""
        if self._bar:
            caption = (
                f"batch {self.batch_number}/{self.batch_count}, {self.failed} failed; "
                f"{self.current}{self.description}"
            )
            self._bar.show(self.settled, self.total, self.left, caption)
        elif time.monotonic() - self._line_shown_at > LINE_SECONDS:
            self._line_shown_at = time.monotonic()
            counts = f"{self.settled}/{self.total} cells, {self.failed} failed, {self.left} left"
            activity = self.description or f"; {self.current}"
            self.say(f"  {counts}{activity}")

    @property
    def settled(self) -> int:
        """The number of cells that are done or failed."""
        return self.total - sum(kind.waiting for kind in self.clock.kinds.values())

    @property
    def left(self) -> str:
        """The time left as text; `?` if it is not known."""
        seconds = self.seconds_left()
        return "?" if seconds is None else duration(seconds)

    @property
    def description(self) -> str:
        """The numbers of the batches in training, to append to a line; '' if none trains.

        Of a single batch they are iteration, live cells, speed and objective, of several batches
        their number, live cells and speed.
        """
        batches = self._batches_in_training()
        if not batches:
            return ""
        if len(batches) == 1:
            return f"; {batches[0].description}"
        live = sum(batch.live for batch in batches)
        speed = sum(batch.live * batch.rate for batch in batches)
        return f"; {len(batches)} batches at once, {live} live, {speed:.0f} model-steps/s"

    def _batches_in_training(self) -> tuple[BatchProgress, ...]:
        # Copy the values first, as another thread may add a batch meanwhile.
        return tuple(look.progress for look in list(self._looks.values()))

    def process_fields(self) -> dict[str, Any]:
        """Return the fields of `ActiveProcess` that say how far the run is.

        May be called in another thread.
        """
        left = self.seconds_left()
        return {
            "settled": self.settled,
            "total": self.total,
            "failed": self.failed,
            "seconds_left": None if left is None else round(left),
            "batches": self._batches_in_training(),
        }

    def seconds_left(self) -> float | None:
        """Return the time left in seconds; None if it is not known."""
        return self.clock.seconds_left(time.monotonic() - self.began)

    def note_start(self, cells: Batch) -> None:
        """Note that a batch starts."""
        self.batch_number += 1
        self.current = describe_batch(cells)
        self.message(f"batch {self.batch_number}/{self.batch_count}  {self.current}")

    def note_selection(self, batches: Sequence[Batch]) -> None:
        """Note that folds have selected the fits to all rows that are trained next.

        Args:
            batches: The batches of these fits.
        """
        batches_before = self.clock.batches
        self.clock.replace_placeholders(batches)
        self.total = self.clock.cells
        # Not `self.clock.batches`: the clock does not count the batches that were added when memory
        # ran out.
        self.batch_count += self.clock.batches - batches_before
        if batches:
            count = sum(len(batch) for batch in batches)
            self.message(f"folds have selected: {counted(count, 'cell')} on all rows")

    def tick(self, cells: Batch, training: Training) -> None:
        """Update the numbers of a batch in training, at most four times a second.

        Args:
            cells: All cells that the batch was started with.
            training: The batch in training.
        """
        now = time.monotonic()
        iteration = training.iteration
        last_look = self._looks.get(id(training))
        if last_look and not self._is_due(training, last_look, now):
            return
        is_live = training.live()
        self._note_iterations(cells, training, is_live)
        first_seen_at = last_look.first_seen_at if last_look else now
        first_iteration = last_look.first_iteration if last_look else iteration
        elapsed = max(now - first_seen_at, 1e-9)
        steps_per_second = (iteration - first_iteration) / elapsed
        progress = BatchProgress(
            what=describe_batch(cells),
            cells=len(cells),
            live=int(is_live.sum()),
            iteration=iteration,
            limit=cells[0].iterations,
            rate=round(steps_per_second, 3),
            objective=_mean_objective(training),
        )
        if last_look:
            seconds = now - last_look.seen_at
            recent_speed = (iteration - last_look.progress.iteration) / seconds
            self.clock.note_speed(cells[0], recent_speed, seconds)
        self._looks[id(training)] = _Look(
            seen_at=now,
            first_seen_at=first_seen_at,
            first_iteration=first_iteration,
            progress=progress,
        )
        self.show()

    def _note_iterations(
        self, cells: Batch, training: Training, is_live: Bool[np.ndarray, "B"]
    ) -> None:
        """Let the clock know how far the cells of a batch are, and which ones have stopped."""
        for index, cell_is_live in zip(training.cells, is_live, strict=True):
            if cell_is_live:
                self.clock.note_iteration(cells[index], training.iteration)
            else:
                self.clock.note_stop(cells[index])

    def _is_due(self, training: Training, last_look: _Look, now: float) -> bool:
        """Return whether to look at a batch again: after a pause, if it has made a step."""
        trains_alone = self._looks.keys() <= {id(training)}
        pause = LOOK_SECONDS if trains_alone else CONCURRENT_LOOK_SECONDS
        has_paused = now - last_look.seen_at >= pause
        return has_paused and training.iteration != last_look.progress.iteration

    def note_end(self, training: Training) -> None:
        """Note that a batch does not train any more."""
        self._looks.pop(id(training), None)

    def note_record(self, record: Record) -> None:
        """Note that a cell got its record from this process."""
        self.clock.note_record(record.cell, record.result)
        if record.done:
            self.show()
            return
        self.failed += 1
        reason = f"{record.result.reason} (iteration {record.result.iterations})"
        self.say(f"  failed: {record.cell.describe()}: {reason}", style="red")

    def note_records_elsewhere(self, cells: Batch) -> None:
        """Note that cells got their records from another process."""
        for cell in cells:
            self.clock.note_record(cell, None)
        self.show()

    def note_waiting(self, process: str) -> None:
        """Note that another process trains everything that is left."""
        self.current = f"waiting for cells that {process} trains"
        self.show()

    def note_out_of_memory(self, in_memory: str, parts: int = 1) -> None:
        """Note that memory ran out.

        Args:
            in_memory: A description of what was in memory, such as `100 cells` or `2 batches`.
            parts: The number of parts in which the batch starts again.
        """
        self.batch_number -= 1  # the batch that did not fit will start again
        self.batch_count += parts - 1
        self.message(f"  out of memory with {in_memory} at once: going on with fewer")


def _mean_objective(training: Training) -> float | None:
    """Return the mean objective of the cells at the last iteration; None before the first one.

    None also if the objective of every cell is NaN.
    """
    if not training.iteration:
        return None
    mean = float(training.state.history[:, training.iteration - 1].nanmean())
    return None if isnan(mean) else mean


def describe_batch(cells: Batch) -> str:
    """Return a batch in one line: what is trained on which data, and how many cells."""
    first = cells[0]
    model = f"{first.variant} {first.objective} {first.model_label}"
    parts = [
        counted(len({cell.seed for cell in cells}), "seed"),
        counted(len({cell.beta for cell in cells}), "beta"),
    ]
    if first.fold is not None:
        parts.append(counted(len({cell.fold for cell in cells}), "fold"))
    count = counted(len(cells), "cell")
    return f"{first.dataset} n={first.n} {model}: {count} ({', '.join(parts)})"
