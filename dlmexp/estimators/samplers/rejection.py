"""The paper's own sampler (appendix "Efficient Implementation of Product Sampling"), for all rows at once.

It redraws until everything is accepted, so its number of operations depends on the data: not for captured graphs.
"""

import math
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.estimators.draws import RandomNumbers
from dlmexp.estimators.samplers.base import ProductSample, auto, product_sampler
from dlmexp.gp.likelihoods import Likelihood

WIDEST = 10
ROUNDS = 256
MOST_AT_ONCE = 32  # rounds drawn together; after each such block a GPU is waited for


def widening(
    likelihood: Likelihood, mu: Float[Tensor, "*B N"], v: Float[Tensor, "*B N"], y: Float[Tensor, "*B N"]
) -> Float[Tensor, "*B N"]:
    """k of the proposal N(mu, k v): 1 if p reaches half its maximum within a standard deviation of mu, else the largest
    integer k <= 10 with max_[a,b] p <= p_max / sqrt(k), where [a, b] is the interval in which q exceeds the proposal.
    """
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
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: RandomNumbers
) -> ProductSample:
    """The paper's sampler; entries not accepted after 256 rounds, which the paper would wait for, come from `auto`."""
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
            torch.stack([draws.uniform_at(open_, samples, n, stream=2 * round_ + which) for round_ in rounds])
            for which in (0, 1)
        )
        wide = k[open_]
        new = wide.sqrt() * torch.special.ndtri(uniform)
        f = mu_[open_] + v_[open_].sqrt() * new
        log_p = _log_prob_at(lifted, f, y_[open_], open_, shape)
        log_accept = log_p - log_max[open_] + wide.log() / 2 - (1 - 1 / wide) * new.square() / 2
        accepted = threshold.log() < log_accept
        found = accepted.any(0)
        first = torch.where(found, accepted.to(torch.uint8).argmax(0), len(rounds) - 1)
        e[open_] = new.gather(0, first[None]).squeeze(0)
        tries[open_] += first + 1
        open_ = open_[~found]
        done = rounds.stop
    if open_.numel():
        e[open_] = auto(likelihood, mu, v, y, samples, draws).e.flatten()[open_]
    return ProductSample(e.view(shape), torch.full_like(mu, samples), tries.view(shape).sum(-2))


def _log_prob_at(lifted: Likelihood, f: Tensor, y: Tensor, entries: Tensor, shape: tuple[int, ...]) -> Tensor:
    """log p at chosen entries of [..., L, N], with the likelihood's parameters taken at the same entries."""
    own = {name: tensor.expand(shape).flatten()[entries] for name, tensor in lifted.own_tensors().items()}
    return replace(lifted, **own).log_prob(f, y)
