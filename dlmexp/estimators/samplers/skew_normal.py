"""Probit likelihood: q~ is an extended skew-normal, drawn without rejection."""

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.estimators.draws import RandomNumbers
from dlmexp.estimators.samplers.base import ProductSample
from dlmexp.gp.likelihoods import Likelihood
from dlmexp.gp.likelihoods.probit import signs

# Phi(-36) = 4e-284 is still a normal float64 number, and so is u Phi(-36) for every u drawn.
FAR = 36.0


def truncated_normal(u: Float[Tensor, "*B L N"], alpha: Float[Tensor, "*B N"]) -> Float[Tensor, "*B L N"]:
    """The (1 - u)-quantile of N(0, 1) truncated to t > -alpha, for any alpha and u in (0, 1).

    By inverting the upper tail, u Phi(alpha). Beyond alpha = -FAR that underflows; there t^2 - alpha^2 hardly depends
    on alpha any more (it is twice an exponential, less the fraction alpha^-2 of it, less O(alpha^-4) < 1e-6).
    """
    near = alpha.clamp_min(-FAR)
    # Not torch.special.ndtr, which is 1 + erf and nothing below -8.
    upper = 0.5 * torch.erfc(near * -(0.5**0.5))
    t = -torch.special.ndtri(u * upper.unsqueeze(-2))
    shrink = (1 - alpha.square().clamp_min(FAR**2).reciprocal()) / (1 - FAR**-2)
    excess = (t.square() - near.square().unsqueeze(-2)) * shrink.unsqueeze(-2)
    far = (alpha < -FAR).unsqueeze(-2)
    return torch.where(far, (alpha.square().unsqueeze(-2) + excess).clamp_min(0).sqrt(), t)


def skew_normal(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: RandomNumbers
) -> ProductSample:
    """p(y|f) = P(f + noise has y's sign): draw z = f + noise given its sign, then f given z (Gaussian, gain v/(1+v)).

    Shapes: [..., N] to [..., L, N].
    """
    s, n = signs(y), mu.shape[-1]
    total = 1 + v
    t = truncated_normal(draws.uniform(samples, n), s * mu * total.rsqrt())
    e = (s * (v / total).sqrt()).unsqueeze(-2) * t
    return ProductSample(
        e.addcmul_(total.rsqrt().unsqueeze(-2), draws.normal(samples, n)), mu.new_ones(()).expand_as(mu)
    )
