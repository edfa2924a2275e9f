"""Recalibration: one factor per cell, fitted on the validation rows (docs/SPEC.md, section 7).

A run with validation rows takes the factor with the least NLL there (`best_factor`). In
cross-validation the rows of a fold have a profile: their NLL at a grid of factors
(`loss_profile`). The profiles of all folds are summed, and `folds.penalised_factor` takes the best
factor under a penalty, so that few rows can not make it very large or small.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from dlmexp.core.folds import PROFILE_LOGS, penalised_factor
from dlmexp.core.gp.kernels import Hyper
from dlmexp.core.gp.precision import PARAMETER_DTYPE, hyper_as_rows, row_mean
from dlmexp.core.likelihoods import Likelihood
from dlmexp.core.likelihoods.mixture import Mixture, predictive_likelihood
from dlmexp.core.training.parameters import Tensors

MAX_LOG_FACTOR = 7.0
"""The logarithm of the factor lies between -MAX_LOG_FACTOR and MAX_LOG_FACTOR."""
POINTS = 17
"""Number of logarithms in the grid of a round."""
ROUNDS = 5
"""Number of rounds; each has a grid between the neighbours of the last one's best point."""
ENTRIES_AT_ONCE = 2_000_000
"""Entries of predictions [factors, B, N] that are computed at the same time; a quadrature has more
by the number of its nodes."""


class Recalibrated(NamedTuple):
    """Predictions after recalibration.

    Attributes:
        likelihood: The likelihood, with the recalibrated noise.
        mu: The means of f.
        v: The variances of f.
        nll: The negative log predictive density of every row.
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
    """Return predictions at rows with targets y, recalibrated by one factor per cell.

    The factor 1 changes nothing.

    Regression: a factor on the predictive variance. Counts: a factor on the variance of f. Binary:
    a temperature, which divides the log-odds of the predicted probability (Guo et al., 2017).
    """
    is_mixture = mu.ndim == 3
    by_row = factor.to(mu.dtype)[:, None]
    if likelihood.task == "binary":
        instance = predictive_likelihood(likelihood, hyper_as_rows(mu, hyper), is_mixture)
        log_odds = log_odds_against_label(instance, mu, v, y)
        return Recalibrated(instance, mu, v, softplus(log_odds / by_row))
    if likelihood.task == "regression" and "noise" in hyper:
        hyper = {**hyper, "noise": hyper["noise"] * factor}
    instance = predictive_likelihood(likelihood, hyper_as_rows(mu, hyper), is_mixture)
    if is_mixture:
        # The whole mixture is stretched about its mean: distances between components grow too.
        by_row = by_row.unsqueeze(-1)
        centre = mu.mean(-2, keepdim=True)
        mu = centre + by_row.sqrt() * (mu - centre)
    v = v * by_row
    return Recalibrated(instance, mu, v, instance.log_loss(mu, v, y))


def log_odds_against_label(
    likelihood: Likelihood | Mixture, mu: Tensor, v: Tensor, y: Tensor
) -> Float[Tensor, "B N"]:
    """Return the predicted log-odds of the class that a row does not have.

    The NLL of the row is the softplus of it.
    """
    ones = torch.ones_like(y)
    # log p(1) - log p(0)
    odds_of_one = likelihood.log_loss(mu, v, 1 - ones) - likelihood.log_loss(mu, v, ones)
    return (1 - 2 * y) * odds_of_one


def best_factor(
    likelihood: type[Likelihood], hyper: Hyper, mu: Tensor, v: Tensor, y: Tensor
) -> Float[Tensor, "B"]:
    """Return the factor of each cell with the least mean NLL on rows [B, N].

    Its relative error is about 1e-4.
    """
    mean_losses = _mean_losses(likelihood, hyper, mu, v, y)
    cells = torch.arange(len(hyper["mean"]), device=mu.device)
    low = torch.full_like(hyper["mean"], -MAX_LOG_FACTOR)
    high = torch.full_like(hyper["mean"], MAX_LOG_FACTOR)
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
    logs = torch.as_tensor(PROFILE_LOGS, dtype=PARAMETER_DTYPE, device=mu.device)
    mean_losses = _mean_losses(likelihood, hyper, mu, v, y)
    rows = mu.shape[-1]
    return mean_losses(logs[:, None].expand(-1, len(mu))).mT * rows


def penalised_factors(profile: Float[Tensor, "B P"]) -> Float[Tensor, "B"]:
    """Return the best factor of each cell by its profile and a penalty (`penalised_factor`)."""
    factors = [penalised_factor(row) for row in profile.cpu().numpy()]
    return torch.tensor(factors, dtype=profile.dtype, device=profile.device)


def _mean_losses(
    likelihood: type[Likelihood], hyper: Hyper, mu: Tensor, v: Tensor, y: Tensor
) -> Callable[[Float[Tensor, "P B"]], Float[Tensor, "P B"]]:
    """Return the function from logarithms of factors to the mean NLLs with these factors."""
    points_at_once = max(1, ENTRIES_AT_ONCE // mu.numel())
    log_odds = None  # the same for all factors, which divide them as temperatures
    if likelihood.task == "binary":
        instance = predictive_likelihood(
            likelihood, hyper_as_rows(mu, hyper), is_mixture=mu.ndim == 3
        )
        log_odds = log_odds_against_label(instance, mu, v, y)

    def losses_of_piece(logs: Float[Tensor, "p B"]) -> Float[Tensor, "p B"]:
        if log_odds is not None:
            return row_mean(softplus(log_odds / logs.exp().to(mu.dtype)[..., None]))
        return _losses_of_copies(likelihood, hyper, logs, mu, v, y)

    def losses(logs: Float[Tensor, "P B"]) -> Float[Tensor, "P B"]:
        pieces = [losses_of_piece(piece) for piece in logs.split(points_at_once)]
        return torch.cat(pieces)

    return losses


def _losses_of_copies(
    likelihood: type[Likelihood],
    hyper: Hyper,
    logs: Float[Tensor, "P B"],
    mu: Tensor,
    v: Tensor,
    y: Tensor,
) -> Float[Tensor, "P B"]:
    """Return mean NLLs with the factors `exp(logs)`, as those of a batch of P B cells."""
    P = len(logs)
    copied_hyper = {}
    for name, value in hyper.items():
        copied_hyper[name] = value.repeat(P, *[1] * (value.dim() - 1))
    factors = logs.exp().flatten()
    repeats = (P, *[1] * (mu.ndim - 1))
    recalibrated = rescale(
        likelihood,
        copied_hyper,
        factors,
        mu.repeat(repeats),
        v.repeat(repeats),
        y.repeat(P, 1),
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
    """Return the NLL of every row after recalibration; in regression also CRPS and coverage."""
    recalibrated = rescale(likelihood, hyper, factor, mu, v, y)
    scores = {"recalibrated_nll": recalibrated.nll}
    if likelihood.task == "regression":
        calibration = recalibrated.likelihood.calibration(recalibrated.mu, recalibrated.v, y)
        for name in ("crps", "coverage_95"):
            if name in calibration:
                scores[f"recalibrated_{name}"] = calibration[name]
    return scores
