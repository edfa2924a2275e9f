"""One iteration: who moves, who stops and why, and that neighbours do not notice; Adam against torch's; the rules of
docs/SPEC.md, section 6; the state as arrays."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from dlmexp.estimators import UPS
from dlmexp.gp.cholesky import FIRST_JITTER, LAST_JITTER
from dlmexp.training.state import CONVERGED, NOT_FACTORISED, NOT_FINITE, RUNNING, Settings, State
from dlmexp.training.step import adam, step
from tests.support.small_programs import N, program, trained

SETTINGS = Settings(lr=0.1, iterations=200, window=5, tolerance=1e-3)


def _run(made, iterations, settings=SETTINGS, before=lambda state, t: None):
    state = State.fresh(made.initial(), settings)
    for t in range(iterations):
        before(state, t)
        step(made, state, settings)
    return state


def _spoil(name, at, cell, value):
    def before(state, t):
        if t == at:
            state.values[name][cell] = value

    return before


@pytest.mark.slow
def test_converged_when_the_window_is_flat_and_frozen_from_then_on():
    settings = Settings(lr=0.1, iterations=400, window=8, tolerance=1e-3)
    kept = {}

    def note(state, t):
        for cell in np.flatnonzero(state.outcome == CONVERGED):
            kept.setdefault(int(cell), {name: value[cell].clone() for name, value in state.values.items()})

    state = _run(program(objective="elbo"), 400, settings, note)
    assert len(kept) == 3
    for cell, values in kept.items():
        end = int(state.stopped_at[cell])
        seen = state.history[cell]
        assert seen[:end].isfinite().all()
        assert seen[end:].isnan().all()
        spread = [seen[t - 8 : t].max() - seen[t - 8 : t].min() for t in range(8, end + 1)]
        assert spread[-1] <= 1e-3
        assert all(s > 1e-3 for s in spread[:-1])
        for name, value in values.items():
            assert torch.equal(state.values[name][cell], value)


@pytest.mark.parametrize(
    ("name", "value"), [("m", torch.nan), ("m", torch.inf), ("lengthscale", torch.nan), ("L", 0.0)]
)
def test_a_cell_that_turns_bad_stops_alone(name, value):
    """L = 0 makes the objective infinite (log det); a NaN lengthscale makes Kuu unfactorisable, whatever the jitter."""
    clean = _run(program(), 30)
    dirty = _run(program(), 30, before=_spoil(name, 7, 1, value))
    expected = NOT_FACTORISED if name == "lengthscale" else NOT_FINITE
    assert int(dirty.outcome[1]) == expected
    attempts = 6 if expected == NOT_FACTORISED else 1
    assert int(dirty.stopped_at[1]) == 7 + attempts
    assert int(dirty.steps[1]) == 7
    for cell in (0, 2):
        for field, array in clean.arrays().items():
            if array.ndim:
                assert array[cell].tobytes() == dirty.arrays()[field][cell].tobytes(), field
    untouched = [n for n in dirty.values if n != name]
    for n in untouched:
        assert dirty.values[n][1].isfinite().all()


def test_jitter_grows_until_the_cell_factorises():
    """Inputs so far from the origin that rounding makes the kernel matrix indefinite by more than 1e-6."""
    made = program()

    def far(state, t):
        if t == 3:
            state.values["Z"][1].mul_(1e-3).add_(2e5)

    state = _run(made, 12, before=far)
    assert state.jitter[[0, 2]].tolist() == [FIRST_JITTER] * 2
    assert FIRST_JITTER < state.jitter[1] <= LAST_JITTER
    assert int(state.outcome[1]) == RUNNING
    assert 3 < int(state.steps[1]) < 12
    assert state.history[1, :12].isnan().sum() == 12 - state.steps[1]


def _problem(steps: int):
    g = torch.Generator().manual_seed(0)
    shapes = {"a": (3, 4, 2), "b": (3,)}
    values, *grads = (
        {name: torch.randn(shape, generator=g, dtype=torch.float64) for name, shape in shapes.items()}
        for _ in range(1 + steps)
    )
    return values, [{name: 10 * grad for name, grad in each.items()} for each in grads]


def _ours(values, grads, moves, lr, **how):
    settings = Settings(lr, iterations=1, window=None, **how)
    state = State.fresh(values, settings)
    for grad, move in zip(grads, moves, strict=True):
        state.steps += move
        adam(state, grad, move, settings)
    return state.values, state.first, state.second


def _torchs(value, grads, lr, epsilon=1e-8):
    parameter = torch.nn.Parameter(value.clone())
    optimiser = torch.optim.Adam([parameter], lr=lr, eps=epsilon)
    for grad in grads:
        parameter.grad = grad.clone()
        optimiser.step()
    return parameter.detach()


ALL = torch.ones(3, dtype=torch.bool)


@pytest.mark.parametrize("epsilon", [1e-8, 1e-3, 10.0])
def test_equals_torch(epsilon):
    values, grads = _problem(60)
    ours, _, _ = _ours(values, grads, [ALL] * 60, 0.1, epsilon=epsilon)
    for name, value in values.items():
        theirs = _torchs(value, [g[name] for g in grads], 0.1, epsilon)
        torch.testing.assert_close(ours[name], theirs, rtol=1e-12, atol=1e-12)


def test_with_a_resolution_the_step_is_the_nearest_multiple_of_it():
    values, grads = _problem(20)
    before, first, second = (part["a"] for part in _ours(values, grads[:-1], [ALL] * 19, 0.1, resolution=1 / 16))
    after = _ours(values, grads, [ALL] * 20, 0.1, resolution=1 / 16)[0]["a"]
    taken = (before - after) / 0.1
    torch.testing.assert_close(taken, torch.round(16 * taken) / 16, rtol=0, atol=1e-12)
    grad = grads[-1]["a"]
    m, v = (0.9 * first + 0.1 * grad) / (1 - 0.9**20), (0.999 * second + 0.001 * grad**2) / (1 - 0.999**20)
    assert (taken - m / (v.sqrt() + 1e-8)).abs().max() <= 1 / 32 + 1e-12
    assert taken.unique().numel() > 5


@pytest.mark.parametrize("resolution", [1 / 256, None])
def test_rounding_errors_of_the_gradient_do_not_enter_steps_with_a_resolution(resolution):
    """Some of the gradients are zero but for their rounding errors, as those of inducing inputs are at the start."""
    values, grads = _problem(40)
    g = torch.Generator().manual_seed(1)

    def rounded(grad):
        return grad * (torch.arange(3) != 1).view(3, 1, 1) + 1e-14 * torch.randn(3, 4, 2, generator=g).double()

    one, other = (
        _ours({"a": values["a"]}, [{"a": rounded(grad["a"])} for grad in grads], [ALL] * 40, 0.1,
              epsilon=1e-3, resolution=resolution)[0]["a"]
        for _ in range(2)
    )  # fmt: skip
    assert torch.equal(one, other) == (resolution is not None)
    assert torch.equal(one[1], values["a"][1]) == (resolution is not None)


def test_a_cell_that_does_not_move_misses_that_step_and_nothing_else():
    values, grads = _problem(20)
    moves = [torch.tensor([True, t % 3 != 0, t < 5]) for t in range(20)]
    ours, first, second = _ours(values, grads, moves, 0.05)
    for cell in range(3):
        seen = [g["a"][cell] for g, move in zip(grads, moves, strict=True) if move[cell]]
        torch.testing.assert_close(ours["a"][cell], _torchs(values["a"][cell], seen, 0.05), rtol=1e-12, atol=1e-12)
    stopped = _ours(values, grads[:5], moves[:5], 0.05)
    for after, before in zip((ours, first, second), stopped, strict=True):
        assert torch.equal(after["a"][2], before["a"][2])


DECAYING = Settings(lr=0.1, iterations=200, window=10, tolerance=1e-3, criterion="relative", final_lr=1e-4, decay=60)


def test_adam_takes_the_steps_of_the_schedule():
    """Torch's own Adam under the same rates, which fall along a cosine and stay where it ends."""
    lr = [float(DECAYING.lr_at(torch.tensor(t))) for t in (0, 15, 60, 500)]
    expected = [1e-4 + (0.1 - 1e-4) * (1 + np.cos(np.pi * share)) / 2 for share in (0, 0.25, 1, 1)]
    assert lr == pytest.approx(expected, rel=1e-12)
    made = program(betas=(1.0,), index=(0,))
    state = State.fresh(made.initial(), DECAYING)
    values = {name: value.clone().requires_grad_() for name, value in made.initial().items()}
    theirs = torch.optim.Adam(values.values(), lr=0.1)
    for t in range(70):
        theirs.param_groups[0]["lr"] = float(DECAYING.lr_at(torch.tensor(t)))
        theirs.zero_grad()
        made.objective(values, state.jitter, torch.tensor(t)).objective.sum().backward()
        theirs.step()
        step(made, state, DECAYING)
    for name, value in values.items():
        torch.testing.assert_close(state.values[name], value.detach(), rtol=1e-6, atol=1e-8)


def test_the_rule_applies_after_the_decay():
    found = trained(program(), DECAYING)
    for finished in found.values():
        assert finished.stopped == "converged"
        assert finished.iterations >= 70
        last = finished.objective[-10:]
        assert np.ptp(last) <= 1e-3 * max(1.0, np.abs(last).max())


@pytest.mark.slow
def test_the_criterion_on_the_sum_is_n_times_as_strict():
    settings = Settings(lr=0.1, iterations=400, window=10, tolerance=3e-3)
    per_row = trained(program(objective="elbo"), settings)
    summed = trained(program(objective="elbo"), replace(settings, criterion="sum"))
    same = trained(program(objective="elbo"), replace(settings, tolerance=3e-3 / N))
    for cell, finished in summed.items():
        assert finished.iterations == same[cell].iterations > per_row[cell].iterations
        assert finished.stopped == ("limit" if finished.iterations == settings.iterations else "converged")


KINDS = {
    "joint": {"kind": "joint"},
    "ups": {"kind": "joint", "estimator": UPS(3)},
    "counts": {"kind": "joint", "likelihood": "poisson"},
    "fixed": {"kind": "fixed"},
    "collapsed": {"kind": "collapsed", "likelihood": "gaussian", "objective": "elbo"},
    "sq_dlm": {"kind": "collapsed", "likelihood": "gaussian", "objective": "sq_dlm"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_beta_zero_is_the_limit_of_small_betas(kind):
    settings = Settings(lr=0.05, iterations=15, window=None)
    small, zero = trained(program(**KINDS[kind], betas=(1e-9, 0.0), index=(0, 0)), settings).values()
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
