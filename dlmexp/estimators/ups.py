"""Unbiased product sampling (uPS, section 3): the gradient of the log loss from samples of q~ = q(f) p(y|f) / Z."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dlmexp.estimators.base import ESTIMATORS, Estimator
from dlmexp.estimators.draws import RandomNumbers
from dlmexp.estimators.samplers import SAMPLERS
from dlmexp.gp.likelihoods import Likelihood
from dlmexp.gp.special import once_differentiable


class _WithGradient(torch.autograd.Function):
    """A value that says its gradient in mu and v is the given one."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, mu: Tensor, v: Tensor, d_mu: Tensor, d_v: Tensor) -> Tensor:
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

    def __call__(self, likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, draws: RandomNumbers) -> Tensor:
        return self.loss_and_acceptance(likelihood, mu, v, y, draws)[0]

    def loss_and_acceptance(
        self, likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, draws: RandomNumbers
    ) -> tuple[Tensor, Tensor]:
        mu, v, y = torch.broadcast_tensors(mu, v, y)
        with torch.no_grad():
            m, w = mu.detach(), v.detach()
            sampler = SAMPLERS[self.sampler].chosen_for(type(likelihood))
            sample = sampler(likelihood, m, w, y, self.samples, draws)
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
