"""Choose M by how much a larger one could gain (docs/SPEC.md, section 2)."""

from numbers import Integral

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.common.errors import UserError
from dlmexp.core.gp.cholesky import FIRST_JITTER
from dlmexp.core.gp.inducing import Candidates, greedy, sampled_rows
from dlmexp.core.gp.precision import PARAMETER_DTYPE
from dlmexp.core.training.collapsed import Collapsed
from dlmexp.core.training.gap import lower_bound_of_negative_evidence
from dlmexp.core.training.model import AutoM, Model
from dlmexp.core.training.parameters import Tensors
from dlmexp.core.training.pilot import elbo_of_rows, short_fit
from dlmexp.core.training.settings import Settings

MAX_ROWS = 2000
"""The most rows that M is chosen on: a random subset where there are more."""
PILOT_M = 200
"""Inducing inputs of the fit that gives the hyperparameters, unless `AutoM.most` is lower."""
PILOT = Settings(optimizer="lbfgs", iterations=60, tolerance=1e-4, calibration=False)
"""How the fit that gives the hyperparameters is trained."""
MIN_M = 20
"""The smallest M that is tried."""
STEPS_PER_DOUBLING = 2
"""How many times M grows, by equal factors, until it has doubled."""


def with_number_of_inducing_inputs(
    model: Model, X: Float[Tensor, "n D"], y: Float[Tensor, "n"], seed: int
) -> Model:
    """Return the model with a number as M: an automatic M is chosen for these rows.

    M = None stays: it is a tenth of the training rows (`default_inducing_count`).

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

    A short fit of the ELBO gives the hyperparameters, which are then held. With them, growing
    numbers of inducing inputs are tried, in the order in which `greedy` chooses them, until the
    bounds of the log evidence are within the tolerance of each other.

    Raises:
        UserError: The likelihood is not Gaussian, so that there is no upper bound.
    """
    if not model.likelihood.conjugate:
        raise UserError("M=auto is for Gaussian noise: give a number")
    largest_M = min(auto.most, len(X))
    rows, targets = _subset(X.to(PARAMETER_DTYPE), y.to(PARAMETER_DTYPE), seed)
    pilot_M = min(largest_M, PILOT_M, len(rows))
    hyper = _pilot_hyperparameters(model, rows, targets, pilot_M, seed)
    candidates = Candidates(rows, min(largest_M, len(rows)), seed, model.kernel, hyper)
    inducing_inputs = greedy(candidates)
    for M in _growing_numbers(largest_M):
        if len(inducing_inputs) <= M:
            return largest_M
        gap = _gap(model, rows, targets, {**hyper, "Z": inducing_inputs[None, :M]}, seed)
        if gap <= auto.tolerance:
            return M
    return largest_M


def _growing_numbers(limit: int) -> list[int]:
    """Return the values of M below the limit that are tried, from `MIN_M` on."""
    numbers = []
    step = 0
    while (M := round(MIN_M * 2 ** (step / STEPS_PER_DOUBLING))) < limit:
        numbers.append(M)
        step += 1
    return numbers


def _subset(
    X: Float[Tensor, "n D"], y: Float[Tensor, "n"], seed: int
) -> tuple[Float[Tensor, "m D"], Float[Tensor, "m"]]:
    """Return a random subset of at most `MAX_ROWS` rows, with their targets."""
    # The targets are sampled with their inputs, as a last column.
    table = sampled_rows(torch.cat([X, y[:, None]], dim=1), MAX_ROWS, seed)
    return table[:, :-1], table[:, -1]


def _program(
    model: Model, X: Float[Tensor, "n D"], y: Float[Tensor, "n"], M: int, seed: int
) -> Collapsed:
    """Return the collapsed ELBO with M inducing inputs as a program of one cell."""
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
    jitter = torch.full_like(program.beta, FIRST_JITTER)
    upper = program.closed(hyper, jitter).loss
    lower = lower_bound_of_negative_evidence(program.problem(hyper, jitter))
    return float((upper - lower) / len(X))
