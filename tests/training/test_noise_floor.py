"""A floor under the noise: never crossed, trained through softplus on top of it; without one nothing is changed."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import softplus

from dlmexp.gp.cholesky import FIRST_JITTER
from dlmexp.training import program as programs
from dlmexp.training.program import Q, constrain, unconstrain, unsoftplus
from dlmexp.training.state import Settings
from tests.support.small_programs import program, trained

FLOOR = 0.01
KINDS = [("joint", "log_dlm"), ("joint", "elbo"), ("collapsed", "elbo"), ("collapsed", "fitc")]


def with_floor(kind: str, objective: str, floor: float | None):
    made = program(kind, likelihood="gaussian", objective=objective)
    made.model.noise_floor = floor
    made.__post_init__()
    return made


@given(st.floats(-1e4, 50))
def test_never_below_whatever_adam_does_and_the_slope_is_the_sigmoid(value):
    raw = torch.tensor([value], dtype=torch.float64, requires_grad=True)
    noise = constrain({"noise": raw}, {"noise"}, {"noise": FLOOR})["noise"]
    assert noise.item() >= FLOOR
    (slope,) = torch.autograd.grad(noise.sum(), raw)
    torch.testing.assert_close(slope, torch.sigmoid(raw.detach()))


@given(st.floats(1e-6, 1e6))
def test_there_and_back(above):
    value = {"noise": torch.tensor([FLOOR + above], dtype=torch.float64), "mean": torch.tensor([-3.0])}
    back = constrain(unconstrain(value, {"noise"}, {"noise": FLOOR}), {"noise"}, {"noise": FLOOR})
    torch.testing.assert_close(back["noise"], value["noise"])
    assert torch.equal(back["mean"], value["mean"])


@pytest.mark.parametrize(("kind", "objective"), KINDS)
def test_the_objective_is_that_of_the_same_noise_without_a_floor(kind, objective):
    """With a floor the noise is c = floor + softplus(r), so the slope in r is the slope in c times sigmoid(r)."""
    free, floored = with_floor(kind, objective, None), with_floor(kind, objective, FLOOR)
    values = {name: value.clone() for name, value in floored.initial().items()}
    values["noise"] = torch.tensor([-7.0, -3.0, 0.5], dtype=torch.float64)
    same = values | {"noise": unsoftplus(FLOOR + softplus(values["noise"]))}
    jitter, iteration = torch.full((3,), FIRST_JITTER, dtype=torch.float64), torch.tensor(0)
    slopes = []
    for made, at in ((floored, values), (free, same)):
        leaves = {name: value.detach().requires_grad_() for name, value in at.items()}
        objective_value = made.objective(leaves, jitter, iteration).objective
        slopes.append((objective_value.detach(), *torch.autograd.grad(objective_value.sum(), [*leaves.values()])))
    names = ["objective", *values]
    for name, ours, theirs in zip(names, *slopes, strict=True):
        if name == "noise":  # undo both maps
            ours = ours / torch.sigmoid(values["noise"])
            theirs = theirs / torch.sigmoid(same["noise"])
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("kind", "objective"), KINDS)
def test_noise_that_would_fall_below_stays_above(kind, objective):
    def noise_of(floor):
        made = with_floor(kind, objective, floor)
        made.split.y[:] = torch.sin(made.split.X[..., 0])  # nothing random in it
        made.__post_init__()
        steps = Settings(lr=0.1, iterations=150, window=None)
        return torch.tensor([float(one.hyperparameters["noise"]) for one in trained(made, steps).values()])

    floor = 0.08
    assert noise_of(None).min() < 0.8 * floor
    assert floor <= noise_of(floor).min() < 1.3 * floor


def _as_before(raw, positive, floors=None):
    """What `constrain` did before there were floors."""
    found = {name: softplus(value) if name in positive else value for name, value in raw.items()}
    return {name: value.tril() if name == "L" else value for name, value in found.items()}


@pytest.mark.parametrize(("kind", "objective"), KINDS)
def test_without_a_floor_training_is_what_it_was_bit_for_bit(kind, objective, monkeypatch):
    def end():
        made, steps = with_floor(kind, objective, None), Settings(lr=0.1, iterations=40, window=None)
        return {cell: one.objective for cell, one in trained(made, steps).items()}, made.initial()

    now, start = end()
    monkeypatch.setattr(programs, "constrain", _as_before)
    before, start_before = end()
    assert all((now[cell] == before[cell]).all() for cell in range(3))
    assert all(torch.equal(start[name], start_before[name]) for name in start if name not in Q)
