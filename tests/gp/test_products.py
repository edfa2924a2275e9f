"""Products by strips against whole ones, and memory that is used again."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from dlmexp.gp import products
from dlmexp.gp.collapsed import collapsed_elbo
from dlmexp.gp.kernels import rbf
from dlmexp.gp.posterior import marginals, projection
from dlmexp.gp.products import Workspace, symmetric_product, triangular_product
from scripts.benchmark.gpu import PRODUCTS


@pytest.mark.parametrize(("M", "strips"), [(44, 1), (91, 2), (206, 5), (1, 1)])
@pytest.mark.parametrize("given", [True, False], ids=["into a given array", "into a new one"])
def test_strips_leave_out_nothing_that_counts(M, strips, given, monkeypatch):
    monkeypatch.setattr(products, "LEAST_WORK", 1)
    g = torch.Generator().manual_seed(M)
    R, K = (torch.randn(2, M, n, generator=g, dtype=torch.float64) for n in (M, 30))
    R, h = R.tril(), torch.randn(2, 1, 30, generator=g, dtype=torch.float64)
    assert len(products._strips(K)) == strips
    out = torch.full_like(K, torch.nan) if given else None
    torch.testing.assert_close(triangular_product(R, K, out), R @ K, rtol=1e-12, atol=1e-12)
    assert out is None or not out.isnan().any()
    found = symmetric_product(K * h, K)
    torch.testing.assert_close(found, (K * h) @ K.mT, rtol=1e-12, atol=1e-12)


def test_a_symmetric_product_can_be_differentiated(monkeypatch):
    monkeypatch.setattr(products, "LEAST_WORK", 1)
    K = torch.ones(1, 91, 3, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(symmetric_product(K, K).sum(), K)
    assert (found == 2 * 91).all()


def test_small_products_are_made_at_once():
    assert len(products._strips(torch.empty(20, 74, 100))) == 1


def test_a_workspace_gives_the_same_memory_again_if_it_fits():
    memory, like = Workspace(), torch.zeros(1, dtype=torch.float64)
    first = memory.array("K", like, (2, 3))
    assert memory.array("K", like, (2, 3)) is first
    assert memory.array("A", like, (2, 3)).data_ptr() != first.data_ptr()
    assert memory.array("K", like, (3, 3)).shape == (3, 3)
    assert memory.array("K", like.float(), (3, 3)).dtype == torch.float32


def test_a_workspace_makes_a_thing_once_for_the_same_tensor():
    memory, made = Workspace(), []
    one, other = torch.zeros(2), torch.zeros(2)
    for tensor in (one, one, other):
        assert torch.equal(memory.made("rows", tensor, lambda x: made.append(x) or x + len(made)), tensor + len(made))
    assert [each is tensor for each, tensor in zip(made, (one, other), strict=True)] == [True, True]


@pytest.mark.parametrize("form", ["explicit", "collapsed"])
def test_a_step_has_as_many_products_as_benchmarks_say(form, cells, monkeypatch):
    """With several strips, torch counts a little more than the halves of the triangle and of the symmetric product, and
    what is M x M x M."""
    monkeypatch.setattr(products, "LEAST_WORK", 1)
    B, M, N = 1, 180, 16_000
    c = {name: value.requires_grad_() for name, value in cells(B, M, N, 1).items()}
    X, y, jitter = (c.pop(name).detach() for name in ("X", "y", "jitter"))
    with FlopCounterMode(display=False) as counter:
        if form == "explicit":
            mu, v = marginals(projection(rbf, c, X, jitter), c["mean"], c["m"], c["L"])
            (mu + v).sum().backward()
        else:
            collapsed_elbo(rbf, c, X, y, torch.ones_like(jitter), jitter).loss.sum().backward()
    large = PRODUCTS * B * M**2 * N
    assert large < counter.get_total_flops() < 1.25 * large
