"""How long a run takes: a bound before it starts, from a few timed steps, and the time left, from what it has done.

A kind of batch is what its cells share (`Cell.group`). Where a kind has been timed, or has finished cells, its own
numbers count; other kinds follow by their work, in multiplications of the largest products of a step."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from dlmexp.plan.cell import Cell
from dlmexp.records.record import Record
from dlmexp.running.checkpoint import Batch

Kind = tuple[Any, ...]
# Work of a run without a bound: some 20 seconds on a slow machine, a minute on an H200, if nothing converges ...
SHORT_RUN = {"cpu": 6e10, "cuda": 2e14}
STEP_WORK = 1e7  # ... where this much would be done in the time of a step that is none
ELEMENTWISE = {"joint": 90, "fixed": 60}  # work that is linear in M x rows, as additional columns
PRODUCTS = {"joint": 1, "fixed": 1 / 3}  # in a step, relative to a joint variant
GRADIENT_STEPS = 150  # the cost of measuring the gradients of a cell
TRIAL_SHARE = 0.02  # of the bound, that timing may take: the run is shorter
TRIAL_SECONDS = 0.05  # for each kind ...
RUN_SECONDS, PLAN_SECONDS = 5.0, 0.5  # ... and for all, before a run and where it is only planned
MORE = 0.25  # a cell that has outlived the mean of its kind takes this share of its iterations more


def step_work(cell: Cell, cells: int) -> float:
    """The work of a step of so many cells, with that of a step of none."""
    rows = min(cell.n, cell.minibatch or cell.n)
    columns = cell.M * PRODUCTS[cell.variant] + ELEMENTWISE[cell.variant] + 2 * (cell.samples or 0)
    return STEP_WORK + cells * cell.M * (rows + 4 * cell.M) * columns


def steps_at_most(cell: Cell) -> int:
    """Number of steps of a cell that does not converge; a closed form counts as one."""
    if cell.kind == "gradient":
        return GRADIENT_STEPS
    return 1 if cell.solved else max(1, cell.iterations)


def batch_work(batch: Batch) -> float:
    """The work of training a batch up to its limit; gradients are measured for one cell after the other."""
    one_by_one = batch[0].kind == "gradient"
    work = step_work(batch[0], 1 if one_by_one else len(batch))
    return steps_at_most(batch[0]) * work * (len(batch) if one_by_one else 1)


def is_short(batches: Iterable[Batch], device: str = "cpu") -> bool:
    """Whether a run takes so little time that timing steps is not worth it."""
    return sum(map(batch_work, batches)) < SHORT_RUN[device]


def bound(
    batches: Sequence[Batch], step_seconds: Callable[[Batch], float], workers: int = 1, most: float = RUN_SECONDS
) -> float:
    """Seconds that batches take if no cell converges before its limit. Times steps of the kinds of batches with the
    most work, while that takes little of the whole and less than `most` seconds; `step_seconds` times a step of a
    batch."""
    pace, began, total = dict[Kind, float](), perf_counter(), 0.0  # pace: seconds per unit of work
    for name, kind in sorted(_kinds(batches).items(), key=lambda item: -item[1].work):
        if kind.first.kind == "gradient" or kind.first.solved:
            continue
        pace[name] = step_seconds(kind.largest) / step_work(kind.first, len(kind.largest))
        mean = sum(pace.values()) / len(pace)
        each = [batch_work(batch) * pace.get(batch[0].group, mean) for batch in batches]
        total = sum(each) / workers + max(each) * (1 - 1 / workers)  # the last batch may train while others wait
        if (perf_counter() - began) * (1 + 1 / len(pace)) > min(TRIAL_SHARE * total, most):
            break
    return total


@dataclass
class _Kind:
    """The cells of a kind of batch: how many have no record, and what the finished ones took."""

    largest: Batch
    work: float = 0.0  # of all its batches, up to their limits
    waiting: int = 0
    by_others: int = 0  # cells that other processes have trained
    cells: int = 0
    iterations: int = 0
    seconds: float = 0.0

    @property
    def first(self) -> Cell:
        return self.largest[0]

    @property
    def cell_work(self) -> float:
        """Work of one cell in an iteration (`step_work`)."""
        return step_work(self.first, len(self.largest)) / len(self.largest)


def _kinds(batches: Iterable[Batch]) -> dict[Kind, _Kind]:
    kinds: dict[Kind, _Kind] = {}
    for batch in batches:
        kind = kinds.setdefault(batch[0].group, _Kind(batch))
        kind.largest = max(kind.largest, batch, key=len)
        kind.work += batch_work(batch)
        kind.waiting += len(batch)
    return kinds


class Clock:
    """The time left of a run, by kind of batch, from the cells that it has finished and the iterations it has made."""

    def __init__(self, batches: Iterable[Batch]):
        self.began = time.monotonic()
        self._kinds = _kinds(batches)
        self._training: dict[str, tuple[Kind, int]] = {}  # cells in training with their iterations

    def seen(self, cells: Iterable[Cell], iteration: int) -> None:
        """These cells are in training, at this iteration."""
        self._training.update((cell.key, (cell.group, iteration)) for cell in cells)

    def finished(self, record: Record) -> None:
        """A cell has its record."""
        self._training.pop(record.key, None)
        if kind := self._kinds.get(record.cell.group):
            kind.waiting -= 1
            kind.cells += 1
            kind.iterations += record.result.iterations or 1
            kind.seconds += record.result.seconds or 0.0

    def skipped(self, cells: Iterable[Cell]) -> None:
        """Another process has trained them."""
        for cell in cells:
            self._training.pop(cell.key, None)
            if kind := self._kinds.get(cell.group):
                kind.waiting -= 1
                kind.by_others += 1

    def seconds_left(self) -> float | None:
        """None before a cell is finished here. In any thread."""
        done = [kind for kind in self._kinds.values() if kind.cells]
        if not done:
            return None
        pace = sum(kind.seconds for kind in done) / sum(kind.iterations * kind.cell_work for kind in done) or 1.0
        ruled = [kind for kind in done if kind.first.has_stopping_rule]
        shares = [kind.iterations / kind.cells / max(1, kind.first.iterations) for kind in ruled]
        training, made, left = list(self._training.values()), 0.0, 0.0
        for name, kind in self._kinds.items():
            limit = steps_at_most(kind.first)
            share = sum(shares) / len(shares) if shares and kind.first.has_stopping_rule else 1.0
            expected = kind.iterations / kind.cells if kind.cells else max(1.0, limit * share)
            reached = [iteration for group, iteration in training if group == name]
            more = (min(max(expected - i, MORE * i), kind.first.iterations - i) for i in reached)
            to_do = sum(max(0.0, iterations) for iterations in more)
            to_do += expected * max(0, kind.waiting - len(reached))
            seconds = kind.seconds / kind.iterations if kind.seconds > 0 else pace * kind.cell_work  # of an iteration
            left += seconds * to_do
            made += seconds * (kind.iterations + kind.by_others * expected + sum(reached))
        return (time.monotonic() - self.began) * left / made if made else None
