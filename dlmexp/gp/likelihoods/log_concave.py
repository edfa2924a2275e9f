"""Likelihoods that are log-concave in f and have no closed-form log loss: what the integral and the sampler need."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from dlmexp.gp.likelihoods.base import Likelihood
from dlmexp.gp.likelihoods.product_integral import (
    Mode,
    Terms,
    log_product_integral,
    log_product_integral_around,
)


@dataclass(frozen=True)
class LogConcave(Likelihood):
    """log p(y|f) concave in f, so that q(f) p(y|f) has one mode and convex tails. No parameters of its own."""

    product_sampler: ClassVar[str | None] = "log_concave"
    bend: ClassVar[float] = 3.0  # the scale in f on which log p bends at its knee

    @abstractmethod
    def terms(self, f: Tensor, y: Tensor) -> Terms:
        """log p and its derivatives in f, in one go because they share their transcendental functions."""

    @abstractmethod
    def log_constant(self, y: Tensor) -> Tensor:
        """What `terms` leaves out of log p(y|f)."""

    @abstractmethod
    def shift(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        """(mode of q(f) p(y|f)) - mu, the root of s = v slope(mu + s); close is good enough. Shapes: [..., N]."""

    def mode(self, mu: Tensor, v: Tensor, y: Tensor) -> Mode:
        """The mode of q(f) p(y|f). Shapes: [..., N]."""
        shift = self.shift(mu, v, y)
        f = mu + shift
        return Mode(f, shift, v.reciprocal(), self.terms(f, y), y)

    @abstractmethod
    def knee(self, mode: Mode) -> Tensor:
        """Where, seen from the mode, log p bends on a scale of about 1 (its derivatives vary fastest)."""

    def fall(self, x: Tensor, mode: Mode) -> Tensor:
        """How far log(q p) lies below its mode at a distance x from it, elementwise."""
        drop = mode.at.value - self.terms(mode.f + x, mode.y).value
        return torch.addcmul(drop, x * (x + 2 * mode.shift), mode.precision / 2)

    def reach(self, mode: Mode, drop: float) -> tuple[Tensor, Tensor]:
        """Distances left and right of the mode at which log(q p) has fallen by at least `drop`. Shapes: [..., N]."""
        # log p is concave, so q p falls at least as fast as q: that bounds the reach. Newton's steps on a convex
        # function end outside its root, wherever they start; the curvature at the mode says where.
        bound = (2 * drop / mode.precision).sqrt()
        start = (2 * drop / (mode.at.curvature + mode.precision)).sqrt()
        x = torch.stack((-start, start))
        for _ in range(3):
            at = self.terms(mode.f + x, mode.y)
            fall = mode.at.value - at.value + x * (x + 2 * mode.shift) * (mode.precision / 2)
            x = x - (fall - drop) / ((x + mode.shift) * mode.precision - at.slope)
            x = torch.minimum(torch.maximum(x, -bound), bound)
        return -x[0], x[1]

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        return self.terms(f, y).value + self.log_constant(y)

    def log_loss(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        return -(log_product_integral(self, mu, v, y) + self.log_constant(y))

    def log_loss_around(self, mode: Mode) -> Tensor:
        """`log_loss` for a known mode, quicker, without derivatives, good to 1e-7 where v <= 2. Shapes: [..., N]."""
        return -(log_product_integral_around(self, mode) + self.log_constant(mode.y))
