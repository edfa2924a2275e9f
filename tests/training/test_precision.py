"""Programs on float32 rows: how far objective and gradient are from float64."""

import pytest
import torch

from dlmexp.estimators import UPS, Quadrature
from dlmexp.training.program import Program
from dlmexp.training.state import Settings, State
from dlmexp.training.step import step
from tests.support.small_programs import in_float32, program

ROWS = 31  # no other dimension is as long
KINDS = {
    "binary": ("joint", {}),
    "binary, uPS": ("joint", {"estimator": UPS(3)}),
    "counts": ("joint", {"likelihood": "poisson"}),
    "counts, uPS": ("joint", {"likelihood": "poisson", "estimator": UPS(3)}),
    "regression": ("joint", {"likelihood": "gaussian"}),
    "regression, ARD, Matern": ("joint", {"likelihood": "gaussian", "ard": True, "kernel": "matern52"}),
    "regression, Student's t": ("joint", {"likelihood": "student_t", "estimator": Quadrature(8)}),
    "collapsed ELBO": ("collapsed", {"likelihood": "gaussian", "objective": "elbo"}),
    "FITC": ("collapsed", {"likelihood": "gaussian", "objective": "fitc"}),
    "fixed": ("fixed", {}),
}
SETTINGS = Settings(lr=0.05, iterations=12, window=None, epsilon=1e-6)


def both(kind: str, **changes) -> tuple[Program, Program]:
    form, of_model = KINDS[kind]
    made = program(form, n=ROWS, **of_model, **changes)
    return made, in_float32(made)


@pytest.mark.parametrize("kind", ["binary", "counts", "regression"])
def test_inducing_inputs_have_no_gradient_at_the_start(kind):
    """Where q is the prior. Adam divides a gradient by its own size, and would make a step of rounding errors."""
    _, made = both(kind)
    leaves = {name: value.requires_grad_() for name, value in made.initial().items()}
    value = made.objective(leaves, torch.full_like(made.beta, 1e-6), torch.tensor(0))
    (gradient,) = torch.autograd.grad(value.objective.sum(), leaves["Z"])
    assert not gradient.any()


@pytest.mark.parametrize("kind", KINDS)
def test_objective_and_gradient_are_those_of_float64(kind):
    wide, narrow = both(kind)
    state = State.fresh(wide.initial(), SETTINGS)
    for _ in range(8):  # away from the start, where some gradients are zero
        step(wide, state, SETTINGS)
    values, gradients = [], []
    for made in (wide, narrow):
        leaves = {name: value.clone().requires_grad_() for name, value in state.values.items()}
        value = made.objective(leaves, state.jitter, state.iteration)
        assert value.ok.all()
        values.append(value.objective.detach())
        found = torch.autograd.grad(value.objective.sum(), list(leaves.values()), materialize_grads=True)
        gradients.append(dict(zip(leaves, found, strict=True)))
    torch.testing.assert_close(values[1], values[0], rtol=0, atol=2e-6)
    for name, expected in gradients[0].items():
        size = max(float(expected.abs().max()), 1e-3)
        torch.testing.assert_close(gradients[1][name], expected, rtol=0, atol=1e-3 * size)
