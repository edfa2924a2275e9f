"""Choose M by how much a larger one could gain (docs/SPEC.md, section 2)."""

from dataclasses import replace
from numbers import Integral

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.common.errors import UserError
from dlmexp.core.gp.cholesky import FIRST_JITTER
from dlmexp.core.gp.inducing import InducingRequest, greedy, sampled_rows
from dlmexp.core.gp.precision import PARAMETER_DTYPE
from dlmexp.core.training.collapsed import Collapsed
from dlmexp.core.training.gap import lower_bound_of_negative_evidence
from dlmexp.core.training.model import AutoM, Model
from dlmexp.core.training.parameters import Tensors
from dlmexp.core.training.pilot import elbo_of_rows, short_fit
from dlmexp.core.training.settings import Settings

MAX_ROWS = 2000
"""M is chosen on at most this number of rows: a random subset of more rows."""
PILOT_M = 200
"""Number of inducing inputs of the fit that gives the hyperparameters; `AutoM.most` if lower."""
PILOT = Settings(optimizer="lbfgs", iterations=60, tolerance=1e-4, calibration=False)
"""How the fit that gives the hyperparameters is trained."""
MIN_M = 20
"""The smallest M that is tried."""
STEPS_PER_DOUBLING = 2
"""M doubles in this number of steps, each by the same factor."""


def with_number_of_inducing_inputs(
    model: Model, X: Float[Tensor, "n D"], y: Float[Tensor, "n"], seed: int
) -> Model:
    """Return the model with a number as M: an automatic M is chosen for these rows.

    A number stays, and so does None, which stands for `default_inducing_count`.

    Raises:
        UserError: M is neither a number nor an `AutoM` nor "auto"; the `AutoM` is invalid; or the
            likelihood is not Gaussian.
    """
    if model.M is None or isinstance(model.M, Integral):
        return model
    auto = AutoM() if model.M == "auto" else model.M
    if not isinstance(auto, AutoM):
        raise UserError(f"M={auto}: give a whole number > 0, or auto")
    if not auto.tolerance > 0 or auto.most < 1:
        raise UserError(f"M={auto}: give a tolerance > 0 and a limit of at least 1")
    M = chosen_inducing_count(model, X, y, auto, seed)
    return replace(model, M=M)


def chosen_inducing_count(
    model: Model, X: Float[Tensor, "n D"], y: Float[Tensor, "n"], auto: AutoM, seed: int
) -> int:
    """Return the number of inducing inputs for these rows.

    A short fit of the ELBO gives the hyperparameters, which are then held. At them, growing numbers
    of inducing inputs are tried, in the order in which `greedy` chooses them, until the two bounds
    of the log evidence differ by at most the tolerance (`gap`).

    Raises:
        UserError: The likelihood is not Gaussian, so that there is no upper bound of the evidence.
    """
    if not model.likelihood.conjugate:
        raise UserError("M=auto is for Gaussian noise: give a number")
    largest_M = min(auto.most, len(X))
    rows, targets = _subset(X.to(PARAMETER_DTYPE), y.to(PARAMETER_DTYPE), seed)
    pilot_M = min(largest_M, PILOT_M, len(rows))
    hyper = _pilot_hyperparameters(model, rows, targets, pilot_M, seed)
    request = InducingRequest(
        X=rows, M=min(largest_M, len(rows)), seed=seed, kernel=model.kernel, hyper=hyper
    )
    inducing_inputs = greedy(request)
    for M in _inducing_counts_to_try(largest_M):
        # With all rows of the subset as inducing inputs, the gap says nothing about larger M.
        if len(inducing_inputs) <= M:
            return largest_M
        hyper_with_M = {**hyper, "Z": inducing_inputs[None, :M]}
        gap = _gap(model, rows, targets, hyper_with_M, seed)
        if gap <= auto.tolerance:
            return M
    return largest_M


def _inducing_counts_to_try(limit: int) -> list[int]:
    """Return growing values of M, from `MIN_M` up to below the limit."""
    counts = []
    step = 0
    while (M := round(MIN_M * 2 ** (step / STEPS_PER_DOUBLING))) < limit:
        counts.append(M)
        step += 1
    return counts


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
    return elbo_of_rows(replace(model, M=M), X, y, seed)


def _pilot_hyperparameters(
    model: Model, X: Float[Tensor, "n D"], y: Float[Tensor, "n"], M: int, seed: int
) -> Tensors:
    """Return the hyperparameters of a short fit with M inducing inputs, as those of one cell."""
    posterior = short_fit(_program(model, X, y, M, seed), PILOT).posterior
    return {name: value.to(X.device) for name, value in posterior.hyper.items()}


@torch.no_grad()
def _gap(
    model: Model, X: Float[Tensor, "n D"], y: Float[Tensor, "n"], hyper: Tensors, seed: int
) -> float:
    """Return the distance between the bounds of the log evidence at `hyper`, per row."""
    program = _program(model, X, y, hyper["Z"].shape[1], seed)
    jitter = torch.full_like(program.beta, FIRST_JITTER)
    # bounds of minus the log evidence
    upper = program.closed(hyper, jitter).loss
    lower = lower_bound_of_negative_evidence(program.problem(hyper, jitter))
    return float((upper - lower) / len(X))
