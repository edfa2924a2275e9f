"""Product samplers without rejection: q~ is a Gaussian, or with the probit likelihood an extended skew-normal."""

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.estimators.draws import RandomNumbers
from dlmexp.estimators.samplers.base import ProductSample, product_sampler
from dlmexp.gp.likelihoods import Gaussian, Likelihood, Probit
from dlmexp.gp.likelihoods.binary import signs


@product_sampler("gaussian", Gaussian)
def gaussian(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: RandomNumbers
) -> ProductSample:
    """f | y ~ N(mu + v (y - mu) / (v + noise), v noise / (v + noise)). Shapes: [..., N] to [..., L, N]."""
    assert isinstance(likelihood, Gaussian)
    total = v + likelihood.noise
    centre = v.sqrt() * (y - mu) / total
    spread = (likelihood.noise / total).sqrt()
    e = centre.unsqueeze(-2) + spread.unsqueeze(-2) * draws.normal(samples, mu.shape[-1])
    return ProductSample(e, mu.new_ones(()).expand_as(mu), 1)


# Phi(-36) = 4e-284 is still a normal float64 number, and so is u Phi(-36) for every u drawn.
FAR = 36.0


def truncated_normal(u: Float[Tensor, "*B L N"], alpha: Float[Tensor, "*B N"]) -> Float[Tensor, "*B L N"]:
    """The (1 - u)-quantile of N(0, 1) truncated to t > -alpha, for any alpha and u in (0, 1).

    By inverting the upper tail, u Phi(alpha). Beyond alpha = -FAR that underflows; there -2 log of the share of the
    tail beyond t is k d - d^2 / (2 alpha^4) with d = t^2 - alpha^2, k = 1 + alpha^-2 - 2 alpha^-4 (Mills' ratio, to an
    error of d^3 / (3 alpha^6): 1e-9 of it for typical u, 1e-6 for u = 1e-12), so t at -FAR gives t at any alpha beyond.
    """
    near = alpha.clamp_min(-FAR)
    # Not torch.special.ndtr, which is 1 + erf and nothing below -8.
    upper = 0.5 * torch.erfc(near * -(0.5**0.5))
    t = -torch.special.ndtri(u * upper.unsqueeze(-2))
    here, there = near.square().unsqueeze(-2), alpha.square().clamp_min(FAR**2).unsqueeze(-2)
    d = t.square() - here
    exponent = d * (_slope(FAR**2) - d / (2 * FAR**4))
    d = exponent * (1 + exponent / (2 * there.square())) / _slope(there)
    return torch.where((alpha < -FAR).unsqueeze(-2), (there + d).clamp_min(0).sqrt(), t)


def _slope(square: float | Tensor) -> float | Tensor:
    return 1 + (1 - 2 / square) / square


@product_sampler("skew_normal", Probit)
def skew_normal(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: RandomNumbers
) -> ProductSample:
    """p(y|f) = P(f + noise has y's sign): draw z = f + noise given its sign, then f given z (Gaussian, gain v/(1+v)).

    Shapes: [..., N] to [..., L, N].
    """
    s, n = signs(y), mu.shape[-1]
    total = 1 + v
    # In float64 whatever the marginals are: float32 has no room for the tails.
    t = truncated_normal(draws.uniform(samples, n).double(), (s * mu * total.rsqrt()).double()).to(mu.dtype)
    e = (s * (v / total).sqrt()).unsqueeze(-2) * t
    e.addcmul_(total.rsqrt().unsqueeze(-2), draws.normal(samples, n))
    return ProductSample(e, mu.new_ones(()).expand_as(mu), 1)
