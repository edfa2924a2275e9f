"""Train a batch of cells to the end: the loop around `step`, with events between stretches of iterations."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
import torch

from dlmexp.training.graph import stepper
from dlmexp.training.metrics import Metrics, evaluate
from dlmexp.training.program import Program
from dlmexp.training.settings import Settings
from dlmexp.training.state import FAILED, STOPPED, State


@dataclass
class Curve:
    """Test metrics on the way, one entry per evaluation."""

    iterations: list[int] = field(default_factory=list)
    metrics: list[Metrics] = field(default_factory=list)

    def arrays(self) -> dict[str, np.ndarray]:
        found = {"evaluated_at": np.array(self.iterations)}
        for name in self.metrics[0] if self.metrics else ():
            found[f"test_{name}"] = np.array([entry[name] for entry in self.metrics])
        return found


@dataclass
class Finished:
    """What one cell leaves: why it stopped, its metrics and hyperparameters, its curves."""

    cell: int  # its place in the batch that was started
    stopped: str
    failed: bool
    iterations: int
    seconds: float
    objective: np.ndarray
    acceptance: float | None
    metrics: dict[str, Metrics]
    hyperparameters: dict[str, np.ndarray]
    curve: Curve
    state: dict[str, np.ndarray]  # of a failed cell: its last good parameters


@dataclass
class Training:
    """A batch under way: what a checkpoint holds, and what a resumed run starts from."""

    program: Program
    state: State
    cells: list[int]  # places in the batch that was started, of the cells still in the state
    seconds: list[float]
    curves: list[Curve]

    @classmethod
    def start(cls, program: Program, settings: Settings) -> "Training":
        state = State.fresh(program.initial(), settings)
        B = len(state.outcome)
        return cls(program, state, list(range(B)), [0.0] * B, [Curve() for _ in range(B)])

    def keep(self, places: list[int]) -> None:
        """Go on with some of the cells."""
        index = torch.tensor(places, dtype=torch.int64, device=self.state.outcome.device)
        self.program, self.state = self.program.keep(index), self.state.keep(index)
        self.cells = [self.cells[i] for i in places]
        self.seconds = [self.seconds[i] for i in places]
        self.curves = [self.curves[i] for i in places]


def train(
    training: Training,
    settings: Settings,
    between: Callable[[Training], None] = lambda training: None,
) -> Iterator[Finished]:
    """Yield every cell as it stops. `between` is called where the state is consistent: after every iteration on a CPU,
    after a stretch of them on a GPU. Stretches end at fixed iterations, so a resumed run has the same ones."""
    advance = stepper(training.program, training.state, settings)
    on_cpu = training.state.outcome.device.type == "cpu"
    while True:
        iteration = int(training.state.iteration)
        stretch = settings.check_every - iteration % settings.check_every
        if settings.evaluate_every:
            if iteration == 0:
                _extend(training, iteration)
            stretch = min(stretch, settings.evaluate_every - iteration % settings.evaluate_every)
        stretch = min(stretch, settings.iterations - iteration)
        began, live = perf_counter(), int(training.state.live.sum())
        for _ in range(stretch - 1):
            advance()
            if on_cpu:
                between(training)
        advance()
        live_now = training.state.live.tolist()
        share = (perf_counter() - began) / live
        training.seconds = [seconds + share for seconds in training.seconds]
        iteration += stretch
        if settings.evaluate_every and (iteration % settings.evaluate_every == 0 or not all(live_now)):
            _extend(training, iteration)
        if not all(live_now):
            yield from _finish(training, [i for i, alive in enumerate(live_now) if not alive])
            if not any(live_now):
                return
            training.keep([i for i, alive in enumerate(live_now) if alive])
            advance = stepper(training.program, training.state, settings)
        between(training)


def _extend(training: Training, iteration: int) -> None:
    """Add an entry to every cell's curve."""
    posterior = training.program.posterior(training.state.values, training.state.jitter)
    for curve, metrics in zip(training.curves, evaluate(training.program, posterior, "test"), strict=True):
        if not curve.iterations or curve.iterations[-1] < iteration:
            curve.iterations.append(iteration)
            curve.metrics.append(metrics)


def _finish(training: Training, places: list[int]) -> Iterator[Finished]:
    index = torch.tensor(places, dtype=torch.int64, device=training.state.outcome.device)
    program, state = training.program.keep(index), training.state.keep(index)
    posterior = program.posterior(state.values, state.jitter)
    parts = {name: evaluate(program, posterior, name) for name in program.split.parts}
    hyperparameters = {name: value.cpu().numpy() for name, value in program.hyperparameters(state.values).items()}
    values = {name: value.cpu().numpy() for name, value in state.values.items()}
    for i, place in enumerate(places):
        code, iterations = int(state.outcome[i]), int(state.stopped_at[i])
        failed = code in FAILED
        yield Finished(
            cell=training.cells[place],
            stopped=FAILED[code] if failed else STOPPED[code],
            failed=failed,
            iterations=iterations,
            seconds=training.seconds[place],
            objective=state.history[i, :iterations].cpu().numpy(),
            acceptance=float(state.acceptance[i]) / iterations if float(state.acceptance[i]) > 0 else None,
            metrics={name: metrics[i] for name, metrics in parts.items()},
            hyperparameters={name: value[i] for name, value in hyperparameters.items()},
            curve=training.curves[place],
            state={name: value[i] for name, value in values.items()} if failed else {},
        )
