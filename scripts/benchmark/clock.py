"""How good the announced time and the time left of runs are, by replays of recorded runs.

    python -m scripts.benchmark clock record FILE.csv experiment=class-log seeds=5
    python -m scripts.benchmark clock replay [FILE.csv ...]

The first trains as `dlmexp run` does, and writes down what happens; the second prints a table.
A recorded run is a CSV with a row per event. `kind` rows describe the kinds of batches, `trial`
rows the steps that were timed before the start; then come `look` rows (cells of a batch in
training, and their iteration) and `finish` rows (cells that got their records, with the sums of
their iterations and seconds), each with the seconds since the start of the run. Recorded runs are
in the folder `runs` beside this file.
"""

import argparse
import csv
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dlmexp.common.console import duration
from dlmexp.common.errors import UserError
from dlmexp.experiment.plan.cell import Batch
from dlmexp.experiment.records.record import Record
from dlmexp.experiment.running import run as running
from dlmexp.experiment.running.clock import Clock, KindCount
from dlmexp.experiment.running.cost import BatchShape, Measured
from dlmexp.experiment.running.progress import Progress

RUNS = Path(__file__).parent / "runs"
COLUMNS = [
    "event",
    "at",
    "kind",
    "cells",
    "iterations",
    "seconds",
    "family",
    "task",
    "work",
    "limit",
    "may_converge",
    "is_timed",
    "waiting",
]
FINISHES_APART = 0.5  # seconds; finished cells of a kind within them are one row
LOOKS_APART = 5.0  # seconds between rows of one batch
FIRST_MINUTE = 60.0
CHECK_EVERY = 5.0  # seconds between looks at the time left
LAST_SECONDS = 10.0  # in which a factor means nothing


class RecordedProgress(Progress):
    """The progress of a run, which also writes down what happens."""

    file: Path

    def __init__(self, clock: Clock, *arguments: Any):
        super().__init__(clock, *arguments)
        self.rows: list[dict[str, Any]] = []
        self._names = {kind: i for i, kind in enumerate(clock.kinds)}
        self._finished: dict[int, list[float]] = {}
        self._finished_since = 0.0
        self._looked_at: dict[int, float] = defaultdict(float)

    def __enter__(self) -> "RecordedProgress":
        for group, kind in self.clock.kinds.items():
            shape = kind.shape
            self._add("kind", group, cells=shape.cells, waiting=kind.waiting, work=shape.work)
            self.rows[-1] |= {
                "family": shape.family,
                "task": shape.task,
                "limit": shape.limit,
                "may_converge": int(shape.may_converge),
                "is_timed": int(shape.is_timed),
            }
        for trial in self.clock.trials:
            self._add("trial", trial.shape.kind, cells=trial.shape.cells, seconds=trial.seconds)
        self.began = time.monotonic()
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._write_finished()
        self.rows.append({"event": "end", "at": self._now()})
        with self.file.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, COLUMNS)
            writer.writeheader()
            writer.writerows(self.rows)

    def tick(self, cells: Batch, training: Any) -> None:
        super().tick(cells, training)
        now = self._now()
        if now - self._looked_at[id(training)] >= LOOKS_APART and cells[0].group in self._names:
            self._looked_at[id(training)] = now
            live = int(training.live().sum())
            self._add("look", cells[0].group, cells=live, iterations=training.iteration)

    def finished(self, record: Record) -> None:
        super().finished(record)
        name = self._names.get(record.cell.group)
        if name is None:
            return
        if self._now() - self._finished_since > FINISHES_APART:
            self._write_finished()
            self._finished_since = self._now()
        sums = self._finished.setdefault(name, [0, 0, 0.0])
        sums[0] += 1
        sums[1] += record.result.iterations or 1
        sums[2] += record.result.seconds or 0.0

    def _write_finished(self) -> None:
        for name, (cells, iterations, seconds) in self._finished.items():
            row = {"event": "finish", "kind": name, "at": self._now(), "cells": cells}
            self.rows.append(row | {"iterations": iterations, "seconds": f"{seconds:.4g}"})
        self._finished = {}

    def _add(self, event: str, group: Any, **values: Any) -> None:
        self.rows.append({"event": event, "at": self._now(), "kind": self._names[group], **values})

    def _now(self) -> float:
        return round(time.monotonic() - self.began, 2)


def record(file: Path, arguments: list[str]) -> int:
    """Run `dlmexp run` with these arguments in this process, and write the file."""
    from dlmexp.cli import main as dlmexp

    RecordedProgress.file = file
    running.Progress = RecordedProgress
    return dlmexp(["run", *arguments, "workers=1"])


class Replay:
    """A recorded run, event by event."""

    def __init__(self, file: Path):
        self.name = file.stem
        with file.open(newline="") as stream:
            self.rows = list(csv.DictReader(stream))
        device = "cuda" if "h200" in file.stem else "cpu"
        self.clock = Clock([], device)
        self.total = float(self.rows[-1]["at"])

    def start(self) -> None:
        """Let the clock know the kinds and the trials."""
        for row in self.rows:
            if row["event"] == "kind":
                self._add_kind(row)
            elif row["event"] == "trial":
                kind = self.clock.kinds[int(row["kind"])]
                shape = BatchShape(**{**vars(kind.shape), "cells": int(row["cells"])})
                self.clock.trials.append(Measured(shape, float(row["seconds"])))

    def _add_kind(self, row: dict[str, str]) -> None:
        name = int(row["kind"])
        shape = BatchShape(
            kind=name,
            family=row["family"],
            task=row["task"],
            cells=int(row["cells"]),
            work=float(row["work"]),
            limit=int(row["limit"]),
            may_converge=row["may_converge"] == "1",
            is_timed=row["is_timed"] == "1",
        )
        self.clock.kinds[name] = KindCount(shape, waiting=int(row["waiting"]))

    def factors(self) -> list[tuple[float, float]]:
        """Return (seconds, time left as shown divided by the true one) from the first minute on."""
        factors = []
        next_check = FIRST_MINUTE
        for row in self.rows:
            at = float(row["at"])
            while at >= next_check and next_check <= self.total - LAST_SECONDS:
                left = self.clock.seconds_left(next_check)
                factors.append((next_check, (left or 1e-9) / (self.total - next_check)))
                next_check += CHECK_EVERY
            self._apply(row)
        return factors

    def _apply(self, row: dict[str, str]) -> None:
        if row["event"] not in ("look", "finish"):
            return
        kind = self.clock.kinds[int(row["kind"])]
        cells = int(row["cells"])
        if row["event"] == "look":
            kind.reached = {str(i): int(row["iterations"]) for i in range(cells)}
            return
        kind.note_finished(cells, int(row["iterations"]), float(row["seconds"]))
        for key in list(kind.reached)[:cells]:
            del kind.reached[key]


def replay(files: Sequence[Path]) -> int:
    """Print how good the clock would have been in each recorded run."""
    print(f"{'run':28} {'took':>8} {'announced':>20} {'inside':>6} {'worst':>6} {'90 %':>6}")
    for file in files:
        run = Replay(file)
        run.start()
        interval = run.clock.announced(1)
        announced = "-"
        inside = "-"
        if interval is not None:
            announced = f"{duration(interval.least)} to {duration(interval.most)}"
            inside = "yes" if interval.least <= run.total <= interval.most else "no"
        wrong_by = sorted(max(factor, 1 / factor) for _, factor in run.factors())
        worst = f"{wrong_by[-1]:.2f}" if wrong_by else "-"
        usual = f"{wrong_by[int(0.9 * (len(wrong_by) - 1))]:.2f}" if wrong_by else "-"
        took = duration(run.total)
        print(f"{run.name:28} {took:>8} {announced:>20} {inside:>6} {worst:>6} {usual:>6}")
    return 0


def main(arguments: list[str]) -> int:
    """Record a run, or replay recorded ones."""
    parser = argparse.ArgumentParser("scripts.benchmark clock", description=__doc__)
    parser.add_argument("action", choices=("record", "replay"))
    parser.add_argument("files", nargs="*", help="a file to write and arguments of `dlmexp run`")
    options = parser.parse_args(arguments)
    if options.action == "record":
        if not options.files:
            raise UserError("record: give a file to write, and arguments of dlmexp run")
        return record(Path(options.files[0]), options.files[1:])
    return replay([Path(file) for file in options.files] or sorted(RUNS.glob("*.csv")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
