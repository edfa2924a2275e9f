"""The time that a run takes: an interval before it starts, and the time left while it runs.

The time is a sum over kinds of batches: cells, times steps of a cell, times seconds of a step.

- Seconds of a step: `cost` estimates them, first from timed steps of three kinds (trials), then
  from the cells that have finished.
- Steps of a cell until it converges: the mean of the finished cells of its kind. Before any of them
  has finished, they are guessed from similar kinds and from earlier runs.

`scripts/benchmark/clock.py` tests the estimates by replays of recorded runs.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from time import perf_counter
from typing import NamedTuple

from msgspec.structs import replace as replace_fields

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
from dlmexp.experiment.running.programs import PrepareSplit, program, settings

# The limit of steps in a trial, which may be above that of the batch, so that steps can be timed
# for long enough.
TRIAL_STEPS = 10_000
# Multiplications of a run; steps are not timed before a run with fewer. If no cell converges, such
# a run takes some 20 seconds on a slow machine, or a minute on an H200.
SHORT_RUN_WORK = {"cpu": 6e10, "cuda": 2e14}
SHORT_RUN_LATENCY = 1e7  # the fixed cost of a step in multiplications, for `is_short`
# The kinds that are timed before the run, as quantiles of the work of a step: the smallest, a
# middle and the largest one.
TRIAL_QUANTILES = (0.0, 0.5, 1.0)
TRIAL_SECONDS = 0.05  # for each of these kinds
# A kind whose steps are expected to take longer is not timed: its cost is extrapolated.
MAX_TRIAL_STEP_SECONDS = 0.25
ALL_TRIALS_SECONDS = 3.0  # for all trials together
# The expected interval reaches from the estimate divided by this factor to the estimate times it.
UNCERTAINTY = 1.7
# A cell that has made more steps than expected is expected to go on for at least this share of the
# steps that it has made.
OVERTIME_SHARE = 0.25
# After this many seconds of a run, the pace that the trials predict and the measured one count
# equally.
PACE_SECONDS = 10.0
# Without trials, the pace is known once a batch has made this many steps.
MIN_STEPS_FOR_PACE = 100
# The speed of a batch is an exponential moving average with this time constant.
SPEED_SECONDS = 20.0


class TimeInterval(NamedTuple):
    """The shortest and the longest time that a run is expected to take, in seconds."""

    least: float
    most: float


def step_seconds(
    cells: Batch,
    prepare_split: PrepareSplit,
    target: Target,
    threads: int = 1,
    seconds: float = TRIAL_SECONDS,
) -> float:
    """Return the mean seconds of a step of a batch that trains alone.

    A step consists of objective, gradient, Adam and stopping rule; on a GPU it is a replayed graph.
    Its share of the evaluations during training is added.

    Args:
        cells: the batch.
        prepare_split: returns the data of a cell.
        target: the device.
        threads: the number of CPU threads.
        seconds: how long to measure.
    """
    # Imported here as it takes a while to load, and short runs do not need it.
    from torch.utils.benchmark import Timer

    trial_settings = settings(cells[0], target)
    iterations = max(trial_settings.iterations, TRIAL_STEPS)
    trial_settings = replace(trial_settings, iterations=iterations)
    # The time of a step does not depend on where training starts: the first rows as inducing inputs
    # and no pilot fit cost nothing.
    trial_cells = tuple(replace_fields(cell, pilot=0, inducing="first") for cell in cells)
    batch = program(trial_cells, prepare_split, None, target)
    state = State.fresh(batch.initial(), trial_settings)

    def mean_seconds(call: Callable[[], object]) -> float:
        call()  # not measured: the first call is slower
        began = perf_counter()
        call()
        seconds_of_call = perf_counter() - began
        if seconds_of_call > seconds:
            return seconds_of_call
        timer = Timer("call()", globals={"call": call}, num_threads=threads)
        # The mean and not the minimum, as other programs slow down the run, too.
        return timer.blocked_autorange(min_run_time=seconds).mean

    def evaluate_test_rows() -> object:
        posterior = batch.posterior(state.values, state.jitter)
        return evaluate(batch, posterior, calibration=False, parts=("test",))

    total = mean_seconds(make_stepper(batch, state, trial_settings))
    if trial_settings.evaluate_every:
        total += mean_seconds(evaluate_test_rows) / trial_settings.evaluate_every
    return total


class StepCounts(NamedTuple):
    """Steps of the cells of one kind that have not finished in this process.

    Attributes:
        of_waiting: The steps of batches that have not started.
        of_training: The steps that batches in training have yet to make.
        made: The steps that batches in training, and other processes, have made.
    """

    of_waiting: Steps
    of_training: Steps
    made: Steps


@dataclass
class KindCount:
    """The cells of one kind of batch: how many have no record, and what the finished ones took."""

    shape: BatchShape
    largest: Batch = ()  # the largest of its batches, whose steps are timed
    waiting: int = 0  # number of cells without a record, also of those in training
    trained_elsewhere: int = 0  # number of cells that other processes have trained
    finished: int = 0  # number of cells that this process has trained
    iterations: int = 0  # sum over the finished cells
    longest: int = 0  # iterations of the longest finished cell
    seconds: float = 0.0  # sum over the finished cells
    reached: dict[str, int] = field(default_factory=dict)  # iterations of cells in training, by key
    stopped: set[str] = field(default_factory=set)  # keys of cells that only wait for their record
    speed: float | None = None  # recent steps per second of a batch in training

    def note_speed(self, steps_per_second: float, seconds: float) -> None:
        """Note how fast a batch was in the last seconds (an exponential moving average)."""
        if self.speed is None:
            self.speed = steps_per_second
        share = 1 - math.exp(-seconds / SPEED_SECONDS)
        self.speed += share * (steps_per_second - self.speed)

    def note_finished(self, cells: int, iterations: int, longest: int, seconds: float) -> None:
        """Note that cells were trained here.

        Args:
            cells: The number of cells.
            iterations: The sum of their iterations.
            longest: The iterations of the longest cell.
            seconds: The sum of their shares of the training time.
        """
        self.waiting -= cells
        self.finished += cells
        self.iterations += iterations
        self.longest = max(self.longest, longest)
        self.seconds += seconds

    def steps(self, expected: StepShares) -> StepCounts:
        """Return the steps of the cells that have not finished in this process.

        May be called in any thread.

        Args:
            expected: The expected steps of a cell, and of the last cell of a batch.
        """
        mean = expected.mean * self.shape.limit
        longest = expected.longest * self.shape.limit
        in_training = list(self.reached.values())  # a copy, as another thread may change `reached`
        waiting = max(0, self.waiting - len(in_training) - len(self.stopped))
        batches_in_training = math.ceil(len(in_training) / self.shape.cells)
        furthest = max(in_training, default=0)
        return StepCounts(
            of_waiting=Steps(
                of_batches=longest * waiting / self.shape.cells,
                of_cells=mean * waiting,
            ),
            of_training=Steps(
                of_batches=batches_in_training * self._remaining_steps(longest, furthest),
                of_cells=sum(self._remaining_steps(mean, reached) for reached in in_training),
            ),
            made=Steps(
                of_batches=batches_in_training * furthest
                + longest * self.trained_elsewhere / self.shape.cells,
                of_cells=sum(in_training) + mean * self.trained_elsewhere,
            ),
        )

    def seconds_of_training(self, expected: StepShares) -> float | None:
        """Return how long the batches in training still take at their speed.

        None if no speed has been measured.
        """
        in_training = list(self.reached.values())
        if not in_training:
            return 0.0
        if not self.speed:
            return None
        longest = expected.longest * self.shape.limit
        return self._remaining_steps(longest, max(in_training)) / self.speed

    def _remaining_steps(self, expected: float, reached: int) -> float:
        """Return the expected number of steps that are left.

        Args:
            expected: The number of steps that was expected in all.
            reached: The number of steps made so far.
        """
        remaining = max(expected - reached, OVERTIME_SHARE * reached)
        remaining_to_limit = max(0, self.shape.limit - reached)
        return min(remaining, remaining_to_limit)

    @property
    def shares(self) -> StepShares:
        """The steps of the finished cells as shares of their limit."""
        limit = self.shape.limit
        return StepShares(
            mean=self.iterations / self.finished / limit, longest=self.longest / limit
        )

    @property
    def measurement(self) -> Measurement:
        """The time of the steps of finished cells."""
        steps_of_batches = self.iterations / self.shape.cells
        if self.waiting == 0:
            # All batches have ended, each after the steps of its longest cell. Only the longest
            # cell of all is known, and stands for that of each batch.
            steps_of_longest_cells = self.longest * self.finished / self.shape.cells
            steps_of_batches = max(steps_of_batches, steps_of_longest_cells)
        return Measurement(self.shape, Steps(steps_of_batches, self.iterations), self.seconds)


class Clock:
    """Estimates the time that batches take, from the events that `Progress` notes."""

    def __init__(
        self, batches: Sequence[Batch], device: str = "cpu", placeholders: Sequence[Batch] = ()
    ):
        """Count the planned cells.

        Args:
            batches: The batches to train.
            device: "cpu" or "cuda".
            placeholders: Batches in place of others, which are known only when `batches` have been
                trained (`Plan.refits`).
        """
        self.batches = 0
        self.cells = 0
        self.device = device
        self.kinds: dict[Hashable, KindCount] = {}
        self.placeholders = placeholders
        self._add(batches)
        self._add(placeholders)
        self.trials: list[Measurement] = []

    def _add(self, batches: Sequence[Batch]) -> None:
        # The first batch of a kind is its largest, which determines the shape.
        for batch in sorted(batches, key=len, reverse=True):
            name = batch[0].shared_values
            if name not in self.kinds:
                self.kinds[name] = KindCount(BatchShape.of(batch), largest=batch)
            self.kinds[name].waiting += len(batch)
            self.cells += len(batch)
        self.batches += len(batches)

    def replace_placeholders(self, batches: Sequence[Batch]) -> None:
        """Count these batches in place of the placeholders."""
        for batch in self.placeholders:
            self.kinds[batch[0].shared_values].waiting -= len(batch)
            self.cells -= len(batch)
        self.batches -= len(self.placeholders)
        self.placeholders = ()
        self._add(batches)

    def is_short(self) -> bool:
        """Return whether the run takes so little time that timing steps is not worth it."""
        work = 0.0
        for kind in self.kinds.values():
            work_of_step = SHORT_RUN_LATENCY / kind.shape.cells + kind.shape.work
            work += kind.waiting * kind.shape.limit * work_of_step
        return work < SHORT_RUN_WORK[self.device]

    def time_steps(self, prepare_split: PrepareSplit, target: Target, threads: int) -> None:
        """Time steps of a cheap, a middle and an expensive kind, within a few seconds.

        Args:
            prepare_split: returns the data of a cell.
            target: the device.
            threads: the number of CPU threads of each process.
        """
        began = perf_counter()
        timed: list[KindCount] = []
        for quantile in TRIAL_QUANTILES:
            kind = self._kind_to_time(quantile)
            if kind is None or kind in timed:
                continue
            timed.append(kind)
            batch = kind.largest
            if self.device == "cpu":
                # Each thread trains some cells of a batch one after another, so timing one cell per
                # thread is enough.
                batch = batch[:threads]
            try:
                seconds = step_seconds(batch, prepare_split, target, threads)
            except Exception as error:
                if not is_error_of_plugin(error, batch[0]):
                    raise
                continue  # training will raise and record the same error
            step = Steps(of_batches=1, of_cells=len(batch))
            self.trials.append(Measurement(kind.shape, step, seconds, alone=True))
            # The next trial may take as long as all trials so far.
            if perf_counter() - began > ALL_TRIALS_SECONDS / 2:
                break

    def _kind_to_time(self, quantile: float) -> KindCount | None:
        """Return the kind at a quantile of the work of a step; None if no kind can be timed.

        Kinds whose steps would take too long, by the trials so far, are left out.
        """
        kinds = [kind for kind in self.kinds.values() if kind.shape.is_timed]
        kinds.sort(key=lambda kind: kind.shape.work)
        if self.trials:
            kinds = [kind for kind in kinds if self._trial_seconds(kind) <= MAX_TRIAL_STEP_SECONDS]
        return kinds[round(quantile * (len(kinds) - 1))] if kinds else None

    def _trial_seconds(self, kind: KindCount) -> float:
        """Return how long a step of a trial is expected to take, by the trials so far."""
        # On a CPU a trial has a cell per thread, and takes as long as one cell.
        cells = 1 if self.device == "cpu" else kind.shape.cells
        step = Steps(of_batches=1, of_cells=cells)
        return fit_step_cost(self.trials, self.device).seconds(kind.shape, step)

    def expected_interval(self, workers: int) -> TimeInterval | None:
        """Return how long the run is expected to take; None without trials.

        Args:
            workers: the number of processes that train.
        """
        if not self.trials:
            return None
        cost = self._cost()
        total = 0.0
        longest_batch = 0.0
        for kind in self.kinds.values():
            seconds = cost.seconds(kind.shape, kind.steps(kind.shape.usual_shares).of_waiting)
            total += seconds
            if kind.waiting:
                seconds_of_batch = seconds * kind.shape.cells / kind.waiting
                longest_batch = max(longest_batch, seconds_of_batch)
        # Work is divided evenly, except that the longest batch may train while the other
        # processes have nothing left to do.
        expected = total / workers + longest_batch * (1 - 1 / workers)
        return TimeInterval(expected / UNCERTAINTY, expected * UNCERTAINTY)

    def _cost(self) -> StepCost:
        """Return the cost of steps: from finished cells, or as long as there are none, from trials.

        Without either, only the ratios of its seconds have a meaning.
        """
        measurements = [
            kind.measurement
            for kind in self.kinds.values()
            if kind.seconds > 0 and kind.iterations > 0
        ]
        if measurements:
            return fit_step_cost(measurements, self.device)
        if not self.trials:
            latency = 10 ** USUAL_LATENCY_EXPONENTS[self.device]
            return StepCost(latency, seconds_per_work=1.0, device=self.device)
        return fit_step_cost(self.trials, self.device)

    def seconds_left(self, elapsed: float) -> float | None:
        """Return the time left of a run after `elapsed` seconds.

        None as long as nothing is known: no trial was made, no cell has finished, and no batch has
        made `MIN_STEPS_FOR_PACE` steps. May be called in any thread.
        """
        has_finished = any(kind.seconds > 0 for kind in self.kinds.values())
        if not has_finished and not self.trials and not self._trains_for_a_while():
            return None
        cost = self._cost()
        shares = self._expected_shares()
        # 1. Add up the seconds that the cost of a step predicts.
        spent = 0.0
        of_waiting = 0.0
        of_training = 0.0
        at_measured_speed: list[float | None] = []  # of the batches in training, by kind
        for kind in self.kinds.values():
            expected = shares[kind.shape.kind]
            steps = kind.steps(expected)
            of_waiting += cost.seconds(kind.shape, steps.of_waiting)
            of_training += cost.seconds(kind.shape, steps.of_training)
            spent += kind.seconds + cost.seconds(kind.shape, steps.made)
            at_measured_speed.append(kind.seconds_of_training(expected))
        # 2. Correct them by the pace of the run.
        pace = self._pace(elapsed, spent, has_finished)
        if pace is None:
            return None
        of_waiting *= pace
        of_training *= pace
        # 3. Take the slowest batch in training into account.
        return _with_slowest_batch(of_waiting, of_training, at_measured_speed)

    def _pace(self, elapsed: float, spent: float, has_finished: bool) -> float | None:
        """Return the ratio of real to predicted seconds of a run so far; None if not known.

        Args:
            elapsed: The seconds that the run has taken.
            spent: The predicted seconds of the steps that it has made.
            has_finished: Whether a cell has finished.
        """
        if has_finished or not self.trials:
            return elapsed / spent if spent else None
        # Before a cell has finished, the pace is partly that of the trials, which is 1.
        return (elapsed + PACE_SECONDS) / (spent + PACE_SECONDS)

    def _trains_for_a_while(self) -> bool:
        """Return whether a batch in training has made enough steps to measure the pace."""
        for kind in self.kinds.values():
            if max(list(kind.reached.values()), default=0) >= MIN_STEPS_FOR_PACE:
                return True
        return False

    def _expected_shares(self) -> dict[Hashable, StepShares]:
        """Return the steps that cells of each kind are expected to make, as shares of their limit.

        They are the shares of the finished cells of the kind. If there are none, they are the mean
        over the kinds with finished cells that have the same family and task, and over the usual
        shares as one more kind.
        """
        by_family_and_task: dict[tuple[str, str], list[StepShares]] = defaultdict(list)
        for kind in self.kinds.values():
            if kind.finished:
                by_family_and_task[kind.shape.family, kind.shape.task].append(kind.shares)
        shares: dict[Hashable, StepShares] = {}
        for name, kind in self.kinds.items():
            shape = kind.shape
            similar_kinds = by_family_and_task[shape.family, shape.task]
            if not shape.may_converge:
                shares[name] = shape.usual_shares
            elif kind.finished:
                shares[name] = kind.shares
            else:
                shares[name] = _mean_shares([*similar_kinds, shape.usual_shares])
        return shares

    def note_iteration(self, cell: Cell, iteration: int) -> None:
        """Note the iteration that a cell in training has reached."""
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
        """Note that a cell has a record.

        Args:
            cell: The cell.
            result: Its result; None if another process has trained the cell.
        """
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
            kind.note_finished(
                cells=1,
                iterations=iterations,
                longest=iterations,
                seconds=result.seconds or 0.0,
            )


def _with_slowest_batch(
    of_waiting: float, of_training: float, at_measured_speed: Sequence[float | None]
) -> float:
    """Return the time left of a run, with regard to the slowest batch in training.

    The fewer batches wait, the more the slowest batch in training decides. At its present speed it
    would take longer than it will, as it gets faster when others end. The geometric mean of this
    time and of the predicted one is the best guess in recorded runs.

    Args:
        of_waiting: The predicted seconds of batches that have not started.
        of_training: The predicted seconds of batches in training.
        at_measured_speed: The seconds that the batches in training of each kind take at their
            present speed; None where it has not been measured.
    """
    if not of_training:
        return of_waiting
    known = [seconds for seconds in at_measured_speed if seconds is not None]
    if len(known) < len(at_measured_speed):
        return of_waiting + of_training
    waiting_share = of_waiting / (of_waiting + of_training)
    slowest = math.sqrt(of_training * max(known))
    return of_waiting + waiting_share * of_training + (1 - waiting_share) * slowest


def _mean_shares(shares: Sequence[StepShares]) -> StepShares:
    """Return the mean of several shares."""
    return StepShares(
        mean=fmean(share.mean for share in shares),
        longest=fmean(share.longest for share in shares),
    )
