"""A pilot fit: start where a short fit of the ELBO in closed form ends (docs/SPEC.md, section 6).

From the prior, direct loss minimisation needs hundreds of steps, on the way of which it may fit the
training rows too closely. From the end of the ELBO it needs fewer, and ends at better predictions.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.core.gp.cholesky import factorise
from dlmexp.core.gp.inducing import PILOT_ROWS, sampled_rows
from dlmexp.core.gp.kernels import Parameter
from dlmexp.core.gp.precision import PARAMETERS
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.core.training.batch import Training
from dlmexp.core.training.collapsed import Collapsed
from dlmexp.core.training.data import BatchData
from dlmexp.core.training.finished import FinishedFit
from dlmexp.core.training.model import Loss, Model
from dlmexp.core.training.parameters import Tensors, unconstrain
from dlmexp.core.training.program import Posterior, Program
from dlmexp.core.training.quasi_newton import train_by_lbfgs
from dlmexp.core.training.settings import Settings

TOLERANCE = 1e-3
"""Nats per row that the last 20 steps of L-BFGS must gain together for a pilot to go on."""


def started_by_pilot(program: Program, values: Tensors) -> Tensors:
    """Return the initial values of a program, with those of pilot fits where these did not fail.

    Every split has a pilot fit alone. L-BFGS amplifies differences in rounding: together with
    others, a fit would end elsewhere than alone.

    Args:
        program: Its model says how long a pilot fit is.
        values: The usual initial values, of hyperparameters alone or of q, too.
    """
    model = program.model
    data = program.data
    values = {name: value.clone() for name, value in values.items()}
    for split, seed in enumerate(data.seed_of):
        posterior = pilot_posterior(model, data.X[split], data.y[split], seed)
        if posterior is None:
            continue
        start = _raw_values(model, program.parameters, posterior)
        cells = [cell for cell, place in enumerate(data.repetition_of) if place == split]
        for name in values.keys() & start.keys():
            values[name][cells] = start[name]
    return values


def _raw_values(model: Model, parameters: Mapping[str, Parameter], posterior: Posterior) -> Tensors:
    """Return hyperparameters and q as Adam moves them."""
    hyper = posterior.hyper
    m = posterior.m
    L = posterior.L
    if not model.whitened:
        # u = Luu w
        Luu = factorise(model.kernel(hyper["Z"], hyper["Z"], hyper), posterior.jitter).L
        m = (Luu @ m[..., None]).squeeze(-1)
        L = Luu @ L
    return {**unconstrain(hyper, parameters), "m": m, "L": L}


def pilot_posterior(
    model: Model, X: Float[Tensor, "n D"], y: Float[Tensor, "n"], seed: int
) -> Posterior | None:
    """Return the posterior of a pilot fit to the rows of a split; None if it failed.

    Hyperparameters and inducing inputs come from at most `PILOT_ROWS` rows, or 2 M if that is more;
    q comes from all rows.
    """
    settings = Settings(
        optimizer="lbfgs", iterations=model.pilot, tolerance=TOLERANCE, calibration=False
    )
    most = max(PILOT_ROWS, 2 * model.inducing_count(len(X)))
    table = sampled_rows(torch.cat([X, y[:, None]], dim=1), most, seed).to(X)
    pilot = short_fit(elbo_of_rows(model, table[:, :-1], table[:, -1], seed), settings)
    if pilot.failed:
        return None
    posterior = pilot.posterior
    hyper = {name: value.to(X.device) for name, value in posterior.hyper.items()}
    return _with_best_q(elbo_of_rows(model, X, y, seed), hyper, posterior.jitter.to(X.device))


def elbo_of_rows(
    model: Model, X: Float[Tensor, "n D"], y: Float[Tensor, "n"], seed: int
) -> Collapsed:
    """Return the ELBO of these rows, with a q of one Gaussian."""
    single = Model(**{**vars(model), "components": 1, "pilot": 0})
    beta = torch.ones(1, dtype=PARAMETERS, device=X.device)
    data = BatchData(X[None], y[None], {}, [seed], [0])
    return Collapsed(single, Loss(OBJECTIVES["elbo"]), data, beta)


def short_fit(program: Collapsed, settings: Settings) -> FinishedFit:
    """Return the fit of a program of one cell by L-BFGS."""
    reports = train_by_lbfgs(Training.start(program, settings), settings)
    (finished,) = [report for report in reports if report is not None]
    return finished


@torch.no_grad()
def _with_best_q(program: Collapsed, hyper: Tensors, jitter: Float[Tensor, "1"]) -> Posterior:
    """Return the posterior with the q that is best for the rows of a program."""
    closed = program.closed(hyper, jitter)
    return Posterior(hyper, closed.m, closed.L, jitter)
