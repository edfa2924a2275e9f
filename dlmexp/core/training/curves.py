"""Learning curves: metrics on the test rows while a fit is trained (`Settings.evaluate_every`)."""

from collections.abc import Iterator

from dlmexp.core.training.batch import Training
from dlmexp.core.training.metrics import evaluate
from dlmexp.core.training.settings import Settings


def start_curves(training: Training, settings: Settings) -> Iterator[None]:
    """Evaluate all cells before the first iteration, if learning curves are wanted."""
    if settings.evaluate_every and training.iteration == 0:
        yield from _evaluate_curves(training, list(range(len(training.cells))))


def extend_curves(
    training: Training, unreported: list[int], stopped: list[int], settings: Settings
) -> Iterator[None]:
    """Extend the curves of stopped cells; every `evaluate_every` iterations, those of all cells."""
    if not settings.evaluate_every:
        return
    is_due = training.iteration % settings.evaluate_every == 0
    cells = unreported if is_due else stopped
    if cells:
        yield from _evaluate_curves(training, cells)


def _evaluate_curves(training: Training, indices: list[int]) -> Iterator[None]:
    """Add the test metrics of these cells to their curves.

    A stopped cell gets one more entry, at its last iteration.
    """
    program, state = training.subset(indices)
    posterior = program.posterior(state.values, state.jitter)
    evaluation = evaluate(program, posterior, calibration=False, parts=("test",))
    if training.on_gpu:
        yield None
    last_iterations = state.stopped_at.tolist()
    for i, (metrics, _) in enumerate(evaluation.read()):
        curve = training.curves[indices[i]]
        last_iteration = last_iterations[i]
        # Already in the curve if the cell stopped at an earlier call.
        is_new = not curve or curve[-1][0] < last_iteration
        if is_new:
            curve.append((last_iteration, metrics["test"]))
