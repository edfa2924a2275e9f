"""The time that a run takes, by kind of batch; cells of one kind have the same `Cell.group`.

Before the run starts, its time is bounded from a few timed steps of the kinds with the most work.
While it runs, the time left is estimated from the finished cells. Kinds without a measurement are
estimated from their work.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from time import perf_counter

from dlmexp.core.training.metrics import evaluate
from dlmexp.core.training.state import State
from dlmexp.core.training.stepper import make_stepper
from dlmexp.experiment.plan.cell import Batch, Cell
from dlmexp.experiment.records.record import Result
from dlmexp.experiment.running.process import Target
from dlmexp.experiment.running.programs import Splits, program, settings

TRIAL_STEPS = 10_000  # the limit of steps in a trial, even if the batch makes fewer
# A run with less work gets no bound. If nothing converges, it takes some 20 seconds on a slow
# machine, or a minute on an H200.
SHORT_RUN_WORK = {"cpu": 6e10, "cuda": 2e14}
FIXED_STEP_WORK = 1e7  # fixed cost of a step, as work
ELEMENTWISE_COLUMNS = 90  # operations that are linear in M x rows, as additional columns
VARIANT_SHARE = {"joint": 1.0, "fixed": 0.5}  # of the work of a joint variant
GRADIENT_STEPS = 150  # the cost of measuring the gradients of a cell, in steps
TRIAL_SHARE = 0.02  # the share of the bound that timing may take; the run itself is shorter
TRIAL_SECONDS = 0.05  # for each kind
ALL_TRIALS_SECONDS = 3.0
# A cell that has outlived the mean of its kind is expected to take at least this share of the mean
# number of iterations more.
OVERTIME_SHARE = 0.25


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


@dataclass
class BatchKind:
    """The cells of one kind of batch: how many have no record, and what the finished ones took."""

    largest: Batch
    waiting: int = 0
    by_others: int = 0  # cells that other processes have trained
    finished: int = 0  # cells that were trained here, with their iterations and seconds
    iterations: int = 0
    seconds: float = 0.0

    @cached_property
    def is_timed(self) -> bool:
        """Whether its cells are trained step by step, so that steps can be timed."""
        cell = self.largest[0]
        return cell.kind != "gradient" and not cell.solved

    @cached_property
    def limit(self) -> int:
        """The number of steps of a cell that does not converge; a closed form counts as one."""
        cell = self.largest[0]
        if cell.kind == "gradient":
            return GRADIENT_STEPS
        if cell.solved:
            return 1
        return max(1, cell.iterations)

    @cached_property
    def work(self) -> float:
        """Multiplications in the steps of a cell that does not converge.

        It includes the cell's share of the fixed cost of a step. Gradients are measured for one
        cell after the other.
        """
        cell = self.largest[0]
        cells_per_step = 1 if cell.kind == "gradient" else len(self.largest)
        rows = min(cell.n, cell.minibatch or cell.n)
        columns = cell.M + ELEMENTWISE_COLUMNS + 2 * (cell.samples or 0)
        products = cell.M * (rows + 4 * cell.M) * columns
        step = FIXED_STEP_WORK / cells_per_step + VARIANT_SHARE[cell.variant] * products
        return self.limit * step

    @property
    def remaining_work(self) -> float:
        """The work of all cells without a record."""
        return self.waiting * self.work

    @property
    def mean_iterations(self) -> float:
        """Iterations of a finished cell; the limit before one has finished."""
        return self.iterations / self.finished if self.finished else self.limit


class Clock:
    """What is known of the time that batches take. `Progress` notes what happens."""

    def __init__(self, batches: Sequence[Batch]):
        self.batches = len(batches)
        self.kinds: dict[tuple, BatchKind] = {}
        for batch in sorted(batches, key=len, reverse=True):
            kind = self.kinds.setdefault(batch[0].group, BatchKind(batch))
            kind.waiting += len(batch)
        self.cells = sum(kind.waiting for kind in self.kinds.values())
        # The kind and the iteration of each cell in training.
        self.reached: dict[str, tuple[tuple, int]] = {}

    def is_short(self, device: str) -> bool:
        """Return whether the run takes so little time that timing steps is not worth it."""
        work = sum(kind.remaining_work for kind in self.kinds.values())
        return work < SHORT_RUN_WORK[device]

    def bound(self, prepared: Splits, target: Target, workers: int, threads: int) -> float:
        """Return the seconds that the batches take if no cell converges before its limit.

        Steps of the kinds with the most work are timed, as long as that takes little of the whole.

        Args:
            prepared: returns the data of a cell.
            target: the device.
            workers: processes that train.
            threads: CPU threads of each process.
        """
        began = perf_counter()
        total = 0.0
        seconds_per_cell: dict[tuple, float] = {}
        most_work_first = sorted(self.kinds.items(), key=lambda item: -item[1].remaining_work)
        for name, kind in most_work_first:
            if not kind.is_timed:
                continue
            per_step = step_seconds(kind.largest, prepared, target, threads)
            seconds_per_cell[name] = kind.limit * per_step / len(kind.largest)
            total = self._total_seconds(seconds_per_cell, workers)
            # Stop timing if one more trial like the mean of these would take too long.
            with_next_trial = (perf_counter() - began) * (1 + 1 / len(seconds_per_cell))
            if with_next_trial > min(TRIAL_SHARE * total, ALL_TRIALS_SECONDS):
                break
        return total

    def _total_seconds(self, measured: dict[tuple, float], workers: int) -> float:
        """Return the time of all batches in several processes.

        Their work is divided evenly, except that the longest batch may train while the other
        processes have nothing left to do.
        """
        in_one_process = 0.0
        longest_batch = 0.0
        for name, seconds in self._seconds_per_cell(measured).items():
            kind = self.kinds[name]
            in_one_process += kind.waiting * seconds
            longest_batch = max(longest_batch, len(kind.largest) * seconds)
        return in_one_process / workers + longest_batch * (1 - 1 / workers)

    def _seconds_per_cell(self, measured: dict[tuple, float]) -> dict[tuple, float]:
        """Return the seconds of a cell of each kind: as measured, or else from its work."""
        pace = 1.0
        if measured:
            pace = fmean(seconds / self.kinds[name].work for name, seconds in measured.items())
        return {name: measured.get(name, pace * kind.work) for name, kind in self.kinds.items()}

    def seconds_left(self, elapsed: float) -> float | None:
        """Return the time left of a run after `elapsed` seconds; None before a cell has finished.

        May be called in any thread.
        """
        if not any(kind.finished for kind in self.kinds.values()):
            return None
        measured = {
            name: kind.seconds / kind.finished
            for name, kind in self.kinds.items()
            if kind.seconds > 0
        }
        in_training = list(self.reached.values())
        spent = 0.0
        left = 0.0
        for name, seconds in self._seconds_per_cell(measured).items():
            kind = self.kinds[name]
            iterations = [iteration for group, iteration in in_training if group == name]
            # Iterations of cells in training, as shares of those that a cell is expected to need.
            shares = [iteration / kind.mean_iterations for iteration in iterations]
            limit_share = kind.limit / kind.mean_iterations
            for share in shares:
                expected = max(1 - share, OVERTIME_SHARE * share)
                left += seconds * min(expected, limit_share - share)
            left += seconds * max(0, kind.waiting - len(shares))
            spent += seconds * (kind.finished + kind.by_others + sum(shares))
        return elapsed * left / spent

    def finish(self, cell: Cell, result: Result | None) -> None:
        """Note that a cell has a record: with this result here, or (None) from another process."""
        self.reached.pop(cell.key, None)
        kind = self.kinds.get(cell.group)
        if kind is None:
            return
        kind.waiting -= 1
        if result is None:
            kind.by_others += 1
        else:
            kind.finished += 1
            kind.iterations += result.iterations or 1
            kind.seconds += result.seconds or 0.0
