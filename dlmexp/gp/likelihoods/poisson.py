"""Counts with the exponential link: y ~ Poisson(exp(f))."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from dlmexp.gp.likelihoods.base import LIKELIHOODS, Bounds
from dlmexp.gp.likelihoods.counts import Counts
from dlmexp.gp.likelihoods.log_concave import Mode, Terms
from dlmexp.gp.likelihoods.special import lambert_w_exp


@LIKELIHOODS.register("poisson")
@dataclass(frozen=True)
class Poisson(Counts):
    """p(y|f) = exp(y f - e^f) / y!."""

    product_sampler: ClassVar[str | None] = "half_normals"
    bend: ClassVar[float] = 1.0

    def terms(self, f: Tensor, y: Tensor) -> Terms:
        rate = f.exp()
        return Terms(torch.addcmul(-rate, y, f), y - rate, rate)

    def shift(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        # s = v (y - e^(mu + s)), so w = v e^(mu + s) solves w + log w = log v + mu + v y.
        start, pull = v.log() + mu, v * y
        w = lambert_w_exp(start + pull)
        # v y - w loses digits where the two are large and close; log w does where w is small and s = v y - w is tiny.
        return torch.where(w < 1, pull - w, w.log() - start)

    def fall(self, x: Tensor, mode: Mode) -> Tensor:
        # The slope of log p at the mode cancels against q's, which leaves rate (e^x - 1 - x) + x^2/(2v).
        return torch.addcmul(x.exp().sub_(x).sub_(1).mul_(mode.at.curvature), x * x, mode.precision / 2)

    def reach(self, mode: Mode, drop: float) -> tuple[Tensor, Tensor]:
        # Each half of `fall` alone gives a bound in closed form: for the first, e^x - 1 - x >= x^2/(2 - x) on the left,
        # and on the right x = log(1 + z + sqrt(2z)) does.
        z = drop / mode.at.curvature
        gauss = (2 * drop / mode.precision).sqrt()
        left = (z + (z * (z + 8)).sqrt()) / 2
        right = torch.log1p(z + (2 * z).sqrt())
        return torch.minimum(gauss, left), torch.minimum(gauss, right)

    def knee(self, mode: Mode) -> Tensor:
        return 1.5 - mode.f.clamp_max(0)

    def elbo_loss(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        return (mu + v / 2).exp() - y * mu - self.log_constant(y)

    def conditional_mean(self, f: Tensor) -> Tensor:
        return f.exp()

    def mean(self, mu: Tensor, v: Tensor) -> Tensor:
        return (mu + v / 2).exp()

    def peak(self, y: Tensor) -> Tensor:
        return y.log()

    def bounds(self, y: Tensor) -> Bounds:
        return Bounds(torch.ones_like(y), -y - 1, y, -y - 0.25, 2 * y.square() + 3 * y + 2)
