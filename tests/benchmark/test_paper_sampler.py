"""The sampler that ours are compared with is correct, so that the comparison is fair."""

import pytest
import torch
from scipy.stats import kstest

from dlmexp.benchmark.paper_sampler import sample_row_by_row
from dlmexp.gp.likelihoods import LIKELIHOODS


@pytest.mark.parametrize(("name", "y"), [("probit", 1.0), ("poisson", 2.0)])
def test_samples_follow_the_product_density(name, y):
    torch.manual_seed(0)
    likelihood = LIKELIHOODS[name]()
    one = torch.ones(1, dtype=torch.float64)
    mu, v = -0.3 * one, 0.8 * one
    f = sample_row_by_row(likelihood, mu, v, y * one, 800)[:, 0]
    grid = torch.linspace(-6, 6, 20001, dtype=torch.float64)
    log_density = likelihood.log_prob(grid, torch.full_like(grid, y)) - 0.5 * (grid - mu).square() / v
    cdf = log_density.exp().cumsum(0)
    cdf = cdf / cdf[-1]

    def exact(x):
        return cdf[torch.searchsorted(grid, torch.as_tensor(x)).clamp(max=len(grid) - 1)].numpy()

    assert kstest(f.numpy(), exact).pvalue > 1e-3
