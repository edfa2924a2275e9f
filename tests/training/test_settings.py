"""Learning rates and stopping rules of docs/SPEC.md, section 6, and beta = 0."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest
import torch

from dlmexp.estimators import BMC, UPS, Quadrature, SmoothBMC
from dlmexp.training.state import Settings, State
from dlmexp.training.step import step
from dlmexp.training.train import Curve, Training
from dlmexp.training.variants import Fixed, solve
from tests.support.small_programs import N, program, stopped_cells, trained


def test_the_tolerance_of_the_paper_and_no_curve_unless_asked_for():
    settings = Settings(lr=0.1, iterations=5, window=20)
    assert settings.tolerance == 1e-4
    assert settings.evaluate_every is None


DECAYING = Settings(lr=0.1, iterations=200, window=10, tolerance=1e-3, criterion="relative", final_lr=1e-4, decay=60)


def test_the_learning_rate_decays_along_a_cosine_and_stays_there():
    lr = [float(DECAYING.lr_at(torch.tensor(t))) for t in (0, 15, 30, 60, 61, 500)]
    expected = [1e-4 + (0.1 - 1e-4) * (1 + np.cos(np.pi * min(t / 60, 1))) / 2 for t in (0, 15, 30, 60, 61, 500)]
    assert lr == pytest.approx(expected, rel=1e-12)
    assert lr[0] == pytest.approx(0.1)
    assert lr[-1] == pytest.approx(1e-4)
    assert Settings(lr=0.1, iterations=5, window=None).lr_at(torch.tensor(3)) == 0.1


def test_adam_takes_the_steps_of_the_schedule():
    """Torch's own Adam under the same rates."""
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


@pytest.mark.parametrize("resolution", [1 / 256, None])
def test_with_a_resolution_the_order_of_sums_does_not_change_the_path(resolution):
    """The same rows in another order: sums over rows differ by rounding, as they do between devices and batch sizes."""
    settings = replace(DECAYING, epsilon=1e-3 if resolution else 1e-8, resolution=resolution)
    one, other = program(objective="elbo"), program(objective="elbo")
    order = torch.randperm(N, generator=torch.Generator().manual_seed(0))
    other = replace(other, split=replace(other.split, X=other.split.X[:, order], y=other.split.y[:, order]))
    states = []
    for made in (one, other):
        state = State.fresh(one.initial(), settings)
        for _ in range(60):
            step(made, state, settings)
        states.append(state)
    apart = max(float((states[0].values[name] - states[1].values[name]).abs().max()) for name in states[0].values)
    assert apart == 0 if resolution else apart > 1e-11


def test_the_rule_applies_after_the_decay():
    found = trained(program(), DECAYING)
    for finished in found.values():
        assert finished.stopped == "converged"
        assert finished.iterations >= 70
        last = finished.objective[-10:]
        assert np.ptp(last) <= 1e-3 * max(1.0, np.abs(last).max())


def test_the_criterion_on_the_sum_is_n_times_as_strict():
    settings = Settings(lr=0.1, iterations=400, window=10, tolerance=3e-3)
    per_row = trained(program(objective="elbo"), settings)
    summed = trained(program(objective="elbo"), replace(settings, criterion="sum"))
    same = trained(program(objective="elbo"), replace(settings, tolerance=3e-3 / N))
    for cell, finished in summed.items():
        assert finished.iterations == same[cell].iterations > per_row[cell].iterations


@pytest.mark.parametrize("stop_at", [23, 60, 66])
def test_resumed_in_the_middle_of_a_decay_it_ends_in_the_same_bits(stop_at):
    def interrupted(training: Training) -> None:
        if int(training.state.iteration) == stop_at:
            kept.append((training.state.arrays(), list(training.cells)))
            raise InterruptedError

    kept = []
    whole = trained(program(), DECAYING)
    with contextlib.suppress(InterruptedError):
        for _ in stopped_cells(Training.start(program(), DECAYING), DECAYING, interrupted):
            pass
    arrays, cells = kept[0]
    state = State.from_arrays(arrays, torch.device("cpu"))
    again = Training(program(), state, cells, [0.0] * 3, [Curve() for _ in range(3)])
    for finished in stopped_cells(again, DECAYING):
        assert finished.objective.tobytes() == whole[finished.cell].objective.tobytes()
        assert finished.metrics == whole[finished.cell].metrics


KINDS = {
    "joint": {"kind": "joint"},
    "unwhitened": {"kind": "joint", "whitened": False},
    "elbo": {"kind": "joint", "objective": "elbo"},
    "bmc": {"kind": "joint", "estimator": BMC(3)},
    "smooth_bmc": {"kind": "joint", "estimator": SmoothBMC(3, 1e-4)},
    "ups": {"kind": "joint", "estimator": UPS(3)},
    "quadrature": {"kind": "joint", "estimator": Quadrature(20)},
    "counts": {"kind": "joint", "likelihood": "poisson"},
    "fixed": {"kind": "fixed"},
    "regression": {"kind": "joint", "likelihood": "gaussian"},
    "collapsed": {"kind": "collapsed", "likelihood": "gaussian", "objective": "elbo"},
    "sq_dlm": {"kind": "collapsed", "likelihood": "gaussian", "objective": "sq_dlm"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_beta_zero_is_the_limit_of_small_betas(kind):
    settings = Settings(lr=0.05, iterations=15, window=None)
    small, zero = trained(program(**KINDS[kind], betas=(1e-9, 0.0), index=(0, 0)), settings).values()
    assert not zero.failed
    np.testing.assert_allclose(zero.objective, small.objective, rtol=1e-3, atol=1e-4)


def test_beta_zero_on_the_path_of_square_loss():
    made = program("fixed", (1e-9, 0.0), (0, 0), likelihood="gaussian", objective="sq_dlm")
    assert isinstance(made, Fixed)
    small, zero = solve(made)
    assert zero.objective[-1] == pytest.approx(small.objective[-1], rel=1e-6)
    assert np.isfinite(zero.metrics["test"]["mse"])
