"""Train a batch of cells to the end: the loop around `step`."""

from collections.abc import Callable, Iterator
from time import perf_counter

import numpy as np
import torch

from dlmexp.core.training.batch import Training
from dlmexp.core.training.finished import FinishedFit
from dlmexp.core.training.metrics import evaluate
from dlmexp.core.training.quasi_newton import train_by_lbfgs
from dlmexp.core.training.reports import report_stopped
from dlmexp.core.training.settings import Settings
from dlmexp.core.training.stepper import make_stepper

# Stopped cells are evaluated and leave the batch when no more than this share is live. On a GPU
# leaving means capturing a new graph. A large step soon pays that back; a small one takes nearly as
# long for half of the cells.
COMPACT_AT = {"cpu": 1.0, "cuda": 0.5, "cuda, large": 0.75}
LARGE_STEP = 20_000_000
"""Entries (`Program.entries`) from which a step is large."""


def train(
    training: Training,
    settings: Settings,
    after_step: Callable[[Training], None] = lambda training: None,
    batches_at_once: Callable[[], int] = lambda: 1,
) -> Iterator[FinishedFit | None]:
    """Yield every cell when it has stopped; yield None while a GPU is busy.

    A cell is reported when it leaves the batch (`COMPACT_AT`), or at once where there are learning
    curves. Iterations are made in stretches, which end at the same iterations in every run, resumed
    or not.

    Args:
        training: The batch, changed in place.
        settings: How it is trained.
        after_step: Called where the state is consistent: after every iteration on a CPU, after
            every stretch of them on a GPU.
        batches_at_once: Returns how many batches share the device, and so the time.
    """
    graph_pool = torch.cuda.graph_pool_handle() if training.on_gpu else None
    compact_at = _compact_at(training)
    if settings.optimizer == "lbfgs":
        yield from train_by_lbfgs(training, settings, after_step, batches_at_once)
        return
    training.program.resume(training.iteration, settings)
    advance = make_stepper(training.program, training.state, settings, graph_pool)
    yield from _start_curves(training, settings)
    while training.unreported().any():
        if training.iteration == settings.split_at:
            training.program.split(training.state)
            advance = make_stepper(training.program, training.state, settings, graph_pool)
        unreported = training.unreported()

        # 1. A stretch of iterations, whose time the live cells share.
        yield from _run_stretch(advance, training, settings, after_step, batches_at_once)

        # 2. Learning curves.
        live = training.live()
        stopped = np.flatnonzero(unreported & ~live).tolist()
        yield from _extend_curves(training, np.flatnonzero(unreported).tolist(), stopped, settings)

        # 3. Stopped cells are reported when they leave the batch, when no cell is live, or at once
        # where there are learning curves.
        leaves_batch = live.any() and live.sum() <= compact_at * len(live)
        is_due = settings.evaluate_every or leaves_batch or not live.any()
        if stopped and is_due:
            yield from report_stopped(training, stopped, settings.calibration)
            training.mark_reported(stopped)
            if leaves_batch:
                training.keep(np.flatnonzero(live).tolist())
                advance = make_stepper(training.program, training.state, settings, graph_pool)
        after_step(training)


def steps_until_next_event(iteration: int, settings: Settings) -> int:
    """Return the iterations until cells are looked at, evaluated or split, or training ends."""
    periods = [settings.check_every]
    if settings.evaluate_every:
        periods.append(settings.evaluate_every)
    to_next = [period - iteration % period for period in periods]
    if settings.split_at is not None and iteration < settings.split_at:
        to_next.append(settings.split_at - iteration)
    return min(*to_next, settings.iterations - iteration)


def _compact_at(training: Training) -> float:
    """Return the share of live cells at which stopped ones leave the batch."""
    device = training.state.outcome.device.type
    large = device == "cuda" and training.program.entries >= LARGE_STEP
    return COMPACT_AT["cuda, large" if large else device]


def _run_stretch(
    advance: Callable[[], None],
    training: Training,
    settings: Settings,
    after_step: Callable[[Training], None],
    batches_at_once: Callable[[], int],
) -> Iterator[None]:
    """Make the iterations until the next event; the live cells share their time."""
    live = training.live()
    start = perf_counter()
    stretch = steps_until_next_event(training.iteration, settings)
    _run_steps(advance, stretch, training, after_step)
    training.fetch()
    if training.on_gpu:
        yield None
    training.iteration += stretch
    training.share_time(perf_counter() - start, live, batches_at_once())


def _run_steps(
    advance: Callable[[], None],
    steps: int,
    training: Training,
    after_step: Callable[[Training], None],
) -> None:
    """Advance by some steps; `train` itself calls `after_step` after the last of them."""
    for _ in range(steps - 1):
        advance()
        if not training.on_gpu:
            after_step(training)
    advance()


def _start_curves(training: Training, settings: Settings) -> Iterator[None]:
    """Begin the learning curves of all cells before the first iteration, where there are any."""
    if settings.evaluate_every and training.iteration == 0:
        yield from _evaluate_curves(training, list(range(len(training.cells))))


def _extend_curves(
    training: Training, unreported: list[int], stopped: list[int], settings: Settings
) -> Iterator[None]:
    """Extend the learning curves of all cells when they are due, of stopped ones at their end."""
    if not settings.evaluate_every:
        return
    is_due = training.iteration % settings.evaluate_every == 0
    cells = unreported if is_due else stopped
    if cells:
        yield from _evaluate_curves(training, cells)


def _evaluate_curves(training: Training, indices: list[int]) -> Iterator[None]:
    """Add an entry to the curves of some cells, at the last iteration that each was live in."""
    program, state = training.part(indices)
    posterior = program.posterior(state.values, state.jitter)
    evaluation = evaluate(program, posterior, calibration=False, parts=("test",))
    if training.on_gpu:
        yield None
    stopped_at = state.stopped_at.tolist()
    for i, (metrics, _) in enumerate(evaluation.read()):
        curve = training.curves[indices[i]]
        if not curve or curve[-1][0] < stopped_at[i]:
            curve.append((stopped_at[i], metrics["test"]))
