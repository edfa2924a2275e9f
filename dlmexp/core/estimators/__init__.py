"""Estimators of the log loss and its gradient, by name (docs/SPEC.md, section 4).

The estimators are exact, quadrature, biased Monte Carlo (bMC: the log of a sample mean), and
unbiased product sampling (uPS). Autograd computes the gradients of all but uPS, which has a
gradient of its own (section 3 of the paper). Random numbers come from `draws`; the samples of uPS
from `product_samplers` and, by rejection, from `envelope`.
"""

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
from dlmexp.core.likelihoods.base import has_own_log_loss
from dlmexp.core.likelihoods.integration import hermite_log_loss

MAX_NODES = 200
"""The most nodes of a quadrature: with more nodes, weights of the rule underflow."""


@dataclass(frozen=True)
class Estimator(ABC):
    """Value and gradient of -log E_q p(y|f) per row, computed from the marginals of q (section 4).

    A new estimator is a frozen dataclass with a `__call__`, registered under a name. Its fields are
    its options, which users set as `estimator.NAME.FIELD=`.

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

    name: ClassVar[str]
    """The name under which it is registered; the registration sets it."""

    @abstractmethod
    def __call__(
        self, likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, draws: Draws
    ) -> Float[Tensor, "*B N"]:
        """Return the estimated loss per row [*B, N].

        Differentiable in mu, v (both [*B, N]) and the likelihood's own parameters.
        """

    def loss_and_acceptance(
        self, likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, draws: Draws
    ) -> tuple[Float[Tensor, "*B N"], Float[Tensor, "*B"] | None]:
        """Return the loss per row, and the share of accepted proposals.

        The share is None for an estimator that rejects no proposals.
        """
        return self(likelihood, mu, v, y, draws), None

    def capturable(self, likelihood: type[Likelihood]) -> bool:
        """Return whether its operations do not depend on the data, as a CUDA graph needs.

        A log loss that the likelihood inherits does not qualify: its quadrature (`integration`)
        chooses its nodes by the data.
        """
        return has_own_log_loss(likelihood)

    def check(self, likelihood: type[Likelihood]) -> None:
        """Check that it can be used with this likelihood.

        Raises:
            UserError: The estimator can't be used with the likelihood.
        """
        return


ESTIMATORS: Registry[type[Estimator]] = Registry("estimator", "dlmexp.core.estimators")


@ESTIMATORS.register("exact")
@dataclass(frozen=True)
class Exact(Estimator):
    """-log E_q p(y|f) and its gradient, exact to rounding.

    It is computed by a closed form or, where there is none, by a sufficiently fine quadrature.
    """

    def __call__(
        self, likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, draws: object = None
    ) -> Float[Tensor, "*B N"]:
        """Return the loss per row; no draws are needed."""
        return likelihood.log_loss(mu, v, y)


@ESTIMATORS.register("quadrature")
@dataclass(frozen=True)
class Quadrature(Estimator):
    """-log sum_k w_k p(y|mu + sqrt(v) e_k), with Gauss-Hermite nodes e_k and weights w_k."""

    nodes: int = 20

    def capturable(self, likelihood: type[Likelihood]) -> bool:
        """Return True, as the nodes are always the same."""
        return True

    def check(self, likelihood: type[Likelihood]) -> None:
        """Check the number of nodes.

        Raises:
            UserError: There are more than `MAX_NODES`.
        """
        if self.nodes > MAX_NODES:
            raise UserError(f"estimator.quadrature.nodes={self.nodes}: give at most {MAX_NODES}")

    def __call__(
        self, likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, draws: object = None
    ) -> Float[Tensor, "*B N"]:
        """Return the loss per row; no draws are needed."""
        return hermite_log_loss(likelihood, mu, v, y, self.nodes)


def log_mean_prob(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws
) -> Float[Tensor, "*B N"]:
    """Return log(1/S sum_j p(y|f_j)) of S samples f_j = mu + sqrt(v) e_j of q; mu, v, y [*B, N]."""
    e = draws.normal(samples, mu.shape[-1])
    f = torch.addcmul(mu.unsqueeze(-2), v.sqrt().unsqueeze(-2), e)
    log_p = likelihood.over_samples().log_prob(f, y.unsqueeze(-2))
    return torch.logsumexp(log_p, -2) - math.log(samples)


@ESTIMATORS.register("bmc")
@dataclass(frozen=True)
class BMC(Estimator):
    """-log 1/S sum_j p(y|mu + sqrt(v) e_j); value and gradient have a bias of O(1/S)."""

    samples: int

    def capturable(self, likelihood: type[Likelihood]) -> bool:
        """Return True, as it calls only `log_prob`, whose operations do not depend on the data."""
        return True

    def __call__(
        self, likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, draws: Draws
    ) -> Float[Tensor, "*B N"]:
        """Return the loss per row."""
        return -log_mean_prob(likelihood, mu, v, y, self.samples, draws)


@ESTIMATORS.register("smooth_bmc")
@dataclass(frozen=True)
class SmoothBMC(Estimator):
    """-log(1/S sum_j p(y|f_j) + nu).

    The paper has the sum over j in one place and the mean in another; this is the mean.
    """

    samples: int
    nu: float = 1e-4

    def capturable(self, likelihood: type[Likelihood]) -> bool:
        """Return True, as it calls only `log_prob`, whose operations do not depend on the data."""
        return True

    def __call__(
        self, likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, draws: Draws
    ) -> Float[Tensor, "*B N"]:
        """Return the loss per row."""
        log_mean = log_mean_prob(likelihood, mu, v, y, self.samples, draws)
        return -torch.logaddexp(log_mean, torch.full_like(log_mean, math.log(self.nu)))


class _WithGradient(torch.autograd.Function):
    """(value, mu, v, d_mu, d_v) -> value, with the gradients d_mu in mu and d_v in v."""

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
    """Unbiased product sampling: f_j ~ q~(f), which is proportional to q(f) p(y|f).

    The value is the exact log loss, or for counts a quadrature with an error of 1e-7 where v <= 2.
    The gradient in mu and v is -1/S sum_j grad log q(f_j), unbiased for any number of samples S.
    The gradient in the likelihood's own parameters is -1/S sum_j grad log p(y|f_j).
    """

    samples: int
    sampler: str = "auto"

    def __post_init__(self) -> None:
        SAMPLERS[self.sampler]  # raises UserError for an unknown name

    def capturable(self, likelihood: type[Likelihood]) -> bool:
        """Return whether the sampler's operations do not depend on the data."""
        sampler = SAMPLERS[self.sampler].sampler_for(likelihood)
        return sampler.capturable and has_own_log_loss(likelihood)

    def check(self, likelihood: type[Likelihood]) -> None:
        """Check that the sampler can draw for this likelihood.

        Raises:
            UserError: The sampler can't draw for the likelihood.
        """
        SAMPLERS[self.sampler].sampler_for(likelihood)

    def __call__(
        self, likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, draws: Draws
    ) -> Float[Tensor, "*B N"]:
        """Return the loss per row."""
        loss, _ = self.loss_and_acceptance(likelihood, mu, v, y, draws)
        return loss

    def loss_and_acceptance(
        self, likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, draws: Draws
    ) -> tuple[Float[Tensor, "*B N"], Float[Tensor, "*B"]]:
        """Return the loss per row [*B, N] and the share of accepted proposals [*B]."""
        mu, v, y = torch.broadcast_tensors(mu, v, y)
        with torch.no_grad():
            # 1. Samples and value
            constant_mu = mu.detach()
            constant_v = v.detach()
            draw = SAMPLERS[self.sampler].sampler_for(type(likelihood)).draw
            sample = draw(likelihood, constant_mu, constant_v, y, self.samples, draws)
            if sample.loss is None:
                value = likelihood.log_loss(constant_mu, constant_v, y)
            else:
                value = sample.loss
            # 2. Gradients in mu and v
            e = sample.e
            # log q(f) = -e^2/2 - log(v)/2 + const with e = (f - mu)/sqrt(v), so that
            #   -d log q/dmu = -e / sqrt(v),   -d log q/dv = (1 - e^2) / (2 v)
            d_mu = -e.mean(-2) * constant_v.rsqrt()
            d_v = (1 - e.square().mean(-2)) / (2 * constant_v)
        # 3. Gradients in the likelihood's own parameters
        if any(tensor.requires_grad for tensor in likelihood.own_tensors().values()):
            f = constant_mu.unsqueeze(-2) + constant_v.sqrt().unsqueeze(-2) * e
            # Adding `mean_loss - mean_loss.detach()` adds 0 to the value, and
            # -1/S sum_j grad log p(y|f_j) to the gradient.
            mean_loss = -likelihood.over_samples().log_prob(f, y.unsqueeze(-2)).mean(-2)
            value = value + (mean_loss - mean_loss.detach())
        loss = _WithGradient.apply(value, mu, v, d_mu, d_v)
        return loss, sample.acceptance  # pyright: ignore[reportReturnType]
