"""The state of a batch: to arrays and back, and parts of it."""

import torch

from dlmexp.training.state import RUNNING, Settings, State
from dlmexp.training.step import step
from tests.support.small_programs import program

SETTINGS = Settings(lr=0.1, iterations=9, window=4)


def _state(steps=5):
    made = program()
    state = State.fresh(made.initial(), SETTINGS)
    for _ in range(steps):
        step(made, state, SETTINGS)
    return state


def _equal(one, other):
    a, b = one.arrays(), other.arrays()
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype
        assert a[name].tobytes() == b[name].tobytes(), name


def test_to_arrays_and_back():
    state = _state()
    _equal(State.from_arrays(state.arrays(), torch.device("cpu")), state)


def test_fresh():
    state = State.fresh(program().initial(), SETTINGS)
    assert state.live.all()
    assert int(state.iteration) == 0
    assert state.history.shape == (3, 9)
    assert state.window.shape == (3, 4)
    assert state.window.isnan().all()
    assert (state.outcome == RUNNING).all()


def test_fresh_does_not_share_the_values_it_is_given():
    values = program().initial()
    state = State.fresh(values, SETTINGS)
    values["m"] += 1
    assert (state.values["m"] == 0).all()


def test_parts():
    state = _state()
    part = state.keep([2, 0])
    assert torch.equal(part.values["Z"], state.values["Z"][[2, 0]])
    assert torch.equal(part.history.nan_to_num(), state.history[[2, 0]].nan_to_num())
    assert torch.equal(part.iteration, state.iteration)


def test_clone_and_copy():
    state, before = _state(), _state().clone()
    state.values["m"].add_(1)
    state.iteration.add_(1)
    kept = state.values["m"]
    state.copy_(before)
    _equal(state, before)
    assert state.values["m"] is kept
