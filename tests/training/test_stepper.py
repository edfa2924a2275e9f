"""The stepper: one iteration per call, on a GPU by a captured graph with the same numbers. (No Hydra in this file.)"""

import pytest
import torch

from dlmexp.estimators import BMC, UPS
from dlmexp.training import step as module
from dlmexp.training.state import Settings, State
from dlmexp.training.step import step, stepper
from dlmexp.training.train import Training
from tests.support.small_programs import program, stopped_cells

pytestmark = pytest.mark.slow

SETTINGS = Settings(lr=0.05, iterations=40, window=5)
CASES = {
    "joint": {"kind": "joint"},
    "joint bmc": {"kind": "joint", "estimator": BMC(3)},
    "joint ups": {"kind": "joint", "estimator": UPS(3)},
    "joint ups poisson": {"kind": "joint", "estimator": UPS(3), "likelihood": "poisson"},
    "joint unwhitened": {"kind": "joint", "whitened": False},
    "joint minibatch": {"kind": "joint", "minibatch": 7},
    "fixed": {"kind": "fixed"},
    "fixed minibatch": {"kind": "fixed", "minibatch": 7},
    "elbo": {"kind": "collapsed", "likelihood": "gaussian", "objective": "elbo"},
    "fitc": {"kind": "collapsed", "likelihood": "gaussian", "objective": "fitc"},
    "sq_dlm": {"kind": "collapsed", "likelihood": "gaussian", "objective": "sq_dlm"},
}

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def _advanced(made, iterations, eager, resume_at=None):
    state = State.fresh(made.initial(), SETTINGS)
    advance = stepper(made, state, SETTINGS)
    for iteration in range(iterations):
        if iteration == resume_at:
            state = State.from_arrays(state.arrays(), state.outcome.device)
            advance = stepper(made, state, SETTINGS)
        if eager:
            made.load_minibatch(iteration)
            step(made, state, SETTINGS)
        else:
            advance()
    return state


def _same(one, other, rtol=0.0, atol=0.0):
    for name, array in one.arrays().items():
        torch.testing.assert_close(
            torch.as_tensor(array), torch.as_tensor(other.arrays()[name]), rtol=rtol, atol=atol, equal_nan=True
        )


@needs_gpu
@pytest.mark.parametrize("case", [*CASES, "rejection"])
def test_captured_equals_eager_and_gpu_equals_cpu(case):
    how = CASES.get(case, {"estimator": UPS(2, "rejection"), "likelihood": "poisson"})  # which is not captured
    assert program(**how, device="cuda").capturable == (case != "rejection")
    captured, eager = (_advanced(program(**how, device="cuda"), 30, eager=eager) for eager in (False, True))
    _same(captured, eager, rtol=1e-9, atol=1e-10)
    gpu, cpu = (_advanced(program(**how, device=device), 10, eager=False) for device in ("cuda", "cpu"))
    _same(gpu, cpu, rtol=1e-7, atol=1e-8)


@needs_gpu
def test_capturing_leaves_the_state_as_it_was():
    made = program(device="cuda")
    state = State.fresh(made.initial(), SETTINGS)
    before = state.clone()
    stepper(made, state, SETTINGS)
    _same(state, before)


@needs_gpu
def test_training_on_a_gpu_ends_as_on_a_cpu():
    settings = Settings(lr=0.1, iterations=300, window=20, evaluate_every=30, check_every=50)
    ends = {}
    for device in ("cpu", "cuda"):
        made = program(device=device, objective="elbo")
        ends[device] = {f.cell: f for f in stopped_cells(Training.start(made, settings), settings)}
    for cell, cpu in ends["cpu"].items():
        gpu = ends["cuda"][cell]
        assert gpu.iterations == cpu.iterations
        assert gpu.curve.iterations == cpu.curve.iterations
        assert gpu.metrics["test"]["nll"] == pytest.approx(cpu.metrics["test"]["nll"], abs=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_parts_in_threads_of_their_own_are_the_step_itself(case, monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setattr(module, "LEAST_ENTRIES", 1)
    try:
        torch.set_num_threads(3)
        divided = len(module.divided(program(**CASES[case]), State.fresh(program(**CASES[case]).initial(), SETTINGS)))
        found = _advanced(program(**CASES[case]), 12, eager=False, resume_at=7)
    finally:
        torch.set_num_threads(before)
    assert divided == 3
    # The products of a library depend in the last bit on how many there are; where cells share one, that is the batch.
    _same(found, _advanced(program(**CASES[case]), 12, eager=True), rtol=1e-12, atol=1e-14)
