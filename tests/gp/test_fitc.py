"""FITC and power EP against n x n matrices: the energy, its gradient, the predictions of its q, and its limits."""

import pytest
import torch
from torch.distributions import MultivariateNormal

from dlmexp.gp.collapsed import collapsed_elbo
from dlmexp.gp.fitc import fitc, power_ep
from dlmexp.gp.kernels import rbf
from dlmexp.gp.posterior import predict

LEARNED = ("Z", "lengthscale", "outputscale", "noise", "mean")


def dense(c, X_new, alpha=1.0):
    """The energy of y and the predictive mean and variance at X_new from the covariance of power EP, written out."""
    eye = torch.eye(c["Z"].shape[1], dtype=torch.float64)
    Kuu = rbf(c["Z"], c["Z"], c) + 1e-6 * c["outputscale"][:, None, None] * eye
    Kuf, Kus = (rbf(c["Z"], X, c) for X in (c["X"], X_new))
    Qff, Qsf = (a.mT @ torch.linalg.solve(Kuu, Kuf) for a in (Kuf, Kus))
    N = c["X"].shape[1]
    rest = c["outputscale"][:, None] - Qff.diagonal(dim1=-2, dim2=-1)
    C = Qff + torch.diag_embed(alpha * rest + c["noise"][:, None])
    correction = (1 - alpha) / (2 * alpha) * torch.log(1 + alpha * rest / c["noise"][:, None]).sum(-1)
    loss = correction - MultivariateNormal(c["mean"][:, None].expand(-1, N), C).log_prob(c["y"])
    gain = torch.linalg.solve(C, Qsf.mT).mT
    mu = c["mean"][:, None] + (gain @ (c["y"] - c["mean"][:, None])[..., None])[..., 0]
    v = c["outputscale"][:, None] - (gain @ Qsf.mT).diagonal(dim1=-2, dim2=-1)
    return loss, mu, v


@pytest.mark.parametrize(("rows_at_once", "alpha"), [(None, 1.0), (9, 1.0), (None, 0.3), (9, 0.01)])
def test_equals_dense_computation(rows_at_once, alpha, cells):
    c, X_new = cells(3, 5, 40, 2), cells(3, 1, 12, 2, seed=5)["X"]
    theirs = c | {k: c[k].clone().requires_grad_() for k in LEARNED}
    loss, mu, v = dense(theirs, X_new, alpha)
    loss.sum().backward()

    ours = c | {k: c[k].clone().requires_grad_() for k in LEARNED}
    powers = torch.full((3,), alpha, dtype=torch.float64)
    closed = power_ep(rbf, ours, c["X"], c["y"], powers, c["jitter"], rows_at_once)
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


def test_power_ep_has_fitc_and_the_elbo_as_its_ends(cells):
    c = cells(3, 5, 40, 2)
    ends = {1.0: fitc, 0.0: collapsed_elbo, 1e-9: collapsed_elbo}
    for alpha, end in ends.items():
        powers = torch.full((3,), alpha, dtype=torch.float64)
        ours = power_ep(rbf, c, c["X"], c["y"], powers, c["jitter"])
        theirs = end(rbf, c, c["X"], c["y"], torch.ones(3, dtype=torch.float64), c["jitter"])
        tolerance = 1e-8 if alpha in (0.0, 1.0) else 1e-6  # the error of a small alpha is of its order
        for a, b in zip(ours[:3], theirs[:3], strict=True):
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_cells_of_a_batch_have_their_own_alpha(cells):
    c = cells(3, 5, 40, 2)
    powers = torch.tensor([0.0, 0.4, 1.0], dtype=torch.float64)
    together = power_ep(rbf, c, c["X"], c["y"], powers, c["jitter"])
    for i in range(3):
        one = {name: value[i : i + 1] for name, value in c.items()}
        alone = power_ep(rbf, one, one["X"], one["y"], powers[i : i + 1], one["jitter"])
        torch.testing.assert_close(together.loss[i : i + 1], alone.loss, rtol=1e-10, atol=1e-10)
