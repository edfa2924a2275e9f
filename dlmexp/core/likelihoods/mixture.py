"""Predictions of a q that is a mixture of K Gaussians with equal weights.

Marginals are [B, K, N], with K components, and targets [B, N]. The predictive distribution of a row
is the mixture of the K predictive distributions of the components.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.core.gp.kernels import Hyper
from dlmexp.core.likelihoods.base import Likelihood, Metric
from dlmexp.core.likelihoods.calibration import LEVELS, Scores, brier
from dlmexp.core.likelihoods.regression import Gaussian, StudentT

BISECTIONS = 50
"""Number of bisections for a quantile, after which only a rounding error of the first interval is
left."""
REACH = 8.0
"""Quantiles are searched up to this number of standard deviations beyond the outermost components'
means."""
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def log_mean_loss(losses: Float[Tensor, "*B K N"]) -> Float[Tensor, "*B N"]:
    """Return `-log 1/K sum_k exp(-loss_k)`, the log loss of a mixture, from those of components."""
    return math.log(losses.shape[-2]) - torch.logsumexp(-losses, -2)


@dataclass(frozen=True)
class Mixture:
    """The methods of a `Likelihood` that predictions need, for a mixture of K components.

    Attributes:
        component: The likelihood, ready for marginals [B, K, N] (`Likelihood.over_samples`).
    """

    component: Likelihood

    @property
    def task(self) -> str:
        """Return the task of the likelihood."""
        return self.component.task

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """Return the metrics of the likelihood, which need only its `mean`, as `Mixture` has."""
        return self.component.metrics

    def log_loss(
        self, mu: Float[Tensor, "B K N"], v: Float[Tensor, "B K N"], y: Float[Tensor, "B N"]
    ) -> Float[Tensor, "B N"]:
        """Return `-log mean_k E_{N(f; mu_k, v_k)} p(y|f)` per row."""
        return log_mean_loss(self.component.log_loss(mu, v, y.unsqueeze(-2)))

    def mean(self, mu: Float[Tensor, "B K N"], v: Float[Tensor, "B K N"]) -> Float[Tensor, "B N"]:
        """Return E[y]."""
        return self.component.mean(mu, v).mean(-2)

    def std(
        self, mu: Float[Tensor, "B K N"], v: Float[Tensor, "B K N"]
    ) -> Float[Tensor, "B N"] | None:
        """Return the standard deviation of y; None if the likelihood has none.

        Var[y] = mean_k Var[y | k] + Var_k E[y | k].
        """
        std = self.component.std(mu, v)
        if std is None:
            return None
        means = self.component.mean(mu, v)
        within = std.square().mean(-2)
        between = means.var(-2, correction=0)
        return (within + between).sqrt()

    def interval(
        self, mu: Float[Tensor, "B K N"], v: Float[Tensor, "B K N"]
    ) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B N"]] | None:
        """Return the ends of the central 95 % interval; None if the likelihood has none.

        A quantile of a mixture lies between those of its components.
        """
        ends = self.component.interval(mu, v)
        if ends is None:
            return None
        lower, upper = ends

        def cdf(y: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
            return self.cdf(mu, v, y)

        quantile = count_quantile_between if self.task == "count" else quantile_between
        return (
            quantile(cdf, share=0.025, low=lower.amin(-2), high=lower.amax(-2)),
            quantile(cdf, share=0.975, low=upper.amin(-2), high=upper.amax(-2)),
        )

    def cdf(
        self, mu: Float[Tensor, "B K N"], v: Float[Tensor, "B K N"], y: Float[Tensor, "B N"]
    ) -> Float[Tensor, "B N"]:
        """Return P(Y <= y)."""
        return self.component.cdf(mu, v, y.unsqueeze(-2).expand_as(mu)).mean(-2)

    def calibration(
        self, mu: Float[Tensor, "B K N"], v: Float[Tensor, "B K N"], y: Float[Tensor, "B N"]
    ) -> Scores:
        """Return scores of the whole predictive distribution.

        For counts there is no CRPS. In regression with other noise than Gaussian or Student t there
        are no scores.
        """
        if self.task == "binary":
            return brier(self.mean(mu, v), y)
        if self.task == "count":
            return self._interval_scores(mu, v, y)
        if isinstance(self.component, Gaussian):
            return normal_components_scores(mu, v + self.component.noise, y)
        if isinstance(self.component, StudentT):
            return self._student_t_scores(self.component, mu, v, y)
        return {}

    def _interval_scores(
        self, mu: Float[Tensor, "B K N"], v: Float[Tensor, "B K N"], y: Float[Tensor, "B N"]
    ) -> Scores:
        """Return coverage and width of the 95 % interval, which contains its ends."""
        ends = self.interval(mu, v)
        if ends is None:
            return {}
        lower, upper = ends
        covered = (lower <= y) & (y <= upper)
        return {"coverage_95": covered.to(y.dtype), "width_95": upper - lower}

    def _student_t_scores(
        self,
        component: StudentT,
        mu: Float[Tensor, "B K N"],
        v: Float[Tensor, "B K N"],
        y: Float[Tensor, "B N"],
    ) -> Scores:
        """Return the scores with Student-t noise, where every component is a mixture of normals."""
        variances, weights = component.as_normals(v)

        def flat_components(values: Float[Tensor, "J B K N"]) -> Float[Tensor, "B KJ N"]:
            return values.movedim(0, -2).flatten(-3, -2)

        K = mu.shape[-2]
        return normal_components_scores(
            flat_components(mu.expand_as(variances)),
            flat_components(variances),
            y,
            flat_components(weights.expand_as(variances)) / K,
        )


def predictive_likelihood(
    likelihood: type[Likelihood], hyper: Hyper, is_mixture: bool
) -> Likelihood | Mixture:
    """Return the likelihood for marginals [B, N], or for those of K components [B, K, N].

    `hyper` has the floating-point type of the rows.
    """
    for_rows = likelihood.from_hyper(hyper)
    return Mixture(for_rows.over_samples()) if is_mixture else for_rows


def normal_components_scores(
    mu: Float[Tensor, "B K N"],
    variance: Float[Tensor, "B K N"],
    y: Float[Tensor, "B N"],
    weights: Float[Tensor, "B K N"] | None = None,
) -> Scores:
    """Return the scores of a mixture of N(mu_k, variance_k); without `weights` they are equal.

    CRPS = sum_k w_k E|X_k - y| - 1/2 sum_kl w_k w_l E|X_k - X_l|, where for X ~ N(mu, s^2)
    E|X| = mu (2 Phi(mu / s) - 1) + 2 s phi(mu / s) (Grimit and others 2006).
    """
    w = torch.full_like(mu, 1 / mu.shape[-2]) if weights is None else weights
    s = variance.sqrt()
    # sum_k w_k E|X_k - y|
    crps = (w * mean_distance(mu - y.unsqueeze(-2), s)).sum(-2)
    # - 1/2 sum_kl w_k w_l E|X_k - X_l|, one k at a time: K^2 N numbers would not fit into memory.
    for k in range(mu.shape[-2]):
        component = slice(k, k + 1)
        mu_of_difference = mu - mu[..., component, :]
        s_of_difference = (variance + variance[..., component, :]).sqrt()
        distance = (w * mean_distance(mu_of_difference, s_of_difference)).sum(-2)
        crps = crps - 0.5 * w[..., k, :] * distance

    def cdf(x: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
        return (w * torch.special.ndtr((x.unsqueeze(-2) - mu) / s)).sum(-2)

    low = (mu - REACH * s).amin(-2)
    high = (mu + REACH * s).amax(-2)
    cdf_at_y = cdf(y)
    scores = {"crps": crps}
    for level in LEVELS:
        tail = (1 - level / 100) / 2
        # y is within the central interval where its cdf is between the tails.
        covered = (tail <= cdf_at_y) & (cdf_at_y <= 1 - tail)
        upper = quantile_between(cdf, 1 - tail, low, high)
        lower = quantile_between(cdf, tail, low, high)
        scores[f"coverage_{level}"] = covered.to(y.dtype)
        scores[f"width_{level}"] = upper - lower
    return scores


def mean_distance(mu: Float[Tensor, "B K N"], s: Float[Tensor, "B K N"]) -> Float[Tensor, "B K N"]:
    """Return E|X| of X ~ N(mu, s^2)."""
    z = mu / s
    return mu * torch.erf(z / math.sqrt(2)) + s * SQRT_2_OVER_PI * torch.exp(-0.5 * z.square())


def quantile_between(
    cdf: Callable[[Float[Tensor, "B N"]], Float[Tensor, "B N"]],
    share: float,
    low: Float[Tensor, "B N"],
    high: Float[Tensor, "B N"],
) -> Float[Tensor, "B N"]:
    """Return the x between `low` and `high` with cdf(x) = share, by bisection."""
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        below = cdf(middle) < share
        low = torch.where(below, middle, low)
        high = torch.where(below, high, middle)
    return 0.5 * (low + high)


def count_quantile_between(
    cdf: Callable[[Float[Tensor, "B N"]], Float[Tensor, "B N"]],
    share: float,
    low: Float[Tensor, "B N"],
    high: Float[Tensor, "B N"],
) -> Float[Tensor, "B N"]:
    """Return the least whole number k between `low` and `high` with cdf(k) >= share.

    It is found by bisection.
    """
    while bool((low < high).any()):
        middle = ((low + high) / 2).floor()
        below = cdf(middle) < share
        low = torch.where(below, (middle + 1).minimum(high), low)
        high = torch.where(below, high, middle.maximum(low))
    return high
