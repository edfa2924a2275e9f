"""L-BFGS for a batch of independent problems, each with its own line search.

One evaluation of the objective serves all problems at once: each is asked at its own trial point.
A problem whose trial point is good enough takes the step, updates its curvature pairs and chooses a
new direction; the others try another step length. So no problem waits for the line search of
another, and each ends where it would have ended alone, up to rounding.

The direction is that of Nocedal and Wright (2006, algorithm 7.4), from the last `HISTORY` pairs.
The step length satisfies the weak Wolfe conditions and is found by bisection (Lewis and Overton
2013), which needs no more than the value and the slope at the trial point.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

HISTORY = 20
"""Curvature pairs that a direction is computed from, and steps that convergence looks back on."""
SUFFICIENT_DECREASE = 1e-4
"""Share of the decrease predicted by the slope that a step must achieve (c1)."""
CURVATURE = 0.9
"""Share of the slope that may be left at the end of a step (c2)."""
TRIALS = 30
"""Trial points of a line search; a problem that needs more has no better point to rounding."""

Evaluate = Callable[[Float[Tensor, "B P"]], tuple[Float[Tensor, "B"], Float[Tensor, "B P"]]]
"""evaluate(x): objectives and gradients of all problems. Where a value is not finite, a shorter
step is tried."""


@dataclass
class LBFGSState:
    """Everything that a resumed minimisation needs; a line per problem.

    Attributes:
        x: The best point so far, where the current line search starts.
        value: The objective there.
        gradient: Its gradient there.
        direction: The direction of the current line search.
        step: The step length that is tried next.
        lower: The longest step length that was too short.
        upper: The shortest step length that was too long; infinite if there was none.
        trials: Trial points of the current line search.
        iterations: Steps that were taken.
        values: The objectives before the last steps, the newest last; infinite where there were
            fewer.
        steps: The last changes of x, the newest last; zeros where there were fewer.
        changes: The changes of the gradient that belong to them.
        done: Whether the problem has stopped.
    """

    x: Float[Tensor, "B P"]
    value: Float[Tensor, "B"]
    gradient: Float[Tensor, "B P"]
    direction: Float[Tensor, "B P"]
    step: Float[Tensor, "B"]
    lower: Float[Tensor, "B"]
    upper: Float[Tensor, "B"]
    trials: Int[Tensor, "B"]
    iterations: Int[Tensor, "B"]
    values: Float[Tensor, "H B"]
    steps: Float[Tensor, "H B P"]
    changes: Float[Tensor, "H B P"]
    done: Bool[Tensor, "B"]

    def keep(self, problems: list[int]) -> "LBFGSState":
        """Return the state of these problems alone."""
        tensors = {}
        for field in fields(self):
            value = getattr(self, field.name)
            is_history = field.name in ("values", "steps", "changes")
            tensors[field.name] = value[:, problems] if is_history else value[problems]
        return LBFGSState(**tensors)


def start(evaluate: Evaluate, x: Float[Tensor, "B P"]) -> LBFGSState:
    """Return the state before the first line search, which goes down the gradient."""
    value, gradient = evaluate(x)
    zeros = torch.zeros_like(value)
    history = x.new_zeros(HISTORY, *x.shape)
    return LBFGSState(
        x=x,
        value=value,
        gradient=gradient,
        direction=-gradient,
        step=_first_step(gradient),
        lower=zeros,
        upper=torch.full_like(value, torch.inf),
        trials=torch.zeros_like(value, dtype=torch.int64),
        iterations=torch.zeros_like(value, dtype=torch.int64),
        values=torch.full_like(history[..., 0], torch.inf),
        steps=history,
        changes=history.clone(),
        done=~value.isfinite(),
    )


def advance(state: LBFGSState, evaluate: Evaluate, tolerance: float) -> None:
    """Evaluate every problem once, at its trial point, and update the state.

    Args:
        state: Is changed in place.
        evaluate: The objective.
        tolerance: A problem stops when its last `HISTORY` steps together lowered its objective by
            less than this.
    """
    trial = state.x + state.step[:, None] * state.direction
    value, gradient = evaluate(trial)
    slope_at_start = (state.gradient * state.direction).sum(-1)
    slope = (gradient * state.direction).sum(-1)

    # 1. Judge the trial points. A value that is not a number counts as too high.
    # f(x + t d) <= f(x) + c1 t g . d
    highest = state.value + SUFFICIENT_DECREASE * state.step * slope_at_start
    too_long = ~(value <= highest)
    # g(x + t d) . d >= c2 g . d
    too_short = ~too_long & (slope < CURVATURE * slope_at_start)
    gives_up = state.trials + 1 >= TRIALS
    # At the end of the trials, any point that is lower will do.
    accepted = ~state.done & ((~too_long & ~too_short) | (gives_up & (value < state.value)))
    failed = ~state.done & ~accepted & gives_up

    # 2. Choose the next step length of problems whose search goes on.
    state.upper = torch.where(too_long, state.step, state.upper)
    state.lower = torch.where(too_short, state.step, state.lower)
    middle = torch.where(state.upper.isinf(), 2 * state.step, 0.5 * (state.lower + state.upper))
    state.trials = state.trials + 1

    # 3. Take the steps that were accepted.
    state.values = _with_newest(state.values, state.value, accepted)
    state.steps = _with_newest(state.steps, trial - state.x, accepted)
    state.changes = _with_newest(state.changes, gradient - state.gradient, accepted)
    by_row = accepted[:, None]
    state.x = torch.where(by_row, trial, state.x)
    state.value = torch.where(accepted, value, state.value)
    state.gradient = torch.where(by_row, gradient, state.gradient)
    state.iterations = state.iterations + accepted
    converged = accepted & (state.values[0] - state.value < tolerance)

    # 4. Start a line search from the new points.
    direction = _direction(state)
    state.direction = torch.where(by_row, direction, state.direction)
    state.step = torch.where(accepted, torch.ones_like(middle), middle)
    state.lower = torch.where(accepted, torch.zeros_like(middle), state.lower)
    state.upper = torch.where(accepted, torch.full_like(middle, torch.inf), state.upper)
    state.trials = torch.where(accepted, torch.zeros_like(state.trials), state.trials)
    state.done = state.done | converged | failed


def _first_step(gradient: Float[Tensor, "B P"]) -> Float[Tensor, "B"]:
    """Return a step length down the gradient that moves no parameter by more than one."""
    return 1 / gradient.abs().amax(-1).clamp_min(1)


def _with_newest(
    history: Float[Tensor, "H B *P"], newest: Float[Tensor, "B *P"], accepted: Bool[Tensor, "B"]
) -> Float[Tensor, "H B *P"]:
    """Return the history with one more entry, in place of the oldest, where a step was taken."""
    shifted = torch.cat([history[1:], newest[None]])
    took_step = accepted.view(1, -1, *[1] * (newest.ndim - 1))
    return torch.where(took_step, shifted, history)


def _direction(state: LBFGSState) -> Float[Tensor, "B P"]:
    """Return the quasi-Newton direction of every problem (the two-loop recursion)."""
    # In the formulas s are steps, y changes of the gradient: rho = 1 / (s . y).
    curvature = (state.steps * state.changes).sum(-1)
    # A pair of zeros (fewer steps so far) or of negative curvature is skipped.
    usable = curvature > 0
    inverse_curvature = torch.where(usable, 1 / curvature.where(usable, 1.0), 0.0)
    direction = -state.gradient
    weights = []
    for pair in reversed(range(HISTORY)):
        # a = rho s . d,  d <- d - a y
        weight = inverse_curvature[pair] * (state.steps[pair] * direction).sum(-1)
        direction = direction - weight[:, None] * state.changes[pair]
        weights.append(weight)
    # The scale of the initial inverse Hessian: s . y / y . y of the newest pair.
    squared_change = state.changes[-1].square().sum(-1)
    scale = torch.where(usable[-1], curvature[-1] / squared_change.where(usable[-1], 1.0), 1.0)
    direction = scale[:, None] * direction
    for pair in range(HISTORY):
        # b = rho y . d,  d <- d + (a - b) s
        correction = inverse_curvature[pair] * (state.changes[pair] * direction).sum(-1)
        weight = weights[HISTORY - 1 - pair] - correction
        direction = direction + weight[:, None] * state.steps[pair]
    # Rounding can spoil the direction; then the search goes down the gradient.
    descends = (direction * state.gradient).sum(-1) < 0
    return torch.where(descends[:, None], direction, -state.gradient)
