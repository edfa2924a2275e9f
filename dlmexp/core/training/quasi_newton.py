"""Training by L-BFGS in place of Adam, for objectives that are the same at every step."""

from collections.abc import Callable, Iterator
from time import perf_counter

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from dlmexp.core.gp.cholesky import LAST_JITTER
from dlmexp.core.training import state as codes
from dlmexp.core.training.batch import Training
from dlmexp.core.training.finished import FinishedFit
from dlmexp.core.training.lbfgs import Evaluate, advance, start
from dlmexp.core.training.parameters import Tensors
from dlmexp.core.training.program import Program
from dlmexp.core.training.reports import report_stopped
from dlmexp.core.training.restarts import Starts, perturbed
from dlmexp.core.training.settings import Settings
from dlmexp.core.training.state import State


def train_by_lbfgs(
    training: Training,
    settings: Settings,
    after_step: Callable[[Training], None] = lambda training: None,
    batches_at_once: Callable[[], int] = lambda: 1,
) -> Iterator[FinishedFit | None]:
    """Yield every cell when all of its starts have stopped, or at the limit.

    A training that is resumed goes on from the best point of each cell, with a new history and
    without further starts.

    Args:
        training: The batch, changed in place.
        settings: When it stops.
        after_step: Called after every evaluation.
        batches_at_once: Returns how many batches share the device, and so the time.
    """
    starts = started(training, 0 if training.iteration else settings.restarts)
    evaluate = objective_of(starts.program, starts.jitter, training.state.values)
    while training.unreported().any():
        began = perf_counter()
        live = training.live()
        advance(starts.search, evaluate, settings.tolerance)
        _record(training, starts, settings)
        training.share_time(perf_counter() - began, live, batches_at_once())
        if training.on_gpu:
            yield None
        is_live = training.state.live.cpu().numpy()
        stopped = np.flatnonzero(live & ~is_live).tolist()
        if stopped:
            for finished in report_stopped(training, stopped, settings.calibration):
                yield _with_ends(finished, training, starts)
            training.mark_reported(stopped)
        remaining = np.flatnonzero(is_live).tolist()
        if remaining and bool(starts.search.done.any()):
            training.keep(remaining)
            starts = starts.keep(remaining)
            evaluate = objective_of(starts.program, starts.jitter, training.state.values)
        after_step(training)


def started(training: Training, restarts: int) -> Starts:
    """Return the starts of every cell: its values, and further ones that are perturbed."""
    count = len(training.cells)
    program = training.program
    numbers = range(restarts + 1)
    of_starts = [perturbed(program, training.state.values, number) for number in numbers]
    values = {}
    for name in training.state.values:
        values[name] = torch.cat([of_start[name] for of_start in of_starts])
    device = training.state.jitter.device
    cell = torch.arange(count, device=device).repeat(restarts + 1)
    number = torch.arange(restarts + 1, device=device).repeat_interleave(count)
    if restarts:
        program = program.keep(cell.tolist())
    jitter = _raised_jitter(program, values, training.state.jitter.repeat(restarts + 1))
    search = start(objective_of(program, jitter, values), flattened(values))
    ends = search.value.new_full((count, restarts + 1), torch.inf)
    return Starts(program, jitter, search, cell, number, ends)


def _with_ends(
    finished: FinishedFit | None, training: Training, starts: Starts
) -> FinishedFit | None:
    """Return a finished fit with the ends of all of its starts."""
    if finished is not None:
        finished.ends = starts.ends[training.cells.index(finished.cell)].cpu().numpy()
    return finished


@torch.no_grad()
def _raised_jitter(
    program: Program, values: Tensors, jitter: Float[Tensor, "B"]
) -> Float[Tensor, "B"]:
    """Return the jitter with which Kuu can be factorised at the start, tenfold at a time."""
    iteration = torch.zeros((), dtype=torch.int64, device=jitter.device)
    while True:
        ok = program.objective(values, jitter, iteration).ok
        retry = ~ok & (jitter * 10 <= LAST_JITTER * (1 + 1e-9))
        if not retry.any():
            return jitter
        jitter = torch.where(retry, jitter * 10, jitter)


def flattened(values: Tensors) -> Float[Tensor, "B P"]:
    """Return the parameters of every cell as one vector."""
    return torch.cat([value.reshape(len(value), -1) for value in values.values()], 1)


def unflattened(x: Float[Tensor, "B P"], like: Tensors) -> Tensors:
    """Return parameters by name, of the shapes that those of `like` have: undo `flattened`."""
    sizes = [value[0].numel() for value in like.values()]
    values = {}
    for (name, value), part in zip(like.items(), x.split(sizes, 1), strict=True):
        values[name] = part.reshape(len(x), *value.shape[1:])
    return values


def objective_of(program: Program, jitter: Float[Tensor, "B"], like: Tensors) -> Evaluate:
    """Return the objective per row and its gradient, as functions of flat parameters.

    The parameters of a cell have the shapes that those of `like` have. The objective is NaN where
    Kuu can not be factorised.
    """
    iteration = torch.zeros((), dtype=torch.int64, device=jitter.device)

    def evaluate(x: Float[Tensor, "B P"]) -> tuple[Float[Tensor, "B"], Float[Tensor, "B P"]]:
        leaf = x.detach().requires_grad_()
        with torch.enable_grad():
            value = program.objective(unflattened(leaf, like), jitter, iteration)
            (gradient,) = torch.autograd.grad(value.objective.sum(), leaf)
        objective = torch.where(value.ok, value.objective.detach(), torch.nan)
        finite = gradient.isfinite().all(1)
        return torch.where(finite, objective, torch.nan), gradient.nan_to_num()

    return evaluate


def _record(training: Training, starts: Starts, settings: Settings) -> None:
    """Write the best points, the objectives there and which cells have stopped into the state."""
    state = training.state
    starts.note_ends()
    place = starts.place_of_best()
    runs = place >= 0
    # A best start that has stopped left its point in the state when it was the best.
    for name, value in unflattened(starts.search.x, state.values).items():
        shape = (-1, *[1] * (value.ndim - 1))
        state.values[name].copy_(torch.where(runs.view(shape), value[place], state.values[name]))
    state.jitter.copy_(torch.where(runs, starts.jitter[place], state.jitter))

    live = state.live
    best = starts.ends.amin(1)
    seen = torch.where(live, best, torch.nan)
    state.history.index_copy_(1, state.iteration.view(1), seen[:, None])
    state.iteration.add_(1)
    state.stopped_at.copy_(torch.where(live, state.iteration, state.stopped_at))
    state.outcome.copy_(torch.where(live, _outcome(starts, state, settings), state.outcome))
    training.fetch()
    training.iteration = int(state.iteration)


def _outcome(starts: Starts, state: State, settings: Settings) -> Int[Tensor, "B"]:
    """Return which cells run, and why the others have stopped."""
    runs = torch.zeros_like(state.outcome).index_add_(0, starts.cell, (~starts.search.done).long())
    at_limit = int(state.iteration) >= settings.iterations
    stopped = (runs == 0) | at_limit
    place = starts.place_of_best()
    # A start that is no longer among those that run has converged.
    best_converged = (place < 0) | starts.search.done[place]
    reason = torch.where(best_converged, codes.CONVERGED, codes.LIMIT)
    reason = torch.where(starts.ends.amin(1).isfinite(), reason, codes.NOT_FINITE)
    return torch.where(stopped, reason, codes.RUNNING)
