"""One iteration: who moves, who stops and why, and that neighbours do not notice."""

import pytest
import torch

from dlmexp.gp.cholesky import FIRST_JITTER, LAST_JITTER
from dlmexp.training.state import CONVERGED, LIMIT, NOT_FACTORISED, NOT_FINITE, RUNNING, Settings, State
from dlmexp.training.step import step
from tests.support.small_programs import program

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


def test_converged_when_the_window_is_flat_and_frozen_from_then_on():
    made, settings = program(objective="elbo"), Settings(lr=0.1, iterations=400, window=8, tolerance=1e-3)
    state = State.fresh(made.initial(), settings)
    kept = {}
    for _ in range(400):
        step(made, state, settings)
        for cell in range(3):
            if state.outcome[cell] == CONVERGED and cell not in kept:
                kept[cell] = {name: value[cell].clone() for name, value in state.values.items()}
        if len(kept) == 3:
            break
    assert len(kept) == 3
    for _ in range(10):
        step(made, state, settings)
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


def test_limit():
    state = _run(program(), 3, Settings(lr=0.1, iterations=3, window=50))
    assert state.outcome.tolist() == [LIMIT] * 3
    assert state.stopped_at.tolist() == [3] * 3


def test_without_a_window_it_runs_to_the_end():
    state = _run(program(), 4, Settings(lr=0.0, iterations=4, window=None))
    assert state.outcome.tolist() == [LIMIT] * 3


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


def test_a_cell_that_fails_to_factorise_is_not_moved_and_tries_again(monkeypatch):
    made = program()
    plain = made.objective

    def flaky(values, jitter, iteration):
        value = plain(values, jitter, iteration)
        return value._replace(ok=value.ok & ((torch.arange(3) != 1) | (jitter > 1e-4)))

    monkeypatch.setattr(made, "objective", flaky)
    state = _run(made, 5)
    assert state.jitter.tolist() == pytest.approx([1e-6, 1e-3, 1e-6])
    assert state.steps.tolist() == [5, 2, 5]
    assert state.outcome.tolist() == [RUNNING] * 3
    assert state.history[1].isnan().tolist()[:5] == [True, True, True, False, False]


def test_gives_up_after_the_largest_jitter(monkeypatch):
    made = program()
    plain = made.objective
    monkeypatch.setattr(made, "objective", lambda *given: plain(*given)._replace(ok=torch.tensor([True, False, True])))
    state = _run(made, 10)
    assert state.outcome.tolist() == [RUNNING, NOT_FACTORISED, RUNNING]
    assert int(state.stopped_at[1]) == 6  # 1e-6, ..., 1e-1
    assert int(state.steps[1]) == 0
