"""Kernels against GPyTorch's, against finite differences, and at zero distance."""

from typing import Any

import gpytorch
import pytest
import torch

from dlmexp.gp.kernels import KERNELS

ORACLES = {
    "rbf": lambda d: gpytorch.kernels.RBFKernel(ard_num_dims=d),
    "matern52": lambda d: gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=d),
}


@pytest.mark.parametrize("name", list(KERNELS))
@pytest.mark.parametrize("ard", [False, True])
def test_equals_gpytorch_in_value_and_gradient(name, ard, cells):
    c = cells(1, 5, 30, 3, ard)
    oracle: Any = gpytorch.kernels.ScaleKernel(ORACLES[name](3 if ard else None)).double()
    oracle.base_kernel.lengthscale = c["lengthscale"]
    oracle.outputscale = c["outputscale"]
    Z: Any = c["Z"][0].clone().requires_grad_()
    expected = oracle(Z, c["X"][0]).to_dense()
    weight = torch.randn(5, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    (expected * weight).sum().backward()

    ours: Any = {k: c[k].clone().requires_grad_() for k in ("Z", "lengthscale", "outputscale")}
    K = KERNELS[name](ours["Z"], c["X"], ours)
    torch.testing.assert_close(K[0], expected, rtol=1e-12, atol=1e-12)
    (K * weight).sum().backward()
    torch.testing.assert_close(ours["Z"].grad[0], Z.grad, rtol=1e-10, atol=1e-12)
    # GPyTorch's parameters are raw: the softplus' slope at the raw value stands between the two gradients.
    for mine, raw in (("lengthscale", oracle.base_kernel.raw_lengthscale), ("outputscale", oracle.raw_outputscale)):
        slope = torch.sigmoid(raw.detach())
        torch.testing.assert_close(
            ours[mine].grad.flatten() * slope.flatten(), raw.grad.flatten(), rtol=1e-10, atol=1e-12
        )


@pytest.mark.parametrize("name", list(KERNELS))
def test_zero_distance_is_outputscale_with_a_finite_gradient(name):
    Z = torch.randn(3, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    Z[:, 1] = Z[:, 0]
    Z.requires_grad_()
    l = torch.tensor([[1e-3], [1.0], [1e3]], dtype=torch.float64, requires_grad=True)
    s = torch.tensor([1e-4, 1.0, 1e4], dtype=torch.float64, requires_grad=True)
    K = KERNELS[name](Z, Z, {"lengthscale": l, "outputscale": s})
    # |z|^2/l^2 is up to 1e7 in the first cell: that is how much of the rounding the exponent sees (Matern: its root).
    tolerance = 1e-4 if name == "matern52" else 1e-8
    torch.testing.assert_close(K.diagonal(dim1=-2, dim2=-1), s[:, None].expand(3, 6), rtol=tolerance, atol=0)
    torch.testing.assert_close(K[:, 0, 1], s, rtol=tolerance, atol=0)
    K.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in (Z, l, s))
