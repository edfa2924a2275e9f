"""The stepper: one iteration per call, on a GPU by a captured graph with the same numbers. (No Hydra in this file.)"""

import pytest
import torch

from dlmexp.estimators import UPS
from dlmexp.training import step as module
from dlmexp.training.state import Settings, State
from dlmexp.training.step import step, stepper
from tests.support.small_programs import PROGRAMS, program, trained

pytestmark = pytest.mark.slow

SETTINGS = Settings(lr=0.05, iterations=40, window=5)
CASES = {name: how for name, how in PROGRAMS.items() if name not in ("afresh", "kernel of GPyTorch", "fixed elbo")}

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


def _same(state, other, rtol=0.0, atol=0.0):
    torch.testing.assert_close(state.arrays(), other.arrays(), rtol=rtol, atol=atol, equal_nan=True)


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
def test_training_on_a_gpu_ends_as_on_a_cpu():
    settings = Settings(lr=0.1, iterations=300, window=20, evaluate_every=30, check_every=50)
    on_cpu, on_gpu = (trained(program(device=device, objective="elbo"), settings) for device in ("cpu", "cuda"))
    for cell, cpu in on_cpu.items():
        gpu = on_gpu[cell]
        assert gpu.iterations == cpu.iterations
        assert gpu.curve.iterations == cpu.curve.iterations
        assert gpu.metrics["test"]["nll"] == pytest.approx(cpu.metrics["test"]["nll"], abs=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_parts_in_threads_of_their_own_are_the_step_itself(case, monkeypatch):
    before, made = torch.get_num_threads(), program(**CASES[case])
    monkeypatch.setattr(module, "LEAST_ENTRIES", 1)
    try:
        torch.set_num_threads(3)
        assert len(module.divided(made, State.fresh(made.initial(), SETTINGS))) == 3
        found = _advanced(made, 12, eager=False, resume_at=7)
    finally:
        torch.set_num_threads(before)
    # The products of a library depend in the last bit on how many there are; where cells share one, that is the batch.
    _same(found, _advanced(program(**CASES[case]), 12, eager=True), rtol=1e-12, atol=1e-14)
