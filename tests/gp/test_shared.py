"""Many cells on one A: the same marginals and gradients as each cell by itself."""

import pytest
import torch

from dlmexp.gp.kernels import rbf
from dlmexp.gp.posterior import marginals, projection, shared_marginals


@pytest.mark.parametrize("sizes", [(3, 3), (1, 1), (4, 1), (0, 5)])
def test_equals_marginals_of_each_cell(sizes, cells):
    c = cells(2, 4, 15, 2)
    q = cells(sum(sizes), 4, 1, 1, seed=1)
    index = torch.repeat_interleave(torch.arange(2), torch.tensor(sizes))
    p = projection(rbf, c, c["X"], c["jitter"])
    weight = torch.randn(2, sum(sizes), 15, dtype=torch.float64, generator=torch.Generator().manual_seed(2))

    m, L = q["m"].clone().requires_grad_(), q["L"].clone().requires_grad_()
    mu, v = shared_marginals(p.A, p.kff, c["mean"], m, L, sizes)
    (weight[0] * mu + weight[1] * v.log()).sum().backward()

    m1, L1 = q["m"].clone().requires_grad_(), q["L"].clone().requires_grad_()
    each = {name: value[index] for name, value in c.items()}
    one = projection(rbf, each, each["X"], each["jitter"])
    mu1, v1 = marginals(one, c["mean"][index], m1, L1)
    (weight[0] * mu1 + weight[1] * v1.log()).sum().backward()
    for ours, expected in ((mu, mu1), (v, v1), (m.grad, m1.grad), (L.grad, L1.grad)):
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)


def test_a_nan_cell_leaves_the_others_of_its_split_alone(cells):
    c, q = cells(1, 4, 15, 2), cells(3, 4, 1, 1, seed=1)
    p = projection(rbf, c, c["X"], c["jitter"])
    found = []
    for broken in (False, True):
        m, L = q["m"].clone(), q["L"].clone()
        if broken:
            m[1], L[1] = torch.nan, torch.nan
        m.requires_grad_()
        L.requires_grad_()
        mu, v = shared_marginals(p.A, p.kff, c["mean"], m, L, (3,))
        (mu.square() + v.log()).sum().backward()
        assert L.grad is not None
        assert m.grad is not None
        found.append([t[[0, 2]] for t in (mu, v, m.grad, L.grad)])
    for with_nan, without in zip(*found, strict=True):
        torch.testing.assert_close(with_nan, without, rtol=1e-12, atol=1e-12)
