"""The progress of a run on the screen: a bar that updates in place on a terminal, plain lines
elsewhere."""

import time
from collections.abc import Iterable
from math import isnan, nan
from typing import Any

from rich.console import Console, RenderableType  # noqa: TID251
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.text import Text

from dlmexp.common.console import counted, duration, nobody_reads
from dlmexp.experiment.plan.cell import Batch
from dlmexp.experiment.records.record import Record
from dlmexp.experiment.running.clock import Clock
from dlmexp.experiment.running.leases import BatchProgress
from dlmexp.experiment.running.process import SIGPIPE, StopRequest

# Between looks at a batch, alone or beside others (each look at its objective is a wait for the
# GPU), and lines.
ALONE_SECONDS, BESIDE_SECONDS, LINE_SECONDS = 0.25, 5.0, 10.0


class _Bar(Bar):
    """A bar with a line of facts below it."""

    facts = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        yield Text(self.facts, overflow="ellipsis", no_wrap=True)


class Progress:
    """Counts of cells and batches, told by the engine. On a terminal: a bar with the numbers of the
    batch in training, and failures as lines. Elsewhere: messages as lines at once, numbers every
    ten seconds."""

    def __init__(self, clock: Clock, stop: StopRequest, console: Console | None = None):
        self.clock, self.total, self.batches, self.batch = clock, clock.cells, clock.batches, 0
        self.began, self.stop = time.monotonic(), stop
        self.failed, self.current, self._shown = 0, "", self.began
        # By the id of a training: the moment of the last look, moment and iteration of the first,
        # what was seen last.
        self._training: dict[int, tuple[float, tuple[float, int], BatchProgress]] = {}
        self._bar = None
        if console is not None and console.is_terminal and not console.is_dumb_terminal:
            columns = (TextColumn("cells"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = _Bar(*columns, TextColumn("{task.fields[left]} left"), console=console)
            self._bar.add_task("cells", total=self.total, left="?")

    def __enter__(self) -> "Progress":
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self.show()
            self._bar.stop()

    def say(self, line: str, style: str | None = None) -> None:
        """Print a line. Where that is impossible, or nobody reads any more, it is a request to
        stop."""
        try:
            if self._bar:
                self._bar.console.print(line, style=style, highlight=False, markup=False)
            else:
                print(line, flush=True)
        except OSError as error:
            nobody_reads()
            if isinstance(error, BrokenPipeError):
                self.stop.request(SIGPIPE)
            else:
                self.stop.fail(
                    OSError(error.errno, f"can't write to the standard output: {error.strerror}")
                )

    def message(self, line: str) -> None:
        """Something that a log should have and a bar shows anyway."""
        self.show() if self._bar else self.say(line)

    def show(self) -> None:
        """Show the current numbers: in a bar at once, as a line if it is time."""
        if self._bar:
            self._bar.facts = f"batch {self.batch}/{self.batches}, {self.failed} failed; {self.current}{self.numbers}"
            self._bar.update(TaskID(0), completed=self.settled, left=self.left)
        elif time.monotonic() - self._shown > LINE_SECONDS:
            self._shown = time.monotonic()
            now = self.numbers or f"; {self.current}"
            self.say(
                f"  {self.settled}/{self.total} cells, {self.failed} failed, {self.left} left{now}"
            )

    @property
    def settled(self) -> int:
        """Number of cells with a record, done or failed."""
        return self.total - sum(kind.waiting for kind in self.clock.kinds.values())

    @property
    def left(self) -> str:
        """Time left as text; `?` if it is not known."""
        return "?" if (seconds := self.seconds_left()) is None else duration(seconds)

    @property
    def numbers(self) -> str:
        """Iteration, cells, speed and objective of the batch in training; of batches at once, cells
        and speed. To append: nothing where none trains."""
        batches = self._told()
        if len(batches) < 2:
            return "".join(f"; {told.numbers}" for told in batches)
        live, steps = (
            sum(told.live for told in batches),
            sum(told.live * told.rate for told in batches),
        )
        return f"; {len(batches)} batches at once, {live} live, {steps:.0f} model-steps/s"

    def _told(self) -> tuple[BatchProgress, ...]:
        return tuple(told for _, _, told in list(self._training.values()))

    def so_far(self) -> dict[str, Any]:
        """The numbers of `ActiveProcess`, for whoever follows the run elsewhere. May be called in
        another thread."""
        left = self.seconds_left()
        counts = {"settled": self.settled, "total": self.total, "failed": self.failed}
        return {
            **counts,
            "seconds_left": None if left is None else round(left),
            "batches": self._told(),
        }

    def seconds_left(self) -> float | None:
        """The time left of the run, as `Clock` knows it."""
        return self.clock.seconds_left(time.monotonic() - self.began)

    def started(self, cells: Batch) -> None:
        """A batch begins."""
        self.batch += 1
        self.current = described(cells)
        self.message(f"batch {self.batch}/{self.batches}  {self.current}")

    def tick(self, cells: Batch, training: Any) -> None:
        """Update iteration, speed and objective of a batch in training, at most four times a
        second."""
        moment, iteration = time.monotonic(), training.iteration
        looked, began, last = self._training.get(id(training), (moment, (moment, iteration), None))
        pause = ALONE_SECONDS if self._training.keys() <= {id(training)} else BESIDE_SECONDS
        if last and (moment - looked < pause or iteration == last.iteration):
            return
        live = training.live()
        objective = float(training.state.history[:, iteration - 1].nanmean()) if iteration else nan
        running = (cells[i] for i, lives in zip(training.cells, live, strict=True) if lives)
        self.clock.reached.update((cell.key, (cell.group, iteration)) for cell in running)
        told = BatchProgress(
            what=described(cells),
            cells=len(cells),
            live=int(live.sum()),
            iteration=iteration,
            limit=cells[0].iterations,
            rate=round((iteration - began[1]) / max(moment - began[0], 1e-9), 3),
            objective=None if isnan(objective) else objective,
        )
        self._training[id(training)] = moment, began, told
        self.show()

    def ended(self, training: Any) -> None:
        """A batch does not train any more."""
        self._training.pop(id(training), None)

    def finished(self, record: Record) -> None:
        """A cell has got its record."""
        self.clock.finished(record.cell, record.result)
        if record.done:
            self.show()
        else:
            self.failed += 1
            why = f"{record.result.reason} (iteration {record.result.iterations})"
            self.say(f"  failed: {record.cell.describe()}: {why}", style="red")

    def skipped(self, cells: Batch) -> None:
        """Cells that got their records from another process."""
        for cell in cells:
            self.clock.finished(cell)
        self.show()

    def waiting(self, process: str) -> None:
        """All batches that are left are in training elsewhere."""
        self.current = f"waiting for cells that {process} trains"
        self.show()

    def out_of_memory(self, at_once: str, parts: int = 1) -> None:
        """Memory ran out with so much at once: of one batch, so many parts are to start instead."""
        self.batch, self.batches = self.batch - 1, self.batches + parts - 1
        self.message(f"  out of memory with {at_once} at once: going on with fewer")


def described(cells: Batch) -> str:
    """A batch in one line: what is trained on what, and how many cells."""
    first = cells[0]
    seeds, betas = (
        counted(len({getattr(cell, of) for cell in cells}), of) for of in ("seed", "beta")
    )
    what = f"{first.dataset} n={first.n} {first.variant} {first.objective} {first.model_label}"
    return f"{what}: {counted(len(cells), 'cell')} ({seeds}, {betas})"
