"""Likelihoods of two classes and of counts.

Classes have p(y = 1|f) = Phi(f) or 1 / (1 + e^-f). Counts are y ~ Poisson(rate(f)) with the
exponential link, rate = e^f, or the softplus link, rate = log(1 + e^f).
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from dlmexp.core.gp.special import expectation, lambert_w_exp, log_ndtr
from dlmexp.core.likelihoods.base import (
    HERMITE_NODES,
    LIKELIHOODS,
    Likelihood,
    misclassified,
    relative_error,
)
from dlmexp.core.likelihoods.calibration import Scores, count_cdf, count_interval, count_scores
from dlmexp.core.likelihoods.log_concave import LogConcave, Mode, Terms, log_product_integral

COUNT_KNEE = 1.5
"""f at the knee of log p of counts. At f = 1.5, exp(-e^f) has fallen to 0.01. The value is not
critical: with any from 1 to 2.5, log integrals have errors of at most 4e-9 on a grid with mu from
-60 to 12, and v and counts up to 10^4."""


def signs(y: Tensor) -> Tensor:
    """Return -1 for label 0 and +1 for label 1."""
    return 2 * y - 1


@LIKELIHOODS.register("probit")
@dataclass(frozen=True)
class Probit(Likelihood):
    """p(y|f) = Phi((2y-1) f), y in {0, 1}."""

    task: ClassVar[str] = "binary"
    metrics: ClassVar = {"error": misclassified}
    product_sampler: ClassVar[str | None] = "skew_normal"

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        """Return log Phi((2y-1) f)."""
        return log_ndtr(signs(y) * f)

    def log_loss(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        """Return -log Phi((2y-1) mu / sqrt(1 + v))."""
        return -log_ndtr(signs(y) * mu * (1 + v).rsqrt())

    def mean(self, mu: Tensor, v: Tensor) -> Tensor:
        """Return Phi(mu / sqrt(1 + v))."""
        return torch.special.ndtr(mu * (1 + v).rsqrt())

    def log_p_max(self, y: Tensor) -> Tensor:
        """Return 0, the log of the supremum 1."""
        return torch.zeros_like(y)

    def peak(self, y: Tensor) -> Tensor:
        """Return infinity with the sign of the label, at which p tends to 1."""
        return signs(y) * torch.inf


@LIKELIHOODS.register("logistic")
@dataclass(frozen=True)
class Logistic(LogConcave):
    """p(y|f) = sigmoid((2y-1) f), y in {0, 1}."""

    task: ClassVar[str] = "binary"
    metrics: ClassVar = {"error": misclassified}

    def terms(self, f: Tensor, y: Tensor) -> Terms:
        """Return log p, its derivative, and minus its second derivative."""
        s = signs(y)
        sf = s * f
        # The probability of the class that the row does not have
        p_wrong = torch.sigmoid(-sf)
        return Terms(value=logsigmoid(sf), slope=s * p_wrong, curvature=p_wrong * torch.sigmoid(sf))

    def log_constant(self, y: Tensor) -> Tensor:
        """Return 0: log p has no constant."""
        return torch.zeros_like(y)

    def shift(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        """Return (mode of q(f) p(y|f)) - mu [..., N].

        With m = (2y-1) mu, the shift r >= 0 towards the label solves r = v sigmoid(-(m + r)). The
        sigmoid is about e^-(m + r) where m + r is large, and about 1 - e^(m + r) where -(m + r) is
        large. With these forms r is given by Lambert's W. From there three steps of Newton's method
        solve r - v sigmoid(-(m + r)) = 0; the derivative of the left side is at least 1.
        """
        m = signs(y) * mu
        # m + r grows with m and is 0 at m = -v / 2 (where r = v / 2), so its sign is that of
        # m + v / 2.
        is_positive = m + v / 2 > 0
        w = lambert_w_exp(v.log() + torch.where(is_positive, -m, m + v))
        r = torch.where(is_positive, w, (v - w).clamp_min(0))
        r = torch.minimum(r, v)
        for _ in range(3):
            p_wrong = torch.sigmoid(-(m + r))
            r = r - (r - v * p_wrong) / (1 + v * p_wrong * (1 - p_wrong))
            r = torch.minimum(r.clamp_min(0), v)
        return signs(y) * r

    def knee(self, mode: Mode) -> Tensor:
        """Return the distance from the mode to f = 0.

        The classes are equally probable there, and log p bends most.
        """
        return -mode.f

    def mean(self, mu: Tensor, v: Tensor) -> Tensor:
        """Return E_q sigmoid(f), the integral of p(y = 1|f)."""
        return log_product_integral(self, mu, v, torch.ones_like(mu)).exp()

    def log_p_max(self, y: Tensor) -> Tensor:
        """Return 0, the log of the supremum 1."""
        return torch.zeros_like(y)

    def peak(self, y: Tensor) -> Tensor:
        """Return infinity with the sign of the label, at which p tends to 1."""
        return signs(y) * torch.inf


@dataclass(frozen=True)
class Counts(LogConcave):
    """p(y|f) = rate^y e^-rate / y!, with rate = `conditional_mean`(f)."""

    task: ClassVar[str] = "count"
    metrics: ClassVar = {"mre": relative_error}

    def log_constant(self, y: Tensor) -> Tensor:
        """Return -log y!."""
        return -torch.lgamma(y + 1)

    def std(self, mu: Tensor, v: Tensor) -> Tensor:
        """Return sqrt(E[rate] + Var[rate])."""
        mean = self.mean(mu, v)

        def squared_deviation(f: Tensor) -> Tensor:
            return (self.conditional_mean(f) - mean.unsqueeze(-2)).square()

        return (mean + expectation(squared_deviation, mu, v, HERMITE_NODES)).sqrt()

    def interval(self, mu: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ends of the central 95 % interval."""
        return count_interval(
            self.log_prob, rate=self.conditional_mean, latent=self.peak, mu=mu, v=v
        )

    def cdf(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        """Return P(Y <= y) of the Poisson mixed over q."""
        return count_cdf(rate=self.conditional_mean, mu=mu, v=v, k=y)

    def calibration(self, mu: Tensor, v: Tensor, y: Tensor) -> Scores:
        """Return the scores of the Poisson mixed over q."""
        return count_scores(
            self.log_prob, rate=self.conditional_mean, latent=self.peak, mu=mu, v=v, y=y
        )

    def log_p_max(self, y: Tensor) -> Tensor:
        """Return y log y - y - log y!, attained at rate = y."""
        return torch.xlogy(y, y) - y + self.log_constant(y)


@LIKELIHOODS.register("poisson")
@dataclass(frozen=True)
class Poisson(Counts):
    """p(y|f) = exp(y f - e^f) / y!."""

    product_sampler: ClassVar[str | None] = "half_normals"
    knee_width: ClassVar[float] = 1.0

    def terms(self, f: Tensor, y: Tensor) -> Terms:
        """Return y f - e^f, its derivative, and minus its second derivative."""
        rate = f.exp()
        return Terms(value=torch.addcmul(-rate, y, f), slope=y - rate, curvature=rate)

    def shift(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        """Return s = (mode of q(f) p(y|f)) - mu [..., N].

        s = v (y - e^(mu + s)), so w = v e^(mu + s) solves w + log w = log v + mu + v y.
        """
        log_w_without_s = v.log() + mu
        vy = v * y
        w = lambert_w_exp(log_w_without_s + vy)
        # s is v y - w, and also log w - (log v + mu). The first form loses digits where v y and w
        # are large and close, the second where w is small and s is tiny.
        return torch.where(w < 1, vy - w, w.log() - log_w_without_s)

    def fall(self, x: Tensor, mode: Mode) -> Tensor:
        """Return how far log(q p) lies below its mode at distance x from it, elementwise.

        It is rate (e^x - 1 - x) + x^2/(2v), with the rate at the mode: the slopes of log p and
        log q cancel there.
        """
        fall_of_p = x.exp().sub_(x).sub_(1).mul_(mode.terms.curvature)
        return torch.addcmul(fall_of_p, x * x, mode.precision / 2)

    def reach(self, mode: Mode, drop: float) -> tuple[Tensor, Tensor]:
        """Return distances left and right at which log(q p) has fallen by at least `drop` [..., N].

        Each of the two terms of `fall` alone gives a bound in closed form.
        """
        # By q: x^2/(2v) = drop
        reach_by_q = (2 * drop / mode.precision).sqrt()
        # By p: on the left e^x - 1 - x >= x^2/(2 - x), on the right x = log(1 + z + sqrt(2z)) has
        # e^x - 1 - x >= z.
        z = drop / mode.terms.curvature
        left_by_p = (z + (z * (z + 8)).sqrt()) / 2
        right_by_p = torch.log1p(z + (2 * z).sqrt())
        return torch.minimum(reach_by_q, left_by_p), torch.minimum(reach_by_q, right_by_p)

    def knee(self, mode: Mode) -> Tensor:
        """Return the distance from the mode to f = COUNT_KNEE.

        The knee of a positive mode lies COUNT_KNEE above the mode.
        """
        return COUNT_KNEE - mode.f.clamp_max(0)

    def elbo_loss(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        """Return exp(mu + v/2) - y mu + log y!."""
        return (mu + v / 2).exp() - y * mu - self.log_constant(y)

    def conditional_mean(self, f: Tensor) -> Tensor:
        """Return e^f."""
        return f.exp()

    def mean(self, mu: Tensor, v: Tensor) -> Tensor:
        """Return exp(mu + v/2)."""
        return (mu + v / 2).exp()

    def peak(self, y: Tensor) -> Tensor:
        """Return log y."""
        return y.log()


def softplus(f: Tensor) -> Tensor:
    """Return log(1 + e^f) to rounding everywhere.

    From f = 20 on, torch's softplus returns f, which is wrong in the ninth digit.
    """
    return -logsigmoid(-f)


@LIKELIHOODS.register("poisson_softplus")
@dataclass(frozen=True)
class PoissonSoftplus(Counts):
    """p(y|f) = rate^y e^-rate / y! with rate = log(1 + e^f)."""

    def terms(self, f: Tensor, y: Tensor) -> Terms:
        """Return y log rate - rate, its derivative, and minus its second derivative."""
        # Below -30 the log of the rate is f to rounding. The clamp keeps the rate from becoming 0
        # in the logarithm and the quotient below.
        g = f.clamp_min(-30)
        rate = softplus(g)
        sigma = torch.sigmoid(f)
        log_rate = rate.log() + (f - g)
        # d log rate / df, which tends to 1 for small f
        relative_slope = torch.sigmoid(g) / rate
        value = y * log_rate - softplus(f)
        slope = y * relative_slope - sigma
        curvature = y * relative_slope * (relative_slope + sigma - 1) + sigma * (1 - sigma)
        return Terms(value, slope, curvature)

    def shift(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        """Return (mode of q(f) p(y|f)) - mu [..., N].

        Where the rate is about f, the mode is the root of a quadratic; where it is about e^f, the
        mode is given by Lambert's W. Newton's method starts there. Its iterates are kept between 0
        and v slope(mu), which enclose the root because the slope of log p falls.
        """
        # rate = f: the mode solves f^2 - (mu - v) f - v y = 0.
        gap = mu - v
        linear = (gap + torch.hypot(gap, 2 * (y * v).sqrt())) / 2
        # rate = e^f - e^2f / 2: log p is about y f - (1 + y/2) e^f, so the mode solves
        # f = t - v (1 + y/2) e^f.
        t = mu + v * y
        exponential = t - lambert_w_exp(t + (v * (1 + y / 2)).log())
        other_end = v * self.terms(mu, y).slope
        low = other_end.clamp_max(0)
        high = other_end.clamp_min(0)
        s = torch.where(linear > 1, linear, exponential) - mu
        for _ in range(5):
            s = torch.minimum(torch.maximum(s, low), high)
            terms = self.terms(mu + s, y)
            s = s - (s - v * terms.slope) / (1 + v * terms.curvature)
        return torch.minimum(torch.maximum(s, low), high)

    def knee(self, mode: Mode) -> Tensor:
        """Return the distance from the mode to f = COUNT_KNEE."""
        return COUNT_KNEE - mode.f

    def conditional_mean(self, f: Tensor) -> Tensor:
        """Return log(1 + e^f)."""
        return softplus(f)

    def peak(self, y: Tensor) -> Tensor:
        """Return log(e^y - 1)."""
        return y + torch.log(-torch.expm1(-y))
