"""Which batches train at the same time, and how long all of them take: what the engine will do, played in advance."""

from collections import deque
from collections.abc import Sequence
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
SCATTER = (1.0, 0.8, 1.2, 0.9, 1.1)  # iterations of cells relative to their mean, so that not all stop at once


class Capacity(NamedTuple):
    """What may train at the same time: so many batches, entries of their largest arrays, and bytes."""

    most: int = 1
    entries: float = 0.0
    bytes: float = 0.0

    def room(self, batch: Batch, together: Sequence[Batch]) -> bool:
        """Whether another batch may join: the first always, another one until the device is full."""
        return not together or (
            not any(map(needs_the_device, (batch, *together)))
            and len(together) < self.most
            and sum(map(entries_of, together)) < self.entries
            and sum(map(bytes_of, (*together, batch))) <= self.bytes
        )

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
    """So many equal steps."""

    iterations: float
    step: Step


@dataclass(frozen=True)
class Course:
    """What a batch is expected to do: steps in parts that shrink, and the seconds of everything else."""

    batch: Batch
    parts: tuple[Part, ...]
    besides: float

    @property
    def alone(self) -> float:
        """Seconds with nothing else on the device."""
        return self.beside(1)

    def beside(self, together: int) -> float:
        """Its share of the device's seconds with so many batches like it at once."""
        return self.besides / together + sum(part.iterations * part.step.beside(together) for part in self.parts)


def course(batch: Batch, costs: Costs, iterations: Iterations, device: str, to_the_limit: bool = False) -> Course:
    """The course of a batch with the expected iterations of its cells, or with all of them at their limit."""
    first = batch[0]
    if first.kind == "gradient":
        return Course(batch, (Part(GRADIENT_STEPS * len(batch), costs.step(first, 1)),), START_SECONDS[device])
    each = [_iterations(cell, iterations, SCATTER[i % len(SCATTER)], to_the_limit) for i, cell in enumerate(batch)]
    parts = [
        Part(part.iterations, costs.step(first, part.cells)) for part in stretches(each, compact_at(batch, device))
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
    """The time of all batches on one device, started in their order as soon as there is room."""
    if capacity.most == 1:
        return sum(one.alone for one in courses)
    moment, queue, running = 0.0, deque(courses), list[_Running]()
    missing = {cell.key for one in courses for cell in one.batch}
    while queue or running:
        waiting = list[Course]()
        for _ in range(len(queue)):
            together = [one.course.batch for one in running]
            if capacity.comes_last(queue[0].batch, together):
                queue.rotate(-1)
            elif not capacity.room(queue[0].batch, together):
                break
            elif {cell.base for cell in queue[0].batch} & missing:
                waiting.append(queue.popleft())
            else:
                running.append(_Running(queue.popleft()))
        queue.extendleft(reversed(waiting))
        if not running:  # what they wait for is in no batch: it can't be played
            return moment + sum(one.alone for one in queue)
        passed = min(one.seconds_left(len(running)) for one in running)
        moment += passed
        for one in list(running):
            if one.passes(passed, len(running)):
                running.remove(one)
                missing -= {cell.key for cell in one.course.batch}
    return max(moment, sum(one.besides for one in courses))  # one thread does all that is not steps


def seconds_of_processes(courses: Sequence[Course], workers: int) -> float:
    """The time of all batches with several processes on a CPU: whichever has nothing to do takes the next, and waits
    for the fits that its cells start from."""
    free, ends = [0.0] + [PROCESS_SECONDS] * (workers - 1), dict[str | None, float]()
    for one in courses:
        end = max([free[0], *(ends.get(cell.base, 0.0) for cell in one.batch)]) + one.alone
        heapreplace(free, end)
        ends |= dict.fromkeys((cell.key for cell in one.batch), end)
    return max(free)


class _Running:
    """A batch in training: the part that it is in, and the steps left of it."""

    def __init__(self, course: Course):
        self.course = course
        self.parts = deque([Part(1, Step(course.besides, 0.0)), *course.parts])
        self.left = self.parts[0].iterations

    def seconds_left(self, together: int) -> float:
        """Of this part, with so many batches at once."""
        return self.left * self._step(together)

    def passes(self, seconds: float, together: int) -> bool:
        """Go on for so long. Whether it has ended."""
        self.left -= seconds / self._step(together)
        if self.left <= 1e-9 * self.parts[0].iterations:
            self.parts.popleft()
            if not self.parts:
                return True
            self.left = self.parts[0].iterations
        return False

    def _step(self, together: int) -> float:
        latency, work = self.parts[0].step
        return max(latency + together * work, 1e-12)
