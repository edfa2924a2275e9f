"""How long a run takes: a bound before it starts, from a few timed steps, and the time left, from what it has done.

A kind of batch is what its cells share (`Cell.group`). Where a kind has been timed, or has finished cells, its own
numbers count; other kinds follow by their work, in multiplications of the largest products of a step."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from dlmexp.plan.batches import Plan
from dlmexp.plan.cell import Cell
from dlmexp.records.record import Record

Batch = tuple[Cell, ...]
Kind = tuple[Any, ...]
# Work of a run without a bound: some 20 seconds on a slow machine, a minute on an H200, if nothing converges ...
SHORT_RUN = {"cpu": 6e10, "cuda": 2e14}
STEP_WORK = 1e7  # ... where this much would be done in the time of a step that is none
ELEMENTWISE = {"joint": 90, "fixed": 60}  # work that is linear in M x rows, as additional columns
FIXED_PRODUCTS = 1 / 3  # products in a step of a fixed variant, relative to a step of a joint one
GRADIENT_STEPS = 150  # the cost of measuring the gradients of a cell
TRIAL_SHARE = 0.02  # of the bound, that timing may take: the run is shorter
TRIAL_SECONDS, MOST_SECONDS = 0.2, 5.0  # for each kind, and for all
MORE = 0.25  # a cell that has outlived the mean of its kind takes this share of its iterations more


def rows_per_step(cell: Cell) -> int:
    """Number of training rows in one Adam step."""
    return min(cell.n, cell.minibatch or cell.n)


def step_work(cell: Cell, cells: int) -> float:
    """The work of a step of so many cells, with that of a step of none."""
    fixed = cell.variant == "fixed"
    columns = cell.M * (FIXED_PRODUCTS if fixed else 1.0) + ELEMENTWISE["fixed" if fixed else "joint"]
    return STEP_WORK + cells * cell.M * (rows_per_step(cell) + 4 * cell.M) * (columns + 2 * (cell.samples or 0))


def steps_at_most(batch: Batch) -> int:
    """Number of steps of a batch if no cell converges; a closed form counts as one."""
    first = batch[0]
    if first.kind == "gradient":
        return GRADIENT_STEPS * len(batch)
    return 1 if first.solved else max(1, first.iterations)


def batch_work(batch: Batch) -> float:
    """The work of training a batch up to its limit."""
    return steps_at_most(batch) * step_work(batch[0], 1 if batch[0].kind == "gradient" else len(batch))


def is_short(plan: Plan, device: str = "cpu") -> bool:
    """Whether a run takes so little time that timing steps is not worth it."""
    return sum(map(batch_work, plan.batches)) < SHORT_RUN[device]


def bound(batches: Sequence[Batch], step_seconds: Callable[[Batch], float], workers: int = 1) -> float:
    """Seconds that batches take if no cell converges before its limit. Times steps of the kinds of batches with the
    most work, while that takes little of the whole; `step_seconds` times a step of a batch."""
    largest, work = dict[Kind, Batch](), Counter[Kind]()
    for batch in batches:
        kind = batch[0].group
        work[kind] += batch_work(batch)  # pyright: ignore[reportArgumentType]
        largest[kind] = max(largest.get(kind, batch), batch, key=len)
    pace, began, total = dict[Kind, float](), perf_counter(), 0.0  # pace: seconds per unit of work
    for kind, _ in work.most_common():
        batch = largest[kind]
        if batch[0].kind == "gradient" or batch[0].solved:
            continue
        pace[kind] = step_seconds(batch) / step_work(batch[0], len(batch))
        mean = sum(pace.values()) / len(pace)
        each = [batch_work(batch) * pace.get(batch[0].group, mean) for batch in batches]
        total = sum(each) / workers + max(each) * (1 - 1 / workers)  # the last batch may train while others wait
        if (perf_counter() - began) * (1 + 1 / len(pace)) > min(TRIAL_SHARE * total, MOST_SECONDS):
            break
    return total


def mean_seconds(call: Callable[[], object], seconds: float = TRIAL_SECONDS) -> float:
    """Seconds of a call, over some calls. The mean, not the best: what others take of the machine is what matters."""
    call()
    began, calls = perf_counter(), 0
    while calls < 2 or perf_counter() - began < seconds:
        call()
        calls += 1
    return (perf_counter() - began) / calls


@dataclass
class _Kind:
    """The cells of a kind of batch: how many have no record, and what the finished ones took."""

    first: Cell
    size: int = 0  # cells of the largest batch
    waiting: int = 0
    by_others: int = 0  # cells that other processes have trained
    cells: int = 0
    iterations: int = 0
    seconds: float = 0.0

    @property
    def work(self) -> float:
        """Of an iteration of a cell."""
        return step_work(self.first, self.size) / self.size

    @property
    def share(self) -> float:
        """The mean share of their limit of iterations that finished cells took."""
        return self.iterations / self.cells / max(1, self.first.iterations)


class Clock:
    """The time left of a run, by kind of batch, from the cells that it has finished and the iterations it has made."""

    def __init__(self, batches: Iterable[Batch]):
        self.began = time.monotonic()
        self._kinds: dict[Kind, _Kind] = {}
        self._training: dict[str, tuple[Kind, int]] = {}  # cells in training with their iterations
        for batch in batches:
            kind = self._kinds.setdefault(batch[0].group, _Kind(batch[0]))
            kind.size = max(kind.size, len(batch))
            kind.waiting += len(batch)

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
        pace = sum(kind.seconds for kind in done) / sum(kind.iterations * kind.work for kind in done) or 1.0
        shares = [kind.share for kind in done if kind.first.has_stopping_rule]
        share = sum(shares) / len(shares) if shares else 1.0
        training = defaultdict[Kind, list[int]](list)
        for name, iteration in list(self._training.values()):
            training[name].append(iteration)
        made = left = 0.0
        for name, kind in self._kinds.items():
            each = kind.seconds / kind.iterations if kind.seconds > 0 else pace * kind.work
            limit = steps_at_most((kind.first,))
            expected = max(1.0, limit * share) if kind.first.has_stopping_rule else limit
            if kind.cells:
                expected = kind.iterations / kind.cells
            for iteration in training[name]:
                more = max(expected - iteration, MORE * iteration)
                left += each * max(0.0, min(more, kind.first.iterations - iteration))
            made += each * (kind.iterations + kind.by_others * expected + sum(training[name]))
            left += each * expected * max(0, kind.waiting - len(training[name]))
        return (time.monotonic() - self.began) * left / made if made else None
