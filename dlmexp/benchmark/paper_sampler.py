"""The paper's rejection sampler as the authors run it: two proposals for all rows at once, then a loop over the rest.

Only for comparison in benchmarks: the samplers in `dlmexp.estimators` never loop over rows.
"""

import math

import torch
from torch import Tensor

from dlmexp.gp.likelihoods import Likelihood

MAX_WIDENING = 10


def sample_row_by_row(likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int) -> Tensor:
    """`samples` draws per row from q~ proportional to q(f) p(y|f), for rows [N] of marginals: [samples, N]."""
    log_max = likelihood.log_p_max(y)
    k = torch.tensor([_widening(likelihood, mu[i], v[i], y[i], log_max[i]) for i in range(len(mu))], dtype=mu.dtype)
    f = torch.full((samples, len(mu)), torch.nan, dtype=mu.dtype)
    for _ in range(2):
        proposal, accepted = _propose(likelihood, mu, v, y, log_max, k, f.shape)
        f = torch.where(f.isnan() & accepted, proposal, f)
    for i in range(len(mu)):
        for l in range(samples):
            while f[l, i].isnan():
                proposal, accepted = _propose(likelihood, mu[i], v[i], y[i], log_max[i], k[i], ())
                if accepted:
                    f[l, i] = proposal
    return f


def _propose(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, log_max: Tensor, k: Tensor, shape: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """A proposal from N(mu, k v) and whether it is accepted: with probability q p / (sqrt(k) p_max proposal)."""
    e = torch.randn(shape, dtype=mu.dtype)
    f = mu + (k * v).sqrt() * e
    log_ratio = likelihood.log_prob(f, y.expand_as(f)) - log_max - 0.5 * e.square() * (k - 1)
    return f, torch.rand(shape, dtype=mu.dtype).log() <= log_ratio


def _widening(likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, log_max: Tensor) -> int:
    """The paper's choice of k for one row (docs/SPEC.md, section 4); maxima of p over intervals are taken on a grid."""

    def log_max_within(half: float) -> float:
        grid = torch.linspace(-half, half, 50, dtype=mu.dtype) * v.sqrt() + mu
        return float(likelihood.log_prob(grid, y.expand_as(grid)).max() - log_max)

    if log_max_within(1.0) >= math.log(0.5):
        return 1
    for k in range(MAX_WIDENING, 1, -1):
        if log_max_within(math.sqrt(math.log(k) / (1 - 1 / k))) <= -0.5 * math.log(k):
            return k
    return 1
