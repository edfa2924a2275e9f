import math

import pytest
import torch

from dlmexp.gp.special import at_nodes, expectation, gauss_hermite

CPU, F64 = torch.device("cpu"), torch.float64


@pytest.mark.parametrize("nodes", [1, 2, 5, 20, 64])
def test_moments_of_the_standard_normal_are_exact_up_to_degree_2k_minus_1(nodes):
    e, log_w = gauss_hermite(nodes, F64, CPU)
    for degree in range(0, min(2 * nodes, 20)):
        exact = 0.0 if degree % 2 else math.prod(range(1, degree, 2))
        size = float((log_w.exp() * e.abs() ** degree).sum())
        assert float((log_w.exp() * e**degree).sum()) == pytest.approx(exact, abs=1e-12 * size)


def test_nodes_are_made_once_per_device_so_that_a_graph_can_hold_them():
    assert gauss_hermite(20, F64, CPU)[0] is gauss_hermite(20, F64, CPU)[0]


def test_at_nodes_puts_the_node_dimension_before_the_rows():
    mu, v = torch.zeros(3, 4, 7, dtype=F64), torch.ones(3, 4, 7, dtype=F64)
    f, log_w = at_nodes(mu, v, 11)
    assert f.shape == (3, 4, 11, 7)
    assert log_w.shape == (11, 1)


def test_expectation_of_an_exponential_and_its_gradient():
    mu = torch.tensor([[-1.0, 0.3], [2.0, 0.0]], dtype=F64, requires_grad=True)
    v = torch.tensor([[0.1, 1.0], [0.5, 2.0]], dtype=F64, requires_grad=True)
    value = expectation(torch.exp, mu, v, nodes=32)
    exact = (mu + v / 2).exp()
    torch.testing.assert_close(value, exact, rtol=1e-12, atol=0)
    d_mu, d_v = torch.autograd.grad(value.sum(), (mu, v))
    torch.testing.assert_close(d_mu, exact.detach(), rtol=1e-12, atol=0)
    torch.testing.assert_close(d_v, exact.detach() / 2, rtol=1e-11, atol=0)
