"""Train a batch of cells to the end: the loop around `step`, with events between stretches of
iterations."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from dlmexp.core.training.metrics import Metrics, evaluate
from dlmexp.core.training.program import Posterior, Program
from dlmexp.core.training.state import BLOCK, FAILED, REPORTED, RUNNING, STOPPED, Settings, State
from dlmexp.core.training.step import stepper

# Stopped cells are evaluated and leave the batch when no more than this share is live. On a GPU
# leaving means capturing a new graph, and only a step of many entries soon pays that back: with
# half of the cells, one of few takes nearly as long.
COMPACT_AT = {"cpu": 1.0, "cuda": 0.5, "cuda, large": 0.75}
LARGE_STEP = 20_000_000
Curve = list[
    tuple[int, Metrics]
]  # iterations of evaluations on the way, and the test metrics there


def curve_arrays(curve: Curve) -> dict[str, np.ndarray]:
    """The iterations of a learning curve, and each of its metrics."""
    names = curve[0][1] if curve else ()
    tests = {f"test_{name}": np.array([metrics[name] for _, metrics in curve]) for name in names}
    return {"evaluated_at": np.array([iteration for iteration, _ in curve])} | tests


@dataclass
class Finished:
    """What one cell leaves: why it stopped, its metrics and posterior, its curves."""

    cell: int  # its index in the batch that was started
    stopped: str
    iterations: int
    seconds: float  # its share of the time of its batch, and that one's share of the device
    alone: bool  # no other batch trained beside it in this process
    objective: np.ndarray
    metrics: dict[str, Metrics]
    reliability: dict[str, np.ndarray]  # binary data: bins on the test rows
    posterior: Posterior  # of this cell alone, on the CPU
    failed: bool = False
    curve: Curve = field(default_factory=list)
    acceptance: float | None = None
    block_acceptance: np.ndarray = field(
        default_factory=lambda: np.zeros(0)
    )  # acceptance by blocks of iterations

    @property
    def hyperparameters(self) -> dict[str, np.ndarray]:
        return {name: value[0].numpy() for name, value in self.posterior.hyper.items()}


@dataclass
class Training:
    """A batch under way: what a checkpoint holds, and what a resumed run starts from."""

    program: Program
    state: State
    cells: list[int]  # indices in the batch that was started, of the cells still in the state
    seconds: list[float]
    curves: list[Curve]
    alone: bool = True  # no other batch has trained beside it
    iteration: int = field(init=False)  # that of the state, as of the last look
    _outcome: Tensor = field(
        init=False
    )  # of the state, where the CPU reads it without waiting for the device

    def __post_init__(self) -> None:
        self.iteration = int(self.state.iteration)
        outcome = self.state.outcome.cpu()
        self._outcome = outcome.pin_memory() if self.state.outcome.is_cuda else outcome

    def fetch(self) -> None:
        """Bring the outcomes from the device, after all that it has been given."""
        self._outcome.copy_(self.state.outcome, non_blocking=True)

    @classmethod
    def start(cls, program: Program, settings: Settings) -> "Training":
        state = State.fresh(program.initial(), settings)
        B = len(state.outcome)
        return cls(program, state, list(range(B)), [0.0] * B, [[] for _ in range(B)])

    def report(self, stopped: list[int]) -> None:
        """Note that what there is to tell of these cells has been told."""
        self.state.outcome[stopped] = REPORTED
        self._outcome[stopped] = REPORTED

    def live(self) -> Bool[np.ndarray, "B"]:
        """Which of the cells in the state still run."""
        return (self._outcome == RUNNING).numpy()

    def unreported(self) -> Bool[np.ndarray, "B"]:
        """Which of them still have something to tell: those that run, and stopped ones that are not
        reported yet."""
        return (self._outcome != REPORTED).numpy()

    def part(self, indices: list[int]) -> tuple[Program, State]:
        """Program and state of some of the cells."""
        if len(indices) == len(self.cells):
            return self.program, self.state
        return self.program.keep(indices), self.state.keep(indices)

    def keep(self, indices: list[int]) -> None:
        """Go on with some of the cells."""
        self.program, self.state = self.part(indices)
        self.__post_init__()
        self.cells = [self.cells[i] for i in indices]
        self.seconds = [self.seconds[i] for i in indices]
        self.curves = [self.curves[i] for i in indices]


def train(
    training: Training,
    settings: Settings,
    between: Callable[[Training], None] = lambda training: None,
    batches_at_once: Callable[[], int] = lambda: 1,
) -> Iterator[Finished | None]:
    """Yield stopped cells, when they leave the batch (`COMPACT_AT`) or at once where there are
    curves, and None where a GPU has been given work and the results are not there yet.

    `between` is called where the state is consistent: after every iteration on a CPU, after a
    stretch of them on a GPU. Stretches end at fixed iterations, so a resumed run has the same
    ones."""
    device = training.state.outcome.device.type
    pool = torch.cuda.graph_pool_handle() if device == "cuda" else None
    advance = stepper(training.program, training.state, settings, pool)
    large = device == "cuda" and training.program.entries >= LARGE_STEP
    compact_at = COMPACT_AT["cuda, large" if large else device]
    while (unreported := training.unreported()).any():
        live = training.live()
        iteration = training.iteration
        every = settings.evaluate_every
        if every and iteration == 0:
            yield from _extend(training, list(range(len(live))))
        ends = [period - iteration % period for period in (settings.check_every, every) if period]
        stretch = min(*ends, settings.iterations - iteration)
        began = perf_counter()
        for _ in range(stretch - 1):
            advance()
            if device == "cpu":
                between(training)
        advance()
        training.fetch()
        if device == "cuda":
            yield None
        training.iteration += stretch
        now = training.live()
        at_once = batches_at_once()
        training.alone &= at_once == 1
        share = (perf_counter() - began) / (at_once * max(1, live.sum()))
        training.seconds = [
            s + share * alive for s, alive in zip(training.seconds, live.tolist(), strict=True)
        ]
        stopped = np.flatnonzero(unreported & ~now).tolist()
        if every and training.iteration % every == 0:
            yield from _extend(training, np.flatnonzero(unreported).tolist())
        elif every and stopped:
            yield from _extend(training, stopped)
        compact = now.any() and now.sum() <= compact_at * len(now)
        if stopped and (every or compact or not now.any()):
            yield from _finish(training, stopped, settings.calibration)
            training.report(stopped)
            if compact:
                training.keep(np.flatnonzero(now).tolist())
                advance = stepper(training.program, training.state, settings, pool)
        between(training)


def _extend(training: Training, indices: list[int]) -> Iterator[None]:
    """Add an entry to the curves of some cells, at the iteration their parameters are from."""
    program, state = training.part(indices)
    evaluation = evaluate(
        program, program.posterior(state.values, state.jitter), calibration=False, parts=("test",)
    )
    if state.outcome.is_cuda:
        yield None
    for i, iteration, (metrics, _) in zip(
        indices, state.stopped_at.tolist(), evaluation.read(), strict=True
    ):
        curve = training.curves[i]
        if not curve or curve[-1][0] < iteration:
            curve.append((iteration, metrics["test"]))


def _finish(training: Training, indices: list[int], calibration: bool) -> Iterator[Finished | None]:
    program, state = training.part(indices)
    posterior = program.posterior(state.values, state.jitter)
    evaluation = evaluate(program, posterior, calibration)
    if state.outcome.is_cuda:
        yield None
    measured, posteriors = evaluation.read(), posterior.cells()
    outcomes, stopped_at = state.outcome.tolist(), state.stopped_at.tolist()
    history, accepted = (
        state.history[:, : max(stopped_at)].cpu().numpy(),
        state.acceptance.cpu().numpy(),
    )
    for i, index in enumerate(indices):
        code, iterations = outcomes[i], stopped_at[i]
        starts = np.arange(0, iterations, BLOCK)
        metrics, reliability = measured[i]
        yield Finished(
            cell=training.cells[index],
            stopped=(STOPPED | FAILED)[code],
            iterations=iterations,
            seconds=training.seconds[index],
            alone=training.alone,
            objective=history[i, :iterations].copy(),
            metrics=metrics,
            reliability=reliability,
            posterior=posteriors[i],
            failed=code in FAILED,
            curve=training.curves[index],
            acceptance=float(accepted[i].sum()) / iterations if accepted[i].any() else None,
            block_acceptance=accepted[i, : len(starts)] / np.minimum(BLOCK, iterations - starts),
        )
