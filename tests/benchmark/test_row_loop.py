"""The loop that we measure against is a right sampler: otherwise the comparison would mean nothing."""

import pytest
import torch
from scipy.stats import kstest

from dlmexp.benchmark.row_loop import sample_by_rows
from dlmexp.gp.likelihoods import LIKELIHOODS


@pytest.mark.parametrize(("name", "y"), [("probit", 1.0), ("poisson", 2.0)])
def test_draws_from_the_product(name, y):
    torch.manual_seed(0)
    likelihood = LIKELIHOODS[name]()
    one = torch.ones(1, dtype=torch.float64)
    mu, v = -0.3 * one, 0.8 * one
    f = sample_by_rows(likelihood, mu, v, y * one, 800)[:, 0]
    grid = torch.linspace(-6, 6, 20001, dtype=torch.float64)
    log_density = likelihood.log_prob(grid, torch.full_like(grid, y)) - 0.5 * (grid - mu).square() / v
    cdf = log_density.exp().cumsum(0)
    cdf = cdf / cdf[-1]

    def exact(x):
        return cdf[torch.searchsorted(grid, torch.as_tensor(x)).clamp(max=len(grid) - 1)].numpy()

    assert kstest(f.numpy(), exact).pvalue > 1e-3
