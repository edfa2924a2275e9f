"""The progress of a run on the screen: a bar that updates in place on a terminal, plain lines elsewhere."""

import sys
import time
from abc import ABC, abstractmethod
from math import isnan
from multiprocessing import current_process
from typing import Any, NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table

from dlmexp.console import counted, duration, speed, wide_console
from dlmexp.plan.cell import Cell
from dlmexp.records.record import Record
from dlmexp.running.forecast import Forecast
from dlmexp.running.presence import BatchProgress, RunProgress

# Between looks at the objective of a batch that trains beside others: each is a wait for the GPU.
OBJECTIVE_SECONDS = 5.0


class _Seen(NamedTuple):
    """The last look at a batch in training."""

    what: str
    cells: int
    limit: int
    start: tuple[float, int]  # moment and iteration of the first look
    moment: float
    iteration: int
    live: int
    rate: float
    objective: float
    measured: float  # when the objective was

    @property
    def mean_rate(self) -> float:
        """Iterations per second since the first look."""
        return (self.iteration - self.start[1]) / max(self.moment - self.start[0], 1e-9)


class Progress(ABC):
    """Counts of cells and batches, updated by the engine; subclasses show them."""

    def __init__(self, total: int, batches: int, forecast: Forecast | None = None):
        self.total, self.batches, self.batch = total, batches, 0
        self.forecast = forecast
        self.done = self.failed = self.skipped_cells = 0
        self.current, self.idle = "", False
        self.began = time.monotonic()
        self._training: dict[int, _Seen] = {}  # batches in training, by the id of theirs

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    @abstractmethod
    def show(self, line: str | None = None) -> None:
        """Show the current numbers; a `line` is a message to print."""

    @property
    def settled(self) -> int:
        """Cells with a record, done or failed."""
        return self.done + self.failed + self.skipped_cells

    @property
    def seconds_left(self) -> float | None:
        """As forecast and corrected by what has been measured; without a forecast at the speed so far, None before the
        first cell is done."""
        if self.forecast is not None:
            return self.forecast.seconds_left()
        trained = self.done + self.failed
        return (time.monotonic() - self.began) / trained * (self.total - self.settled) if trained else None

    @property
    def left(self) -> str:
        """Time left as text; `?` if it is not known."""
        return "?" if (seconds := self.seconds_left) is None else duration(seconds)

    def so_far(self) -> RunProgress:
        """The numbers, for whoever follows the run from another process. May be called in another thread."""
        batches = tuple(
            BatchProgress(
                what=one.what,
                cells=one.cells,
                live=one.live,
                iteration=one.iteration,
                limit=one.limit,
                rate=round(one.mean_rate, 3),
                objective=None if isnan(one.objective) else one.objective,
            )
            for one in list(self._training.values())
        )
        left = self.seconds_left
        return RunProgress(
            settled=self.settled,
            total=self.total,
            failed=self.failed,
            seconds_left=None if left is None else round(left),
            batches=batches,
        )

    def started(self, cells: tuple[Cell, ...]) -> None:
        """A batch begins."""
        self.batch += 1
        self.idle, self.current = False, described(cells)
        self.show(f"batch {self.batch}/{self.batches}  {self.current}")

    def resumed(self, iteration: int) -> None:
        """The batch goes on from a checkpoint."""
        self.show(f"  resumes at iteration {iteration}")

    def tick(self, cells: tuple[Cell, ...], training: Any) -> None:
        """Update iteration, speed and objective of a batch in training, at most four times a second."""
        moment, iteration = time.monotonic(), training.iteration
        seen = self._training.get(id(training))
        if seen is not None and (moment - seen.moment < 0.25 or iteration == seen.iteration):
            return
        what, limit = (seen.what, seen.limit) if seen else (described(cells), cells[0].iterations)
        live = int(training.live().sum())
        start = seen.start if seen else (moment, iteration)
        rate = 0.0 if seen is None else (iteration - seen.iteration) / (moment - seen.moment)
        objective, measured = (seen.objective, seen.measured) if seen else (float("nan"), -float("inf"))
        alone = self._training.keys() <= {id(training)}
        if iteration and live and (alone or moment - measured >= OBJECTIVE_SECONDS):
            objective, measured = float(training.state.history[:, iteration - 1].nanmean()), moment
        if self.forecast is not None:
            alive = [cells[i] for i, lives in zip(training.cells, training.live(), strict=True) if lives]
            self.forecast.seen(alive, len(training.cells), iteration)
        self._training[id(training)] = _Seen(
            what, len(cells), limit, start, moment, iteration, live, rate, objective, measured
        )
        self.show()

    def ended(self, training: Any) -> None:
        """A batch does not train any more."""
        self._training.pop(id(training), None)

    @property
    def numbers(self) -> str:
        """Iteration, cells, speed and objective of the batch in training; of several at once, cells and speed."""
        if not self._training:
            return "starting"
        several = self._training.values()
        if len(several) > 1:
            live, steps = sum(one.live for one in several), sum(one.live * one.rate for one in several)
            return f"{len(several)} batches at once, {live} live, {steps:.0f} model-steps/s"
        (one,) = several
        objective = "" if isnan(one.objective) else f", objective {one.objective:.4f}"
        return f"it {one.iteration}, {one.live} live, {speed(one.rate)}{objective}"

    def finished(self, record: Record) -> None:
        """A cell has got its record."""
        if self.forecast is not None:
            self.forecast.finished(record)
        if record.done:
            self.done += 1
            self.show()
        else:
            self.failed += 1
            why = f"{record.result.reason} (iteration {record.result.iterations})"
            self.show(f"  failed: {record.cell.describe()}: {why}")

    def skipped(self, cells: tuple[Cell, ...]) -> None:
        """Cells that got their records from another process."""
        self.skipped_cells += len(cells)
        if self.forecast is not None:
            self.forecast.skipped(cells)
        self.show()

    def waiting(self, process: str) -> None:
        """All batches that are left are in training elsewhere."""
        self.current, self.idle = f"waiting for cells that {process} trains", True
        self.show()

    def fewer(self, batches: int) -> None:
        """Memory ran out with so many batches at once: one of them is to start again."""
        self.batch -= 1
        self.show(f"  out of memory with {batches} batches at once: going on with fewer of such a size")

    def halved(self, cells: int, parts: int) -> None:
        """A batch of so many cells did not fit into memory; parts of it are to start instead."""
        self.batch, self.batches = self.batch - 1, self.batches + parts - 1
        self.show(f"  out of memory with {counted(cells, 'cell')} at once: going on with half as many")


def described(cells: tuple[Cell, ...]) -> str:
    """A batch in one line: what is trained on what, and how many cells."""
    first = cells[0]
    name = f"{first.variant} {first.objective}"
    name += "" if first.samples is None else f" {first.estimator_label}"
    how = "" if first.parameterisation == "whitened" else f" {first.parameterisation}"
    seeds, betas = len({cell.seed for cell in cells}), len({cell.beta for cell in cells})
    return (
        f"{first.dataset} n={first.n} {name}{how}{first.floor_label}: {counted(len(cells), 'cell')} "
        f"({counted(seeds, 'seed')}, {counted(betas, 'beta')})"
    )


class PlainProgress(Progress):
    """Lines for logs: messages at once, numbers every ten seconds."""

    _shown = 0.0

    def show(self, line: str | None = None) -> None:
        if line is not None:
            print(line, flush=True)
        elif time.monotonic() - max(self._shown, self.began) > 10:
            self._shown = time.monotonic()
            counts = f"{self.settled}/{self.total} cells, {self.failed} failed"
            print(f"  {counts}; {self.current if self.idle else self.numbers}, {self.left} left", flush=True)


class LiveProgress(Progress):
    """A bar of cells and the numbers of the batch in training, updated in place. Only failures are kept as lines."""

    def __init__(self, total: int, batches: int, console: Console, forecast: Forecast | None = None):
        super().__init__(total, batches, forecast)
        self._bar = Bar(
            TextColumn("cells"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
        )
        self._task = self._bar.add_task("cells", total=total, left="")
        self._live = Live(console=console, refresh_per_second=8)

    def __enter__(self) -> "LiveProgress":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.show()
        self._live.stop()

    def show(self, line: str | None = None) -> None:
        if line is not None and line.startswith("  failed"):
            self._live.console.print(line, style="red", highlight=False)
        self._bar.update(self._task, completed=self.settled, left=f"{self.left} left")
        facts = Table.grid(padding=(0, 2))
        facts.add_row(f"batch {self.batch}/{self.batches}", self.current)
        facts.add_row(f"{self.failed} failed", "" if self.idle else self.numbers)
        self._live.update(Group(self._bar, facts))


def progress_display(total: int, batches: int, forecast: Forecast | None = None) -> Progress:
    """A live display if standard output is a terminal that no other job writes to, else plain lines."""
    only = current_process().name == "MainProcess"  # a job of local_parallel shares the terminal with others
    if only and sys.stdout.isatty():
        return LiveProgress(total, batches, wide_console(), forecast)
    return PlainProgress(total, batches, forecast)
