"""Adam and the stopping rule of a step as a few GPU kernels (Triton).

They do what `step.update` and `adam.adam` do, to rounding.
"""
# pyright: reportMissingImports=false, reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from dlmexp.core.gp.cholesky import LAST_JITTER
from dlmexp.core.training.adam import BETA1, BETA2
from dlmexp.core.training.parameters import Tensors
from dlmexp.core.training.settings import Settings
from dlmexp.core.training.state import (
    CONVERGED,
    LIMIT,
    NOT_FACTORISED,
    NOT_FINITE,
    RUNNING,
    State,
)
from dlmexp.core.training.stopping import CRITERIA

T = 1024  # entries of a program


def update(
    state: State, objective: Tensor, ok: Tensor, grads: Tensors, n: int, settings: Settings
) -> None:
    """Do what `step.update` does."""
    B = len(objective)
    finite = objective.isfinite().to(torch.int32)
    flat = {name: grad.reshape(B, -1) for name, grad in grads.items()}
    for grad in flat.values():
        _mark_not_finite[(triton.cdiv(grad.shape[1], T), B)](grad, finite, grad.shape[1], T)
    lr = settings.lr_at(state.iteration)
    rate = (
        lr
        if isinstance(lr, Tensor)
        else torch.full((), lr, dtype=torch.float64, device=objective.device)
    )
    for name, grad in flat.items():
        _adam[(triton.cdiv(grad.shape[1], T), B)](
            state.values[name], grad, state.first[name], state.second[name],
            state.outcome, ok, finite, state.steps, rate, grad.shape[1],
            BETA1=BETA1, BETA2=BETA2, EPSILON=settings.epsilon,
            RESOLUTION=settings.resolution or 0.0, RUNNING=RUNNING, T=T,
        )  # fmt: skip
    _advance[(B,)](
        objective, ok, finite, state.outcome, state.steps, state.jitter, state.stopped_at,
        state.window, state.history, state.iteration,
        state.window.shape[1], state.history.shape[1], settings.iterations,
        settings.first_check, n,
        STOPS=settings.window is not None, CRITERION=CRITERIA.index(settings.criterion),
        TOLERANCE=settings.tolerance, LAST=LAST_JITTER * (1 + 1e-9),
        RUNNING=RUNNING, CONVERGED=CONVERGED, LIMIT=LIMIT, NOT_FINITE=NOT_FINITE,
        NOT_FACTORISED=NOT_FACTORISED, WP=triton.next_power_of_2(state.window.shape[1]),
    )  # fmt: skip
    state.iteration.add_(1)


@triton.jit(do_not_specialize=["P"])
def _mark_not_finite(grad, finite, P, T: tl.constexpr):
    b = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * T + tl.arange(0, T)
    zero = tl.load(grad + b * P + i, mask=i < P, other=0) * 0  # NaN where it is not finite
    bad = tl.sum((zero != 0).to(tl.int32), 0) > 0
    tl.store(finite + b, 0, mask=bad)


@triton.jit(do_not_specialize=["P"])
def _adam(  # noqa: PLR0913 - a GPU kernel takes its tensors one by one
    value, grad, first, second, outcome, ok, finite, steps, lr, P,
    BETA1: tl.constexpr, BETA2: tl.constexpr, EPSILON: tl.constexpr, RESOLUTION: tl.constexpr,
    RUNNING: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(1).to(tl.int64)
    if (tl.load(outcome + b) == RUNNING) & (tl.load(ok + b) != 0) & (tl.load(finite + b) != 0):
        dtype: tl.constexpr = value.dtype.element_ty
        i = tl.program_id(0) * T + tl.arange(0, T)
        there = i < P
        at = b * P + i
        b1 = tl.full([], BETA1, tl.float64)
        b2 = tl.full([], BETA2, tl.float64)
        made = (tl.load(steps + b) + 1).to(tl.float64)
        rate = tl.load(lr).to(tl.float64)
        correction = 1 - tl.exp(made * tl.log(b1))
        scale = tl.sqrt((1 - tl.exp(made * tl.log(b2))).to(dtype))
        g = tl.load(grad + at, mask=there, other=0)
        m = tl.load(first + at, mask=there, other=0)
        v = tl.load(second + at, mask=there, other=0)
        # first = beta1 first + (1 - beta1) g
        m = m + (1 - b1).to(dtype) * (g - m)
        # second = beta2 second + (1 - beta2) g^2
        v = v * b2.to(dtype) + (1 - b2).to(dtype) * g * g
        # sqrt(second / (1 - beta2^steps)) + epsilon
        size = tl.sqrt(v) / scale + tl.full([], EPSILON, dtype)
        if RESOLUTION > 0:
            unit = tl.full([], RESOLUTION, dtype)
            # the step below, as a multiple of lr * resolution
            step = rate.to(dtype) * unit * tl.floor(m / correction.to(dtype) / size / unit + 0.5)
        else:
            # lr first / (1 - beta1^steps) / size
            step = (rate / correction).to(dtype) * m / size
        moved = tl.load(value + at, mask=there, other=0) - step
        tl.store(first + at, m, mask=there)
        tl.store(second + at, v, mask=there)
        tl.store(value + at, moved, mask=there)


@triton.jit(do_not_specialize=["W", "H", "limit", "settled", "n"])
def _advance(  # noqa: PLR0913 - a GPU kernel takes its tensors one by one
    objective, ok_, finite_, outcome, steps, jitter, stopped_at, window, history, iteration,
    W, H, limit, settled, n,
    STOPS: tl.constexpr, CRITERION: tl.constexpr, TOLERANCE: tl.constexpr, LAST: tl.constexpr,
    RUNNING: tl.constexpr, CONVERGED: tl.constexpr, LIMIT: tl.constexpr, NOT_FINITE: tl.constexpr,
    NOT_FACTORISED: tl.constexpr, WP: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    dtype: tl.constexpr = objective.dtype.element_ty
    if tl.load(outcome + b) == RUNNING:
        now = tl.load(iteration)
        ok = tl.load(ok_ + b) != 0
        finite = tl.load(finite_ + b) != 0
        nan = tl.full([], float("nan"), dtype)
        seen = tl.where(ok, tl.load(objective + b), nan)
        tl.store(history + b * H + now, seen)
        tl.store(steps + b, tl.load(steps + b) + (ok & finite).to(tl.int64))
        ridge = tl.load(jitter + b)
        ridge = tl.where(ok, ridge, ridge * 10)
        tl.store(jitter + b, ridge)
        why = tl.where(now + 1 >= limit, LIMIT, RUNNING)
        i = tl.arange(0, WP)
        past = tl.load(window + b * W + i, mask=i < W, other=0)
        past = tl.where(i == now % W, seen, past)
        tl.store(window + b * W + i, past, mask=i < W)
        if STOPS:
            unseen = tl.sum(((past != past) & (i < W)).to(tl.int32), 0)
            largest = tl.max(tl.where(i < W, past, -float("inf")), 0)
            spread = largest - tl.min(tl.where(i < W, past, float("inf")), 0)
            if CRITERION == 1:
                spread = spread * n
            if CRITERION == 2:
                size = tl.max(tl.where(i < W, tl.abs(past), 0), 0)
                spread = spread / tl.maximum(size, 1)
            flat = (unseen == 0) & (spread <= tl.full([], TOLERANCE, dtype)) & (now + 1 >= settled)
            why = tl.where(flat, CONVERGED, why)
        why = tl.where(ok & (finite == 0), NOT_FINITE, why)
        why = tl.where((ok == 0) & (ridge > tl.full([], LAST, dtype)), NOT_FACTORISED, why)
        tl.store(stopped_at + b, now + 1)
        tl.store(outcome + b, why.to(tl.int64))
