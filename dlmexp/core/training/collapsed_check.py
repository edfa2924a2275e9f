"""Check what `Objective.collapsed` of a plugin returns: its q, and the gradient of its loss."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.common.errors import UserError
from dlmexp.core.gp.cholesky import FIRST_JITTER
from dlmexp.core.gp.closed_form import Closed
from dlmexp.core.gp.precision import PARAMETER_DTYPE
from dlmexp.core.training.collapsed import Collapsed
from dlmexp.core.training.data import BatchData
from dlmexp.core.training.joint import Joint
from dlmexp.core.training.model import Loss, Model
from dlmexp.core.training.parameters import Q_NAMES, Tensors

MAX_ROWS = 1000
"""The check uses at most this number of rows, or M rows if M is larger."""
STEP = 1e-5
"""The step of a difference quotient, in unconstrained hyperparameters."""
GRADIENT_TOLERANCE = 1e-3
"""Largest error of a derivative, relative to its difference quotient or to the objective per row,
whichever is larger."""
DESCENT = 1e-7
"""A q counts as the minimum if no step lowers the objective per row by more than this."""
STEPS_DOWN = (1e-1, 1e-2, 1e-3, 1e-4)
"""Lengths of the steps down the gradient by which a minimum is checked."""


def check_collapsed(model: Model, loss: Loss, data: BatchData, seed: int = 0) -> None:
    """Check `collapsed` at the initial hyperparameters of a model, with beta = 1.

    Three things are checked: q has the shapes, type and triangular form that predictions need; the
    gradient of the loss agrees with difference quotients; and if the objective has a `row_loss`,
    q is the minimum of `sum_i row_loss_i + regulariser(m, L)`.

    Raises:
        UserError: One of these checks fails; the message names the objective.
    """
    data = _first_rows(data, model)
    beta = torch.ones(len(data.X), dtype=PARAMETER_DTYPE, device=data.X.device)
    jitter = torch.full_like(beta, FIRST_JITTER)
    program = Collapsed(model, loss, data, beta)
    values = {name: value.detach() for name, value in program.initial().items()}
    closed = program.closed(program.hyperparameters(values), jitter)
    _check_q(closed, program)
    _check_gradient(program, values, jitter, seed)
    if loss.objective.row_loss is not None:
        # `collapsed` returns q in whitened coordinates, so the joint program must take m and L as
        # such. The default estimator is exact: with random draws no q would be a minimum.
        whitened_model = replace(model, whitened=True)
        exact_loss = Loss(loss.objective)
        joint = Joint(whitened_model, exact_loss, data, beta)
        _check_minimum(joint, closed, jitter)


def _first_rows(data: BatchData, model: Model) -> BatchData:
    """Return the first rows of the first split, in float64.

    There are at least M rows, as M rows may be the inducing inputs.
    """
    # The default for M = None is smaller than `MAX_ROWS`.
    M = model.M if isinstance(model.M, int) else 0
    n = max(MAX_ROWS, M)
    X = data.X[:1, :n].to(PARAMETER_DTYPE)
    y = data.y[:1, :n].to(PARAMETER_DTYPE)
    return BatchData(X=X, y=y, parts={}, seed_of=data.seed_of[:1], split_of=[0])


def _error(program: Collapsed | Joint, problem: str) -> UserError:
    """Return the error that names the objective and its problem."""
    return UserError(f"objective '{program.loss.objective.name}': {problem}")


def _check_q(closed: Closed, program: Collapsed) -> None:
    """Check shapes, types and triangular form of q."""
    objective = program.loss.objective
    B = len(program.beta)
    objective.check_shape("m of collapsed", closed.m, [B, program.M])
    objective.check_shape("L of collapsed", closed.L, [B, program.M, program.M])
    objective.check_shape("ok of collapsed", closed.ok, [B])
    for name in ("loss", "m", "L"):
        dtype = getattr(closed, name).dtype
        if dtype != PARAMETER_DTYPE:
            raise _error(
                program, f"{name} of collapsed is {dtype}, where {PARAMETER_DTYPE} is needed"
            )
    if closed.ok.dtype != torch.bool:
        raise _error(program, f"ok of collapsed is {closed.ok.dtype}, where torch.bool is needed")
    if closed.L.triu(1).any():
        raise _error(
            program,
            "L of collapsed is not lower triangular: q(w) has the covariance L L^T, so L must be "
            "the lower Cholesky factor, not its transpose",
        )


def _check_gradient(
    program: Collapsed, values: Tensors, jitter: Float[Tensor, "B"], seed: int
) -> None:
    """Compare the gradient of the loss with difference quotients.

    For every hyperparameter, the derivative along one random direction is checked.
    """
    generator = torch.Generator().manual_seed(seed)
    leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
    value = _objective_per_row(program, leaves, jitter)
    if not value.requires_grad:
        raise _error(program, "the loss of collapsed has no gradient: is something detached?")
    gradients = torch.autograd.grad(value, list(leaves.values()), materialize_grads=True)
    for name, gradient in zip(leaves, gradients, strict=True):
        direction = torch.randn(gradient.shape, generator=generator, dtype=PARAMETER_DTYPE)
        direction = direction.to(gradient.device)
        slope = float((gradient.detach() * direction).sum())
        # (f(x + STEP d) - f(x - STEP d)) / (2 STEP)
        values_ahead = {**values, name: values[name] + STEP * direction}
        values_behind = {**values, name: values[name] - STEP * direction}
        ahead = _objective_per_row(program, values_ahead, jitter)
        behind = _objective_per_row(program, values_behind, jitter)
        quotient = float(ahead - behind) / (2 * STEP)
        allowed = GRADIENT_TOLERANCE * max(abs(quotient), float(value.detach().abs()))
        # Not `> allowed`, which is false for NaN: a derivative of NaN is an error.
        if not abs(slope - quotient) <= allowed:
            raise _error(
                program,
                f"the loss of collapsed has a derivative of {slope:.4g} in {name}, and differences "
                f"show {quotient:.4g}: is something detached?",
            )


def _objective_per_row(
    program: Collapsed | Joint, values: Tensors, jitter: Float[Tensor, "B"]
) -> Float[Tensor, ""]:
    """Return the objective per row of the only cell, differentiable in `values`."""
    iteration = torch.zeros((), dtype=torch.int64, device=jitter.device)
    return program.objective(values, jitter, iteration).per_row.sum()


def _check_minimum(program: Joint, closed: Closed, jitter: Float[Tensor, "B"]) -> None:
    """Check that steps in m and L, down the gradient of the objective, do not lower it."""
    values = {name: value.detach() for name, value in program.initial().items()}
    values |= {"m": closed.m.detach(), "L": closed.L.detach()}
    leaves = {name: values[name].clone().requires_grad_() for name in Q_NAMES}
    value = _objective_per_row(program, {**values, **leaves}, jitter)
    gradients = torch.autograd.grad(value, list(leaves.values()))
    norm = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
    for length in STEPS_DOWN:
        values_after_step = dict(values)
        for name, gradient in zip(leaves, gradients, strict=True):
            # A gradient of 0 makes no step.
            step = length * gradient / norm.clamp(min=1e-300)
            values_after_step[name] = values[name] - step
        descent = float(value.detach() - _objective_per_row(program, values_after_step, jitter))
        # False for NaN: there a step left the domain of the objective and found no better q.
        if descent > DESCENT:
            raise _error(
                program,
                "m and L of collapsed do not attain the minimum of row_loss and regulariser: "
                f"at another q it is lower by {descent:.2g} per row",
            )
