"""One iteration of every live cell: objective, gradient, Adam, stopping rule.

Nothing here makes the processor wait for a GPU. So decisions are tensors [B] with an entry per
cell, and only on a CPU does a branch depend on their values.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dlmexp.core.gp.fused import uses_triton
from dlmexp.core.training.adam import adam
from dlmexp.core.training.parameters import Tensors
from dlmexp.core.training.program import Program
from dlmexp.core.training.settings import Settings
from dlmexp.core.training.state import (
    ACCEPTANCE_BLOCK,
    CONVERGED,
    LIMIT,
    MAX_JITTER,
    NOT_FACTORISED,
    NOT_FINITE,
    RUNNING,
    State,
)


def step(program: Program, state: State, settings: Settings) -> None:
    """Advance `state` in place by one iteration.

    A cell whose Kuu can not be factorised keeps its values; the next iteration tries ten times the
    jitter. A cell whose objective or gradient is not finite stops, and keeps its last values. Other
    cells are not affected.
    """
    leaves = {name: value.detach().requires_grad_() for name, value in state.values.items()}
    # The backward pass runs on this thread: on a second one, the two would wait for each other at
    # Python's lock.
    with torch.enable_grad(), torch.autograd.set_multithreading_enabled(False):
        result = program.objective(leaves, state.jitter, state.iteration)
        # An objective may not depend on every parameter: the square loss does not depend on the
        # noise. `materialize_grads` makes the gradient in such a parameter zero instead of None.
        gradients = torch.autograd.grad(
            result.per_row.sum(), list(leaves.values()), materialize_grads=True
        )
    grads = {}
    for name, gradient in zip(leaves, gradients, strict=True):
        # Before torch 2.10, materialised zeros require a gradient themselves.
        grads[name] = gradient.detach() if gradient.requires_grad else gradient
    if result.acceptance is not None:
        _add_acceptance(state, result.acceptance)
    objective = result.per_row.detach()
    if uses_triton(objective):
        from dlmexp.core.training.fused_update import update as fused_update

        fused_update(state, objective, result.ok, grads, program.n, settings)
    else:
        update(state, objective, result.ok, grads, program.n, settings)


def _add_acceptance(state: State, acceptance: Float[Tensor, "B"]) -> None:
    """Add the acceptance rates of live cells to the sums of this iteration's block."""
    rates = torch.where(state.live, acceptance, 0.0).to(state.acceptance.dtype)
    block = (state.iteration // ACCEPTANCE_BLOCK).view(1)
    state.acceptance.index_add_(1, block, rates[:, None])


@torch.inference_mode()
def update(
    state: State,
    objective: Float[Tensor, "B"],
    ok: Bool[Tensor, "B"],
    grads: Tensors,
    n: int,
    settings: Settings,
) -> None:
    """Move the live cells whose objective and gradient are finite, and decide which cells stop.

    Args:
        state: Changed in place.
        objective: The objective of every cell, divided by n.
        ok: Which cells' Kuu was factorised.
        grads: The gradients of the objectives, by the names of the parameters.
        n: The number of training rows.
        settings: How Adam steps, and when it stops.
    """
    # 1. Move the cells.
    live = state.live
    finite = finite_cells(objective, grads)
    moves = live & ok & finite
    # If every cell moves, most of what follows can be skipped. On a GPU the processor would have to
    # wait to know.
    all_move = not moves.is_cuda and bool(moves.all())
    state.steps.add_(moves)
    adam(state, grads, None if all_move else moves, settings)
    if all_move:
        _record(state, objective, objective)
        state.iteration.add_(1)
        state.outcome.copy_(_outcome_without_failures(state, n, settings))
        state.stopped_at.copy_(state.iteration)
        return

    # 2. Record the objectives. Where Kuu was not factorised, record NaN and raise the jitter.
    objective = torch.where(ok, objective, torch.nan)
    _record(state, objective, torch.where(live, objective, torch.nan))
    state.jitter.copy_(torch.where(live & ~ok, state.jitter * 10, state.jitter))
    state.iteration.add_(1)

    # 3. Decide which live cells stop, and why.
    outcome = _outcome_without_failures(state, n, settings)
    outcome = torch.where(ok & ~finite, NOT_FINITE, outcome)
    is_exhausted = state.jitter > MAX_JITTER
    outcome = torch.where(~ok & is_exhausted, NOT_FACTORISED, outcome)
    state.stopped_at.copy_(torch.where(live, state.iteration, state.stopped_at))
    state.outcome.copy_(torch.where(live, outcome, state.outcome))


def _record(
    state: State, objective: Float[Tensor, "B"], objective_if_live: Float[Tensor, "B"]
) -> None:
    """Write this iteration's objectives into the window, and those of live cells into the history.

    Args:
        state: Changed in place.
        objective: The objective of every cell.
        objective_if_live: The objective of every live cell; NaN for cells that have stopped.
    """
    column = state.iteration.view(1)
    state.history.index_copy_(1, column, objective_if_live[:, None])
    state.window.index_copy_(1, column % state.window.shape[1], objective[:, None])


def _outcome_without_failures(state: State, n: int, settings: Settings) -> Tensor:
    """Return the outcome of cells that did not fail [B]: CONVERGED, LIMIT or RUNNING."""
    at_limit = state.iteration >= settings.iterations
    outcome = torch.where(at_limit, LIMIT, RUNNING).expand_as(state.outcome)
    rule = settings.stopping_rule(n)
    if rule is None:
        return outcome
    rule_applies = state.iteration >= settings.first_check
    # On a CPU this branch saves the work of the rule; on a GPU it would wait for the device.
    if not rule_applies.is_cuda and not rule_applies:
        return outcome
    return torch.where(rule.converged(state.window) & rule_applies, CONVERGED, outcome)


def finite_cells(objective: Float[Tensor, "B"], grads: Tensors) -> Bool[Tensor, "B"]:
    """Return which cells' objective and whole gradient are finite.

    A finite entry times 0 is 0, while any other entry times 0 is NaN and makes the sum of its cell
    NaN.
    """
    flat = [grad.reshape(len(grad), -1) for grad in grads.values()]
    entries = torch.cat([objective[:, None], *flat], 1)
    return entries.mul_(0.0).sum(1) == 0.0
