"""The time that a run takes: an interval before it starts, and the time left while it runs.

The run is a sum over kinds of batches: cells, times steps of a cell, times seconds of a step.
`cost` says what a step takes, at first from timed steps of three kinds, then from the cells that
have finished. How many steps a cell makes before it converges is known of kinds of which cells have
finished, and is guessed from these and from earlier runs for all others. Replays of recorded runs
are the test: `scripts/benchmark/clock.py`.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from time import perf_counter
from typing import NamedTuple

from dlmexp.core.training.metrics import evaluate
from dlmexp.core.training.state import State
from dlmexp.core.training.stepper import make_stepper
from dlmexp.experiment.plan.cell import Batch, Cell
from dlmexp.experiment.records.record import Result
from dlmexp.experiment.running.cost import (
    USUAL_LATENCY_EXPONENTS,
    BatchShape,
    Measurement,
    StepCost,
    Steps,
    StepShares,
    fit_step_cost,
)
from dlmexp.experiment.running.plugin_errors import is_error_of_plugin
from dlmexp.experiment.running.process import Target
from dlmexp.experiment.running.programs import Splits, program, settings

TRIAL_STEPS = 10_000  # the limit of steps in a trial, even if the batch makes fewer
# A run with less work is not timed. If nothing converges, it takes some 20 seconds on a slow
# machine, or a minute on an H200.
SHORT_RUN_WORK = {"cpu": 6e10, "cuda": 2e14}
SHORT_RUN_LATENCY = 1e7  # multiplications that take as long as the fixed cost of a step
# Kinds that are timed before the run, by their place among those sorted by cost: a small, a middle
# and a large one.
TRIAL_QUANTILES = (0.0, 0.5, 1.0)
TRIAL_SECONDS = 0.05  # for each of them
# A kind whose steps are expected to take longer is not timed: its cost is extrapolated.
MAX_TRIAL_STEP_SECONDS = 0.25
ALL_TRIALS_SECONDS = 3.0
# The interval of an announcement is the estimate divided and multiplied by this number.
UNCERTAINTY = 1.7
# A cell that has outlived the mean of its kind is expected to take at least this share of the mean
# number of iterations more.
OVERTIME_SHARE = 0.25
# Seconds of the run in which its expected pace counts as much as the measured one.
PACE_SECONDS = 10.0
MIN_STEPS_FOR_PACE = 100  # of a batch, from which on they say how fast the run is, without trials
# The speed of a batch is an average over about so many seconds.
SPEED_SECONDS = 20.0


class TimeInterval(NamedTuple):
    """Between how many seconds a run is expected to take."""

    least: float
    most: float


def step_seconds(
    cells: Batch, prepared: Splits, target: Target, threads: int = 1, seconds: float = TRIAL_SECONDS
) -> float:
    """Return the mean seconds of a step of a batch that trains alone.

    A step is objective, gradient, Adam and stopping rule (on a GPU a replayed graph), and its share
    of the evaluations during training.

    Args:
        cells: the batch.
        prepared: returns the data of a cell.
        target: the device.
        threads: CPU threads.
        seconds: how long to measure.
    """
    # It takes a while to load, and short runs do not need it.
    from torch.utils.benchmark import Timer

    config = settings(cells[0], target)
    config = replace(config, iterations=max(config.iterations, TRIAL_STEPS))
    batch = program(cells, prepared, None, target)
    state = State.fresh(batch.initial(), config)

    def mean_seconds(call: Callable[[], object]) -> float:
        call()  # the first call is slower
        began = perf_counter()
        call()
        once = perf_counter() - began
        if once > seconds:
            return once
        timer = Timer("call()", globals={"call": call}, num_threads=threads)
        # Not the best: in the run, too, other programs take their part of the machine.
        return timer.blocked_autorange(min_run_time=seconds).mean

    def evaluate_test_rows() -> object:
        posterior = batch.posterior(state.values, state.jitter)
        return evaluate(batch, posterior, False, ("test",))

    total = mean_seconds(make_stepper(batch, state, config))
    if config.evaluate_every:
        total += mean_seconds(evaluate_test_rows) / config.evaluate_every
    return total


class StepCounts(NamedTuple):
    """Steps of the cells of one kind, without those that have finished here.

    Attributes:
        of_waiting: Those of batches that have not started.
        of_training: Those that batches in training still make.
        made: Those that cells in training, and other processes, have made.
    """

    of_waiting: Steps
    of_training: Steps
    made: Steps


@dataclass
class KindCount:
    """The cells of one kind of batch: how many have no record, and what the finished ones took."""

    shape: BatchShape
    largest: Batch = ()  # the largest of its batches, of which steps are timed
    waiting: int = 0
    trained_elsewhere: int = 0  # cells that other processes have trained
    finished: int = 0  # cells that were trained here, with their iterations and seconds
    iterations: int = 0
    longest: int = 0  # iterations of the longest of them
    seconds: float = 0.0
    reached: dict[str, int] = field(default_factory=dict)  # iterations of cells in training
    stopped: set[str] = field(default_factory=set)  # cells that only wait for their record
    speed: float | None = None  # steps per second of a batch in training, of late

    def note_speed(self, steps_per_second: float, seconds: float) -> None:
        """Note how fast a batch has been for some seconds: what was before counts less and less."""
        if self.speed is None:
            self.speed = steps_per_second
        share = 1 - math.exp(-seconds / SPEED_SECONDS)
        self.speed += share * (steps_per_second - self.speed)

    def note_finished(self, cells: int, iterations: int, longest: int, seconds: float) -> None:
        """Note that cells were trained here.

        Args:
            cells: How many.
            iterations: The sum of their iterations.
            longest: The largest number of iterations of one of them.
            seconds: The sum of their shares of the time.
        """
        self.waiting -= cells
        self.finished += cells
        self.iterations += iterations
        self.longest = max(self.longest, longest)
        self.seconds += seconds

    def steps(self, expected: StepShares) -> StepCounts:
        """Return the steps of the cells that have not finished here.

        May be called in any thread.

        Args:
            expected: What a cell, and the last cell of a batch, are expected to need.
        """
        mean = expected.mean * self.shape.limit
        longest = expected.longest * self.shape.limit
        in_training = list(self.reached.values())
        waiting = max(0, self.waiting - len(in_training) - len(self.stopped))
        batches_in_training = math.ceil(len(in_training) / self.shape.cells)
        furthest = max(in_training, default=0)
        return StepCounts(
            of_waiting=Steps(longest * waiting / self.shape.cells, mean * waiting),
            of_training=Steps(
                batches_in_training * self._until_end(longest, furthest),
                sum(self._until_end(mean, reached) for reached in in_training),
            ),
            made=Steps(
                batches_in_training * furthest + longest * self.trained_elsewhere / self.shape.cells,
                sum(in_training) + mean * self.trained_elsewhere,
            ),
        )

    def seconds_of_training(self, expected: StepShares) -> float | None:
        """Return how long the batches in training still take at their speed; None if unknown."""
        in_training = list(self.reached.values())
        if not in_training:
            return 0.0
        if not self.speed:
            return None
        return self._until_end(expected.longest * self.shape.limit, max(in_training)) / self.speed

    def _until_end(self, expected: float, reached: int) -> float:
        """Return how many steps more are expected of something that has made some."""
        until_expected_end = max(expected - reached, OVERTIME_SHARE * reached)
        return min(until_expected_end, max(0, self.shape.limit - reached))

    @property
    def shares(self) -> StepShares:
        """The shares of their limit that finished cells have needed."""
        limit = self.shape.limit
        return StepShares(self.iterations / self.finished / limit, self.longest / limit)

    @property
    def measured(self) -> Measurement:
        """The time of the steps of finished cells."""
        of_batches = self.iterations / self.shape.cells
        if self.waiting == 0:
            of_batches = max(of_batches, self.longest * self.finished / self.shape.cells)
        return Measurement(self.shape, Steps(of_batches, self.iterations), self.seconds)


class Clock:
    """What is known of the time that batches take. `Progress` notes what happens."""

    def __init__(self, batches: Sequence[Batch], device: str = "cpu", later: Sequence[Batch] = ()):
        """Begin with what is planned.

        Args:
            batches: What is trained.
            device: Where.
            later: What stands for the batches that are known after these have been trained.
        """
        self.batches = 0
        self.cells = 0
        self.device = device
        self.kinds: dict[Hashable, KindCount] = {}
        self.later = later
        self._add(batches)
        self._add(later)
        self.trials: list[Measurement] = []

    def _add(self, batches: Sequence[Batch]) -> None:
        for batch in sorted(batches, key=len, reverse=True):
            group = batch[0].shared_values
            if group not in self.kinds:
                self.kinds[group] = KindCount(BatchShape.of(batch), batch)
            self.kinds[group].waiting += len(batch)
            self.cells += len(batch)
        self.batches += len(batches)

    def replace_later(self, batches: Sequence[Batch]) -> None:
        """Put the batches that are known now in the place of what stood for them."""
        for batch in self.later:
            self.kinds[batch[0].shared_values].waiting -= len(batch)
            self.cells -= len(batch)
        self.batches -= len(self.later)
        self.later = ()
        self._add(batches)

    def is_short(self) -> bool:
        """Return whether the run takes so little time that timing steps is not worth it."""
        work = 0.0
        for kind in self.kinds.values():
            step = SHORT_RUN_LATENCY / kind.shape.cells + kind.shape.work
            work += kind.waiting * kind.shape.limit * step
        return work < SHORT_RUN_WORK[self.device]

    def time_steps(self, prepared: Splits, target: Target, threads: int) -> None:
        """Time steps of kinds of a small, a middle and a large cost, within a few seconds.

        Args:
            prepared: returns the data of a cell.
            target: the device.
            threads: CPU threads of each process.
        """
        began = perf_counter()
        timed: list[KindCount] = []
        for place in TRIAL_QUANTILES:
            kind = self._kind_to_time(place)
            if kind is None or kind in timed:
                continue
            timed.append(kind)
            batch = kind.largest
            if self.device == "cpu":
                # Each thread trains a part of the batch, and its cells take turns: one is enough.
                batch = batch[:threads]
            try:
                seconds = step_seconds(batch, prepared, target, threads)
            except Exception as error:
                if not is_error_of_plugin(error, batch[0]):
                    raise
                continue  # in training the same error will be recorded
            self.trials.append(Measurement(kind.shape, Steps(1, len(batch)), seconds, alone=True))
            if perf_counter() - began > ALL_TRIALS_SECONDS / 2:
                break

    def _kind_to_time(self, place: float) -> KindCount | None:
        """Return the kind at a place among those sorted by cost; None if there is none.

        Those are left out whose steps would take too long, by the trials so far.
        """
        timed = [kind for kind in self.kinds.values() if kind.shape.is_timed]
        timed.sort(key=lambda kind: kind.shape.work)
        if self.trials:
            timed = [kind for kind in timed if self._trial_seconds(kind) <= MAX_TRIAL_STEP_SECONDS]
        return timed[round(place * (len(timed) - 1))] if timed else None

    def _trial_seconds(self, kind: KindCount) -> float:
        """Return how long a step of a trial is expected to take, by the trials so far."""
        cells = 1 if self.device == "cpu" else kind.shape.cells
        return fit_step_cost(self.trials, self.device).seconds(kind.shape, Steps(1, cells))

    def expected_interval(self, workers: int) -> TimeInterval | None:
        """Return between how many seconds the run is expected to take; None without trials.

        Args:
            workers: processes that train.
        """
        if not self.trials:
            return None
        cost = self._cost()
        total = 0.0
        longest_batch = 0.0
        for kind in self.kinds.values():
            seconds = cost.seconds(kind.shape, kind.steps(kind.shape.usual).of_waiting)
            total += seconds
            if kind.waiting:
                longest_batch = max(longest_batch, seconds * kind.shape.cells / kind.waiting)
        # Work is divided evenly, except that the longest batch may train while the other
        # processes have nothing left to do.
        expected = total / workers + longest_batch * (1 - 1 / workers)
        return TimeInterval(expected / UNCERTAINTY, expected * UNCERTAINTY)

    def _cost(self) -> StepCost:
        """Return the cost of steps, from finished cells, or before there are any from trials.

        Without both the seconds mean nothing, but their ratios do.
        """
        finished = [
            kind.measured
            for kind in self.kinds.values()
            if kind.seconds > 0 and kind.iterations > 0
        ]
        if finished:
            return fit_step_cost(finished, self.device)
        if not self.trials:
            return StepCost(10 ** USUAL_LATENCY_EXPONENTS[self.device], 1.0, self.device)
        return fit_step_cost(self.trials, self.device)

    def seconds_left(self, elapsed: float) -> float | None:
        """Return the time left of a run after `elapsed` seconds.

        None before anything is known: without trials, before a cell has made steps. May be called
        in any thread.
        """
        has_finished = any(kind.seconds > 0 for kind in self.kinds.values())
        if not has_finished and not self.trials and not self._trains_for_a_while():
            return None
        cost = self._cost()
        shares = self._expected_shares()
        spent = 0.0
        of_waiting = 0.0
        of_training = 0.0
        until_end: list[float | None] = []
        for kind in self.kinds.values():
            expected = shares[kind.shape.kind]
            steps = kind.steps(expected)
            of_waiting += cost.seconds(kind.shape, steps.of_waiting)
            of_training += cost.seconds(kind.shape, steps.of_training)
            spent += kind.seconds + cost.seconds(kind.shape, steps.made)
            until_end.append(kind.seconds_of_training(expected))
        if has_finished or not self.trials:
            pace = elapsed / spent if spent else None
        else:
            # Before a cell has finished, the pace is partly that of the trials.
            pace = (elapsed + PACE_SECONDS) / (spent + PACE_SECONDS)
        if pace is None:
            return None
        of_waiting *= pace
        of_training *= pace
        if not of_training:
            return of_waiting
        known = [seconds for seconds in until_end if seconds is not None]
        if len(known) < len(until_end):
            return of_waiting + of_training
        # The fewer batches wait, the more the slowest of those in training decides. At its speed
        # it would take longer than it will, as it gets faster when others end: the geometric mean
        # is the best guess in recorded runs.
        share = of_waiting / (of_waiting + of_training)
        end = math.sqrt(of_training * max(known))
        return of_waiting + share * of_training + (1 - share) * end

    def _trains_for_a_while(self) -> bool:
        """Return whether a batch in training has made enough steps to say what the others take."""
        for kind in self.kinds.values():
            if max(list(kind.reached.values()), default=0) >= MIN_STEPS_FOR_PACE:
                return True
        return False

    def _expected_shares(self) -> dict[Hashable, StepShares]:
        """Return the shares of its limit that cells of each kind are expected to need.

        They are those of the finished cells of the kind, else of finished kinds of its family and
        task with the usual shares as one more kind.
        """
        by_family: dict[tuple[str, str], list[StepShares]] = defaultdict(list)
        for kind in self.kinds.values():
            if kind.finished:
                by_family[kind.shape.family, kind.shape.task].append(kind.shares)
        shares = {}
        for name, kind in self.kinds.items():
            shape = kind.shape
            alike = [*by_family[shape.family, shape.task], shape.usual]
            if not shape.may_converge:
                shares[name] = shape.usual
            elif kind.finished:
                shares[name] = kind.shares
            else:
                shares[name] = _mean_shares(alike)
        return shares

    def note_iteration(self, cell: Cell, iteration: int) -> None:
        """Note how far a cell in training is."""
        kind = self.kinds.get(cell.shared_values)
        if kind is not None:
            kind.reached[cell.key] = iteration

    def note_speed(self, cell: Cell, steps_per_second: float, seconds: float) -> None:
        """Note how fast the batch of a cell has been for some seconds."""
        kind = self.kinds.get(cell.shared_values)
        if kind is not None and seconds > 0:
            kind.note_speed(steps_per_second, seconds)

    def note_stop(self, cell: Cell) -> None:
        """Note that a cell has made its last step; it has no record yet."""
        kind = self.kinds.get(cell.shared_values)
        if kind is not None and kind.reached.pop(cell.key, None) is not None:
            kind.stopped.add(cell.key)

    def note_record(self, cell: Cell, result: Result | None) -> None:
        """Note that a cell has a record: with this result here, or (None) from another process."""
        kind = self.kinds.get(cell.shared_values)
        if kind is None:
            return
        kind.reached.pop(cell.key, None)
        kind.stopped.discard(cell.key)
        if result is None:
            kind.waiting -= 1
            kind.trained_elsewhere += 1
        else:
            iterations = result.iterations or 1
            kind.note_finished(1, iterations, iterations, result.seconds or 0.0)


def _mean_shares(several: Sequence[StepShares]) -> StepShares:
    """Return the mean of both shares."""
    return StepShares(
        fmean(shares.mean for shares in several), fmean(shares.longest for shares in several)
    )
