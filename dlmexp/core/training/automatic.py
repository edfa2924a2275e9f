"""Choose M by how much a larger one could gain (docs/SPEC.md, section 2)."""

from numbers import Integral

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.common.errors import UserError
from dlmexp.core.gp.inducing import Start, greedy, sampled_rows
from dlmexp.core.gp.precision import PARAMETERS
from dlmexp.core.training.batch import Training
from dlmexp.core.training.collapsed import Collapsed
from dlmexp.core.training.gap import least_negative_evidence
from dlmexp.core.training.model import AutoM, Model
from dlmexp.core.training.parameters import Tensors
from dlmexp.core.training.pilot import elbo_of_rows, short_fit
from dlmexp.core.training.settings import Settings

MOST_ROWS = 2000
"""Rows that a choice looks at; of more, a random subset."""
PILOT_M = 200
"""Inducing inputs of the fit that gives the hyperparameters, unless the limit is lower."""
PILOT = Settings(optimizer="lbfgs", iterations=60, tolerance=1e-4, calibration=False)
LEAST_M = 20
STEPS_PER_DOUBLING = 2
"""Numbers that are tried between M and 2 M, with one of the two."""


def with_number_of_inducing_inputs(
    model: Model, X: Float[Tensor, "n D"], y: Float[Tensor, "n"], seed: int
) -> Model:
    """Return the model with the M that is chosen for these rows, if it has an automatic one.

    Raises:
        UserError: M is no number, no `AutoM` and not "auto", or can not be chosen.
    """
    if model.M is None or isinstance(model.M, Integral):
        return model
    auto = AutoM() if model.M == "auto" else model.M
    if not isinstance(auto, AutoM):
        raise UserError(f"M={auto}: give a whole number > 0, or auto")
    if not auto.tolerance > 0 or auto.most < 1:
        raise UserError(f"M={auto}: give a tolerance > 0 and a limit of at least 1")
    M = chosen_inducing_count(model, X, y, auto, seed)
    return Model(**{**vars(model), "M": M})


def chosen_inducing_count(
    model: Model, X: Float[Tensor, "n D"], y: Float[Tensor, "n"], auto: AutoM, seed: int
) -> int:
    """Return the number of inducing inputs for these rows.

    A short fit of the ELBO gives the hyperparameters. They are held, and inducing inputs are taken
    in the order of `greedy`, until the bounds of the log evidence are within the tolerance.

    Raises:
        UserError: The likelihood is not Gaussian, so that there is no upper bound.
    """
    if not model.likelihood.conjugate:
        raise UserError("M=auto is for Gaussian noise: give a number")
    most = min(auto.most, len(X))
    rows, targets = _subset(X.to(PARAMETERS), y.to(PARAMETERS), seed)
    hyper = _pilot_hyperparameters(model, rows, targets, min(most, PILOT_M, len(rows)), seed)
    start = Start(rows, min(most, len(rows)), seed, model.kernel, hyper)
    ordered = greedy(start)
    for M in _numbers(most):
        if len(ordered) <= M:
            return most
        gap = _gap(model, rows, targets, {**hyper, "Z": ordered[None, :M]}, seed)
        if gap <= auto.tolerance:
            return M
    return most


def _numbers(most: int) -> list[int]:
    """Return the numbers that are tried before the largest."""
    numbers = []
    step = 0
    while (M := round(LEAST_M * 2 ** (step / STEPS_PER_DOUBLING))) < most:
        numbers.append(M)
        step += 1
    return numbers


def _subset(
    X: Float[Tensor, "n D"], y: Float[Tensor, "n"], seed: int
) -> tuple[Float[Tensor, "m D"], Float[Tensor, "m"]]:
    """Return a random subset of the rows, with their targets."""
    table = sampled_rows(torch.cat([X, y[:, None]], dim=1), MOST_ROWS, seed)
    return table[:, :-1], table[:, -1]


def _program(
    model: Model, X: Float[Tensor, "n D"], y: Float[Tensor, "n"], M: int, seed: int
) -> Collapsed:
    """Return an ELBO with M inducing inputs and one Gaussian."""
    return elbo_of_rows(Model(**{**vars(model), "M": M}), X, y, seed)


def _pilot_hyperparameters(
    model: Model, X: Float[Tensor, "n D"], y: Float[Tensor, "n"], M: int, seed: int
) -> Tensors:
    """Return the hyperparameters of a short fit, with a leading dimension of 1."""
    posterior = short_fit(_program(model, X, y, M, seed), PILOT).posterior
    return {name: value.to(X.device) for name, value in posterior.hyper.items()}


@torch.no_grad()
def _gap(
    model: Model, X: Float[Tensor, "n D"], y: Float[Tensor, "n"], hyper: Tensors, seed: int
) -> float:
    """Return the distance between the bounds of the log evidence, per row."""
    program = _program(model, X, y, hyper["Z"].shape[1], seed)
    jitter = Training.start(program, PILOT).state.jitter
    loss = program.closed(hyper, jitter).loss
    least = least_negative_evidence(program.problem(hyper, jitter))
    return float((loss - least) / len(X))
