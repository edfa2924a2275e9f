"""The time that a run takes: an interval before it starts, and the time left while it runs.

The run is a sum over kinds of batches: cells, times steps of a cell, times seconds of a step.
`cost` says what a step takes, at first from timed steps of three kinds, then from the cells that
have finished. How many steps a cell makes before it converges is known of kinds of which cells have
finished, and is guessed from these and from earlier runs for all others. Replays of recorded runs
are the test: `scripts/benchmark/clock.py`.
"""

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
from dlmexp.experiment.running.cost import BatchShape, Measured, StepCost, fitted
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
TRIAL_PLACES = (0.0, 0.5, 1.0)
TRIAL_SECONDS = 0.05  # for each of them
# A kind whose steps are expected to take longer is not timed: its cost is extrapolated.
LONGEST_TRIAL_STEP = 0.25
ALL_TRIALS_SECONDS = 3.0
# The interval of an announcement is the estimate divided and multiplied by this number.
UNCERTAINTY = 1.7
# Batches at the same time on a GPU share it: their steps take less than that of trials.
SHARED_GPU = 0.6
# A cell that has outlived the mean of its kind is expected to take at least this share of the mean
# number of iterations more.
OVERTIME_SHARE = 0.25
# Seconds of the run in which its expected pace counts as much as the measured one.
PACE_SECONDS = 10.0


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
        left: Those still to make.
        made_without_record: Those that cells in training, and other processes, have made.
    """

    left: float
    made_without_record: float


@dataclass
class KindCount:
    """The cells of one kind of batch: how many have no record, and what the finished ones took."""

    shape: BatchShape
    largest: Batch = ()  # the largest of its batches, of which steps are timed
    waiting: int = 0
    by_others: int = 0  # cells that other processes have trained
    finished: int = 0  # cells that were trained here, with their iterations and seconds
    iterations: int = 0
    seconds: float = 0.0
    reached: dict[str, int] = field(default_factory=dict)  # iterations of cells in training

    def note_finished(self, cells: int, iterations: int, seconds: float) -> None:
        """Note that cells were trained here, with all their iterations and seconds."""
        self.waiting -= cells
        self.finished += cells
        self.iterations += iterations
        self.seconds += seconds

    def steps(self, expected: float) -> StepCounts:
        """Return the steps of the cells that have not finished here.

        May be called in any thread.

        Args:
            expected: The number of steps that a cell is expected to need.
        """
        in_training = list(self.reached.values())
        waiting = max(0, self.waiting - len(in_training))
        left = expected * waiting
        for reached in in_training:
            until_expected_end = max(expected - reached, OVERTIME_SHARE * reached)
            until_limit = max(0, self.shape.limit - reached)
            left += min(until_expected_end, until_limit)
        return StepCounts(left, sum(in_training) + expected * self.by_others)

    @property
    def share(self) -> float:
        """The mean share of its limit that a finished cell has needed."""
        return self.iterations / self.finished / self.shape.limit

    @property
    def measured(self) -> Measured:
        """The mean time of the steps of finished cells."""
        return Measured(self.shape, self.seconds / self.iterations)


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
        self.trials: list[Measured] = []

    def _add(self, batches: Sequence[Batch]) -> None:
        for batch in sorted(batches, key=len, reverse=True):
            group = batch[0].group
            if group not in self.kinds:
                self.kinds[group] = KindCount(BatchShape.of(batch), batch)
            self.kinds[group].waiting += len(batch)
            self.cells += len(batch)
        self.batches += len(batches)

    def replace_later(self, batches: Sequence[Batch]) -> None:
        """Put the batches that are known now in the place of what stood for them."""
        for batch in self.later:
            self.kinds[batch[0].group].waiting -= len(batch)
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
        for place in TRIAL_PLACES:
            kind = self._kind_to_time(place)
            if kind is None or kind in timed:
                continue
            timed.append(kind)
            batch = kind.largest
            if self.device == "cpu":
                batch = batch[:1]  # cells of a batch take turns, so one is enough
            try:
                seconds = step_seconds(batch, prepared, target, threads)
            except Exception as error:
                if not is_error_of_plugin(error, batch[0]):
                    raise
                continue  # in training the same error will be recorded
            shape = replace(kind.shape, cells=len(batch))
            self.trials.append(Measured(shape, seconds / len(batch)))
            if perf_counter() - began > ALL_TRIALS_SECONDS / 2:
                break

    def _kind_to_time(self, place: float) -> KindCount | None:
        """Return the kind at a place among those sorted by cost; None if there is none.

        Those are left out whose steps would take too long, by the trials so far.
        """
        timed = [kind for kind in self.kinds.values() if kind.shape.is_timed]
        timed.sort(key=lambda kind: kind.shape.work)
        if self.trials:
            cost = self._cost()
            timed = [kind for kind in timed if cost.seconds(kind.shape) <= LONGEST_TRIAL_STEP]
        return timed[round(place * (len(timed) - 1))] if timed else None

    def announced(self, workers: int) -> TimeInterval | None:
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
            shape = kind.shape
            per_cell = cost.seconds(shape) * shape.limit * shape.usual_share
            total += kind.waiting * per_cell
            longest_batch = max(longest_batch, shape.cells * per_cell)
        # Work is divided evenly, except that the longest batch may train while the other
        # processes have nothing left to do.
        expected = total / workers + longest_batch * (1 - 1 / workers)
        return TimeInterval(expected / UNCERTAINTY, expected * UNCERTAINTY)

    def _cost(self) -> StepCost:
        """Return the cost of a step, from finished cells, or before there are any from trials."""
        finished = [kind.measured for kind in self.kinds.values() if kind.seconds > 0]
        if finished:
            return fitted(finished, self.device)
        cost = fitted(self.trials, self.device)
        if self.device == "cuda":
            cost = replace(cost, seconds_per_work=SHARED_GPU * cost.seconds_per_work)
        return cost

    def seconds_left(self, elapsed: float) -> float | None:
        """Return the time left of a run after `elapsed` seconds.

        None before anything is known: without trials, before a cell has finished. May be called in
        any thread.
        """
        has_finished = any(kind.seconds > 0 for kind in self.kinds.values())
        if not has_finished and not self.trials:
            return None
        cost = self._cost()
        shares = self._expected_shares()
        spent = 0.0
        left = 0.0
        for kind in self.kinds.values():
            expected = kind.shape.limit * shares[kind.shape.kind]
            seconds_per_step = cost.seconds(kind.shape)
            if kind.seconds > 0:
                seconds_per_step = kind.seconds / kind.iterations
            steps = kind.steps(expected)
            left += seconds_per_step * steps.left
            spent += kind.seconds + seconds_per_step * steps.made_without_record
        if has_finished:
            return elapsed * left / spent if spent else None
        # Before a cell has finished, the pace is partly that of the trials.
        return left * (elapsed + PACE_SECONDS) / (spent + PACE_SECONDS)

    def _expected_shares(self) -> dict[Hashable, float]:
        """Return the share of its limit that a cell of each kind is expected to need.

        It is the mean of the finished cells of the kind, else of finished kinds of its family and
        task with the usual share as one more kind.
        """
        by_family: dict[tuple[str, str], list[float]] = defaultdict(list)
        for kind in self.kinds.values():
            if kind.finished:
                by_family[kind.shape.family, kind.shape.task].append(kind.share)
        shares = {}
        for name, kind in self.kinds.items():
            shape = kind.shape
            if kind.finished:
                shares[name] = kind.share
            elif shape.may_converge:
                alike = by_family[shape.family, shape.task]
                shares[name] = fmean([*alike, shape.usual_share])
            else:
                shares[name] = 1.0
        return shares

    def reach(self, cell: Cell, iteration: int) -> None:
        """Note how far a cell in training is."""
        kind = self.kinds.get(cell.group)
        if kind is not None:
            kind.reached[cell.key] = iteration

    def finish(self, cell: Cell, result: Result | None) -> None:
        """Note that a cell has a record: with this result here, or (None) from another process."""
        kind = self.kinds.get(cell.group)
        if kind is None:
            return
        kind.reached.pop(cell.key, None)
        if result is None:
            kind.waiting -= 1
            kind.by_others += 1
        else:
            kind.note_finished(1, result.iterations or 1, result.seconds or 0.0)
