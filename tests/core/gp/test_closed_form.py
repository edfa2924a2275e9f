"""The pieces of objectives with a closed form over q, against dense matrices."""

import pytest
import torch

from dlmexp.core.gp.closed_form import (
    RIDGE_SHARE,
    Problem,
    gaussian_posterior,
    moments,
    row_projection,
)
from dlmexp.core.gp.kernels import KERNELS, kernel_named, rbf

HYPERPARAMETERS = ("Z", "lengthscale", "outputscale", "mean")


def problem(kernel, c, rows_at_once=None):
    return Problem(kernel, c, c["X"], c["y"], c["jitter"], rows_at_once)


def dense_projection(kernel, c):
    """Return A and r from triangular solves with Kuu."""
    Kuu = kernel(c["Z"], c["Z"], c)
    jitter = c["jitter"] * Kuu.diagonal(dim1=-2, dim2=-1).mean(-1)
    Kuu = Kuu + jitter[:, None, None] * torch.eye(Kuu.shape[-1], dtype=torch.float64)
    Luu = torch.linalg.cholesky(Kuu)
    A = torch.linalg.solve_triangular(Luu, kernel(c["Z"], c["X"], c), upper=False)
    return A, kernel.diagonal(c["X"], c) - A.square().sum(-2)


def with_gradients(c):
    return c | {name: c[name].clone().requires_grad_() for name in HYPERPARAMETERS}


@pytest.mark.parametrize("kernel", list(KERNELS))
@pytest.mark.parametrize("rows_at_once", [None, 7])
def test_moments_are_sums_of_the_projected_rows(kernel, rows_at_once, cells):
    kernel = KERNELS[kernel]
    c = with_gradients(cells(3, 5, 20, 2))
    s = moments(problem(kernel, c, rows_at_once))
    A, r = dense_projection(kernel, c)
    y = c["y"] - c["mean"][:, None]
    expected = (A @ A.mT, (A @ y[..., None])[..., 0], y.square().sum(-1), r.sum(-1))
    leaves = [c[name] for name in HYPERPARAMETERS]
    for moment, sums in zip((s.AA, s.Ay, s.yy, s.residual), expected, strict=True):
        torch.testing.assert_close(moment, sums, rtol=1e-9, atol=1e-9)
        weights = torch.arange(1.0, 1 + moment.numel(), dtype=torch.float64).view(moment.shape)
        gradients = torch.autograd.grad(
            (weights * moment).sum(), leaves, retain_graph=True, allow_unused=True
        )
        expected_gradients = torch.autograd.grad(
            (weights * sums).sum(), leaves, retain_graph=True, allow_unused=True
        )
        for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
            if expected_gradient is not None:
                torch.testing.assert_close(gradient, expected_gradient, rtol=1e-6, atol=1e-5)
    assert s.n == 20


@pytest.mark.parametrize("kernel", [*KERNELS, "gpytorch.kernels.LinearKernel"])
def test_row_projection_gives_features_and_residual_variances(kernel, cells):
    kernel = kernel_named(kernel)
    c = cells(2, 4, 9, 2)
    for name, parameter in kernel.parameters(2, ard=False).items():
        c[name] = parameter.start(c["X"], 2)
    projection = row_projection(problem(kernel, c))
    A, r = projection(c["X"])
    expected_A, expected_r = dense_projection(kernel, c)
    torch.testing.assert_close(A, expected_A, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(r, expected_r.clamp_min(0), rtol=1e-7, atol=1e-7)
    assert projection.ok.tolist() == [True, True]


def test_residual_variance_at_an_inducing_input_is_that_of_the_jitter(cells):
    c = cells(2, 4, 9, 2)
    c["X"] = c["Z"].clone()
    _, r = row_projection(problem(rbf, c))(c["X"])
    assert (r > 0).all()
    assert (r <= 1.01e-6 * c["outputscale"][:, None]).all()


def test_residual_variance_of_float32_rows_stays_above_its_rounding_error(cells):
    c = cells(2, 12, 9, 1)
    c["X"] = c["Z"].float()
    c["jitter"] = c["jitter"] * 1e-4
    _, r = row_projection(problem(rbf, c))(c["X"])
    eps = torch.finfo(torch.float32).eps
    assert r.dtype == torch.float32
    assert (r >= 0.99 * eps * c["outputscale"][:, None]).all()


def test_failed_cell_is_marked_in_moments_and_projection(cells):
    c = cells(2, 4, 9, 2)
    c["outputscale"][1] = -1.0
    assert moments(problem(rbf, c)).ok.tolist() == [True, False]
    assert row_projection(problem(rbf, c)).ok.tolist() == [True, False]


def test_gaussian_posterior_is_that_of_dense_matrices():
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(3, 4, 6, dtype=torch.float64, generator=generator)
    H = A @ A.mT
    b = torch.randn(3, 4, dtype=torch.float64, generator=generator)
    q = gaussian_posterior(H, b)
    precision = torch.eye(4, dtype=torch.float64) + H
    covariance = torch.linalg.inv(precision)
    mean = (covariance @ b[..., None])[..., 0]
    torch.testing.assert_close(q.m, mean, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(q.L @ q.L.mT, covariance, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(q.log_det, torch.logdet(precision), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(q.explained, (b * mean).sum(-1), rtol=1e-10, atol=1e-10)
    assert torch.equal(q.L, q.L.tril())


def test_mean_and_covariance_of_q_carry_no_gradient():
    H = torch.eye(3, dtype=torch.float64)[None].requires_grad_()
    b = torch.ones(1, 3, dtype=torch.float64, requires_grad=True)
    q = gaussian_posterior(H, b)
    assert not q.m.requires_grad
    assert not q.L.requires_grad
    assert q.log_det.requires_grad
    assert q.explained.requires_grad


def test_least_ridge_is_lost_against_the_mean_of_the_diagonal(cells):
    s = moments(problem(rbf, cells(2, 4, 9, 2)))
    mean = s.AA.diagonal(dim1=-2, dim2=-1).mean(-1)
    torch.testing.assert_close(s.smallest_ridge, 1e-10 * mean, rtol=1e-12, atol=0)
    assert RIDGE_SHARE == 1e-10
