"""A likelihood of a plugin that has only a `log_prob`, with a kink at y."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from dlmexp.core.gp.kernels import Parameter
from dlmexp.core.likelihoods import Likelihood, squared_error


@dataclass(frozen=True)
class Laplace(Likelihood):
    """p(y|f) = exp(-|y - f| / b) / (2 b), with the variance `noise` = 2 b^2."""

    name: ClassVar[str] = "laplace"
    parameters: ClassVar = {"noise": Parameter(0.1, positive=True)}
    metrics: ClassVar = {"mse": squared_error}
    noise: Tensor

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        b = (self.noise / 2).sqrt()
        return -(y - f).abs() / b - (2 * b).log()


class LaplaceWithoutKinks(Laplace):
    """The same by an author who did not declare the kink."""

    def kinks(self, y: Tensor) -> tuple[Tensor, ...]:
        return ()


def exact_log_loss(noise: Tensor, mu: Tensor, v: Tensor, y: Tensor) -> Tensor:
    """Return -log E_{N(f; mu, v)} p(y|f) in closed form.

    With d = |y - mu|, s = sqrt(v) and the normal distribution function Phi it is

        log(2 b) - v / (2 b^2) - log( e^(-d/b) Phi(d/s - s/b) + e^(d/b) Phi(-d/s - s/b) )
    """
    b = (noise / 2).sqrt()
    d = (y - mu).abs()
    s = v.sqrt()
    on_this_side = -d / b + torch.special.log_ndtr(d / s - s / b)
    on_that_side = d / b + torch.special.log_ndtr(-d / s - s / b)
    return (2 * b).log() - v / (2 * b * b) - torch.logaddexp(on_this_side, on_that_side)
