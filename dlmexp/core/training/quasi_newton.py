"""Training by L-BFGS in place of Adam, for objectives without minibatches or random draws.

L-BFGS moves the logarithms of positive parameters. The best lengthscale of a feature without
influence is infinite: steps of its logarithm soon make it so large that it no longer matters.
"""

from collections.abc import Callable, Iterator, Mapping
from time import perf_counter

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from dlmexp.core.gp.kernels import Parameter
from dlmexp.core.training.batch import Training
from dlmexp.core.training.curves import extend_curves, start_curves
from dlmexp.core.training.finished import FinishedFit
from dlmexp.core.training.lbfgs import Evaluate, advance, start_search
from dlmexp.core.training.parameters import Tensors, from_logarithms, to_logarithms
from dlmexp.core.training.program import Program
from dlmexp.core.training.reports import report_stopped
from dlmexp.core.training.restarts import Starts, perturbed_values
from dlmexp.core.training.settings import Settings
from dlmexp.core.training.state import CONVERGED, LIMIT, MAX_JITTER, NOT_FINITE, RUNNING, State


def train_by_lbfgs(
    training: Training,
    settings: Settings,
    after_step: Callable[[Training], None] = lambda training: None,
    batches_at_once: Callable[[], int] = lambda: 1,
) -> Iterator[FinishedFit | None]:
    """Yield the result of every cell when all of its starts have stopped, or at the limit.

    Learning curves show the best point of each cell so far. A resumed training goes on from that
    point, with an empty history and without restarts. Yields None while a GPU is busy.

    Args:
        training: The batch, changed in place.
        settings: When it stops.
        after_step: Called after every evaluation.
        batches_at_once: Returns how many batches train on the device now and share its time.
    """
    is_resumed = training.iteration > 0
    starts = initial_starts(training, restarts=0 if is_resumed else settings.restarts)
    evaluate = flat_objective(starts.program, starts.jitter, training.state.values)
    yield from start_curves(training, settings)
    while training.unreported().any():
        # 1. Evaluate every start once.
        start_time = perf_counter()
        was_live = training.live()
        advance(starts.search, evaluate, settings.tolerance)
        _record(training, starts, settings)
        training.share_time(perf_counter() - start_time, was_live, batches_at_once())
        if training.on_gpu:
            yield None
        # 2. Extend the learning curves, and report the cells that have stopped.
        is_live = training.state.live.cpu().numpy()
        stopped = np.flatnonzero(was_live & ~is_live).tolist()
        yield from extend_curves(training, np.flatnonzero(was_live).tolist(), stopped, settings)
        if stopped:
            for finished in report_stopped(training, stopped, settings.calibration):
                if finished is not None:
                    position = training.cells.index(finished.cell)
                    finished.ends = starts.ends[position].cpu().numpy()
                yield finished
            training.mark_reported(stopped)
        # 3. Go on without the cells and starts that have stopped.
        remaining = np.flatnonzero(is_live).tolist()
        if remaining and bool(starts.search.done.any()):
            training.keep(remaining)
            starts = starts.keep(remaining)
            evaluate = flat_objective(starts.program, starts.jitter, training.state.values)
        after_step(training)


def initial_starts(training: Training, restarts: int) -> Starts:
    """Return the starts of every cell: at its initial values, and at perturbations of these."""
    B = len(training.cells)
    starts_per_cell = restarts + 1
    program = training.program
    initial = training.state.values
    # Start 0 of all cells comes first, cell by cell, then start 1 of all cells, and so on.
    numbers = range(starts_per_cell)
    values_by_number = [perturbed_values(program, initial, number) for number in numbers]
    values = {}
    for name in initial:
        values[name] = torch.cat([start_values[name] for start_values in values_by_number])
    device = training.state.jitter.device
    cell = torch.arange(B, device=device).repeat(starts_per_cell)
    number_of_start = torch.arange(starts_per_cell, device=device).repeat_interleave(B)
    if restarts:
        program = program.keep(cell.tolist())
    jitter = _sufficient_jitter(program, values, training.state.jitter.repeat(starts_per_cell))
    x = flat_parameters(values, program.parameters)
    search = start_search(flat_objective(program, jitter, values), x)
    return Starts(
        program=program,
        jitter=jitter,
        search=search,
        cell=cell,
        number=number_of_start,
        ends=search.value.new_full((B, starts_per_cell), torch.inf),
    )


@torch.no_grad()
def _sufficient_jitter(
    program: Program, values: Tensors, jitter: Float[Tensor, "B"]
) -> Float[Tensor, "B"]:
    """Return the jitter with which Kuu can be factorised at the initial values.

    Where Kuu can not be factorised, the jitter is multiplied by ten, again and again, up to
    `LAST_JITTER`.
    """
    iteration = torch.zeros((), dtype=torch.int64, device=jitter.device)
    while True:
        ok = program.objective(values, jitter, iteration).ok
        can_be_raised = ~ok & (jitter * 10 <= MAX_JITTER)
        if not can_be_raised.any():
            return jitter
        jitter = torch.where(can_be_raised, jitter * 10, jitter)


def flat_parameters(values: Tensors, parameters: Mapping[str, Parameter]) -> Float[Tensor, "B P"]:
    """Return the vector that L-BFGS moves, of every cell, from its raw parameters by name."""
    coordinates = to_logarithms(values, parameters)
    return torch.cat([value.reshape(len(value), -1) for value in coordinates.values()], 1)


def parameters_from_flat(
    x: Float[Tensor, "B P"], like: Tensors, parameters: Mapping[str, Parameter]
) -> Tensors:
    """Return raw values by name, with the shapes of `like`: the inverse of `flat_parameters`."""
    sizes = [value[0].numel() for value in like.values()]
    coordinates = {}
    for (name, value), part in zip(like.items(), x.split(sizes, 1), strict=True):
        coordinates[name] = part.reshape(len(x), *value.shape[1:])
    return from_logarithms(coordinates, parameters)


def flat_objective(program: Program, jitter: Float[Tensor, "B"], like: Tensors) -> Evaluate:
    """Return the function from flat parameters to the objective per row and its gradient.

    The objective is NaN where Kuu can not be factorised, or the gradient is not finite.

    Args:
        program: The cells.
        jitter: The jitter of each cell.
        like: Parameters by name, for their shapes.
    """
    iteration = torch.zeros((), dtype=torch.int64, device=jitter.device)

    def evaluate(x: Float[Tensor, "B P"]) -> tuple[Float[Tensor, "B"], Float[Tensor, "B P"]]:
        leaf = x.detach().requires_grad_()
        with torch.enable_grad():
            values = parameters_from_flat(leaf, like, program.parameters)
            value = program.objective(values, jitter, iteration)
            (gradient,) = torch.autograd.grad(value.per_row.sum(), leaf)
        objective = torch.where(value.ok, value.per_row.detach(), torch.nan)
        is_finite = gradient.isfinite().all(1)
        return torch.where(is_finite, objective, torch.nan), gradient.nan_to_num()

    return evaluate


def _record(training: Training, starts: Starts, settings: Settings) -> None:
    """Write the best points, their objectives and the outcomes of the cells into the state."""
    state = training.state
    starts.update_ends()
    # 1. The point of the best start. If this start stopped earlier (position -1), the state has its
    #    point already.
    position = starts.position_of_best()
    best_runs = position >= 0
    points = parameters_from_flat(starts.search.x, state.values, starts.program.parameters)
    for name, value in points.items():
        per_cell = best_runs.view(-1, *[1] * (value.ndim - 1))
        state.values[name].copy_(torch.where(per_cell, value[position], state.values[name]))
    state.jitter.copy_(torch.where(best_runs, starts.jitter[position], state.jitter))

    # 2. Objectives and outcomes of live cells.
    live = state.live
    best_if_live = torch.where(live, starts.ends.amin(1), torch.nan)
    state.history.index_copy_(1, state.iteration.view(1), best_if_live[:, None])
    state.iteration.add_(1)
    state.stopped_at.copy_(torch.where(live, state.iteration, state.stopped_at))
    state.outcome.copy_(torch.where(live, _outcome(starts, state, settings), state.outcome))
    training.fetch()
    training.iteration = int(state.iteration)


def _outcome(starts: Starts, state: State, settings: Settings) -> Int[Tensor, "B"]:
    """Return the outcome of every cell: RUNNING, or why it has stopped."""
    runs = (~starts.search.done).long()
    running_count = torch.zeros_like(state.outcome).index_add_(0, starts.cell, runs)
    at_limit = int(state.iteration) >= settings.iterations
    has_stopped = (running_count == 0) | at_limit
    position = starts.position_of_best()
    # A best start that stopped earlier (position -1) has converged.
    best_converged = (position < 0) | starts.search.done[position]
    reason = torch.where(best_converged, CONVERGED, LIMIT)
    reason = torch.where(starts.ends.amin(1).isfinite(), reason, NOT_FINITE)
    return torch.where(has_stopped, reason, RUNNING)
