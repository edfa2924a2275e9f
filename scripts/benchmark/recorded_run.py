"""Recorded runs: what happened in a run, as rows of a CSV that is written as the run goes.

The first column is the event. The columns after the last one that an event has are left out.

    run      once: device and machine, and the processes that train
    kind     a kind of batches, and how many of its cells wait; again when folds have selected
    trial    a step that was timed before the start: its cells and seconds
    start    a batch starts
    look     cells of a batch in training, and their iteration
    finish   cells that got their records, with the sums of their iterations and seconds,
             and the iterations of the longest
    end      once, unless the process was killed: how many cells are left

`at` is the time in seconds since the start of training.
"""

import csv
import os
import platform
import time
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, TextIO

import torch

from dlmexp.experiment.plan.cell import Batch
from dlmexp.experiment.records.record import Record
from dlmexp.experiment.running import run as running
from dlmexp.experiment.running.clock import Clock
from dlmexp.experiment.running.progress import Progress

COLUMNS = [
    "event",
    "at",
    "kind",
    "cells",
    "iterations",
    "seconds",
    "batch",
    "longest",
    "waiting",
    "family",
    "task",
    "work",
    "limit",
    "may_converge",
    "is_timed",
    "device",
    "machine",
]
# Pauses between rows of a batch, and between rows of finished cells of a kind: seconds, or a share
# of the time so far where that is more, so that the file of a long run stays small.
LOOK_SECONDS = 5.0
LOOK_SHARE = 1 / 50
FINISH_SECONDS = 0.5
FINISH_SHARE = 1 / 400


class RowFile:
    """A CSV to which rows are added; each is in the file as soon as it is added."""

    def __init__(self, file: Path):
        file.parent.mkdir(parents=True, exist_ok=True)
        self._stream: TextIO = file.open("w", newline="", buffering=1)
        self._writer = csv.writer(self._stream, lineterminator="\n")
        self._writer.writerow(COLUMNS)

    def add(self, event: str, **values: object) -> None:
        """Add a row, without the empty columns at its end."""
        row = [event, *(values.get(column, "") for column in COLUMNS[1:])]
        while row[-1] == "":
            row.pop()
        self._writer.writerow(row)

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


class RecordedProgress(Progress):
    """The progress of a run, which also writes down what happens."""

    file: Path

    def __init__(self, clock: Clock, *arguments: Any):
        super().__init__(clock, *arguments)
        self._numbers: dict[Hashable, int] = {}  # of kinds
        self._batches: dict[int, int] = {}  # numbers of batches, by the id of their training
        self._batch_count = 0
        self._looked_at: dict[int, float] = {}  # by the id of a training
        self._unwritten: dict[int, list[float]] = {}  # cells, iterations, longest, seconds, by kind
        self._unwritten_since = 0.0

    def __enter__(self) -> "RecordedProgress":
        self._rows = RowFile(self.file)
        self.began = time.monotonic()
        self._rows.add("run", at=0, device=self.clock.device, machine=machine(self.clock.device))
        self._add_kinds(())
        for trial in self.clock.trials:
            number = self._numbers[trial.shape.kind]
            self._rows.add(
                "trial",
                at=0,
                kind=number,
                cells=int(trial.steps.of_cells),
                seconds=f"{trial.seconds:.4g}",
            )
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._write_finished()
        self._rows.add("end", at=self._now(), waiting=self.total - self.settled)
        self._rows.close()

    def note_start(self, cells: Batch) -> None:
        """Also write that a batch starts."""
        super().note_start(cells)
        number = self._numbers.get(cells[0].shared_values)
        if number is not None:
            self._rows.add("start", at=self._now(), kind=number, cells=len(cells))

    def note_selection(self, batches: Sequence[Batch]) -> None:
        """Also write the kinds of batches that are trained after the folds."""
        before = {group: kind.waiting for group, kind in self.clock.kinds.items()}
        self._write_finished()
        super().note_selection(batches)
        changed = [
            group for group, kind in self.clock.kinds.items() if before.get(group) != kind.waiting
        ]
        self._add_kinds(changed)

    def tick(self, cells: Batch, training: Any) -> None:
        """Also write how far a batch is, now and then."""
        super().tick(cells, training)
        now = self._now()
        self._write_finished_if_due(now)
        kind = self._numbers.get(cells[0].shared_values)
        if kind is None or not self._is_look_due(training, now):
            return
        self._looked_at[id(training)] = now
        if id(training) not in self._batches:
            self._batches[id(training)] = self._batch_count
            self._batch_count += 1
        self._rows.add(
            "look",
            at=now,
            kind=kind,
            cells=int(training.live().sum()),
            iterations=training.iteration,
            batch=self._batches[id(training)],
        )

    def note_end(self, training: Any) -> None:
        """Forget a batch: another one may get the same id."""
        super().note_end(training)
        self._batches.pop(id(training), None)
        self._looked_at.pop(id(training), None)

    def note_record(self, record: Record) -> None:
        """Also write that a cell got its record."""
        super().note_record(record)
        kind = self._numbers.get(record.cell.shared_values)
        if kind is None:
            return
        self._write_finished_if_due(self._now())
        sums = self._unwritten.setdefault(kind, [0, 0, 0, 0.0])
        iterations = record.result.iterations or 1
        sums[0] += 1
        sums[1] += iterations
        sums[2] = max(sums[2], iterations)
        sums[3] += record.result.seconds or 0.0

    def _is_look_due(self, training: Any, now: float) -> bool:
        last = self._looked_at.get(id(training))
        return last is None or now - last >= max(LOOK_SECONDS, LOOK_SHARE * now)

    def _write_finished_if_due(self, now: float) -> None:
        if now - self._unwritten_since > max(FINISH_SECONDS, FINISH_SHARE * now):
            self._write_finished()
            self._unwritten_since = now

    def _write_finished(self) -> None:
        now = self._now()
        for kind, (cells, iterations, longest, seconds) in self._unwritten.items():
            self._rows.add(
                "finish",
                at=now,
                kind=kind,
                cells=cells,
                iterations=iterations,
                longest=longest,
                seconds=f"{seconds:.4g}",
            )
        self._unwritten = {}

    def _add_kinds(self, changed: Sequence[Hashable]) -> None:
        """Write the kinds that have no row yet, and those that have changed."""
        for group, kind in self.clock.kinds.items():
            if group in self._numbers and group not in changed:
                continue
            shape = kind.shape
            self._rows.add(
                "kind",
                at=self._now(),
                kind=self._numbers.setdefault(group, len(self._numbers)),
                cells=shape.cells,
                waiting=kind.waiting,
                family=shape.family,
                task=shape.task,
                work=f"{shape.work:.6g}",
                limit=shape.limit,
                may_converge=int(shape.may_converge),
                is_timed=int(shape.is_timed),
            )

    def _now(self) -> float:
        return round(time.monotonic() - self.began, 2)


def machine(device: str) -> str:
    """Return the name of the GPU, or the number and the kind of the processor's cores."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"{len(os.sched_getaffinity(0))} cores {platform.machine()}"


def record(file: Path, arguments: list[str]) -> int:
    """Run `dlmexp run` with these arguments in this process, and write the file as it goes.

    A file that exists stays: a run that is continued gets a file of its own, with a number.
    """
    from dlmexp.cli import main as dlmexp

    RecordedProgress.file = unused(file)
    running.Progress = RecordedProgress
    return dlmexp(["run", *arguments, "workers=1"])


def unused(file: Path) -> Path:
    """Return a path like this one at which there is no file."""
    number = 1
    path = file
    while path.exists():
        number += 1
        path = file.with_stem(f"{file.stem}-{number}")
    return path
