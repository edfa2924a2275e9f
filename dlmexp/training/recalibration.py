"""Predictions recalibrated after training by one number per cell, which minimises the NLL of the validation rows.

Regression: a factor on the predictive variance. Counts: a factor on the variance of f. Binary: a temperature, which
divides the log-odds of the predicted probability (Guo et al., 2017)."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from dlmexp.gp.kernels import Hyper
from dlmexp.gp.likelihoods import Likelihood
from dlmexp.gp.precision import hyper_as_rows, row_mean

WIDEST = 7.0  # the logarithm of the factor lies between -WIDEST and WIDEST
POINTS, ROUNDS = 17, 5  # of a grid that is narrowed to its best point's neighbours in every round


class Rescaled(NamedTuple):
    """A likelihood and marginals [B, N] of f with each cell's factor applied, and the NLL of the rows."""

    likelihood: Likelihood
    v: Float[Tensor, "B N"]
    nll: Float[Tensor, "B N"]


def rescale(
    likelihood: type[Likelihood],
    hyper: Hyper,
    factor: Float[Tensor, "B"],
    mu: Float[Tensor, "B N"],
    v: Float[Tensor, "B N"],
    y: Float[Tensor, "B N"],
) -> Rescaled:
    """The predictions at rows y with each cell's factor; factor 1 leaves them as they are."""
    by_row = factor.to(mu.dtype)[:, None]
    if likelihood.task == "binary":
        made = likelihood.from_hyper(hyper_as_rows(mu, hyper))
        ones = torch.ones_like(y)
        odds = made.log_loss(mu, v, 1 - ones) - made.log_loss(mu, v, ones)
        return Rescaled(made, v, softplus((1 - 2 * y) * odds / by_row))
    if likelihood.task == "regression" and "noise" in hyper:
        hyper = {**hyper, "noise": hyper["noise"] * factor}
    made = likelihood.from_hyper(hyper_as_rows(mu, hyper))
    return Rescaled(made, v * by_row, made.log_loss(mu, v * by_row, y))


def best_factor(
    likelihood: type[Likelihood],
    hyper: Hyper,
    mu: Float[Tensor, "B N"],
    v: Float[Tensor, "B N"],
    y: Float[Tensor, "B N"],
) -> Float[Tensor, "B"]:
    """The factor of each cell with the least mean NLL on these rows, to a relative 1e-4."""
    low, high = (torch.full_like(hyper["mean"], end) for end in (-WIDEST, WIDEST))
    for _ in range(ROUNDS):
        steps = torch.linspace(0, 1, POINTS, dtype=low.dtype, device=low.device)
        logs = low + steps[:, None] * (high - low)
        losses = torch.stack([row_mean(rescale(likelihood, hyper, log.exp(), mu, v, y).nll) for log in logs])
        best = losses.argmin(0)
        cells = torch.arange(len(low), device=low.device)
        low, high = logs[(best - 1).clamp_min(0), cells], logs[(best + 1).clamp_max(POINTS - 1), cells]
    return ((low + high) / 2).exp()
