"""The gradients of marginals and moments against autograd through their definitions."""

import torch

from dlmexp.core.gp.adjoints import (
    column_sums,
    marginal_gradients,
    marginal_products,
    moment_gradients,
    moment_products,
    symmetrised,
)
from dlmexp.core.gp.cholesky import factorise


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def factor_of(M: int):
    """Return Kuu [2, M, M], differentiable, and its factor."""
    R = random(2, M, M)
    Kuu = (R @ R.mT + M * torch.eye(M, dtype=torch.float64)).requires_grad_()
    return Kuu, factorise(Kuu, torch.zeros(2, dtype=torch.float64))


def test_gradients_of_marginals_are_those_of_their_definition():
    Kuu, factor = factor_of(4)
    Kuf = random(2, 4, 7, seed=1).requires_grad_()
    m = random(2, 4, seed=2).requires_grad_()
    L = random(2, 4, 4, seed=3).tril().requires_grad_()
    g, h = random(2, 2, 7, seed=4)
    A = factor.L_inverse @ Kuf
    S = L @ L.mT - torch.eye(4, dtype=torch.float64)
    fit = (m[:, None] @ A)[:, 0]
    gain = (A * (S @ A)).sum(-2)
    expected = torch.autograd.grad((g * fit + h * gain).sum(), (Kuu, m, L, Kuf))
    with torch.no_grad():
        products = marginal_products(Kuf, factor.L_inverse, L)
        torch.testing.assert_close(products[0], A)
        torch.testing.assert_close((Kuf * products[1]).sum(-2), gain)
        gradients = marginal_gradients(factor.L_inverse, m, L, products[0], g, h)
    torch.testing.assert_close(gradients, expected[:3])


def test_gradients_of_moments_are_those_of_their_definition():
    Kuu, factor = factor_of(4)
    Kuf = random(2, 4, 7, seed=1).requires_grad_()
    y = random(2, 7, seed=2)
    d_AA = random(2, 4, 4, seed=3)
    d_Ay = random(2, 4, seed=4)
    A = factor.L_inverse @ Kuf
    moments = (d_AA * (A @ A.mT)).sum() + (d_Ay * (A @ y[..., None])[..., 0]).sum()
    expected = torch.autograd.grad(moments, (Kuf, Kuu))
    with torch.no_grad():
        A, AA, Ay = moment_products(Kuf, factor.L_inverse, y)
        V, w, d_Kuu = moment_gradients(factor.L_inverse, A, AA, Ay, d_AA, d_Ay)
    torch.testing.assert_close((V + w[..., None] * y[:, None], d_Kuu), expected)


def test_float32_products_are_made_symmetric_and_float64_ones_left_alone():
    P = random(2, 3, 3)
    assert symmetrised(P) is P
    symmetric = symmetrised(P.float())
    assert torch.equal(symmetric, symmetric.mT)
    torch.testing.assert_close(symmetric, (0.5 * (P + P.mT)).float())


def test_column_sums_are_over_inducing_inputs():
    a = random(2, 3, 5)
    torch.testing.assert_close(column_sums(a), a.sum(1))
