"""Which batches train at the same time, and how long all of them take: what the engine will do, played in advance."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from typing import NamedTuple

from dlmexp.plan.batches import bytes_of, entries_of
from dlmexp.plan.cell import Cell
from dlmexp.running.cost import (
    CAPTURE_SECONDS,
    RECORD_SECONDS,
    START_SECONDS,
    Costs,
    Step,
    rows_of,
    stretches,
)
from dlmexp.running.iterations import Iterations
from dlmexp.running.programs import needs_the_device
from dlmexp.training.train import COMPACT_AT, LARGE_STEP

Batch = tuple[Cell, ...]

PROCESS_SECONDS = 4.0  # until an extra process trains
GRADIENT_STEPS = 150  # the cost of measuring the gradients of one cell, which are not computed in a batch
LONG_ONES = 2  # batches at once that are chosen for their number of steps; the others are the next in the queue
SCATTER = (1.0, 0.8, 1.2, 0.9, 1.1)  # iterations of cells relative to their mean, so that not all stop at once


class Capacity(NamedTuple):
    """What may train at the same time: so many batches, entries of their largest arrays, and bytes."""

    most: int = 1
    entries: float = 0.0
    bytes: float = 0.0

    def room(self, batch: Batch, together: Sequence[Batch], inside: Sequence[int] | None = None) -> bool:
        """Whether another batch may join: the first always, another one until the device is full. `inside` says how
        many cells have not left the batches in training: those that have take no time, but their memory is kept."""
        cells = map(len, together) if inside is None else inside
        return not together or (
            not any(map(needs_the_device, (batch, *together)))
            and len(together) < self.most
            and sum(entries_of(one[:1]) * each for one, each in zip(together, cells, strict=True)) < self.entries
            and sum(map(bytes_of, (*together, batch))) <= self.bytes
        )

    def longest_first(self, queue: deque[Batch], together: Sequence[Batch]) -> None:
        """Where several train at once, put batches first so that `LONG_ONES` of those in training have as many steps as
        any that waits. Many small steps cost little beside others, and much if they are left over at the end."""
        most = max(map(_limit, queue), default=0)
        wanted = LONG_ONES - sum(_limit(batch) >= most for batch in together)
        if self.most == 1 or wanted <= 0:
            return
        able = [batch for batch in queue if not needs_the_device(batch)]
        chosen = sorted(able, key=lambda batch: -_limit(batch))[:wanted]
        for batch in chosen:
            queue.remove(batch)
        queue.extendleft(reversed(chosen))

    def comes_last(self, batch: Batch, together: Sequence[Batch]) -> bool:
        """Whether others go before it: it needs the device for itself, and others train."""
        return self.most > 1 and len(together) > 0 and needs_the_device(batch)

    def alike(self, batch: Batch) -> int:
        """How many such batches may train at once."""
        together = 1
        while self.room(batch, [batch] * together):
            together += 1
        return together


ONE_AT_A_TIME = Capacity()


class Part(NamedTuple):
    """So many equal steps, of so many cells."""

    iterations: float
    step: Step
    cells: int = 1


@dataclass(frozen=True)
class Course:
    """What a batch is expected to do: steps in parts that shrink, and the seconds of everything else."""

    batch: Batch
    parts: tuple[Part, ...]
    besides: float

    @property
    def alone(self) -> float:
        """Seconds with nothing else on the device."""
        return self.besides + sum(part.iterations * part.step.alone for part in self.parts)


def course(batch: Batch, costs: Costs, iterations: Iterations, device: str, to_the_limit: bool = False) -> Course:
    """The course of a batch with the expected iterations of its cells, or with all of them at their limit."""
    first = batch[0]
    if first.kind == "gradient":
        part = Part(GRADIENT_STEPS * len(batch), costs.step(first, 1), len(batch))
        return Course(batch, (part,), START_SECONDS[device])
    each = [_iterations(cell, iterations, SCATTER[i % len(SCATTER)], to_the_limit) for i, cell in enumerate(batch)]
    parts = [
        Part(part.iterations, costs.step(first, part.cells), part.cells)
        for part in stretches(each, compact_at(batch, device))
    ]
    besides = START_SECONDS[device] + len(batch) * RECORD_SECONDS[device] + len(parts) * CAPTURE_SECONDS[device]
    besides += costs.evaluation(first, len(batch), final=True).alone
    if first.evaluate_every:
        besides += (1 + max(each) / first.evaluate_every) * costs.evaluation(first, len(batch), final=False).alone
    return Course(batch, tuple(parts), besides)


def compact_at(batch: Batch, device: str) -> float:
    """The share of live cells at which the others leave a batch."""
    large = len(batch) * batch[0].M * rows_of(batch[0]) >= LARGE_STEP
    return COMPACT_AT["cuda, large" if large and device == "cuda" else device]


def _iterations(cell: Cell, iterations: Iterations, scatter: float, to_the_limit: bool) -> float:
    expected, limit = iterations.expected(cell).iterations, max(cell.iterations, 1)
    if expected >= limit or (to_the_limit and expected > 1):
        return limit
    return min(limit, max(1.0, expected * scatter))


def seconds_of(courses: Sequence[Course], capacity: Capacity) -> float:
    """The time of all batches on one device."""
    return sum(shares_of(courses, capacity))


def shares_of(courses: Sequence[Course], capacity: Capacity) -> list[float]:
    """The time of all batches on one device, started as the engine does: each one's share of it, as those that train
    at the same time share that evenly."""
    if capacity.most == 1:
        return [one.alone for one in courses]
    course_of = {id(one.batch): one for one in courses}
    shares, queue, running = dict.fromkeys(course_of, 0.0), deque(one.batch for one in courses), list[_Running]()
    missing, freed = {cell.key for batch in queue for cell in batch}, True
    while queue or running:
        if freed:
            _start(queue, running, course_of, missing, capacity)
        if not running:  # what they wait for is in no batch: it can't be played
            shares |= {id(batch): course_of[id(batch)].alone for batch in queue}
            break
        load = Load(sum(one.besides > 0 for one in running), sum(one.step.work for one in running))
        passed = min(one.seconds_left(load) for one in running)
        for one in running:
            shares[id(one.batch)] += passed / len(running)
        freed = sum(one.leaves(passed, load) for one in running) > 0
        for one in [one for one in running if not one.parts]:
            running.remove(one)
            missing -= {cell.key for cell in one.batch}
    return [shares[id(one.batch)] for one in courses]


def _start(
    queue: deque[Batch],
    running: "list[_Running]",
    course_of: Mapping[int, Course],
    missing: set[str],
    capacity: Capacity,
) -> None:
    """Start batches while there is room for them."""
    waiting = list[Batch]()
    capacity.longest_first(queue, [one.batch for one in running])
    for _ in range(len(queue)):
        together, inside = [one.batch for one in running], [one.parts[0].cells for one in running]
        if capacity.comes_last(queue[0], together):
            queue.rotate(-1)
        elif not capacity.room(queue[0], together, inside):
            break
        elif {cell.base for cell in queue[0]} & missing:
            waiting.append(queue.popleft())
        else:
            running.append(_Running(course_of[id(batch := queue.popleft())], batch))
    queue.extendleft(reversed(waiting))


def seconds_of_processes(courses: Sequence[Course], workers: int) -> float:
    """The time of all batches with several processes on a CPU: whichever has nothing to do takes the next, and waits
    for the fits that its cells start from."""
    free, ends = [0.0] + [PROCESS_SECONDS] * (workers - 1), dict[str | None, float]()
    for one in courses:
        end = max([free[0], *(ends.get(cell.base, 0.0) for cell in one.batch)]) + one.alone
        heapreplace(free, end)
        ends |= dict.fromkeys((cell.key for cell in one.batch), end)
    return max(free)


class Load(NamedTuple):
    """Of a device and of the one thread that serves it, by all batches in training."""

    served: int  # batches that the thread has something to do for
    work: float  # seconds of a step of each of the others, without latency


class _Running:
    """A batch in training: what the thread has to do for it, then the parts that are left and the steps of the first.

    A GPU has the kernels of all batches in turn. One step of a batch takes as long as a step of each, and its latency:
    a small one beside a large one is no faster than that."""

    def __init__(self, course: Course, batch: Batch):
        self.batch, self.besides = batch, course.besides
        self.parts = deque(course.parts)
        self.left = self.parts[0].iterations

    @property
    def step(self) -> Step:
        return Step(0.0, 0.0) if self.besides > 0 else self.parts[0].step

    def seconds_left(self, load: Load) -> float:
        """Until its next part."""
        return self.besides * load.served if self.besides > 0 else self.left * self._seconds(load)

    def leaves(self, seconds: float, load: Load) -> bool:
        """Go on for so long. Whether that is the end of a part: cells leave the batch, or all of them have."""
        if self.besides > 0:
            self.besides -= seconds / load.served
            self.besides *= self.besides > 1e-9
            return False
        self.left -= seconds / self._seconds(load)
        if self.left > 1e-9 * self.parts[0].iterations:
            return False
        self.parts.popleft()
        self.left = self.parts[0].iterations if self.parts else 0.0
        return True

    def _seconds(self, load: Load) -> float:
        return max(self.step.latency + load.work, 1e-12)


def _limit(batch: Batch) -> int:
    """Steps of a batch, at most."""
    return batch[0].iterations
