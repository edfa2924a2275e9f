"""One iteration of every live cell: objective, gradient, Adam, stopping rule. Nothing in it synchronises."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dlmexp.gp.cholesky import LAST_JITTER
from dlmexp.gp.fused import fused
from dlmexp.training.adam import adam
from dlmexp.training.program import Program
from dlmexp.training.settings import Settings
from dlmexp.training.state import CONVERGED, LIMIT, NOT_FACTORISED, NOT_FINITE, RUNNING, State


def step(program: Program, state: State, settings: Settings) -> None:
    """Advance `state` in place by one iteration.

    A cell whose Kuu does not factorise is not moved; it tries again with ten times the jitter in the next iteration.
    A cell whose objective or gradient is not finite stops where it last was good. Neither touches its neighbours.
    """
    leaves = {name: value.detach().requires_grad_() for name, value in state.values.items()}
    # On this thread: another one would have to take turns with it for Python's lock.
    with torch.enable_grad(), torch.autograd.set_multithreading_enabled(False):
        objective, ok, acceptance = program.objective(leaves, state.jitter, state.iteration)
        # Square loss does not see the noise: its gradient is zero, not absent.
        found = torch.autograd.grad(objective.sum(), list(leaves.values()), materialize_grads=True)
    # Before torch 2.10, the zeros in place of an absent gradient require a gradient themselves.
    grads = {name: grad.detach() for name, grad in zip(leaves, found, strict=True)}
    if fused(objective):
        from dlmexp.training.fused_update import update as chosen
    else:
        chosen = update
    chosen(state, objective.detach(), ok, acceptance, grads, program.n, settings)


def update(
    state: State,
    objective: Float[Tensor, "B"],
    ok: Bool[Tensor, "B"],
    acceptance: Float[Tensor, "B"],
    grads: dict[str, Tensor],
    n: int,
    settings: Settings,
) -> None:
    """Move the live cells whose objective and gradient are finite, note what was seen, and decide who stops."""
    live = state.live
    finite = objective.isfinite() & _finite(grads)
    move = live & ok & finite
    state.steps.add_(move)
    lr = settings.lr_at(state.iteration)
    made = state.steps.clamp(min=1)
    adam(state.values, grads, state.first, state.second, made, move, lr, settings.epsilon, settings.resolution)

    seen = torch.where(ok, objective, torch.nan)
    column = state.iteration.view(1)
    state.history.index_copy_(1, column, torch.where(live, seen, torch.nan)[:, None])
    state.window.index_copy_(1, column % state.window.shape[1], seen[:, None])
    state.acceptance.add_(torch.where(live, acceptance, 0.0))
    state.jitter.copy_(torch.where(live & ~ok, state.jitter * 10, state.jitter))
    state.iteration.add_(1)

    outcome = torch.where(state.iteration >= settings.iterations, LIMIT, RUNNING).expand_as(state.outcome)
    if settings.window is not None:
        outcome = torch.where(_flat(n, state, settings), CONVERGED, outcome)
    outcome = torch.where(ok & ~finite, NOT_FINITE, outcome)
    outcome = torch.where(~ok & (state.jitter > LAST_JITTER * (1 + 1e-9)), NOT_FACTORISED, outcome)
    state.stopped_at.copy_(torch.where(live, state.iteration, state.stopped_at))
    state.outcome.copy_(torch.where(live, outcome, state.outcome))


def _flat(n: int, state: State, settings: Settings) -> Bool[Tensor, "B"]:
    """Which cells' objective has stopped changing. Entries of the window that are not seen yet are NaN, and a
    comparison with NaN is false."""
    assert settings.window is not None
    spread = state.window.amax(1) - state.window.amin(1)
    if settings.criterion == "sum":
        spread = spread * n
    elif settings.criterion == "relative":
        spread = spread / state.window.abs().amax(1).clamp(min=1.0)
    flat = spread <= settings.tolerance
    if settings.decay is None:
        return flat
    return flat & (state.iteration >= settings.decay + settings.window)


def _finite(grads: dict[str, Tensor]) -> Bool[Tensor, "B"]:
    """Whether all of a cell's gradient is finite: a sum is finite only if its terms are (0 x inf is NaN)."""
    total = torch.stack([(grad * 0).reshape(len(grad), -1).sum(1) for grad in grads.values()]).sum(0)
    return total == 0
