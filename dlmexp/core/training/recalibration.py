"""Recalibration: one factor per cell, fitted on the validation rows (docs/SPEC.md, section 7).

With validation rows, the factor is the one with the least NLL on them (`best_factor`). In
cross-validation the rows of a fold have a profile: their NLL at a grid of factors
(`loss_profile`). The profiles of all folds are summed, and `folds.penalised_factor` finds the
factor with the lowest sum of NLL and a penalty. The penalty keeps the factor near 1 if there are
few rows.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from dlmexp.core.folds import PROFILE_LOGS, penalised_factor
from dlmexp.core.gp.kernels import Hyper
from dlmexp.core.gp.precision import PARAMETER_DTYPE, hyper_in_type_of, row_mean
from dlmexp.core.likelihoods import Likelihood
from dlmexp.core.likelihoods.mixture import Mixture, predictive_likelihood
from dlmexp.core.training.parameters import Tensors

MAX_LOG_FACTOR = 7.0
"""The logarithm of a factor that is fitted lies between -MAX_LOG_FACTOR and MAX_LOG_FACTOR."""
POINTS = 17
"""Number of logarithms in the grid of a round of the search."""
ROUNDS = 5
"""Number of rounds of the search. The grid of a round lies between the two neighbours of the best
point of the round before."""
ENTRIES_AT_ONCE = 2_000_000
"""The most entries of predictions [factors, B, N] that are computed at the same time. A quadrature
needs this number of entries for each of its nodes."""


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

    - Regression: the factor multiplies the predictive variance.
    - Counts: it multiplies the variance of f.
    - Binary: it is a temperature, which divides the log-odds of the predicted probability (Guo et
      al., 2017).

    The factor 1 changes nothing.
    """
    is_mixture = mu.ndim == 3
    # [B] -> [B, 1], to be broadcast over rows
    row_factor = factor.to(mu.dtype)[:, None]
    if likelihood.task == "binary":
        row_likelihood = predictive_likelihood(likelihood, hyper_in_type_of(mu, hyper), is_mixture)
        log_odds = log_odds_against_label(row_likelihood, mu, v, y)
        return Recalibrated(row_likelihood, mu, v, softplus(log_odds / row_factor))
    if likelihood.task == "regression" and "noise" in hyper:
        hyper = {**hyper, "noise": hyper["noise"] * factor}
    row_likelihood = predictive_likelihood(likelihood, hyper_in_type_of(mu, hyper), is_mixture)
    if is_mixture:
        # The whole mixture is stretched about its mean, also the distances between components.
        row_factor = row_factor.unsqueeze(-1)
        centre = mu.mean(-2, keepdim=True)
        mu = centre + row_factor.sqrt() * (mu - centre)
    v = v * row_factor
    return Recalibrated(row_likelihood, mu, v, row_likelihood.log_loss(mu, v, y))


def log_odds_against_label(
    likelihood: Likelihood | Mixture, mu: Tensor, v: Tensor, y: Tensor
) -> Float[Tensor, "B N"]:
    """Return the predicted log-odds of the class that a row does not have.

    The NLL of a row is the softplus of these log-odds.
    """
    ones = torch.ones_like(y)
    # log p(1) - log p(0)
    log_odds_of_1 = likelihood.log_loss(mu, v, 1 - ones) - likelihood.log_loss(mu, v, ones)
    return (1 - 2 * y) * log_odds_of_1


def best_factor(
    likelihood: type[Likelihood], hyper: Hyper, mu: Tensor, v: Tensor, y: Tensor
) -> Float[Tensor, "B"]:
    """Return the factor of each cell with the least mean NLL on rows [B, N].

    The search refines a grid of logarithms round by round. The relative error of the factor is
    about 1e-4.
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
    """Return `folds.penalised_factor` of the profile of each cell."""
    factors = [penalised_factor(row) for row in profile.cpu().numpy()]
    return torch.tensor(factors, dtype=profile.dtype, device=profile.device)


def _mean_losses(
    likelihood: type[Likelihood], hyper: Hyper, mu: Tensor, v: Tensor, y: Tensor
) -> Callable[[Float[Tensor, "P B"]], Float[Tensor, "P B"]]:
    """Return the function from logarithms of factors to the mean NLLs with these factors."""
    points_at_once = max(1, ENTRIES_AT_ONCE // mu.numel())
    # Factors divide the log-odds as temperatures, so these are the same for all factors.
    log_odds = None
    if likelihood.task == "binary":
        row_likelihood = predictive_likelihood(
            likelihood, hyper_in_type_of(mu, hyper), is_mixture=mu.ndim == 3
        )
        log_odds = log_odds_against_label(row_likelihood, mu, v, y)

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
    """Return the mean NLLs with the factors `exp(logs)`, as those of a batch of P B cells."""
    P = len(logs)
    copied_hyper = {}
    for name, value in hyper.items():
        copied_hyper[name] = value.repeat(P, *[1] * (value.dim() - 1))
    factors = logs.exp().flatten()
    repeats = (P, *[1] * (mu.ndim - 1))
    recalibrated = rescale(
        likelihood,
        copied_hyper,
        factor=factors,
        mu=mu.repeat(repeats),
        v=v.repeat(repeats),
        y=y.repeat(P, 1),
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
