"""Train a batch of cells until all have stopped: the loop around `step`."""

from collections.abc import Callable, Iterator
from time import perf_counter

import numpy as np
import torch

from dlmexp.core.training.batch import Training
from dlmexp.core.training.curves import extend_curves, start_curves
from dlmexp.core.training.finished import FinishedFit
from dlmexp.core.training.quasi_newton import train_by_lbfgs
from dlmexp.core.training.reports import report_stopped
from dlmexp.core.training.settings import Settings
from dlmexp.core.training.stepper import make_stepper

SHARE_TO_COMPACT = {"cpu": 1.0, "cuda": 0.5, "cuda, large": 0.75}
"""Stopped cells are evaluated and leave the batch when at most this share of its cells is live.

On a CPU they leave at the end of the stretch in which they stop. On a GPU the step of the smaller
batch must be captured as a new graph. This soon pays for itself where a step is large ("cuda,
large"), whereas a small step takes nearly as long for half of the cells."""
LARGE_STEP = 20_000_000
"""Number of entries (`Program.entries`) from which a step is large."""


def train(
    training: Training,
    settings: Settings,
    after_step: Callable[[Training], None] = lambda training: None,
    batches_at_once: Callable[[], int] = lambda: 1,
) -> Iterator[FinishedFit | None]:
    """Yield the result of every cell after it has stopped; yield None while a GPU is busy.

    Iterations are made in stretches. After a stretch the processor checks which cells have stopped.
    Stretches end at the same iterations in every run, resumed or not. A stopped cell is reported
    when it leaves the batch (`SHARE_TO_COMPACT`); where there are learning curves, already at the
    end of the stretch in which it stopped.

    Args:
        training: The batch, changed in place.
        settings: How it is trained.
        after_step: Called after every iteration on a CPU, after every stretch on a GPU; it may
            write a checkpoint.
        batches_at_once: Returns how many batches train on the device now and share its time.
    """
    if settings.optimizer == "lbfgs":
        yield from train_by_lbfgs(training, settings, after_step, batches_at_once)
        return
    graph_pool = torch.cuda.graph_pool_handle() if training.on_gpu else None
    share_to_compact = _share_to_compact(training)
    training.program.resume(training.iteration, settings)
    advance = make_stepper(training.program, training.state, settings, graph_pool)
    yield from start_curves(training, settings)
    while training.unreported().any():
        if training.iteration == settings.split_at:
            training.program.split_gaussian(training.state)
            advance = make_stepper(training.program, training.state, settings, graph_pool)

        # 1. Make a stretch of iterations, whose time the live cells share.
        yield from _run_stretch(advance, training, settings, after_step, batches_at_once)

        # 2. Extend the learning curves.
        live = training.live()
        unreported = training.unreported()
        stopped = np.flatnonzero(unreported & ~live).tolist()
        yield from extend_curves(training, np.flatnonzero(unreported).tolist(), stopped, settings)

        # 3. Report stopped cells: when they leave the batch, when no cell is live, or at once where
        #    there are learning curves.
        leaves_batch = live.any() and live.sum() <= share_to_compact * len(live)
        report_is_due = settings.evaluate_every or leaves_batch or not live.any()
        if stopped and report_is_due:
            yield from report_stopped(training, stopped, settings.calibration)
            training.mark_reported(stopped)
            if leaves_batch:
                training.keep(np.flatnonzero(live).tolist())
                advance = make_stepper(training.program, training.state, settings, graph_pool)
        after_step(training)


def steps_until_next_event(iteration: int, settings: Settings) -> int:
    """Return the number of iterations until the next event.

    Events are: a check which cells have stopped, a point of the learning curves, the split of a
    mixture, and the last iteration.
    """
    periods = [settings.check_every]
    if settings.evaluate_every:
        periods.append(settings.evaluate_every)
    steps_until = [period - iteration % period for period in periods]
    steps_until.append(settings.iterations - iteration)
    if settings.split_at is not None and iteration < settings.split_at:
        steps_until.append(settings.split_at - iteration)
    return min(steps_until)


def _share_to_compact(training: Training) -> float:
    """Return the share of live cells at which stopped ones leave the batch."""
    device = training.state.outcome.device.type
    if device == "cuda" and training.program.entries >= LARGE_STEP:
        return SHARE_TO_COMPACT["cuda, large"]
    return SHARE_TO_COMPACT[device]


def _run_stretch(
    advance: Callable[[], None],
    training: Training,
    settings: Settings,
    after_step: Callable[[Training], None],
    batches_at_once: Callable[[], int],
) -> Iterator[None]:
    """Make the iterations until the next event; the live cells share their time."""
    live = training.live()
    start_time = perf_counter()
    steps = steps_until_next_event(training.iteration, settings)
    _run_steps(advance, steps, training, after_step)
    training.fetch()
    if training.on_gpu:
        yield None
    training.iteration += steps
    training.share_time(perf_counter() - start_time, live, batches_at_once())


def _run_steps(
    advance: Callable[[], None],
    steps: int,
    training: Training,
    after_step: Callable[[Training], None],
) -> None:
    """Make a number of steps.

    On a CPU, call `after_step` after each but the last, after which `train` calls it.
    """
    for _ in range(steps - 1):
        advance()
        if not training.on_gpu:
            after_step(training)
    advance()
