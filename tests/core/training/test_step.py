"""One iteration: who moves, who stops and why, and that neighbours do not notice; Adam against
torch's; the rules of docs/SPEC.md, section 6; the state as arrays."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from dlmexp.core.gp.cholesky import FIRST_JITTER, LAST_JITTER
from dlmexp.core.training.adam import adam
from dlmexp.core.training.settings import Settings
from dlmexp.core.training.state import (
    CONVERGED,
    NOT_FACTORISED,
    NOT_FINITE,
    RUNNING,
    State,
)
from dlmexp.core.training.step import step
from tests.support.small_programs import PROGRAMS, N, program, trained, value_of

SETTINGS = Settings(lr=0.1, iterations=200, window=5, tolerance=1e-3)


def _run(made, iterations, settings=SETTINGS, before=lambda state, t: None):
    state = State.fresh(made.initial(), settings)
    for t in range(iterations):
        before(state, t)
        step(made, state, settings)
    return state


@cache
def _clean():
    return _run(program(), 14)


DECAYING = Settings(
    lr=0.1, iterations=200, window=10, tolerance=1e-3, criterion="relative", final_lr=1e-4, decay=60
)
FLAT = {
    "mean": (replace(SETTINGS, window=8, tolerance=3e-3), lambda seen: np.ptp(seen) <= 3e-3),
    "sum": (
        replace(SETTINGS, criterion="sum", tolerance=0.3),
        lambda seen: N * np.ptp(seen) <= 0.3,
    ),
    "relative": (DECAYING, lambda seen: np.ptp(seen) <= 1e-3 * max(1.0, np.abs(seen).max())),
}


@pytest.mark.slow
@pytest.mark.parametrize("criterion", FLAT)
def test_converged_when_the_window_is_flat_and_frozen_from_then_on(criterion):
    """After the decay of the learning rate, where there is one."""
    (settings, flat), kept = FLAT[criterion], {}
    window = settings.window or 0
    first = window + (settings.decay or 0)

    def note(state, t):
        for cell in np.flatnonzero(state.outcome == CONVERGED):
            kept.setdefault(
                int(cell), {name: value[cell].clone() for name, value in state.values.items()}
            )

    state = _run(program(objective="elbo"), 200, settings, note)
    assert len(kept) == 3
    for cell, values in kept.items():
        end, seen = int(state.stopped_at[cell]), state.history[cell].numpy()
        assert np.isnan(seen).tolist() == [False] * end + [True] * (200 - end)
        found = [bool(flat(seen[t - window : t])) for t in range(first, end + 1)]
        assert found == [False] * (end - first) + [True]
        for name, value in values.items():
            assert torch.equal(state.values[name][cell], value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("m", torch.nan),
        ("m", torch.inf),
        ("lengthscale", torch.nan),
        ("L", 0.0),
        ("the objective", torch.inf),
    ],
)
def test_a_cell_that_turns_bad_stops_alone(name, value, monkeypatch):
    """L = 0 makes the objective infinite (log det); a NaN lengthscale makes Kuu unfactorisable,
    whatever the jitter. An infinite constant is in the objective and not in its gradient."""
    made, clean = program(), _clean()
    objective = made.objective

    def spoil(state, t):
        if t == 7 and name in state.values:
            state.values[name][1] = value

    def spoilt(values, jitter, iteration):
        found = objective(values, jitter, iteration)
        constant = value if name == "the objective" and iteration == 7 else 0.0
        return found._replace(per_row=found.per_row + torch.tensor([0.0, constant, 0.0]))

    monkeypatch.setattr(made, "objective", spoilt)
    dirty = _run(made, 14, before=spoil)
    expected, attempts = (NOT_FACTORISED, 6) if name == "lengthscale" else (NOT_FINITE, 1)
    assert [int(each[1]) for each in (dirty.outcome, dirty.stopped_at, dirty.steps)] == [
        expected,
        7 + attempts,
        7,
    ]
    for cell in (0, 2):
        for field, array in clean.arrays().items():
            if array.ndim:
                assert array[cell].tobytes() == dirty.arrays()[field][cell].tobytes(), field
    assert all(values[1].isfinite().all() for each, values in dirty.values.items() if each != name)


def test_jitter_grows_until_the_cell_factorises():
    """Inputs so far from the origin that rounding makes the kernel matrix indefinite by more than
    1e-6."""

    def far(state, t):
        if t == 3:
            state.values["Z"][1].mul_(1e-3).add_(2e5)

    state = _run(program(), 12, before=far)
    assert state.jitter[[0, 2]].tolist() == [FIRST_JITTER] * 2
    assert FIRST_JITTER < state.jitter[1] <= LAST_JITTER
    assert int(state.outcome[1]) == RUNNING
    assert 3 < int(state.steps[1]) < 12
    assert state.history[1, :12].isnan().sum() == 12 - state.steps[1]


def _gradients(steps):
    """Values of three cells, and a gradient for each step."""
    g = torch.Generator().manual_seed(0)
    shapes = {"a": (3, 4, 2), "b": (3,)}
    values, *grads = (
        {
            name: 10 * torch.randn(shape, generator=g, dtype=torch.float64)
            for name, shape in shapes.items()
        }
        for _ in range(1 + steps)
    )
    return values, grads


def _adam(values, grads, moves=None, **how):
    """Values and moments after a step along each gradient, of the cells that move (None: all)."""
    settings = Settings(0.1, iterations=1, window=None, **how)
    state = State.fresh(values, settings)
    for grad, move in zip(
        grads, moves or [torch.ones(3, dtype=torch.bool)] * len(grads), strict=True
    ):
        state.steps += move
        adam(state, grad, move, settings)
    return state.values, state.first, state.second


@pytest.mark.parametrize("epsilon", [1e-8, 1e-3, 10.0])
def test_adam_equals_torch_and_a_cell_that_does_not_move_misses_that_step_alone(epsilon):
    values, grads = _gradients(40)
    moves = [torch.tensor([True, t % 3 != 0, t < 5]) for t in range(40)]
    ours = _adam(values, grads, moves, epsilon=epsilon)
    for name, start in values.items():
        for cell in range(3):
            parameter = torch.nn.Parameter(start[cell].clone())
            optimiser = torch.optim.Adam([parameter], lr=0.1, eps=epsilon)
            for grad, move in zip(grads, moves, strict=True):
                if move[cell]:
                    parameter.grad = grad[name][cell].clone()
                    optimiser.step()
            moments = (optimiser.state[parameter][each] for each in ("exp_avg", "exp_avg_sq"))
            for mine, theirs in zip(ours, (parameter.detach(), *moments), strict=True):
                torch.testing.assert_close(mine[name][cell], theirs, rtol=1e-12, atol=1e-12)


def test_with_a_resolution_the_step_is_the_nearest_multiple_of_it():
    values, grads = _gradients(20)
    before, first, second = (part["a"] for part in _adam(values, grads[:-1], resolution=1 / 16))
    taken = (before - _adam(values, grads, resolution=1 / 16)[0]["a"]) / 0.1
    torch.testing.assert_close(taken, torch.round(16 * taken) / 16, rtol=0, atol=1e-12)
    grad = grads[-1]["a"]
    m, v = (
        (0.9 * first + 0.1 * grad) / (1 - 0.9**20),
        (0.999 * second + 0.001 * grad**2) / (1 - 0.999**20),
    )
    assert (taken - m / (v.sqrt() + 1e-8)).abs().max() <= 1 / 32 + 1e-12
    assert taken.unique().numel() > 5


@pytest.mark.parametrize("resolution", [1 / 256, None])
def test_rounding_errors_of_the_gradient_do_not_enter_steps_with_a_resolution(resolution):
    """Those of cell 1 are zero but for their rounding errors, as those of inducing inputs are at
    the start."""
    values, grads = _gradients(40)
    g, seen = torch.Generator().manual_seed(1), torch.tensor([1.0, 0.0, 1.0]).view(3, 1, 1)
    ends = []
    for _ in range(2):
        rounded = [
            {"a": seen * each["a"] + 1e-14 * torch.randn(3, 4, 2, generator=g).double()}
            for each in grads
        ]
        ends.append(_adam({"a": values["a"]}, rounded, epsilon=1e-3, resolution=resolution)[0]["a"])
    assert torch.equal(*ends) == (resolution is not None)
    assert torch.equal(ends[0][1], values["a"][1]) == (resolution is not None)


def test_adam_takes_the_steps_of_the_schedule():
    """Torch's own Adam under the same rates, which fall along a cosine and stay where it ends."""
    lr = [float(DECAYING.lr_at(torch.tensor(t))) for t in (0, 15, 60, 500)]
    expected = [1e-4 + (0.1 - 1e-4) * (1 + np.cos(np.pi * share)) / 2 for share in (0, 0.25, 1, 1)]
    assert lr == pytest.approx(expected, rel=1e-12)
    made = program(betas=(1.0,), index=(0,))
    values = {name: value.clone().requires_grad_() for name, value in made.initial().items()}
    theirs = torch.optim.Adam(values.values(), lr=0.1)
    short = replace(DECAYING, decay=15)
    for t in range(20):
        theirs.param_groups[0]["lr"] = float(short.lr_at(torch.tensor(t)))
        theirs.zero_grad()
        value_of(made, values, t).per_row.sum().backward()
        theirs.step()
    ours = _run(made, 20, short).values
    for name, value in values.items():
        torch.testing.assert_close(ours[name], value.detach(), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind", ["joint", "ups", "counts", "fixed", "elbo", "sq_dlm"])
def test_beta_zero_is_the_limit_of_small_betas(kind):
    settings = Settings(lr=0.05, iterations=8, window=None)
    small, zero = trained(
        program(**PROGRAMS[kind], betas=(1e-9, 0.0), index=(0, 0)), settings
    ).values()
    assert not zero.failed
    np.testing.assert_allclose(zero.objective, small.objective, rtol=1e-3, atol=1e-4)


def test_a_state_as_arrays_and_copied_in_place():
    state = _run(program(), 5)
    again, kept = State.from_arrays(state.arrays(), torch.device("cpu")), state.values["m"]
    state.values["m"].add_(1)
    state.copy_(again)
    assert state.values["m"] is kept
    for name, array in again.arrays().items():
        assert state.arrays()[name].tobytes() == array.tobytes(), name
