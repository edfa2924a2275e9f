"""L-BFGS for a batch of independent problems, each with its own line search.

One evaluation of the objective serves all problems: each is evaluated at its own trial point. A
problem whose trial point is good enough takes the step, updates its curvature pairs and chooses a
new direction; the other problems try another step length. So no problem waits for the line search
of another, and each ends where it would have ended alone, up to rounding.

The direction is the one of Nocedal and Wright (2006, algorithm 7.4), from the last `HISTORY` pairs,
in the compact form of Byrd, Nocedal and Schnabel (1994), which needs few products of matrices.
The step length satisfies the weak Wolfe conditions and is found by bisection (Lewis and Overton
2013), which needs no more than the value and the slope at the trial point.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

HISTORY = 50
"""Number of curvature pairs from which a direction is computed. Objectives of sparse Gaussian
processes have long valleys: with 20 pairs they take about twice as many evaluations, with 100 only
a few less."""
LOOK_BACK = 20
"""Number of last steps whose total decrease decides whether a problem has converged."""
SUFFICIENT_DECREASE = 1e-4
"""Share of the decrease predicted by the slope that a step must achieve (c1)."""
CURVATURE = 0.9
"""The slope at the end of a step may be at most this share of the slope at its start (c2)."""
TRIALS = 30
"""The most trial points of a line search. If the objective is lower at none of them, rounding
errors hide its decrease, and the problem stops."""

Evaluate = Callable[[Float[Tensor, "B P"]], tuple[Float[Tensor, "B"], Float[Tensor, "B P"]]]
"""From the points x of all problems to their objectives and gradients. If an objective is not
finite at a trial point, a shorter step is tried next."""


@dataclass
class LBFGSState:
    """The state of B minimisations with P parameters each; H is `HISTORY`, K is `LOOK_BACK`.

    Attributes:
        x: The best point so far, where the current line search starts.
        value: The objective at x.
        gradient: The gradient of the objective at x.
        direction: The direction of the current line search.
        step: The step length that is tried next.
        lower: The longest step length that was too short; 0 if there was none.
        upper: The shortest step length that was too long; infinite if there was none.
        trials: The number of trial points of the current line search.
        iterations: The number of steps that were taken.
        past_values: The objectives before each of the last K steps, the newest last; infinite as
            long as fewer steps were taken.
        past_moves: The changes of x in the last H steps, the newest last; zero as long as fewer
            steps were taken, and in place of a step along which the slope did not rise.
        past_changes: The changes of the gradient in the same steps.
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
    past_values: Float[Tensor, "B K"]
    past_moves: Float[Tensor, "B H P"]
    past_changes: Float[Tensor, "B H P"]
    done: Bool[Tensor, "B"]

    def keep(self, problems: list[int]) -> "LBFGSState":
        """Return the state of these problems alone."""
        return LBFGSState(
            **{field.name: getattr(self, field.name)[problems] for field in fields(self)}
        )


def start_search(evaluate: Evaluate, x: Float[Tensor, "B P"]) -> LBFGSState:
    """Return the state at x, before the first line search, which goes down the gradient."""
    value, gradient = evaluate(x)
    zeros = torch.zeros_like(value)
    history = x.new_zeros(len(x), HISTORY, x.shape[1])
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
        past_values=value.new_full((len(x), LOOK_BACK), torch.inf),
        past_moves=history,
        past_changes=history.clone(),
        done=~value.isfinite(),
    )


def advance(state: LBFGSState, evaluate: Evaluate, tolerance: float) -> None:
    """Evaluate every problem once, at its trial point, and update the state.

    Args:
        state: Changed in place.
        evaluate: Returns the objectives and gradients at given points.
        tolerance: A problem stops when its last `LOOK_BACK` steps together lowered its objective by
            less than this.
    """
    trial = state.x + state.step[:, None] * state.direction
    value, gradient = evaluate(trial)
    slope_at_start = (state.gradient * state.direction).sum(-1)
    slope = (gradient * state.direction).sum(-1)

    # 1. Judge the trial points by the weak Wolfe conditions.
    # A step is too long unless f(x + t d) <= f(x) + c1 t g . d. Not `>`, which is false for NaN.
    largest_value = state.value + SUFFICIENT_DECREASE * state.step * slope_at_start
    too_long = ~(value <= largest_value)
    # Otherwise it is too short unless g(x + t d) . d >= c2 g . d.
    too_short = ~too_long & (slope < CURVATURE * slope_at_start)
    satisfies_both = ~too_long & ~too_short
    is_last_trial = state.trials + 1 >= TRIALS
    # On the last trial any lower point is accepted.
    is_good_enough = satisfies_both | (is_last_trial & (value < state.value))
    accepted = ~state.done & is_good_enough
    failed = ~state.done & ~accepted & is_last_trial

    # 2. Choose the next step length of problems whose search goes on.
    state.upper = torch.where(too_long, state.step, state.upper)
    state.lower = torch.where(too_short, state.step, state.lower)
    middle = 0.5 * (state.lower + state.upper)
    next_step = torch.where(state.upper.isinf(), 2 * state.step, middle)
    state.trials = state.trials + 1

    # 3. Take the steps that were accepted.
    state.past_values = _append_where_accepted(state.past_values, state.value, accepted)
    move = trial - state.x
    change = gradient - state.gradient
    # A pair of a move s and a change y with s . y <= 0 would spoil the approximation of the
    # Hessian. Zeros take its place.
    slope_rises = ((move * change).sum(-1) > 0)[:, None]
    move_or_zero = torch.where(slope_rises, move, 0.0)
    change_or_zero = torch.where(slope_rises, change, 0.0)
    state.past_moves = _append_where_accepted(state.past_moves, move_or_zero, accepted)
    state.past_changes = _append_where_accepted(state.past_changes, change_or_zero, accepted)
    accepted_rows = accepted[:, None]
    state.x = torch.where(accepted_rows, trial, state.x)
    state.value = torch.where(accepted, value, state.value)
    state.gradient = torch.where(accepted_rows, gradient, state.gradient)
    state.iterations = state.iterations + accepted
    # The objective before the last LOOK_BACK steps; infinite if fewer steps were taken.
    value_before = state.past_values[:, 0]
    converged = accepted & (value_before - state.value < tolerance)

    # 4. Start a line search from the new points.
    direction = _direction(state)
    state.direction = torch.where(accepted_rows, direction, state.direction)
    state.step = torch.where(accepted, torch.ones_like(next_step), next_step)
    state.lower = torch.where(accepted, torch.zeros_like(next_step), state.lower)
    state.upper = torch.where(accepted, torch.full_like(next_step, torch.inf), state.upper)
    state.trials = torch.where(accepted, torch.zeros_like(state.trials), state.trials)
    state.done = state.done | converged | failed


def _first_step(gradient: Float[Tensor, "B P"]) -> Float[Tensor, "B"]:
    """Return a step length down the gradient: at most 1, and no parameter moves by more than 1."""
    return 1 / gradient.abs().amax(-1).clamp_min(1)


def _append_where_accepted(
    history: Float[Tensor, "B H *P"], newest: Float[Tensor, "B *P"], accepted: Bool[Tensor, "B"]
) -> Float[Tensor, "B H *P"]:
    """Return the history with one more entry, in place of the oldest, where a step was accepted."""
    shifted = torch.cat([history[:, 1:], newest[:, None]], 1)
    is_accepted = accepted.view(-1, *[1] * (history.ndim - 1))
    return torch.where(is_accepted, shifted, history)


def _direction(state: LBFGSState) -> Float[Tensor, "B P"]:
    """Return the quasi-Newton direction of every problem.

    The pairs of a step s and the change y of the gradient in it are the rows of S and Y. With the
    upper triangle R of S Y^T, its diagonal D and the scale c of the initial inverse Hessian, the
    inverse Hessian times g is

        w = R^-1 S g
        c g + S^T R^-T (D w + c Y (Y^T w) - c Y g) - c Y^T w
    """
    S = state.past_moves
    Y = state.past_changes
    gradient = state.gradient[..., None]
    products = S @ Y.mT
    D = products.diagonal(dim1=-2, dim2=-1)
    # Where a pair is missing, S and Y have zeros. With 1 in place of 0 on R's diagonal, R can be
    # inverted, and the zeros have no influence.
    R = products.triu() + torch.diag_embed((D == 0).to(D))
    # c = s . y / y . y of the newest pair
    has_pair = D[:, -1] > 0
    squared_change = Y[:, -1].square().sum(-1)
    c = torch.where(has_pair, D[:, -1] / squared_change.where(has_pair, 1.0), 1.0)[:, None, None]

    w = torch.linalg.solve_triangular(R, S @ gradient, upper=True)
    Yw = Y.mT @ w
    inner = D[..., None] * w + c * (Y @ (Yw - gradient))
    outer = torch.linalg.solve_triangular(R.mT, inner, upper=False)
    direction = -(c * (gradient - Yw) + S.mT @ outer).squeeze(-1)

    # Rounding errors can spoil the direction. Then the search goes down the gradient.
    descends = (direction * state.gradient).sum(-1) < 0
    return torch.where(descends[:, None], direction, -state.gradient)
