"""Product samplers: draws from q~(f) proportional to N(f; mu, v) p(y|f), all rows at once. Here is
what they are, those without rejection (q~ is a Gaussian, or with the probit an extended
skew-normal), and the paper's own."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.common.errors import UserError
from dlmexp.common.registry import Registry
from dlmexp.core.estimators.draws import Draws
from dlmexp.core.likelihoods import Gaussian, Likelihood, Probit
from dlmexp.core.likelihoods.discrete import signs

# that need nothing of a likelihood but log_prob
OTHER_ESTIMATORS = "estimator=exact, quadrature, bmc or smooth_bmc"


class ProductSample(NamedTuple):
    """Samples in q's own units; how many of each row's proposals were accepted, of how many (a
    number where all rows propose alike); and the row's log loss where the sampler has it at little
    cost.

    f = mu + sqrt(v) e would lose the digits of e where v is tiny, and the gradient needs e.
    """

    e: Float[Tensor, "*B L N"]
    accepted: Float[Tensor, "*B N"]
    proposed: Float[Tensor, "*B N"] | float
    loss: Float[Tensor, "*B N"] | None = None

    @property
    def acceptance(self) -> Float[Tensor, "*B"]:
        """Accepted over proposed, all rows together."""
        proposed = self.proposed.mean(-1) if isinstance(self.proposed, Tensor) else self.proposed
        return self.accepted.mean(-1) / proposed


Draw = Callable[[Likelihood, Tensor, Tensor, Tensor, int, Draws], ProductSample]
"""draw(likelihood, mu [..., N], v [..., N], y [..., N], samples, random numbers)"""


@dataclass(frozen=True)
class ProductSampler:
    """A product sampler and its facts: the likelihoods it can draw for, and whether a CUDA graph
    can capture it (it does the same operations whatever the data)."""

    name: str
    draw: Draw
    likelihoods: type[Likelihood] = Likelihood
    capturable: bool = True

    def chosen_for(self, likelihood: type[Likelihood]) -> "ProductSampler":
        """The sampler that draws for this likelihood: this one or, of `auto`, the one that the
        likelihood names."""
        name = likelihood.product_sampler if self.name == "auto" else self.name
        if name is None:
            raise UserError(
                f"estimator=ups: the likelihood '{likelihood.name}' has no product sampler; use {OTHER_ESTIMATORS}"
            )
        if not issubclass(likelihood, SAMPLERS[name].likelihoods):
            other = "sampler=auto" if likelihood.product_sampler else OTHER_ESTIMATORS
            raise UserError(
                f"sampler={name} can't draw for the likelihood '{likelihood.name}': use {other}"
            )
        return SAMPLERS[name]


SAMPLERS: Registry[ProductSampler] = Registry("sampler", "dlmexp.core.estimators.envelope")


def product_sampler(
    name: str, likelihoods: type[Likelihood] = Likelihood, capturable: bool = True
) -> Callable[[Draw], ProductSampler]:
    """Register a function as the product sampler of that name."""
    return lambda draw: SAMPLERS.add(name, ProductSampler(name, draw, likelihoods, capturable))


@product_sampler("auto")
def auto(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws
) -> ProductSample:
    """The fastest exact sampler for a likelihood, which it names itself
    (`Likelihood.product_sampler`)."""
    return SAMPLERS["auto"].chosen_for(type(likelihood)).draw(likelihood, mu, v, y, samples, draws)


@product_sampler("gaussian", Gaussian)
def gaussian(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws
) -> ProductSample:
    """f | y ~ N(mu + v (y - mu) / (v + noise), v noise / (v + noise))."""
    assert isinstance(likelihood, Gaussian)
    total = v + likelihood.noise
    centre = v.sqrt() * (y - mu) / total
    spread = (likelihood.noise / total).sqrt()
    e = centre.unsqueeze(-2) + spread.unsqueeze(-2) * draws.normal(samples, mu.shape[-1])
    return ProductSample(e, mu.new_ones(()).expand_as(mu), 1)


# Phi(-36) = 4e-284 is still a normal float64 number, and so is u Phi(-36) for every u drawn.
FAR_TAIL = 36.0


def truncated_normal(
    u: Float[Tensor, "*B L N"], alpha: Float[Tensor, "*B N"]
) -> Float[Tensor, "*B L N"]:
    """The (1 - u)-quantile of N(0, 1) truncated to t > -alpha, for any alpha and u in (0, 1).

    By inverting the upper tail, u Phi(alpha). Beyond alpha = -FAR_TAIL that underflows; there -2 log of
    the share of the tail beyond t is k d - d^2 / (2 alpha^4) with d = t^2 - alpha^2, k = 1 +
    alpha^-2 - 2 alpha^-4 (Mills' ratio, to an error of d^3 / (3 alpha^6): 1e-9 of it for typical u,
    1e-6 for u = 1e-12), so t at -FAR_TAIL gives t at any alpha beyond."""
    near = alpha.clamp_min(-FAR_TAIL)
    # Not torch.special.ndtr, which is 1 + erf and nothing below -8.
    upper = 0.5 * torch.erfc(near * -(0.5**0.5))
    t = -torch.special.ndtri(u * upper.unsqueeze(-2))
    here, there = near.square().unsqueeze(-2), alpha.square().clamp_min(FAR_TAIL**2).unsqueeze(-2)
    d = t.square() - here
    exponent = d * (_slope(FAR_TAIL**2) - d / (2 * FAR_TAIL**4))
    d = exponent * (1 + exponent / (2 * there.square())) / _slope(there)
    return torch.where((alpha < -FAR_TAIL).unsqueeze(-2), (there + d).clamp_min(0).sqrt(), t)


def _slope(square: float | Tensor) -> float | Tensor:
    return 1 + (1 - 2 / square) / square


@product_sampler("skew_normal", Probit)
def skew_normal(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws
) -> ProductSample:
    """p(y|f) = P(f + noise has y's sign): draw z = f + noise given its sign, then f given z, with
    gain v/(1+v)."""
    s, n = signs(y), mu.shape[-1]
    total = 1 + v
    # In float64 whatever the marginals are: float32 has no room for the tails.
    t = truncated_normal(draws.uniform(samples, n).double(), (s * mu * total.rsqrt()).double()).to(
        mu.dtype
    )
    e = (s * (v / total).sqrt()).unsqueeze(-2) * t
    e.addcmul_(total.rsqrt().unsqueeze(-2), draws.normal(samples, n))
    return ProductSample(e, mu.new_ones(()).expand_as(mu), 1)


WIDEST = 10
ROUNDS = 256
MOST_AT_ONCE = 32  # rounds drawn together; after each such block a GPU is waited for


def widening(
    likelihood: Likelihood,
    mu: Float[Tensor, "*B N"],
    v: Float[Tensor, "*B N"],
    y: Float[Tensor, "*B N"],
) -> Float[Tensor, "*B N"]:
    """k of the proposal N(mu, k v): 1 if p reaches half its maximum within a standard deviation of
    mu, else the largest integer k <= 10 with max_[a,b] p <= p_max / sqrt(k), where [a, b] is the
    interval in which q exceeds the proposal."""
    peak, log_max, sd = likelihood.peak(y), likelihood.log_p_max(y), v.sqrt()

    def log_best(radius: Tensor) -> Tensor:
        nearest = torch.minimum(torch.maximum(peak, mu - radius), mu + radius)
        return likelihood.log_prob(nearest, y) - log_max

    k = torch.ones_like(mu)
    for wider in range(2, WIDEST + 1):
        log_k = math.log(wider)
        inside = sd * (log_k / (1 - 1 / wider)) ** 0.5
        k = torch.where(log_best(inside) <= -log_k / 2, float(wider), k)
    return torch.where(log_best(sd) >= math.log(0.5), 1.0, k)


@product_sampler("rejection", capturable=False)
def rejection(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws
) -> ProductSample:
    """The paper's own (its appendix "Efficient Implementation of Product Sampling"). It redraws
    until all is accepted, so its operations depend on the data; entries open after 256 rounds,
    where the paper waits, come from `auto`."""
    mu, v, y = torch.broadcast_tensors(mu, v, y)
    n = mu.shape[-1]
    shape = (*mu.shape[:-1], samples, n)
    lifted = likelihood.over_samples()

    def per_entry(row: Tensor) -> Tensor:
        return row.unsqueeze(-2).expand(shape).flatten()

    k, mu_, v_, y_ = (per_entry(t) for t in (widening(likelihood, mu, v, y), mu, v, y))
    log_max = per_entry(likelihood.log_p_max(y))
    e = torch.zeros_like(mu_)
    tries = torch.zeros_like(mu_)
    open_ = torch.arange(e.numel(), device=mu.device)
    done = 0
    while done < ROUNDS and open_.numel():
        # As many rounds at once as there were before: at most twice the tries that are needed.
        rounds = range(done, min(ROUNDS, done + min(MOST_AT_ONCE, max(1, done))))
        uniform, threshold = (
            torch.stack(
                [
                    draws.uniform_at(open_, samples, n, stream=2 * round_ + which)
                    for round_ in rounds
                ]
            )
            for which in (0, 1)
        )
        wide = k[open_]
        new = wide.sqrt() * torch.special.ndtri(uniform)
        f = mu_[open_] + v_[open_].sqrt() * new
        log_p = _log_prob_at(lifted, f, y_[open_], open_, shape)
        log_accept = log_p - log_max[open_] + wide.log() / 2 - (1 - 1 / wide) * new.square() / 2
        accepted = threshold.log() < log_accept
        done_now = accepted.any(0)
        first = torch.where(done_now, accepted.to(torch.uint8).argmax(0), len(rounds) - 1)
        e[open_] = new.gather(0, first[None]).squeeze(0)
        tries[open_] += first + 1
        open_ = open_[~done_now]
        done = rounds.stop
    if open_.numel():
        e[open_] = auto.draw(likelihood, mu, v, y, samples, draws).e.flatten()[open_]
    return ProductSample(e.view(shape), torch.full_like(mu, samples), tries.view(shape).sum(-2))


def _log_prob_at(
    lifted: Likelihood, f: Tensor, y: Tensor, entries: Tensor, shape: tuple[int, ...]
) -> Tensor:
    """log p at chosen entries of [..., L, N], with the likelihood's parameters taken at the same
    entries."""
    own = {
        name: tensor.expand(shape).flatten()[entries]
        for name, tensor in lifted.own_tensors().items()
    }
    return replace(lifted, **own).log_prob(f, y)
