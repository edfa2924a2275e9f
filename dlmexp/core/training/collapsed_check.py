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
"""Number of rows that are checked, or M if that is more."""
STEP = 1e-5
"""The step of a difference quotient, in unconstrained hyperparameters."""
GRADIENT_TOLERANCE = 1e-3
"""Largest error of a derivative, relative to its difference quotient or the objective per row."""
DESCENT = 1e-7
"""A q counts as a minimum if the objective per row falls by no more than this."""
STEPS_DOWN = (1e-1, 1e-2, 1e-3, 1e-4)
"""Lengths of the steps down the gradient that a minimum is checked with."""


def check_collapsed(model: Model, loss: Loss, data: BatchData, seed: int = 0) -> None:
    """Check `collapsed` at the initial hyperparameters of a model, with beta = 1.

    Three things are checked: q has the shapes, type and triangular form that predictions need; the
    gradient of the loss agrees with difference quotients; and if the objective has a `row_loss`,
    q is the minimum of `sum_i row_loss_i + regulariser(m, L)`.

    Raises:
        UserError: One of them fails; the message names the objective, for its author.
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
        whitened = replace(model, whitened=True)
        _check_minimum(Joint(whitened, Loss(loss.objective), data, beta), closed, jitter)


def _first_rows(data: BatchData, model: Model) -> BatchData:
    """Return the first split with its first rows alone, in float64."""
    n = max(MAX_ROWS, model.M if isinstance(model.M, int) else 0)
    X = data.X[:1, :n].to(PARAMETER_DTYPE)
    y = data.y[:1, :n].to(PARAMETER_DTYPE)
    return BatchData(X, y, {}, data.seed_of[:1], [0])


def _wrong(program: Collapsed | Joint, problem: str) -> UserError:
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
            raise _wrong(
                program, f"{name} of collapsed is {dtype}, where {PARAMETER_DTYPE} is needed"
            )
    if closed.ok.dtype != torch.bool:
        raise _wrong(program, f"ok of collapsed is {closed.ok.dtype}, where torch.bool is needed")
    if closed.L.triu(1).any():
        raise _wrong(
            program,
            "L of collapsed is not lower triangular: q(w) has the covariance L L^T "
            "(the transpose of a factor has another one)",
        )


def _check_gradient(
    program: Collapsed, values: Tensors, jitter: Float[Tensor, "B"], seed: int
) -> None:
    """Compare the gradient of the loss with difference quotients.

    For every hyperparameter, the derivative along one random direction is checked.
    """
    generator = torch.Generator().manual_seed(seed)
    leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
    objective = _objective(program, leaves, jitter)
    if not objective.requires_grad:
        raise _wrong(program, "the loss of collapsed has no gradient: is something detached?")
    gradients = torch.autograd.grad(objective, list(leaves.values()), materialize_grads=True)
    for name, gradient in zip(leaves, gradients, strict=True):
        direction = torch.randn(gradient.shape, generator=generator, dtype=PARAMETER_DTYPE)
        direction = direction.to(gradient.device)
        slope = float((gradient.detach() * direction).sum())
        # (f(x + STEP d) - f(x - STEP d)) / (2 STEP)
        ahead = _objective(program, {**values, name: values[name] + STEP * direction}, jitter)
        behind = _objective(program, {**values, name: values[name] - STEP * direction}, jitter)
        quotient = float(ahead - behind) / (2 * STEP)
        allowed = GRADIENT_TOLERANCE * max(abs(quotient), float(objective.detach().abs()))
        # Not `>`, which is False for NaN.
        if not abs(slope - quotient) <= allowed:
            raise _wrong(
                program,
                f"the loss of collapsed has a derivative of {slope:.4g} in {name}, and differences "
                f"show {quotient:.4g}: is something detached?",
            )


def _objective(
    program: Collapsed | Joint, values: Tensors, jitter: Float[Tensor, "B"]
) -> Float[Tensor, ""]:
    """Return the objective per row of the only cell, differentiable in `values`."""
    iteration = torch.zeros((), dtype=torch.int64, device=jitter.device)
    return program.objective(values, jitter, iteration).per_row.sum()


def _check_minimum(program: Joint, closed: Closed, jitter: Float[Tensor, "B"]) -> None:
    """Check that steps down the gradient in m and L do not lower the objective."""
    values = {name: value.detach() for name, value in program.initial().items()}
    values |= {"m": closed.m.detach(), "L": closed.L.detach()}
    leaves = {name: values[name].clone().requires_grad_() for name in Q_NAMES}
    objective = _objective(program, {**values, **leaves}, jitter)
    gradients = torch.autograd.grad(objective, list(leaves.values()))
    norm = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()
    for length in STEPS_DOWN:
        lower = dict(values)
        for name, gradient in zip(leaves, gradients, strict=True):
            lower[name] = values[name] - length * gradient / norm.clamp(min=1e-300)
        difference = float(objective.detach() - _objective(program, lower, jitter))
        if difference > DESCENT:
            raise _wrong(
                program,
                "m and L of collapsed do not attain the minimum of row_loss and regulariser: "
                f"another q is lower by {difference:.2g} per row",
            )
