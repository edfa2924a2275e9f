"""Estimators of the log loss and its gradient, by name: those that autograd differentiates (exact,
quadrature, biased Monte Carlo: the log of a sample mean), and unbiased product sampling (section 3
of the paper).

Random numbers come from `draws`; the samples of uPS from `product_samplers` and, by rejection, from
`envelope`."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.common.errors import UserError
from dlmexp.common.registry import Registry
from dlmexp.core.estimators.draws import Draws
from dlmexp.core.estimators.product_samplers import SAMPLERS
from dlmexp.core.gp.special import once_differentiable
from dlmexp.core.likelihoods import Likelihood
from dlmexp.core.likelihoods.base import quadrature_log_loss

MOST_NODES = 200  # beyond, weights of the rule underflow


@dataclass(frozen=True)
class Estimator(ABC):
    """Value and gradient of -log E_q p(y|f) per row, from the marginals alone (docs/SPEC.md,
    section 4).

    A new one is a frozen dataclass with a `__call__`, registered under a name. Its fields are its
    options, which users set as `estimator.NAME.FIELD=`.

    Example:
        ```python
        @ESTIMATORS.register("mine")
        @dataclass(frozen=True)
        class Mine(Estimator):
            samples: int

            def __call__(self, likelihood, mu, v, y, draws):
                return BMC(self.samples)(likelihood, mu, v, y, draws)
        ```
    """

    name: ClassVar[str]  # set when it is registered

    @abstractmethod
    def __call__(
        self, likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, draws: Draws
    ) -> Float[Tensor, "*B N"]:
        """The estimated loss per row, differentiable in mu, v (both [*B, N]) and the likelihood's
        own parameters."""

    def loss_and_acceptance(
        self, likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, draws: Draws
    ) -> tuple[Float[Tensor, "*B N"], Float[Tensor, "*B"] | None]:
        """The loss, and the share of accepted proposals where the estimator draws by rejection."""
        return self(likelihood, mu, v, y, draws), None

    def capturable(self, likelihood: type[Likelihood]) -> bool:
        """Whether it does the same operations at every call, whatever the data, as a CUDA graph
        needs."""
        return True

    def check(self, likelihood: type[Likelihood]) -> None:
        """Raise a sentence for the user where it can't be used with this likelihood."""
        return


ESTIMATORS: Registry[type[Estimator]] = Registry("estimator", "dlmexp.core.estimators")


@ESTIMATORS.register("exact")
@dataclass(frozen=True)
class Exact(Estimator):
    """-log E_q p(y|f) with its own gradient: closed form, or quadrature good to rounding where
    there is none."""

    def __call__(
        self, likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, draws: object = None
    ) -> Tensor:
        return likelihood.log_loss(mu, v, y)


@ESTIMATORS.register("quadrature")
@dataclass(frozen=True)
class Quadrature(Estimator):
    """-log sum_k w_k p(y|mu + sqrt(v) e_k) in log space; the gradient is autograd's."""

    nodes: int = 20

    def check(self, likelihood: type[Likelihood]) -> None:
        if self.nodes > MOST_NODES:
            raise UserError(f"estimator.quadrature.nodes={self.nodes}: give at most {MOST_NODES}")

    def __call__(
        self, likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, draws: object = None
    ) -> Tensor:
        return quadrature_log_loss(likelihood, mu, v, y, self.nodes)


def log_mean_prob(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws
) -> Float[Tensor, "*B N"]:
    """log 1/S sum_j p(y|f_j) of S samples f_j = mu + sqrt(v) e_j of q; mu, v, y are [*B, N]."""
    e = draws.normal(samples, mu.shape[-1])
    f = torch.addcmul(mu.unsqueeze(-2), v.sqrt().unsqueeze(-2), e)
    log_p = likelihood.over_samples().log_prob(f, y.unsqueeze(-2))
    return torch.logsumexp(log_p, -2) - math.log(samples)


@ESTIMATORS.register("bmc")
@dataclass(frozen=True)
class BMC(Estimator):
    """-log 1/S sum_j p(y|mu + sqrt(v) e_j); value and gradient are biased, both by O(1/S)."""

    samples: int

    def __call__(
        self, likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, draws: Draws
    ) -> Tensor:
        return -log_mean_prob(likelihood, mu, v, y, self.samples, draws)


@ESTIMATORS.register("smooth_bmc")
@dataclass(frozen=True)
class SmoothBMC(Estimator):
    """-log(1/S sum_j p(y|f_j) + nu). The paper writes the sum once and the mean once; this is the
    mean."""

    samples: int
    nu: float = 1e-4

    def __call__(
        self, likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, draws: Draws
    ) -> Tensor:
        log_mean = log_mean_prob(likelihood, mu, v, y, self.samples, draws)
        return -torch.logaddexp(log_mean, torch.full_like(log_mean, math.log(self.nu)))


class _WithGradient(torch.autograd.Function):
    """A value that says its gradient in mu and v is the given one."""

    @staticmethod
    def forward(
        ctx: Any, value: Tensor, mu: Tensor, v: Tensor, d_mu: Tensor, d_v: Tensor
    ) -> Tensor:
        ctx.save_for_backward(d_mu, d_v)
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        d_mu, d_v = ctx.saved_tensors
        return grads[0], grads[0] * d_mu, grads[0] * d_v, None, None


@ESTIMATORS.register("ups")
@dataclass(frozen=True)
class UPS(Estimator):
    """Value: the log loss, exact, or for counts by a quadrature good to 1e-7 where v <= 2.
    Gradient: -1/S sum_j grad log q(f_j) with f_j ~ q~, unbiased at any S.

    In the likelihood's own parameters the gradient is -1/S sum_j grad log p(y|f_j).
    """

    samples: int
    sampler: str = "auto"

    def __post_init__(self) -> None:
        SAMPLERS[self.sampler]  # an unknown one is refused now

    def capturable(self, likelihood: type[Likelihood]) -> bool:
        return SAMPLERS[self.sampler].chosen_for(likelihood).capturable

    def check(self, likelihood: type[Likelihood]) -> None:
        SAMPLERS[self.sampler].chosen_for(likelihood)

    def __call__(
        self, likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, draws: Draws
    ) -> Tensor:
        return self.loss_and_acceptance(likelihood, mu, v, y, draws)[0]

    def loss_and_acceptance(
        self, likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, draws: Draws
    ) -> tuple[Tensor, Tensor]:
        mu, v, y = torch.broadcast_tensors(mu, v, y)
        with torch.no_grad():
            m, w = mu.detach(), v.detach()
            draw = SAMPLERS[self.sampler].chosen_for(type(likelihood)).draw
            sample = draw(likelihood, m, w, y, self.samples, draws)
            value = likelihood.log_loss(m, w, y) if sample.loss is None else sample.loss
            e = sample.e
            # log q = -e^2/2 - log(v)/2 + const with e = (f - mu)/sqrt(v).
            d_mu = -e.mean(-2) * w.rsqrt()
            d_v = (1 - e.square().mean(-2)) / (2 * w)
        if any(tensor.requires_grad for tensor in likelihood.own_tensors().values()):
            f = m.unsqueeze(-2) + w.sqrt().unsqueeze(-2) * e
            own = -likelihood.over_samples().log_prob(f, y.unsqueeze(-2)).mean(-2)
            value = value + (own - own.detach())
        return _WithGradient.apply(value, mu, v, d_mu, d_v), sample.acceptance  # pyright: ignore[reportReturnType]
