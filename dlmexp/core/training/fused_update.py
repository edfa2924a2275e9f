"""Adam and the stopping rule of a step as a few GPU kernels (Triton).

They do what `step.update` and `adam.adam` do, to rounding.
"""
# pyright: reportMissingImports=false, reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from dlmexp.core.training.adam import BETA1, BETA2
from dlmexp.core.training.parameters import Tensors
from dlmexp.core.training.settings import Settings
from dlmexp.core.training.state import (
    CONVERGED,
    LIMIT,
    MAX_JITTER,
    NOT_FACTORISED,
    NOT_FINITE,
    RUNNING,
    State,
)
from dlmexp.core.training.stopping import CRITERIA

BLOCK = 1024
"""Number of entries that one Triton program updates, of one parameter of one cell."""


def update(
    state: State, objective: Tensor, ok: Tensor, grads: Tensors, n: int, settings: Settings
) -> None:
    """Move the live cells and decide which of them stop, as `step.update` does.

    Args:
        state: Changed in place.
        objective: The objective of every cell, divided by n.
        ok: Which cells' Kuu was factorised.
        grads: The gradients of the objectives, by the names of the parameters.
        n: The number of training rows.
        settings: How Adam steps, and when it stops.
    """
    B = len(objective)
    finite = objective.isfinite().to(torch.int32)
    flat = {name: grad.reshape(B, -1) for name, grad in grads.items()}
    # 1. Find the cells whose objective and whole gradient are finite.
    for grad in flat.values():
        _mark_not_finite[(triton.cdiv(grad.shape[1], BLOCK), B)](grad, finite, grad.shape[1], BLOCK)
    lr = settings.lr_at(state.iteration)
    if not isinstance(lr, Tensor):
        lr = torch.full((), lr, dtype=torch.float64, device=objective.device)
    # 2. Make Adam's step, parameter by parameter.
    for name, grad in flat.items():
        _adam[(triton.cdiv(grad.shape[1], BLOCK), B)](
            state.values[name], grad, state.first[name], state.second[name],
            state.outcome, ok, finite, state.steps, lr, grad.shape[1],
            BETA1=BETA1, BETA2=BETA2, EPSILON=settings.epsilon,
            RESOLUTION=settings.resolution or 0.0, RUNNING=RUNNING, BLOCK=BLOCK,
        )  # fmt: skip
    # 3. Update window, history, jitter and outcomes.
    _advance[(B,)](
        objective, ok, finite, state.outcome, state.steps, state.jitter, state.stopped_at,
        state.window, state.history, state.iteration,
        state.window.shape[1], state.history.shape[1], settings.iterations,
        settings.first_check, n,
        STOPS=settings.window is not None, CRITERION=CRITERIA.index(settings.criterion),
        TOLERANCE=settings.tolerance, MAX_JITTER=MAX_JITTER,
        RUNNING=RUNNING, CONVERGED=CONVERGED, LIMIT=LIMIT, NOT_FINITE=NOT_FINITE,
        NOT_FACTORISED=NOT_FACTORISED, WP=triton.next_power_of_2(state.window.shape[1]),
    )  # fmt: skip
    state.iteration.add_(1)


@triton.jit(do_not_specialize=["P"])
def _mark_not_finite(grad, finite, P, BLOCK: tl.constexpr):
    """Write 0 to `finite` of a cell if an entry of a block of its gradient [P] is not finite."""
    b = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    # A finite entry times 0 is 0. Any other entry times 0 is NaN, which differs from 0.
    zero_or_nan = tl.load(grad + b * P + i, mask=i < P, other=0) * 0
    has_nan = tl.sum((zero_or_nan != 0).to(tl.int32), 0) > 0
    tl.store(finite + b, 0, mask=has_nan)


@triton.jit(do_not_specialize=["P"])
def _adam(  # noqa: PLR0913 - a GPU kernel takes its tensors one by one
    value, grad, first, second, outcome, ok, finite, steps, lr, P,
    BETA1: tl.constexpr, BETA2: tl.constexpr, EPSILON: tl.constexpr, RESOLUTION: tl.constexpr,
    RUNNING: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Make Adam's step (`adam.adam`) of a block of a parameter [P], if its cell moves."""
    b = tl.program_id(1).to(tl.int64)
    if (tl.load(outcome + b) == RUNNING) & (tl.load(ok + b) != 0) & (tl.load(finite + b) != 0):
        dtype: tl.constexpr = value.dtype.element_ty
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = i < P
        entries = b * P + i
        b1 = tl.full([], BETA1, tl.float64)
        b2 = tl.full([], BETA2, tl.float64)
        # `_advance` will count this step in `steps`.
        number = (tl.load(steps + b) + 1).to(tl.float64)
        rate = tl.load(lr).to(tl.float64)
        correction1 = 1 - tl.exp(number * tl.log(b1))
        root_of_correction2 = tl.sqrt((1 - tl.exp(number * tl.log(b2))).to(dtype))
        # m and v are the first and the second moment.
        g = tl.load(grad + entries, mask=inside, other=0)
        m = tl.load(first + entries, mask=inside, other=0)
        v = tl.load(second + entries, mask=inside, other=0)
        # first = beta1 first + (1 - beta1) g
        m = m + (1 - b1).to(dtype) * (g - m)
        # second = beta2 second + (1 - beta2) g^2
        v = v * b2.to(dtype) + (1 - b2).to(dtype) * g * g
        # denominator = sqrt(second / (1 - beta2^steps)) + epsilon
        denominator = tl.sqrt(v) / root_of_correction2 + tl.full([], EPSILON, dtype)
        if RESOLUTION > 0:
            # step = lr (first / (1 - beta1^steps)) / denominator, rounded to a multiple of
            # lr * resolution
            unit = tl.full([], RESOLUTION, dtype)
            multiple = tl.floor(m / correction1.to(dtype) / denominator / unit + 0.5)
            step = rate.to(dtype) * unit * multiple
        else:
            # step = lr (first / (1 - beta1^steps)) / denominator
            step = (rate / correction1).to(dtype) * m / denominator
        new_value = tl.load(value + entries, mask=inside, other=0) - step
        tl.store(first + entries, m, mask=inside)
        tl.store(second + entries, v, mask=inside)
        tl.store(value + entries, new_value, mask=inside)


@triton.jit(do_not_specialize=["W", "H", "limit", "first_check", "n"])
def _advance(  # noqa: PLR0913 - a GPU kernel takes its tensors one by one
    objective, ok_of, finite_of, outcome, steps, jitter, stopped_at, window, history, iteration,
    W, H, limit, first_check, n,
    STOPS: tl.constexpr, CRITERION: tl.constexpr, TOLERANCE: tl.constexpr,
    MAX_JITTER: tl.constexpr,
    RUNNING: tl.constexpr, CONVERGED: tl.constexpr, LIMIT: tl.constexpr, NOT_FINITE: tl.constexpr,
    NOT_FACTORISED: tl.constexpr, WP: tl.constexpr,
):  # fmt: skip
    """Record the objective of a live cell, and decide whether it stops (`step.update`).

    `iteration` does not count this iteration yet. W is the length of the window, WP is W rounded up
    to a power of two, and H is the length of the history.
    """
    b = tl.program_id(0).to(tl.int64)
    dtype: tl.constexpr = objective.dtype.element_ty
    if tl.load(outcome + b) == RUNNING:
        now = tl.load(iteration)
        ok = tl.load(ok_of + b) != 0
        finite = tl.load(finite_of + b) != 0
        nan = tl.full([], float("nan"), dtype)
        # 1. The objective, NaN where Kuu was not factorised, into history and window
        value = tl.where(ok, tl.load(objective + b), nan)
        tl.store(history + b * H + now, value)
        i = tl.arange(0, WP)
        last_values = tl.load(window + b * W + i, mask=i < W, other=0)
        last_values = tl.where(i == now % W, value, last_values)
        tl.store(window + b * W + i, last_values, mask=i < W)
        # 2. The number of steps; ten times the jitter where Kuu was not factorised
        tl.store(steps + b, tl.load(steps + b) + (ok & finite).to(tl.int64))
        new_jitter = tl.load(jitter + b)
        new_jitter = tl.where(ok, new_jitter, new_jitter * 10)
        tl.store(jitter + b, new_jitter)
        # 3. The outcome
        code = tl.where(now + 1 >= limit, LIMIT, RUNNING)
        if STOPS:
            missing_count = tl.sum(((last_values != last_values) & (i < W)).to(tl.int32), 0)
            maximum = tl.max(tl.where(i < W, last_values, -float("inf")), 0)
            minimum = tl.min(tl.where(i < W, last_values, float("inf")), 0)
            spread = maximum - minimum
            # CRITERION is a position in `stopping.CRITERIA`.
            if CRITERION == 1:  # "sum"
                spread = spread * n
            if CRITERION == 2:  # "relative"
                largest_size = tl.max(tl.where(i < W, tl.abs(last_values), 0), 0)
                spread = spread / tl.maximum(largest_size, 1)
            varies_little = (missing_count == 0) & (spread <= tl.full([], TOLERANCE, dtype))
            code = tl.where(varies_little & (now + 1 >= first_check), CONVERGED, code)
        code = tl.where(ok & (finite == 0), NOT_FINITE, code)
        is_exhausted = new_jitter > tl.full([], MAX_JITTER, dtype)
        code = tl.where((ok == 0) & is_exhausted, NOT_FACTORISED, code)
        # While a cell is live, this is its number of iterations so far (`State.stopped_at`).
        tl.store(stopped_at + b, now + 1)
        tl.store(outcome + b, code.to(tl.int64))
