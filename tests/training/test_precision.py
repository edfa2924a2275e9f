"""Programs on float32 rows: how far objective and gradient are from float64."""

import pytest
import torch

from dlmexp.estimators import Quadrature
from dlmexp.training.state import Settings, State
from dlmexp.training.step import step
from tests.support.small_programs import PROGRAMS, in_float32, program, value_of

ARD = {"likelihood": "gaussian", "ard": True, "kernel": "matern52"}
STUDENT = {"likelihood": "student_t", "estimator": Quadrature(8)}
CASES = {kind: PROGRAMS[kind] for kind in ("joint", "ups", "counts", "ups of counts", "regression", "elbo", "power EP")}
CASES |= {"fixed": PROGRAMS["fixed"], "ARD, Matern": ARD, "Student's t": STUDENT}
SETTINGS = Settings(lr=0.05, iterations=12, window=None, epsilon=1e-6)


def _gradients(made, values):
    """Objectives and their gradients by name."""
    leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
    value = value_of(made, leaves)
    assert value.ok.all()
    gradients = torch.autograd.grad(value.objective.sum(), list(leaves.values()), materialize_grads=True)
    return value.objective.detach(), dict(zip(leaves, gradients, strict=True))


@pytest.mark.parametrize("kind", ["joint", "counts", "regression"])
def test_inducing_inputs_have_no_gradient_at_the_start(kind):
    """Where q is the prior. Adam divides a gradient by its own size, and would make a step of rounding errors."""
    made = in_float32(program(**PROGRAMS[kind], n=31))
    assert not _gradients(made, made.initial())[1]["Z"].any()


@pytest.mark.parametrize("kind", CASES)
def test_objective_and_gradient_are_those_of_float64(kind):
    wide = program(**CASES[kind], n=31)  # no other dimension is as long
    state = State.fresh(wide.initial(), SETTINGS)
    for _ in range(8):  # away from the start, where some gradients are zero
        step(wide, state, SETTINGS)
    (objective, gradients), (rounded, theirs) = (_gradients(made, state.values) for made in (wide, in_float32(wide)))
    torch.testing.assert_close(rounded, objective, rtol=0, atol=2e-6)
    for name, expected in gradients.items():
        size = max(float(expected.abs().max()), 1e-3)
        torch.testing.assert_close(theirs[name], expected, rtol=0, atol=1e-3 * size)
