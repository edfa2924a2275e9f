"""Recalibration: one number per cell, fitted on the validation rows (docs/SPEC.md, section 7).

A run with validation rows takes the number with the least NLL there (`best_factor`). In
cross-validation the rows of a fold leave a profile, their NLL at a grid of such numbers
(`loss_profile`). The profiles of all folds are summed, and `folds.penalised_factor` takes the best
number under a penalty, so that few rows can not make it very large or small.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from dlmexp.core.folds import PROFILE_LOGS, penalised_factor
from dlmexp.core.gp.kernels import Hyper
from dlmexp.core.gp.precision import PARAMETERS, hyper_as_rows, row_mean
from dlmexp.core.likelihoods import Likelihood
from dlmexp.core.likelihoods.mixture import Mixture, predictive
from dlmexp.core.training.parameters import Tensors

WIDEST = 7.0
"""The logarithm of the factor lies between -WIDEST and WIDEST."""
POINTS = 17  # of a grid of logarithms ...
ROUNDS = 5  # ... that is narrowed to its best point's neighbours in every round
ENTRIES_AT_ONCE = 2_000_000
"""Of predictions [factors, B, N]; a quadrature multiplies them by its nodes."""


class Recalibrated(NamedTuple):
    """Predictions after recalibration.

    Attributes:
        likelihood: With the recalibrated noise.
        mu: Means of f.
        v: Variances of f.
        nll: Of the rows.
    """

    likelihood: Likelihood | Mixture
    mu: Float[Tensor, "B *K N"]
    v: Float[Tensor, "B *K N"]
    nll: Float[Tensor, "B N"]


def rescale(
    likelihood: type[Likelihood],
    hyper: Hyper,
    factor: Float[Tensor, "B"],
    mu: Float[Tensor, "B *K N"],
    v: Float[Tensor, "B *K N"],
    y: Float[Tensor, "B N"],
) -> Recalibrated:
    """Return predictions recalibrated by one factor per cell; 1 leaves them as they are.

    Regression: a factor on the predictive variance. Counts: a factor on the variance of f. Binary:
    a temperature, which divides the log-odds of the predicted probability (Guo et al., 2017).
    """
    is_mixture = mu.ndim == 3
    by_row = factor.to(mu.dtype)[:, None]
    if likelihood.task == "binary":
        instance = predictive(likelihood, hyper_as_rows(mu, hyper), is_mixture)
        odds = odds_against_label(instance, mu, v, y)
        return Recalibrated(instance, mu, v, softplus(odds / by_row))
    if likelihood.task == "regression" and "noise" in hyper:
        hyper = {**hyper, "noise": hyper["noise"] * factor}
    instance = predictive(likelihood, hyper_as_rows(mu, hyper), is_mixture)
    if is_mixture:
        # The whole distribution is stretched about its mean, the distances of components too.
        by_row = by_row.unsqueeze(-1)
        centre = mu.mean(-2, keepdim=True)
        mu = centre + by_row.sqrt() * (mu - centre)
    v = v * by_row
    return Recalibrated(instance, mu, v, instance.log_loss(mu, v, y))


def odds_against_label(
    likelihood: Likelihood | Mixture, mu: Tensor, v: Tensor, y: Tensor
) -> Float[Tensor, "B N"]:
    """Return the log-odds of the class that a row does not have."""
    ones = torch.ones_like(y)
    odds = likelihood.log_loss(mu, v, 1 - ones) - likelihood.log_loss(mu, v, ones)
    return (1 - 2 * y) * odds


def best_factor(
    likelihood: type[Likelihood], hyper: Hyper, mu: Tensor, v: Tensor, y: Tensor
) -> Float[Tensor, "B"]:
    """Return the factor of each cell with the least mean NLL on rows [B, N], to a relative 1e-4."""
    mean_losses = _mean_losses(likelihood, hyper, mu, v, y)
    cells = torch.arange(len(hyper["mean"]), device=mu.device)
    low = torch.full_like(hyper["mean"], -WIDEST)
    high = torch.full_like(hyper["mean"], WIDEST)
    steps = torch.linspace(0, 1, POINTS, dtype=low.dtype, device=low.device)
    for _ in range(ROUNDS):
        logs = low + steps[:, None] * (high - low)
        losses = mean_losses(logs)
        best = losses.argmin(0)
        low = logs[(best - 1).clamp_min(0), cells]
        high = logs[(best + 1).clamp_max(POINTS - 1), cells]
    return ((low + high) / 2).exp()


@torch.no_grad()
def loss_profile(
    likelihood: type[Likelihood], hyper: Hyper, mu: Tensor, v: Tensor, y: Tensor
) -> Float[Tensor, "B P"]:
    """Return the NLL of each cell, summed over its rows [B, N], at the factors of a profile."""
    logs = torch.as_tensor(PROFILE_LOGS, dtype=PARAMETERS, device=mu.device)
    of_cells = logs[:, None].expand(-1, len(mu))
    return _mean_losses(likelihood, hyper, mu, v, y)(of_cells).mT * mu.shape[-1]


def penalised_factors(profile: Float[Tensor, "B P"]) -> Float[Tensor, "B"]:
    """Return the best factor of each cell by its profile, under a penalty (`folds`)."""
    factors = [penalised_factor(of_cell) for of_cell in profile.cpu().numpy()]
    return torch.tensor(factors, dtype=profile.dtype, device=profile.device)


def _mean_losses(
    likelihood: type[Likelihood], hyper: Hyper, mu: Tensor, v: Tensor, y: Tensor
) -> Callable[[Float[Tensor, "P B"]], Float[Tensor, "P B"]]:
    """Return the function of `logs` that gives the mean NLLs with the factors `exp(logs)`."""
    points_at_once = max(1, ENTRIES_AT_ONCE // mu.numel())
    odds = None  # shared by all factors: a temperature divides them
    if likelihood.task == "binary":
        instance = predictive(likelihood, hyper_as_rows(mu, hyper), is_mixture=mu.ndim == 3)
        odds = odds_against_label(instance, mu, v, y)

    def of_piece(logs: Float[Tensor, "p B"]) -> Float[Tensor, "p B"]:
        if odds is not None:
            return row_mean(softplus(odds / logs.exp().to(mu.dtype)[..., None]))
        return _losses_of_copies(likelihood, hyper, logs, mu, v, y)

    return lambda logs: torch.cat([of_piece(piece) for piece in logs.split(points_at_once)])


def _losses_of_copies(
    likelihood: type[Likelihood],
    hyper: Hyper,
    logs: Float[Tensor, "P B"],
    mu: Tensor,
    v: Tensor,
    y: Tensor,
) -> Float[Tensor, "P B"]:
    """Return mean NLLs with the factors `exp(logs)`: P copies of every cell at once."""
    copies = len(logs)
    hyper_copies = {}
    for name, value in hyper.items():
        hyper_copies[name] = value.repeat(copies, *[1] * (value.dim() - 1))
    factors = logs.exp().flatten()
    repeats = (copies, *[1] * (mu.ndim - 1))
    recalibrated = rescale(
        likelihood,
        hyper_copies,
        factors,
        mu.repeat(repeats),
        v.repeat(repeats),
        y.repeat(copies, 1),
    )
    return row_mean(recalibrated.nll).reshape(logs.shape)


def recalibrated_scores(
    likelihood: type[Likelihood],
    hyper: Hyper,
    factor: Float[Tensor, "B"],
    mu: Tensor,
    v: Tensor,
    y: Tensor,
) -> Tensors:
    """Return the NLL per row of recalibrated predictions, and other scores in regression."""
    recalibrated = rescale(likelihood, hyper, factor, mu, v, y)
    scores = {"recalibrated_nll": recalibrated.nll}
    if likelihood.task == "regression":
        calibration = recalibrated.likelihood.calibration(recalibrated.mu, recalibrated.v, y)
        for name in ("crps", "coverage_95"):
            if name in calibration:
                scores[f"recalibrated_{name}"] = calibration[name]
    return scores
