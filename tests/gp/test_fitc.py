"""FITC against n x n matrices: the likelihood, its gradient, the predictions of its q."""

import pytest
import torch
from torch.distributions import MultivariateNormal

from dlmexp.gp.fitc import fitc
from dlmexp.gp.kernels import rbf
from dlmexp.gp.predict import predict

LEARNED = ("Z", "lengthscale", "outputscale", "noise", "mean")


def dense(c, X_new):
    """The likelihood of y and the predictive mean and variance at X_new from FITC's covariance, written out."""
    eye = torch.eye(c["Z"].shape[1], dtype=torch.float64)
    Kuu = rbf(c["Z"], c["Z"], c) + 1e-6 * c["outputscale"][:, None, None] * eye
    Kuf, Kus = (rbf(c["Z"], X, c) for X in (c["X"], X_new))
    Qff, Qsf = (a.mT @ torch.linalg.solve(Kuu, Kuf) for a in (Kuf, Kus))
    N = c["X"].shape[1]
    D = c["outputscale"][:, None] - Qff.diagonal(dim1=-2, dim2=-1) + c["noise"][:, None]
    C = Qff + torch.diag_embed(D)
    loss = -MultivariateNormal(c["mean"][:, None].expand(-1, N), C).log_prob(c["y"])
    gain = torch.linalg.solve(C, Qsf.mT).mT
    mu = c["mean"][:, None] + (gain @ (c["y"] - c["mean"][:, None])[..., None])[..., 0]
    v = c["outputscale"][:, None] - (gain @ Qsf.mT).diagonal(dim1=-2, dim2=-1)
    return loss, mu, v


@pytest.mark.parametrize("rows_at_once", [None, 9])
def test_equals_dense_computation(rows_at_once, cells):
    c, X_new = cells(3, 5, 40, 2), cells(3, 1, 12, 2, seed=5)["X"]
    theirs = c | {k: c[k].clone().requires_grad_() for k in LEARNED}
    loss, mu, v = dense(theirs, X_new)
    loss.sum().backward()

    ours = c | {k: c[k].clone().requires_grad_() for k in LEARNED}
    closed = fitc(rbf, ours, c["X"], c["y"], torch.ones(3), c["jitter"], rows_at_once)
    closed.loss.sum().backward()
    torch.testing.assert_close(closed.loss, loss, rtol=1e-9, atol=1e-9)
    for k in LEARNED:
        torch.testing.assert_close(ours[k].grad, theirs[k].grad, rtol=1e-7, atol=1e-7, msg=lambda s, k=k: f"{k}: {s}")
    mu_q, v_q = predict(rbf, c, closed.m, closed.L, c["jitter"], X_new)
    torch.testing.assert_close(mu_q, mu, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(v_q, v, rtol=1e-8, atol=1e-8)


def test_with_the_training_inputs_as_inducing_inputs_it_is_the_exact_gp(cells):
    c = cells(2, 10, 10, 2)
    c["Z"] = c["X"]
    jitter = torch.full((2,), 1e-10, dtype=torch.float64)
    Kff = rbf(c["X"], c["X"], c)
    C = Kff + c["noise"][:, None, None] * torch.eye(10, dtype=torch.float64)
    expected = -MultivariateNormal(c["mean"][:, None].expand(2, 10), C).log_prob(c["y"])
    torch.testing.assert_close(fitc(rbf, c, c["X"], c["y"], torch.ones(2), jitter).loss, expected, rtol=1e-6, atol=1e-6)
