"""How long a run takes: before it starts, and while it runs, corrected by what it has done so far."""

import math
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dlmexp.plan.cell import Cell
from dlmexp.records.record import Record
from dlmexp.running.cost import RECORD_SECONDS, Costs, kind_of
from dlmexp.running.iterations import ASSUMED, HERE, OTHER, RULE, SAME, Iterations
from dlmexp.running.pace import known_pace
from dlmexp.running.schedule import ONE_AT_A_TIME, Capacity, Course, course, seconds_of, seconds_of_processes, shares_of
from dlmexp.running.threads import core_seconds

Batch = tuple[Cell, ...]

# Relative errors, as standard deviations of the logarithm, that make the range of an estimate.
TIMED_ERROR, MODEL_ERROR = 0.1, 0.3  # of steps of a kind that was timed, and of others
BUSY, BUSY_ERROR = 1.5, 0.3  # a load from which on that of the next hour is not that of the moment
ITERATION_ERROR = {RULE: 0.02, HERE: 0.08, SAME: 0.1, OTHER: 0.35, ASSUMED: 0.6}
PRIOR_CELLS = 10  # cells of each kind that are taken to have needed what was expected, beside those that are done
OVERDUE = 0.5  # a cell that has outlived its expected iterations will take this share of them more
CACHED_SECONDS = 5.0
# As expected, added to what was measured while that is little: so many seconds, or where several batches share a device
# this share of all. The first ones there are small and tell little of the others.
FIRST_SECONDS, FIRST_SHARE = 5.0, 0.1


class Estimate(NamedTuple):
    """Seconds of a plan: `likely` within `low` and `high`; `longest` if no cell converges before its limit."""

    likely: float
    low: float
    high: float
    longest: float


class Planned(NamedTuple):
    """A cell that is to be trained: what is expected of it, and which others tell something of it."""

    cell: Cell
    iterations: float
    seconds: float  # of one iteration, with its share of all that the batch does besides
    source: str  # of the iterations
    fits: str  # whose iterations tell of its own


@dataclass
class Forecast:
    """The cells of a plan with what each is expected to cost; told what happens, it says how much is left."""

    batches: Sequence[Batch]
    costs: Costs
    iterations: Iterations
    device: str = "cpu"
    capacity: Capacity = ONE_AT_A_TIME
    workers: int = 1
    covered: float = 0.0  # share of the expected time in shapes that were timed
    load: float = 1.0  # of the machine, which the costs include
    # By the kind of step: expected seconds of cells that are done, of steps made, and those of our cores for them.
    _done: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _modelled: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _spent: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _fits: dict[str, list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0, 0.0]))
    _training: dict[str, int] = field(default_factory=dict)  # iterations of cells in training
    _looked: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        self.courses = [course(batch, self.costs, self.iterations, self.device) for batch in self.batches]
        shared, self._likely = shares_of(self.courses, self.capacity), self._together(self.courses)
        self._share = self._likely / max(sum(shared), 1e-9)
        self.planned: dict[str, Planned] = {}
        for one, seconds in zip(self.courses, shared, strict=True):
            expected = [self.iterations.expected(cell) for cell in one.batch]
            each = self._share * seconds / sum(max(1.0, number) for number, _ in expected)
            kind = kind_of(one.batch[0])
            for cell, (number, source) in zip(one.batch, expected, strict=True):
                fits = f"{cell.dataset} {kind}"
                self.planned[cell.key] = Planned(cell, max(1.0, number), each, source, fits)
        self.start()

    def start(self) -> None:
        """The run begins now."""
        self.began, self._own = time.monotonic(), core_seconds()

    def _together(self, courses: Sequence[Course]) -> float:
        if self.workers > 1 and self.capacity.most == 1:
            return seconds_of_processes(courses, self.workers)
        return seconds_of(courses, self.capacity) / self.workers

    def estimate(self) -> Estimate:
        """Before anything has run."""
        likely = self._likely
        most = [course(batch, self.costs, self.iterations, self.device, to_the_limit=True) for batch in self.batches]
        longest = max(likely, self._together(most))
        pace = self.covered * TIMED_ERROR + (1 - self.covered) * MODEL_ERROR
        iterations = sum(ITERATION_ERROR[source] * share for source, share in self.sources().items())
        error = math.hypot(pace, iterations, BUSY_ERROR if self.load > BUSY else 0.0)
        high = likely * math.exp(error)
        return Estimate(likely, likely * math.exp(-error), high, max(longest, high))

    def sources(self) -> dict[str, float]:
        """Where the numbers of iterations come from, by their share of the expected time."""
        found: dict[str, float] = defaultdict(float)
        for one in self.planned.values():
            found[one.source] += one.iterations * one.seconds
        total = sum(found.values())
        return {source: seconds / total for source, seconds in sorted(found.items(), key=lambda item: -item[1])}

    def seen(self, live: Sequence[Cell], inside: int, iteration: int) -> None:
        """These cells of a batch are at this iteration; so many are in the batch, some of them may have stopped."""
        known = tuple(cell for cell in live if cell.key in self.planned)
        if not known:
            return
        before = self._training.get(known[0].key, iteration)  # of the first look nothing is known
        step = self.costs.step(known[0], inside).alone
        if every := known[0].evaluate_every:
            step += self.costs.evaluation(known[0], len(known), final=False).alone / every
        self._made(known[0], self._share * step * (iteration - before))
        self._training.update(dict.fromkeys((cell.key for cell in known), iteration))

    def finished(self, record: Record) -> None:
        """A cell has its record."""
        if (one := self.planned.pop(record.key, None)) is None:
            return
        self._training.pop(record.key, None)
        made = record.result.iterations or one.iterations
        self._done[kind_of(one.cell)] += made * one.seconds
        fits = self._fits[one.fits]
        fits[0], fits[1] = fits[0] + made, fits[1] + one.iterations
        evaluation = self.costs.evaluation(one.cell, 1, final=True).work
        self._made(one.cell, self._share * (evaluation + RECORD_SECONDS[self.device]))

    def _made(self, cell: Cell, modelled: float) -> None:
        """What this process did since the last event was for such steps, of so many seconds by the model."""
        kind, now = kind_of(cell), core_seconds()
        self._modelled[kind] += modelled
        self._spent[kind] += now - self._own
        self._own = now

    def skipped(self, cells: Iterable[Cell]) -> None:
        """Another process has trained them: what they cost counts as done in the same time."""
        for cell in cells:
            if (one := self.planned.pop(cell.key, None)) is not None:
                self._done[kind_of(cell)] += one.iterations * one.seconds

    def seconds_left(self) -> float:
        """Expected for what is left, times how much slower than expected it has gone so far. In any thread."""
        moment = time.monotonic()
        if self._looked is None or moment - self._looked[0] > CACHED_SECONDS:
            self._looked = moment, self._seconds_left(moment - self.began)
        return max(0.0, self._looked[1] - (moment - self._looked[0]))

    def _seconds_left(self, elapsed: float) -> float:
        left, done = 0.0, sum(self._progress().values())
        for key, one in list(self.planned.items()):
            made = self._training.get(key, 0)
            took, expected = self._fits.get(one.fits, (0.0, 0.0))
            prior = PRIOR_CELLS * one.iterations
            number = one.iterations * (took + prior) / (expected + prior)
            more = number - made if made < number else OVERDUE * made
            left += one.seconds * max(0.0, min(more, max(one.cell.iterations, 1) - made))
        first = FIRST_SECONDS if self.capacity.most == 1 else max(FIRST_SECONDS, FIRST_SHARE * self._likely)
        return left * (elapsed + first) / (done + first)

    def lessons(self) -> dict[str, tuple[float, float]]:
        """For each kind of step that was done, the seconds it took on the device and those expected. Where batches
        share a device, they share the difference too."""
        if self.capacity.most == 1:
            alone = self._share * self.load  # what makes the expected time that of this process among others
            return {kind: (self._spent[kind], some / alone) for kind, some in self._modelled.items()}
        elapsed, done = time.monotonic() - self.began, self._progress()
        return {kind: (elapsed * some / sum(done.values()), some) for kind, some in done.items() if some > 0}

    def _progress(self) -> dict[str, float]:
        """Expected seconds of what is done so far, by the kind of step."""
        found = dict(self._done)
        for key, made in list(self._training.items()):
            if (one := self.planned.get(key)) is not None:
                kind = kind_of(one.cell)
                found[kind] = found.get(kind, 0.0) + made * one.seconds
        return found


def forecast_share(batches: Sequence[Batch], records: Iterable[Record], device: str, capacity: Capacity) -> float:
    """How much of the expected time of all these batches the cells with records had, going by their iterations and by
    what is remembered of this device."""
    records = list(records)
    forecast = Forecast(batches, Costs(known_pace(device)), Iterations(records), device, capacity)
    total, done = 0.0, 0.0
    made = {record.key: record.result.iterations or 0 for record in records}
    for key, one in forecast.planned.items():
        seconds = one.seconds * max(1.0, made.get(key, one.iterations))
        total, done = total + seconds, done + (seconds if key in made else 0.0)
    return done / total if total else 1.0
