"""What every likelihood p(y|f) offers. Observations and marginals are [..., N]; samples of f are [..., L, N]."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import ClassVar, NamedTuple, Self

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.gp.quadrature import expectation


class Bounds(NamedTuple):
    """Table 1 of the paper for phi(f) = p(y|f): phi <= B, b1 <= phi' <= B1, b2 <= phi'' <= B2. Shapes: [..., N]."""

    B: Tensor
    b1: Tensor
    B1: Tensor
    b2: Tensor
    B2: Tensor


@dataclass(frozen=True)
class Likelihood(ABC):
    """A conditional density p(y|f) whose own parameters are tensors broadcastable against [..., N]."""

    name: ClassVar[str]

    @abstractmethod
    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        """log p(y|f), elementwise."""

    @abstractmethod
    def log_loss(
        self, mu: Float[Tensor, "*B N"], v: Float[Tensor, "*B N"], y: Float[Tensor, "*B N"]
    ) -> Float[Tensor, "*B N"]:
        """-log E_{N(f; mu, v)} p(y|f) per row (log-loss DLM, section 2), differentiable in mu, v and own parameters."""

    def elbo_loss(
        self, mu: Float[Tensor, "*B N"], v: Float[Tensor, "*B N"], y: Float[Tensor, "*B N"]
    ) -> Float[Tensor, "*B N"]:
        """E_{N(f; mu, v)}[-log p(y|f)] per row (the ELBO's term, section 2); Gauss-Hermite unless overridden."""
        mu, v, y = torch.broadcast_tensors(mu, v, y)
        lifted, y = self.over_samples(), y.unsqueeze(-2)
        return expectation(lambda f: -lifted.log_prob(f, y), mu, v)

    @abstractmethod
    def mean(self, mu: Float[Tensor, "*B N"], v: Float[Tensor, "*B N"]) -> Float[Tensor, "*B N"]:
        """E[y] under the predictive distribution: mean count, P(y = 1), or mu."""

    @abstractmethod
    def log_p_max(self, y: Float[Tensor, "*B N"]) -> Tensor:
        """sup_f log p(y|f), the constant of the paper's rejection sampler."""

    @abstractmethod
    def peak(self, y: Float[Tensor, "*B N"]) -> Tensor:
        """The f at which p(y|f), unimodal in f, is largest; plus or minus infinity where that is only a supremum."""

    @abstractmethod
    def bounds(self, y: Float[Tensor, "*B N"]) -> Bounds:
        """Table 1: bounds of p(y|f) and its first two derivatives in f."""

    def over_samples(self) -> Self:
        """The same likelihood with its parameters ready to meet samples [..., L, N] instead of rows [..., N]."""
        parameters = {p.name: getattr(self, p.name) for p in fields(self)}
        return replace(self, **{k: t.unsqueeze(-2) if t.ndim else t for k, t in parameters.items()})
