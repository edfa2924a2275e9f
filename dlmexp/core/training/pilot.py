"""A pilot fit: training starts at the end of a short ELBO fit (docs/SPEC.md, section 6).

Direct loss minimisation that starts at the prior needs hundreds of steps, in which it may overfit
the training rows. Started at the end of an ELBO fit, it needs fewer and ends at better predictions.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.core.gp.cholesky import factorise
from dlmexp.core.gp.inducing import PILOT_ROWS, sampled_rows
from dlmexp.core.gp.kernels import Parameter
from dlmexp.core.gp.precision import PARAMETER_DTYPE
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
"""A pilot fit stops when the last 20 steps of L-BFGS together gained less than this per row, in
nats."""


def initial_values_from_pilots(program: Program, values: Tensors) -> Tensors:
    """Return the initial values of a program from pilot fits, one per split.

    If the pilot fit of a split fails, its cells keep the default values. The pilots of different
    splits do not train as one batch: L-BFGS amplifies differences in rounding, so that in a batch a
    pilot would end elsewhere than alone.

    Args:
        program: The cells that start from the pilots. The length of a pilot is its `Model.pilot`.
        values: The default initial values, unconstrained; a collapsed program has none of q.
    """
    model = program.model
    data = program.data
    values = {name: value.clone() for name, value in values.items()}
    for split, seed in enumerate(data.seed_of):
        posterior = pilot_posterior(model, data.X[split], data.y[split], seed)
        if posterior is None:
            continue
        pilot_values = _raw_values(model, program.parameters, posterior)
        cells = [cell for cell, its_split in enumerate(data.split_of) if its_split == split]
        for name in values.keys() & pilot_values.keys():
            values[name][cells] = pilot_values[name]
    return values


def _raw_values(model: Model, parameters: Mapping[str, Parameter], posterior: Posterior) -> Tensors:
    """Return hyperparameters and q of a posterior as unconstrained parameters of the model."""
    hyper = posterior.hyper
    m = posterior.m
    L = posterior.L
    if not model.whitened:
        # The parameters describe q(u). From q(w) = N(m, L L^T) and u = Luu w follows
        # q(u) = N(Luu m, (Luu L) (Luu L)^T).
        Luu = factorise(model.kernel(hyper["Z"], hyper["Z"], hyper), posterior.jitter).L
        m = (Luu @ m[..., None]).squeeze(-1)
        L = Luu @ L
    return {**unconstrain(hyper, parameters), "m": m, "L": L}


def pilot_posterior(
    model: Model, X: Float[Tensor, "n D"], y: Float[Tensor, "n"], seed: int
) -> Posterior | None:
    """Return the posterior of a pilot fit to the rows of a split; None if it failed.

    Hyperparameters and inducing inputs are fitted to at most `PILOT_ROWS` rows, or to 2 M rows if
    that is more. With them, q is the best one for all rows.
    """
    settings = Settings(
        optimizer="lbfgs", iterations=model.pilot, tolerance=TOLERANCE, calibration=False
    )
    max_rows = max(PILOT_ROWS, 2 * model.inducing_count(len(X)))
    # The targets are sampled with their inputs, as a last column.
    table = sampled_rows(torch.cat([X, y[:, None]], dim=1), max_rows, seed).to(X)
    pilot = short_fit(elbo_of_rows(model, table[:, :-1], table[:, -1], seed), settings)
    if pilot.failed:
        return None
    hyper = {name: value.to(X.device) for name, value in pilot.posterior.hyper.items()}
    jitter = pilot.posterior.jitter.to(X.device)
    return _posterior_with_best_q(elbo_of_rows(model, X, y, seed), hyper, jitter)


def elbo_of_rows(
    model: Model, X: Float[Tensor, "n D"], y: Float[Tensor, "n"], seed: int
) -> Collapsed:
    """Return the collapsed ELBO of these rows as a program of one cell; q is a single Gaussian."""
    single_gaussian = replace(model, components=1, pilot=0)
    data = BatchData(X=X[None], y=y[None], parts={}, seed_of=[seed], split_of=[0])
    beta = torch.ones(1, dtype=PARAMETER_DTYPE, device=X.device)
    return Collapsed(single_gaussian, Loss(OBJECTIVES["elbo"]), data, beta)


def short_fit(program: Collapsed, settings: Settings) -> FinishedFit:
    """Return the result of a program of one cell after L-BFGS."""
    results = train_by_lbfgs(Training.start(program, settings), settings)
    # None means that a GPU is still busy.
    (finished,) = [result for result in results if result is not None]
    return finished


@torch.no_grad()
def _posterior_with_best_q(
    program: Collapsed, hyper: Tensors, jitter: Float[Tensor, "1"]
) -> Posterior:
    """Return the posterior with these hyperparameters and the best q for the rows of a program."""
    closed = program.closed(hyper, jitter)
    return Posterior(hyper, closed.m, closed.L, jitter)
