"""One iteration of every live cell: objective, gradient, Adam, stopping rule.

Nothing in it makes the processor wait for a GPU.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dlmexp.core.gp.cholesky import LAST_JITTER
from dlmexp.core.gp.fused import fused
from dlmexp.core.training import state as codes
from dlmexp.core.training.adam import adam
from dlmexp.core.training.parameters import Tensors
from dlmexp.core.training.program import Program
from dlmexp.core.training.settings import Settings
from dlmexp.core.training.state import BLOCK, State


def step(program: Program, state: State, settings: Settings) -> None:
    """Advance `state` in place by one iteration.

    A cell whose Kuu does not factorise is not moved; it tries again with ten times the jitter in
    the next iteration. A cell whose objective or gradient is not finite stops where it last was
    good. Neither touches its neighbours.
    """
    leaves = {name: value.detach().requires_grad_() for name, value in state.values.items()}
    # The backward pass runs on this thread: two threads would wait for each other at Python's lock.
    with torch.enable_grad(), torch.autograd.set_multithreading_enabled(False):
        result = program.objective(leaves, state.jitter, state.iteration)
        # Square loss does not see the noise: its gradient is zero, not absent.
        gradients = torch.autograd.grad(
            result.objective.sum(), list(leaves.values()), materialize_grads=True
        )
    # Before torch 2.10, the zeros in place of an absent gradient require a gradient themselves.
    detached = [grad.detach() if grad.requires_grad else grad for grad in gradients]
    grads = dict(zip(leaves, detached, strict=True))
    if result.acceptance is not None:
        _add_acceptance(state, result.acceptance)
    if fused(result.objective):
        from dlmexp.core.training.fused_update import update as fused_update

        fused_update(state, result.objective.detach(), result.ok, grads, program.n, settings)
    else:
        update(state, result.objective.detach(), result.ok, grads, program.n, settings)


def _add_acceptance(state: State, acceptance: Float[Tensor, "B"]) -> None:
    """Add this iteration's acceptance rate of live cells to that of its block."""
    rates = torch.where(state.live, acceptance, 0.0).to(state.acceptance.dtype)
    block = (state.iteration // BLOCK).view(1)
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
        objective: Divided by n.
        ok: Which cells' Kuu was factorised.
        grads: The gradient of the objective.
        n: The number of training rows.
        settings: How Adam steps, and when it stops.
    """
    live = state.live
    finite = finite_cells(objective, grads)
    move = live & ok & finite
    # Where every cell moves, most of the copies below are not needed. Only on a CPU can one look at
    # `move` without waiting.
    all_move = not move.is_cuda and bool(move.all())
    state.steps.add_(move)
    adam(state, grads, None if all_move else move, settings)
    if all_move:
        _record(state, objective, objective)
        state.iteration.add_(1)
        state.outcome.copy_(_outcome_without_failures(state, n, settings))
        state.stopped_at.copy_(state.iteration)
        return
    seen = torch.where(ok, objective, torch.nan)
    _record(state, seen, torch.where(live, seen, torch.nan))
    state.jitter.copy_(torch.where(live & ~ok, state.jitter * 10, state.jitter))
    state.iteration.add_(1)
    outcome = _outcome_without_failures(state, n, settings)
    outcome = torch.where(ok & ~finite, codes.NOT_FINITE, outcome)
    last_jitter = LAST_JITTER * (1 + 1e-9)  # tenfold steps reach it with a rounding error
    outcome = torch.where(~ok & (state.jitter > last_jitter), codes.NOT_FACTORISED, outcome)
    state.stopped_at.copy_(torch.where(live, state.iteration, state.stopped_at))
    state.outcome.copy_(torch.where(live, outcome, state.outcome))


def _record(state: State, seen: Float[Tensor, "B"], seen_live: Float[Tensor, "B"]) -> None:
    """Write the objectives of this iteration into the window and, of live cells, the history."""
    column = state.iteration.view(1)
    state.history.index_copy_(1, column, seen_live[:, None])
    state.window.index_copy_(1, column % state.window.shape[1], seen[:, None])


def _outcome_without_failures(state: State, n: int, settings: Settings) -> Tensor:
    """Return the outcome of cells that did not fail [B]: CONVERGED, LIMIT or RUNNING."""
    at_limit = state.iteration >= settings.iterations
    outcome = torch.where(at_limit, codes.LIMIT, codes.RUNNING).expand_as(state.outcome)
    rule = settings.stopping_rule(n)
    if rule is None:
        return outcome
    applies = state.iteration >= settings.first_check
    if not applies.is_cuda and not applies:
        return outcome
    return torch.where(rule.converged(state.window) & applies, codes.CONVERGED, outcome)


def finite_cells(objective: Float[Tensor, "B"], grads: Tensors) -> Bool[Tensor, "B"]:
    """Return which cells' objective and whole gradient are finite.

    Times 0, a finite entry is 0, and any other is NaN, which makes the sum NaN.
    """
    flat = [grad.reshape(len(grad), -1) for grad in grads.values()]
    together = torch.cat([objective[:, None], *flat], 1)
    return together.mul_(0.0).sum(1) == 0.0
