"""How long a run takes: a bound before it starts, from a few timed steps, and the time left, from what it has done.

A kind of batch is what its cells share (`Cell.group`). Where a kind has been timed, or has finished cells, its own
numbers count; other kinds follow by their work, in multiplications of the largest products of a step."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple

from dlmexp.objectives import OBJECTIVES
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
MOST_THREADS_GAIN = 1.2  # twice the threads must be so many times as fast: a machine that gets busy later makes it less
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
    return 1 if OBJECTIVES[first.objective].solved(first.variant) else max(1, first.iterations)


def batch_work(batch: Batch) -> float:
    """The work of training a batch up to its limit."""
    return steps_at_most(batch) * step_work(batch[0], 1 if batch[0].kind == "gradient" else len(batch))


def is_short(plan: Plan, device: str = "cpu") -> bool:
    """Whether a run takes so little time that timing steps is not worth it."""
    return sum(map(batch_work, plan.batches)) < SHORT_RUN[device]


class Bound(NamedTuple):
    """Seconds that a plan takes if no cell converges before its limit, and the share of them in kinds that were
    timed."""

    seconds: float
    timed: float


def bound(batches: Sequence[Batch], step_seconds: Callable[[Batch], float], workers: int = 1) -> Bound:
    """Time steps of the kinds of batches with the most work, while that takes little of the whole. `step_seconds`
    times a step of a batch."""
    largest: dict[Kind, Batch] = {}
    work = Counter[Kind]()
    for batch in batches:
        kind = batch[0].group
        work[kind] += batch_work(batch)  # pyright: ignore[reportArgumentType]
        largest[kind] = max(largest.get(kind, batch), batch, key=len)
    pace: dict[Kind, float] = {}  # seconds per unit of work
    began, found = perf_counter(), Bound(0.0, 0.0)
    for kind, _ in work.most_common():
        batch = largest[kind]
        if batch[0].kind == "gradient" or OBJECTIVES[batch[0].objective].solved(batch[0].variant):
            continue
        pace[kind] = step_seconds(batch) / step_work(batch[0], len(batch))
        found = _bound(batches, pace, workers)
        spent = perf_counter() - began
        if spent * (1 + 1 / len(pace)) > min(TRIAL_SHARE * found.seconds, MOST_SECONDS):
            break
    return found


def _bound(batches: Sequence[Batch], pace: dict[Kind, float], workers: int) -> Bound:
    """The seconds of all batches: the last one of a process may train while the others have nothing left to do."""
    mean = sum(pace.values()) / len(pace)
    each = [batch_work(batch) * pace.get(batch[0].group, mean) for batch in batches]
    timed = sum(seconds for seconds, batch in zip(each, batches, strict=True) if batch[0].group in pace)
    return Bound(sum(each) / workers + max(each) * (1 - 1 / workers), timed / sum(each))


def mean_seconds(call: Callable[[], object], seconds: float = TRIAL_SECONDS) -> float:
    """Seconds of a call, over some calls. The mean, not the best: what others take of the machine is what matters."""
    call()
    began, calls = perf_counter(), 0
    while calls < 2 or perf_counter() - began < seconds:
        call()
        calls += 1
    return (perf_counter() - began) / calls


def fastest_threads(most: int, seconds: Callable[[int], float]) -> int:
    """One thread, twice as many as long as that pays, at most `most`; `seconds` of a step with so many threads."""
    threads, known = 1, seconds(1)
    while threads < most:
        more = min(2 * threads, most)
        if (faster := seconds(more)) * MOST_THREADS_GAIN > known:
            break
        threads, known = more, faster
    return threads


@dataclass
class _Done:
    """What finished cells of a kind took."""

    cells: int = 0
    iterations: int = 0
    seconds: float = 0.0


@dataclass
class Clock:
    """The time left of a run, by kind of batch, from the cells that it has finished and the iterations it has made."""

    batches: Sequence[Batch]
    began: float = field(default_factory=time.monotonic)
    _waiting: Counter[Kind] = field(default_factory=Counter)  # cells without a record
    _by_others: Counter[Kind] = field(default_factory=Counter)
    _done: dict[Kind, _Done] = field(default_factory=lambda: defaultdict(_Done))
    _training: dict[str, tuple[Cell, int]] = field(default_factory=dict)  # cells in training with their iterations
    _first: dict[Kind, tuple[Cell, int]] = field(default_factory=dict)  # a cell of each kind, and cells in its batch

    def __post_init__(self) -> None:
        for batch in self.batches:
            kind = batch[0].group
            self._waiting[kind] += len(batch)
            self._first[kind] = (batch[0], max(len(batch), self._first.get(kind, (None, 0))[1]))

    def seen(self, cells: Iterable[Cell], iteration: int) -> None:
        """These cells are in training, at this iteration."""
        self._training.update((cell.key, (cell, iteration)) for cell in cells)

    def finished(self, record: Record) -> None:
        """A cell has its record."""
        kind, result = record.cell.group, record.result
        self._training.pop(record.key, None)
        self._waiting[kind] -= 1
        done = self._done[kind]
        done.cells += 1
        done.iterations += result.iterations or 1
        done.seconds += result.seconds or 0.0

    def skipped(self, cells: Iterable[Cell]) -> None:
        """Another process has trained them."""
        for cell in cells:
            self._training.pop(cell.key, None)
            self._waiting[cell.group] -= 1
            self._by_others[cell.group] += 1

    def seconds_left(self) -> float | None:
        """None before a cell is finished here. In any thread."""
        done = {kind: one for kind, one in list(self._done.items()) if kind in self._first}
        if not done:
            return None
        work = {kind: step_work(cell, cells) / cells for kind, (cell, cells) in self._first.items()}
        measured = {kind: one.seconds / one.iterations for kind, one in done.items() if one.seconds > 0}
        pace = sum(one.seconds for one in done.values()) / sum(one.iterations * work[k] for k, one in done.items())
        share = self._mean_share(done)
        made = left = 0.0
        in_training = Counter[Kind]()
        each = {kind: measured.get(kind, (pace or 1.0) * work[kind]) for kind in work}
        expected = {kind: self._iterations(kind, done.get(kind), share) for kind in work}
        for cell, iteration in list(self._training.values()):
            if (kind := cell.group) in work:
                in_training[kind] += 1
                made += iteration * each[kind]
                more = max(expected[kind] - iteration, MORE * iteration)
                left += each[kind] * max(0.0, min(more, cell.iterations - iteration))
        for kind in work:
            finished = done[kind].iterations if kind in done else 0
            made += each[kind] * (finished + self._by_others[kind] * expected[kind])
            left += each[kind] * expected[kind] * max(0, self._waiting[kind] - in_training[kind])
        return (time.monotonic() - self.began) * left / made if made else None

    def _mean_share(self, done: dict[Kind, _Done]) -> float:
        """The mean share of their limit of iterations that cells with a stopping rule took."""
        shares = [
            one.iterations / one.cells / max(1, self._first[kind][0].iterations)
            for kind, one in done.items()
            if self._first[kind][0].has_stopping_rule
        ]
        return sum(shares) / len(shares) if shares else 1.0

    def _iterations(self, kind: Kind, done: _Done | None, share: float) -> float:
        """Expected iterations of a cell."""
        if done is not None:
            return done.iterations / done.cells
        cell, _ = self._first[kind]
        limit = steps_at_most((cell,))
        return max(1.0, limit * share) if cell.has_stopping_rule else limit
