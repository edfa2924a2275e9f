"""The time of a run, by kind of batch: what its cells share (`Cell.group`). Before it starts, the
time that it takes at most, from a few timed steps of the kinds with the most work. While it runs,
the time left, from what it has done. Kinds of which nothing is known follow by their work."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from statistics import fmean
from time import perf_counter

from dlmexp.core.training.metrics import evaluate
from dlmexp.core.training.state import State
from dlmexp.core.training.step import stepper
from dlmexp.experiment.plan.cell import Batch, Cell
from dlmexp.experiment.records.record import Result
from dlmexp.experiment.running.process import Target
from dlmexp.experiment.running.programs import Splits, program, settings

TRIAL_STEPS = 10_000  # that may be made in a trial, however few the batch would make
# Work of a run without a bound: some 20 seconds on a slow machine, a minute on an H200, if nothing
# converges ...
SHORT_RUN = {"cpu": 6e10, "cuda": 2e14}
STEP_WORK = 1e7  # ... where this much would be done in the time of a step that is none
ELEMENTWISE = 90  # work that is linear in M x rows, as additional columns
SHARE = {"joint": 1.0, "fixed": 0.5}  # of the work of a joint variant
GRADIENT_STEPS = 150  # the cost of measuring the gradients of a cell
TRIAL_SHARE = 0.02  # of the bound, that timing may take: the run is shorter
TRIAL_SECONDS, TRIALS_SECONDS = 0.05, 3.0  # for each kind, and for all
MORE = 0.25  # a cell that has outlived the mean of its kind takes this share of its iterations more


def step_seconds(
    cells: Batch, prepared: Splits, target: Target, threads: int = 1, seconds: float = TRIAL_SECONDS
) -> float:
    """Mean seconds of a step of such a batch, with no other beside it (objective, gradient, Adam,
    stopping rule; a replayed graph on a GPU), and of its share of the evaluations on the way.
    Measured for so many `seconds`."""
    from torch.utils.benchmark import (
        Timer,  # which takes a while to load, and short runs do not need
    )

    how = settings(cells[0], target)
    how = replace(how, iterations=max(how.iterations, TRIAL_STEPS))
    made = program(cells, prepared, None, target)
    state = State.fresh(made.initial(), how)

    def mean(call: Callable[[], object]) -> float:
        call()  # the first one is not counted
        timer = Timer("call()", globals={"call": call}, num_threads=threads)
        return timer.blocked_autorange(
            min_run_time=seconds
        ).mean  # not the best: others take their part of the machine

    total = mean(stepper(made, state, how))
    if how.evaluate_every:
        measure = partial(
            evaluate, made, made.posterior(state.values, state.jitter), False, ("test",)
        )
        total += mean(measure) / how.evaluate_every
    return total


@dataclass
class Kind:
    """The cells of a kind of batch: how many have no record, and what the finished ones took."""

    largest: Batch
    waiting: int = 0
    by_others: int = 0  # cells that other processes have trained
    cells: int = 0
    iterations: int = 0
    seconds: float = 0.0

    @cached_property
    def limit(self) -> int:
        """Number of steps of a cell that does not converge; a closed form counts as one."""
        cell = self.largest[0]
        return (
            GRADIENT_STEPS
            if cell.kind == "gradient"
            else 1
            if cell.solved
            else max(1, cell.iterations)
        )

    @cached_property
    def work(self) -> float:
        """Multiplications in the steps of a cell that does not converge, with its part of what a
        step of none takes; gradients are measured for one cell after the other."""
        cell, at_once = (
            self.largest[0],
            1 if self.largest[0].kind == "gradient" else len(self.largest),
        )
        rows, columns = (
            min(cell.n, cell.minibatch or cell.n),
            cell.M + ELEMENTWISE + 2 * (cell.samples or 0),
        )
        return self.limit * (
            STEP_WORK / at_once + SHARE[cell.variant] * cell.M * (rows + 4 * cell.M) * columns
        )


class Clock:
    """What is known of the time that batches take: told by the engine, by way of `Progress`."""

    def __init__(self, batches: Sequence[Batch]):
        self.batches, self.kinds = len(batches), dict[tuple, Kind]()
        for batch in sorted(batches, key=len, reverse=True):
            self.kinds.setdefault(batch[0].group, Kind(batch)).waiting += len(batch)
        self.cells = sum(kind.waiting for kind in self.kinds.values())
        self.reached: dict[str, tuple[tuple, int]] = {}  # kinds and iterations of cells in training

    def is_short(self, device: str) -> bool:
        """Whether the run takes so little time that timing steps is not worth it."""
        return sum(kind.waiting * kind.work for kind in self.kinds.values()) < SHORT_RUN[device]

    def bound(self, prepared: Splits, target: Target, workers: int, threads: int) -> float:
        """Seconds that the batches take if no cell converges before its limit, in so many processes
        of so many threads. Times steps of the kinds with the most work, while that takes little of
        the whole."""
        began, total, timed = perf_counter(), 0.0, dict[tuple, float]()
        for name, kind in sorted(
            self.kinds.items(), key=lambda item: -item[1].waiting * item[1].work
        ):
            if kind.largest[0].kind == "gradient" or kind.largest[0].solved:
                continue
            timed[name] = (
                kind.limit
                * step_seconds(kind.largest, prepared, target, threads)
                / len(kind.largest)
            )
            costs = self._costs(timed).values()
            longest = max(
                len(kind.largest) * seconds for kind, seconds in costs
            )  # it may train while others wait
            total = sum(kind.waiting * seconds for kind, seconds in costs) / workers + longest * (
                1 - 1 / workers
            )
            if (perf_counter() - began) * (1 + 1 / len(timed)) > min(
                TRIAL_SHARE * total, TRIALS_SECONDS
            ):
                break
        return total

    def _costs(self, known: dict[tuple, float]) -> dict[tuple, tuple[Kind, float]]:
        """The kinds with the seconds of a cell: those that are known, or by its work."""
        pace = (
            fmean(seconds / self.kinds[name].work for name, seconds in known.items())
            if known
            else 1.0
        )
        return {
            name: (kind, known.get(name, pace * kind.work)) for name, kind in self.kinds.items()
        }

    def seconds_left(self, elapsed: float) -> float | None:
        """The time left of a run after so many seconds; None before a cell is finished here. In any
        thread."""
        known = {
            name: kind.seconds / kind.cells for name, kind in self.kinds.items() if kind.seconds > 0
        }
        training, made, left = list(self.reached.values()), 0.0, 0.0
        for name, (kind, seconds) in self._costs(known).items():
            expected = kind.iterations / kind.cells if kind.cells else kind.limit
            shares = [iteration / expected for group, iteration in training if group == name]
            most = kind.limit / expected
            left += seconds * sum(
                min(max(1 - share, MORE * share), most - share) for share in shares
            )
            left += seconds * max(0, kind.waiting - len(shares))
            made += seconds * (kind.cells + kind.by_others + sum(shares))
        return elapsed * left / made if any(kind.cells for kind in self.kinds.values()) else None

    def finished(self, cell: Cell, result: Result | None = None) -> None:
        """A cell has got its record: with this result here, or from another process."""
        self.reached.pop(cell.key, None)
        if kind := self.kinds.get(cell.group):
            kind.waiting -= 1
            kind.by_others += result is None
            if result is not None:
                kind.cells += 1
                kind.iterations += result.iterations or 1
                kind.seconds += result.seconds or 0.0
