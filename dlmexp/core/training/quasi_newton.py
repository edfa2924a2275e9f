"""Training by L-BFGS in place of Adam, for objectives that are the same at every step."""

from collections.abc import Callable, Iterator
from time import perf_counter

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.core.gp.cholesky import LAST_JITTER
from dlmexp.core.training import state as codes
from dlmexp.core.training.batch import Training
from dlmexp.core.training.finished import FinishedFit
from dlmexp.core.training.lbfgs import Evaluate, LBFGSState, advance, start
from dlmexp.core.training.parameters import Tensors
from dlmexp.core.training.program import Program
from dlmexp.core.training.reports import report_stopped
from dlmexp.core.training.settings import Settings


def train_by_lbfgs(
    training: Training,
    settings: Settings,
    after_step: Callable[[Training], None] = lambda training: None,
    batches_at_once: Callable[[], int] = lambda: 1,
) -> Iterator[FinishedFit | None]:
    """Yield every cell when it has stopped.

    A training that is resumed starts from the best point of each cell, with a new history.

    Args:
        training: The batch, changed in place.
        settings: When it stops.
        after_step: Called after every evaluation.
        batches_at_once: Returns how many batches share the device, and so the time.
    """
    _raise_jitter(training)
    evaluate = objective_of(training)
    search = start(evaluate, flattened(training.state.values))
    while training.unreported().any():
        began = perf_counter()
        live = training.live()
        advance(search, evaluate, settings.tolerance)
        _record(training, search, settings)
        training.share_time(perf_counter() - began, live, batches_at_once())
        if training.on_gpu:
            yield None
        stopped = np.flatnonzero(live & ~training.live()).tolist()
        if stopped:
            yield from report_stopped(training, stopped, settings.calibration)
            training.mark_reported(stopped)
            remaining = np.flatnonzero(training.live()).tolist()
            if remaining:
                training.keep(remaining)
                search = search.keep(remaining)
                evaluate = objective_of(training)
        after_step(training)


@torch.no_grad()
def _raise_jitter(training: Training) -> None:
    """Raise the jitter of cells whose Kuu can not be factorised at the start, tenfold at a time."""
    state = training.state
    while True:
        ok = training.program.objective(state.values, state.jitter, state.iteration).ok
        retry = ~ok & (state.jitter * 10 <= LAST_JITTER * (1 + 1e-9))
        if not retry.any():
            return
        state.jitter.copy_(torch.where(retry, state.jitter * 10, state.jitter))


def flattened(values: Tensors) -> Float[Tensor, "B P"]:
    """Return the parameters of every cell as one vector."""
    return torch.cat([value.reshape(len(value), -1) for value in values.values()], 1)


def unflattened(x: Float[Tensor, "B P"], like: Tensors) -> Tensors:
    """Return parameters by name: the inverse of `flattened`."""
    sizes = [value[0].numel() for value in like.values()]
    values = {}
    for (name, value), part in zip(like.items(), x.split(sizes, 1), strict=True):
        values[name] = part.reshape(value.shape)
    return values


def objective_of(training: Training) -> Evaluate:
    """Return the objective per row and its gradient, as functions of flat parameters.

    The objective is NaN where Kuu can not be factorised.
    """
    program: Program = training.program
    state = training.state

    def evaluate(x: Float[Tensor, "B P"]) -> tuple[Float[Tensor, "B"], Float[Tensor, "B P"]]:
        leaf = x.detach().requires_grad_()
        with torch.enable_grad():
            value = program.objective(
                unflattened(leaf, state.values), state.jitter, state.iteration
            )
            (gradient,) = torch.autograd.grad(value.objective.sum(), leaf)
        objective = torch.where(value.ok, value.objective.detach(), torch.nan)
        finite = gradient.isfinite().all(1)
        return torch.where(finite, objective, torch.nan), gradient.nan_to_num()

    return evaluate


def _record(training: Training, search: LBFGSState, settings: Settings) -> None:
    """Write the best points, the objectives there and which cells have stopped into the state."""
    state = training.state
    for name, value in unflattened(search.x, state.values).items():
        state.values[name].copy_(value)
    live = state.live
    column = state.iteration.view(1)
    seen = torch.where(live, search.value, torch.nan)
    state.history.index_copy_(1, column, seen[:, None])
    state.iteration.add_(1)
    state.stopped_at.copy_(torch.where(live, state.iteration, state.stopped_at))
    at_limit = int(state.iteration) >= settings.iterations
    outcome = torch.where(search.done, codes.CONVERGED, codes.LIMIT if at_limit else codes.RUNNING)
    outcome = torch.where(search.value.isfinite(), outcome, codes.NOT_FINITE)
    state.outcome.copy_(torch.where(live, outcome, state.outcome))
    training.fetch()
    training.iteration = int(state.iteration)
