"""Likelihoods that are log-concave in f and have no closed-form log loss: what the integral and the sampler need."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from dlmexp.gp.likelihoods.base import Likelihood
from dlmexp.gp.likelihoods.product_integral import log_product_integral


class Terms(NamedTuple):
    """log p(y|f) up to a constant in f, its derivative, and minus its second derivative, elementwise."""

    value: Tensor
    slope: Tensor
    curvature: Tensor


@dataclass(frozen=True)
class LogConcave(Likelihood):
    """log p(y|f) concave in f, so that q(f) p(y|f) has one mode and convex tails. No parameters of its own."""

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

    @abstractmethod
    def knee(self, f: Tensor, y: Tensor) -> Tensor:
        """Where, seen from a mode at f, log p bends on a scale of about 1 (its derivatives vary fastest)."""

    def reach(self, shift: Tensor, mu: Tensor, v: Tensor, y: Tensor, drop: float) -> tuple[Tensor, Tensor]:
        """Distances left and right of the mode at which log(q p) has fallen by at least `drop`. Shapes: [..., N]."""
        # log p is concave, so q p falls at least as fast as q: that bounds the reach. Newton's steps on a convex
        # function end outside its root, wherever they start; the curvature at the mode says where.
        f0 = mu + shift
        mode = self.terms(f0, y)
        bound = (2 * drop * v).sqrt()
        start = (2 * drop / (mode.curvature + 1 / v)).sqrt()
        x = torch.stack((-start, start))
        for _ in range(3):
            at = self.terms(f0 + x, y)
            fall = mode.value - at.value + x * (x + 2 * shift) / (2 * v)
            x = x - (fall - drop) / ((x + shift) / v - at.slope)
            x = torch.minimum(torch.maximum(x, -bound), bound)
        return -x[0], x[1]

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        return self.terms(f, y).value + self.log_constant(y)

    def log_loss(self, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
        return -(log_product_integral(self, mu, v, y) + self.log_constant(y))
