"""Regression: y ~ N(f, noise), and robust regression, y = f + scale * t_nu."""

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.core.gp.kernels import Hyper, Parameter
from dlmexp.core.likelihoods.base import LIKELIHOODS, Likelihood, squared_error
from dlmexp.core.likelihoods.calibration import (
    Scores,
    half_width,
    normal_mixture_half_width,
    normal_mixture_scores,
    normal_scores,
)

LOG_2PI = math.log(2 * math.pi)


@LIKELIHOODS.register("gaussian")
@dataclass(frozen=True)
class Gaussian(Likelihood):
    """p(y|f) = N(y; f, noise).

    `noise` is the variance sigma^2, broadcastable against [..., N] (e.g. [B, 1]).
    """

    parameters: ClassVar = {"noise": Parameter(0.1, positive=True)}
    metrics: ClassVar = {"mse": squared_error}
    conjugate: ClassVar[bool] = True
    product_sampler: ClassVar[str | None] = "gaussian"
    noise: Tensor

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        """Return -1/2 (log(2 pi noise) + (y - f)^2 / noise)."""
        return -0.5 * (LOG_2PI + self.noise.log() + (y - f).square() / self.noise)

    def log_loss(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        """Return -log N(y; mu, v + noise)."""
        total = v + self.noise
        return 0.5 * (LOG_2PI + total.log() + (y - mu).square() / total)

    def elbo_loss(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        """Return 1/2 (log(2 pi noise) + ((y - mu)^2 + v) / noise)."""
        return 0.5 * (LOG_2PI + self.noise.log() + ((y - mu).square() + v) / self.noise)

    def mean(self, mu: Tensor, v: Tensor) -> Tensor:
        """Return mu."""
        return mu

    def std(self, mu: Tensor, v: Tensor) -> Tensor:
        """Return sqrt(v + noise)."""
        return (v + self.noise).sqrt()

    def interval(self, mu: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ends of the central 95 % interval."""
        half = half_width(level=95) * self.std(mu, v)
        return mu - half, mu + half

    def cdf(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        """Return Phi((y - mu) / std)."""
        return torch.special.ndtr((y - mu) / self.std(mu, v))

    def calibration(self, mu: Tensor, v: Tensor, y: Tensor) -> Scores:
        """Return the scores of N(mu, v + noise)."""
        return normal_scores(mu, v + self.noise, y)

    def log_p_max(self, y: Tensor) -> Tensor:
        """Return log N(y; y, noise)."""
        return (-0.5 * (LOG_2PI + self.noise.log())).expand_as(y)

    def peak(self, y: Tensor) -> Tensor:
        """Return y."""
        return y


MIXTURE_NODES = 160
"""Number of nodes of the integral over u = log w in the log loss of `StudentT`."""
MIXTURE_SCORE_NODES = 20
"""Number of normals in `StudentT.as_normals`. Few are enough, as their weights are smooth and do
not depend on y."""
MIXTURE_DROP = 25.0
"""The range of the nodes ends where the log of the integrand has fallen by about this from its
maximum."""
NU = 4.0
"""The degrees of freedom of a `StudentT` in training, where only the scale is learned."""


@LIKELIHOODS.register("student_t")
@dataclass(frozen=True)
class StudentT(Likelihood):
    """A t density around f with `scale` sigma > 0 and `nu` > 0 degrees of freedom.

    Both fields broadcast to [..., N]. The hyperparameter `noise`, which is learned, is scale^2
    (`from_hyper`).

    The density is not log-concave, and q(f) p(y|f) may have two modes. But it is a mixture of
    normals over their variance w: y|f ~ N(f, w) with w ~ InvGamma(a, b), a = nu/2 and
    b = nu sigma^2 / 2. So E_q p = E_w N(y; mu, v + w), an integral over u = log w whose integrand
    is smooth on a scale of 1.
    """

    parameters: ClassVar = {"noise": Parameter(0.1, positive=True)}
    metrics: ClassVar = {"mse": squared_error}
    product_sampler: ClassVar[str | None] = "scale_mixture"
    scale: Tensor
    nu: Tensor

    @classmethod
    def from_hyper(cls, hyper: Hyper) -> Self:
        """Return the likelihood with scale sqrt(noise) and `NU` degrees of freedom, for rows."""
        noise = hyper["noise"]
        return cls(scale=noise.sqrt()[:, None], nu=torch.full_like(noise, NU)[:, None])

    @property
    def inverse_gamma(self) -> tuple[Tensor, Tensor]:
        """Return shape a = nu/2 and scale b = nu sigma^2 / 2 of the distribution of w."""
        return self.nu / 2, self.nu * self.scale.square() / 2

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        """Return log c - (nu + 1)/2 log(1 + z^2 / nu) with z = (y - f) / sigma."""
        z = (y - f) / self.scale
        return self._log_c() - (self.nu + 1) / 2 * torch.log1p(z * z / self.nu)

    def _log_c(self) -> Tensor:
        """Return log Gamma((nu + 1)/2) - log Gamma(nu/2) - 1/2 log(pi nu) - log sigma."""
        nu = self.nu
        return (
            torch.lgamma((nu + 1) / 2)
            - torch.lgamma(nu / 2)
            - 0.5 * (math.pi * nu).log()
            - self.scale.log()
        )

    def log_mixture(self, u: Tensor, d2: Tensor, v: Tensor) -> Tensor:
        """Return the log of the integrand over u = log w, plus (log 2 pi)/2.

        The integrand is N(y; mu, v + e^u) times the density of u. d2 is (y - mu)^2.
        """
        a, b = self.inverse_gamma
        w = u.exp()
        # log of b^a / Gamma(a) e^(-a u) e^(-b/w)
        prior = a * b.log() - torch.lgamma(a) - a * u - b / w
        return prior - 0.5 * ((v + w).log() + d2 / (v + w))

    def mixture_range(
        self, d2: Tensor, v: Tensor, drop: float = MIXTURE_DROP
    ) -> tuple[Tensor, Tensor]:
        """Return the ends of a range of u [..., N] beyond which the integrand is negligible.

        From its maximum `log_mixture` has fallen by at least `drop` at the left end, and by at
        least two thirds of `drop` at the right end. d2 is (y - mu)^2.
        """
        a, b = self.inverse_gamma
        # Left of log(b / (a + 1/2)) the slope in u is at least b e^-u - a - 1/2, whatever v and y.
        relative_drop = drop / (a + 0.5)
        low = (b / (a + 0.5)).log() - torch.log1p(relative_drop + (2 * relative_drop).sqrt())
        # There are two points w0 such that right of u0 = log w0 the slope is at most
        # -a (1 - e^-(u - u0)). At a distance x to the right of u0, `log_mixture` has fallen by at
        # least a (x - 1 + e^-x). The smaller of the two points gives the shorter range.
        a_w0_first = b + d2 / 2
        a_w0_second = torch.maximum(b, a * (d2 - v))
        u0 = (torch.minimum(a_w0_first, a_w0_second) / a).log()
        relative_drop = drop / a
        high = (
            u0 + relative_drop / 3 + (relative_drop * relative_drop / 9 + 2 * relative_drop).sqrt()
        )
        return low.expand_as(u0), high

    def log_loss(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        """Return -log E_w N(y; mu, v + w), by the trapezoidal rule in u = log w."""
        mu, v, y = torch.broadcast_tensors(mu, v, y)
        d2 = (y - mu).square()
        with torch.no_grad():
            low, high = self.mixture_range(d2, v)
            steps = torch.linspace(0, 1, MIXTURE_NODES, dtype=mu.dtype, device=mu.device)
            u = low.unsqueeze(-2) + (high - low).unsqueeze(-2) * steps.unsqueeze(-1)
            log_step = ((high - low) / (MIXTURE_NODES - 1)).log()
        log_terms = self.over_samples().log_mixture(u, d2.unsqueeze(-2), v.unsqueeze(-2))
        return 0.5 * LOG_2PI - log_step - torch.logsumexp(log_terms, -2)

    def mean(self, mu: Tensor, v: Tensor) -> Tensor:
        """Return mu."""
        return mu

    def std(self, mu: Tensor, v: Tensor) -> Tensor:
        """Return sqrt(v + sigma^2 nu / (nu - 2)); NaN for nu <= 2, where it is infinite."""
        return (v + self.scale.square() * self.nu / (self.nu - 2)).sqrt()

    def interval(self, mu: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ends of the central 95 % interval."""
        variances, weights = self.as_normals(v)
        half = normal_mixture_half_width(level=95, s=variances.sqrt(), weights=weights)
        return mu - half, mu + half

    def cdf(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        """Return sum_k weight_k Phi((y - mu) / sqrt(variance_k))."""
        variances, weights = self.as_normals(v)
        return (weights * torch.special.ndtr((y - mu) / variances.sqrt())).sum(0)

    def calibration(self, mu: Tensor, v: Tensor, y: Tensor) -> Scores:
        """Return the scores of the predictive distribution, as a mixture of normals."""
        mu, v, y = torch.broadcast_tensors(mu, v, y)
        variances, weights = self.as_normals(v)
        return normal_mixture_scores(y - mu, variances, weights)

    def as_normals(
        self, v: Float[Tensor, "*B N"]
    ) -> tuple[Float[Tensor, "K *B N"], Float[Tensor, "K *#B #N"]]:
        """Return variances and weights of the predictive distribution as a mixture of normals.

        The normals are N(mu, v + w) at the nodes w of the trapezoidal rule in u = log w.
        """
        a, b = self.inverse_gamma
        # The weights do not depend on y and v: take the range for y = mu and v = 0.
        low, high = self.mixture_range(d2=torch.zeros_like(b), v=torch.zeros_like(b))
        steps = torch.linspace(0, 1, MIXTURE_SCORE_NODES, dtype=v.dtype, device=v.device)
        # [K] -> [K, 1, ...], before the dimensions of v
        steps = steps.view(-1, *[1] * v.ndim)
        u = low + (high - low) * steps
        w = u.exp()
        weights = torch.softmax(-a * u - b / w, 0)
        return v + w, weights

    def log_p_max(self, y: Tensor) -> Tensor:
        """Return log p(y|y)."""
        return self._log_c().expand_as(y)

    def peak(self, y: Tensor) -> Tensor:
        """Return y."""
        return y
