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


def signs(y: Tensor) -> Tensor:
    """Return labels {0, 1} as {-1, +1}."""
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
        """Return log 1."""
        return torch.zeros_like(y)

    def peak(self, y: Tensor) -> Tensor:
        """Return plus or minus infinity."""
        return signs(y) * torch.inf


@LIKELIHOODS.register("logistic")
@dataclass(frozen=True)
class Logistic(LogConcave):
    """p(y|f) = sigmoid((2y-1) f), y in {0, 1}."""

    task: ClassVar[str] = "binary"
    metrics: ClassVar = {"error": misclassified}

    def terms(self, f: Tensor, y: Tensor) -> Terms:
        """Return log p and its derivatives."""
        s = signs(y)
        sf = s * f
        # P(the other class|f)
        wrong = torch.sigmoid(-sf)
        return Terms(value=logsigmoid(sf), slope=s * wrong, curvature=wrong * torch.sigmoid(sf))

    def log_constant(self, y: Tensor) -> Tensor:
        """Return 0."""
        return torch.zeros_like(y)

    def shift(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        """Return (mode of q(f) p(y|f)) - mu [..., N].

        With m = (2y-1) mu, the shift r >= 0 towards the label solves r = v sigmoid(-(m + r)). Where
        |m + r| is large, the sigmoid is about e^-(m + r) or 1 - e^(m + r), and r is given by
        Lambert's W. Three steps of Newton's method on r - v sigmoid(-(m + r)), whose derivative is
        at least 1, start there.
        """
        m = signs(y) * mu
        is_right = m + v / 2 > 0
        w = lambert_w_exp(v.log() + torch.where(is_right, -m, m + v))
        r = torch.where(is_right, w, (v - w).clamp_min(0))
        r = torch.minimum(r, v)
        for _ in range(3):
            wrong = torch.sigmoid(-(m + r))
            r = r - (r - v * wrong) / (1 + v * wrong * (1 - wrong))
            r = torch.minimum(r.clamp_min(0), v)
        return signs(y) * r

    def knee(self, mode: Mode) -> Tensor:
        """Return the distance from the mode to f = 0, where the classes are equally probable."""
        return -mode.f

    def mean(self, mu: Tensor, v: Tensor) -> Tensor:
        """Return E_q sigmoid(f)."""
        return log_product_integral(self, mu, v, torch.ones_like(mu)).exp()

    def log_p_max(self, y: Tensor) -> Tensor:
        """Return log 1."""
        return torch.zeros_like(y)

    def peak(self, y: Tensor) -> Tensor:
        """Return plus or minus infinity."""
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
        return count_interval(self.log_prob, self.conditional_mean, self.peak, mu, v)

    def cdf(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        """Return P(Y <= y) of the Poisson mixed over q."""
        return count_cdf(self.conditional_mean, mu, v, y)

    def calibration(self, mu: Tensor, v: Tensor, y: Tensor) -> Scores:
        """Return the scores of the Poisson mixed over q."""
        return count_scores(self.log_prob, self.conditional_mean, self.peak, mu, v, y)

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
        """Return y f - e^f and its derivatives."""
        rate = f.exp()
        return Terms(value=torch.addcmul(-rate, y, f), slope=y - rate, curvature=rate)

    def shift(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        """Return s = (mode of q(f) p(y|f)) - mu [..., N].

        s = v (y - e^(mu + s)), so w = v e^(mu + s) solves w + log w = log v + mu + v y.
        """
        log_w_without_s = v.log() + mu
        vy = v * y
        w = lambert_w_exp(log_w_without_s + vy)
        # s is v y - w, or log w - (log v + mu). The first loses digits where v y and w are large
        # and close, the second where w is small and s is tiny.
        return torch.where(w < 1, vy - w, w.log() - log_w_without_s)

    def fall(self, x: Tensor, mode: Mode) -> Tensor:
        """Return rate (e^x - 1 - x) + x^2/(2v).

        The slopes of log p and log q at the mode cancel.
        """
        fall_of_p = x.exp().sub_(x).sub_(1).mul_(mode.terms.curvature)
        return torch.addcmul(fall_of_p, x * x, mode.precision / 2)

    def reach(self, mode: Mode, drop: float) -> tuple[Tensor, Tensor]:
        """Return distances left and right at which log(q p) has fallen by at least `drop` [..., N].

        Each half of `fall` alone gives a bound in closed form.
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
        """Return the distance from the mode to the knee, at f = 1.5 or above."""
        return 1.5 - mode.f.clamp_max(0)

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

    torch's softplus returns f from 20 on, which is wrong in the ninth digit.
    """
    return -logsigmoid(-f)


@LIKELIHOODS.register("poisson_softplus")
@dataclass(frozen=True)
class PoissonSoftplus(Counts):
    """p(y|f) = rate^y e^-rate / y! with rate = log(1 + e^f)."""

    def terms(self, f: Tensor, y: Tensor) -> Terms:
        """Return y log rate - rate and its derivatives."""
        # Below -30 the log of the rate is f to rounding. Without the clamp, the rate would be 0 in
        # a logarithm and a quotient.
        g = f.clamp_min(-30)
        rate = softplus(g)
        sigma = torch.sigmoid(f)
        log_rate = rate.log() + (f - g)
        # d log rate / df, 1 on the far left
        relative = torch.sigmoid(g) / rate
        value = y * log_rate - softplus(f)
        slope = y * relative - sigma
        curvature = y * relative * (relative + sigma - 1) + sigma * (1 - sigma)
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
        # rate = e^f
        t = mu + v * y
        exponential = t - lambert_w_exp(t + (v * (1 + y / 2)).log())
        other_end = v * self.terms(mu, y).slope
        low = other_end.clamp_max(0)
        high = other_end.clamp_min(0)
        s = torch.where(linear > 1, linear, exponential) - mu
        for _ in range(5):
            s = torch.minimum(torch.maximum(s, low), high)
            at = self.terms(mu + s, y)
            s = s - (s - v * at.slope) / (1 + v * at.curvature)
        return torch.minimum(torch.maximum(s, low), high)

    def knee(self, mode: Mode) -> Tensor:
        """Return the distance from the mode to the knee, at f = 1.5."""
        return 1.5 - mode.f

    def conditional_mean(self, f: Tensor) -> Tensor:
        """Return log(1 + e^f)."""
        return softplus(f)

    def peak(self, y: Tensor) -> Tensor:
        """Return log(e^y - 1)."""
        return y + torch.log(-torch.expm1(-y))
