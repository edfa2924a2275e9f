"""The paper's product sampler as the paper runs it: two tries for all rows at once, then a loop over what is left.

Only here, to measure against; the library's own samplers never loop over rows.
"""

import math

import torch
from torch import Tensor

from dlmexp.gp.likelihoods import Likelihood

WIDEST = 10


def sample_by_rows(likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int) -> Tensor:
    """`samples` draws per row from q~ proportional to q(f) p(y|f), for rows [N] of marginals: [samples, N]."""
    log_max = likelihood.log_p_max(y)
    k = torch.tensor([_widening(likelihood, mu[i], v[i], y[i], log_max[i]) for i in range(len(mu))], dtype=mu.dtype)
    f = torch.full((samples, len(mu)), torch.nan, dtype=mu.dtype)
    for _ in range(2):
        tried, accepted = _try(likelihood, mu, v, y, log_max, k, f.shape)
        f = torch.where(f.isnan() & accepted, tried, f)
    for i in range(len(mu)):
        for l in range(samples):
            while f[l, i].isnan():
                tried, accepted = _try(likelihood, mu[i], v[i], y[i], log_max[i], k[i], ())
                if accepted:
                    f[l, i] = tried
    return f


def _try(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, log_max: Tensor, k: Tensor, shape: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """A proposal from N(mu, k v) and whether it is accepted: with probability q p / (sqrt(k) p_max proposal)."""
    e = torch.randn(shape, dtype=mu.dtype)
    f = mu + (k * v).sqrt() * e
    log_ratio = likelihood.log_prob(f, y.expand_as(f)) - log_max - 0.5 * e.square() * (k - 1)
    return f, torch.rand(shape, dtype=mu.dtype).log() <= log_ratio


def _widening(likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, log_max: Tensor) -> int:
    """The paper's choice of k for one row (SPEC section 4), the maximum of p over an interval taken on a grid."""

    def highest(half: float) -> float:
        grid = torch.linspace(-half, half, 50, dtype=mu.dtype) * v.sqrt() + mu
        return float(likelihood.log_prob(grid, y.expand_as(grid)).max() - log_max)

    if highest(1.0) >= math.log(0.5):
        return 1
    for k in range(WIDEST, 1, -1):
        if highest(math.sqrt(math.log(k) / (1 - 1 / k))) <= -0.5 * math.log(k):
            return k
    return 1
