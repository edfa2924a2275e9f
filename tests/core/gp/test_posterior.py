"""The sparse posterior against GPyTorch and finite differences; its quicker forms against the
general one."""

from typing import Any

import gpytorch
import pytest
import torch
from gpytorch.mlls import PredictiveLogLikelihood, VariationalELBO
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    UnwhitenedVariationalStrategy,
    VariationalStrategy,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from dlmexp.core.gp.kernels import rbf
from dlmexp.core.gp.posterior import kl, marginals, projection, shared_marginals, to_whitened
from dlmexp.core.gp.rbf_posterior import rbf_marginals
from dlmexp.core.gp.workspace import Workspace

LEARNED = ("Z", "lengthscale", "outputscale", "noise", "mean", "m", "L")
# GPyTorch's jitter is absolute and ours relative: this small, the difference is below the tolerance
TINY = 1e-12


class Oracle(gpytorch.models.ApproximateGP):
    """GPyTorch's model at our parameters. Its unwhitened q(u) includes the constant mean, ours is
    that of u - mean."""

    likelihood: Any
    mean_module: Any
    covar_module: Any
    variational_strategy: Any

    def __init__(self, c, strategy):
        M = c["m"].shape[-1]
        super().__init__(
            strategy(
                self, c["Z"][0].clone(), CholeskyVariationalDistribution(M), True, jitter_val=TINY
            )
        )
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood(
            noise_constraint=gpytorch.constraints.Positive()
        )
        self.double()
        self.mean_module.constant.data.copy_(c["mean"][0])
        self.covar_module.base_kernel.lengthscale = c["lengthscale"]
        self.covar_module.outputscale = c["outputscale"]
        self.likelihood.noise = c["noise"]
        q = self.variational_strategy._variational_distribution
        shift = c["mean"][0] if strategy is UnwhitenedVariationalStrategy else 0
        q.variational_mean.data.copy_(c["m"][0] + shift)
        q.chol_variational_covar.data.copy_(c["L"][0])
        self.variational_strategy.variational_params_initialized.fill_(1)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    def gradients(self):
        """By our names; those of positive parameters without the softplus that stands before
        them."""
        q = self.variational_strategy._variational_distribution
        raw = {
            "lengthscale": self.covar_module.base_kernel.raw_lengthscale,
            "outputscale": self.covar_module.raw_outputscale,
            "noise": self.likelihood.noise_covar.raw_noise,
        }
        found = {k: (p.grad / torch.sigmoid(p.detach())).flatten() for k, p in raw.items()}
        found |= {
            "mean": self.mean_module.constant.grad,
            "Z": self.variational_strategy.inducing_points.grad,
        }
        if isinstance(self.variational_strategy, UnwhitenedVariationalStrategy):
            found["mean"] = found["mean"] + q.variational_mean.grad.sum()
        return found | {"m": q.variational_mean.grad, "L": q.chol_variational_covar.grad.tril()}


def our_losses(c, form, objective):
    """Objective per row, and which cells factorise, with a Gaussian likelihood written out."""
    L = c["L"].tril()
    if form == "rbf":
        m, (mu, v, ok) = c["m"], rbf_marginals(c, c["X"], c["jitter"], c["m"], L, Workspace())
    else:
        p = projection(rbf, c, c["X"], c["jitter"])
        m, L = (c["m"], L) if form == "whitened" else to_whitened(c["m"], L, p.Kuu)
        (mu, v), ok = marginals(p, c["mean"], m, L), p.ok
    noise, error = c["noise"][:, None], (c["y"] - mu).square()
    if objective == "elbo":
        loss = 0.5 * (torch.log(2 * torch.pi * noise) + (error + v) / noise)
    else:
        loss = 0.5 * (torch.log(2 * torch.pi * (noise + v)) + error / (noise + v))
    return loss.mean(-1) + 0.7 * kl(m, L) / c["X"].shape[1], ok


@pytest.mark.parametrize("form", ["whitened", "unwhitened", "rbf"])
@pytest.mark.parametrize("objective", ["elbo", "log_dlm"])
def test_equals_gpytorch_in_value_and_every_gradient(form, objective, cells):
    c = cells(1, 8, 40, 3) | {"jitter": torch.full((1,), TINY, dtype=torch.float64)}
    oracle = Oracle(
        c, UnwhitenedVariationalStrategy if form == "unwhitened" else VariationalStrategy
    )
    mll = {"elbo": VariationalELBO, "log_dlm": PredictiveLogLikelihood}[objective]
    with (
        gpytorch.settings.variational_cholesky_jitter(double_value=TINY),
        gpytorch.settings.cholesky_jitter(double_value=0.0),
    ):
        expected = -mll(oracle.likelihood, oracle, 40, beta=0.7)(oracle(c["X"][0]), c["y"][0])
        expected.backward()
    ours = c | {k: c[k].clone().requires_grad_() for k in LEARNED}
    value, _ = our_losses(ours, form, objective)
    torch.testing.assert_close(value[0], expected, rtol=1e-8, atol=1e-8)
    value.sum().backward()
    for name, gradient in oracle.gradients().items():
        mine = ours[name].grad.flatten()
        torch.testing.assert_close(
            mine, gradient.flatten(), rtol=1e-8, atol=1e-8, msg=lambda s, n=name: f"{n}: {s}"
        )


def test_variance_keeps_its_digits_where_inducing_points_nearly_coincide():
    """A smooth kernel on a line, q nearly a point mass: v is 1e-6 of the prior variance, all of it
    jitter. The reference is computed with 40 digits."""
    from mpmath import cholesky, lu_solve, matrix, mp

    Z = torch.linspace(-1, 1, 12, dtype=torch.float64)[None, :, None]
    one = torch.ones(1, dtype=torch.float64)
    X, m, L = (
        Z[:, ::3],
        torch.zeros(1, 12, dtype=torch.float64),
        1e-4 * torch.eye(12, dtype=torch.float64)[None],
    )
    p = projection(
        rbf, {"Z": Z, "lengthscale": 2 * one[:, None], "outputscale": one}, X, 1e-6 * one
    )
    _, v = marginals(p, 0 * one, m, L)
    with mp.workdps(40):
        Luu = cholesky(matrix(p.Kuu.K[0].tolist()))
        columns = [lu_solve(Luu, matrix(p.Kuf[0, :, i].tolist())) for i in range(X.shape[1])]
        squares = [sum(a * a for a in column) for column in columns]
        exact = torch.tensor(
            [[float(1 - s + mp.mpf(1e-4) ** 2 * s) for s in squares]], dtype=torch.float64
        )
    assert v.max() < 2e-6
    assert v.min() > 0
    torch.testing.assert_close(v, exact, rtol=5e-7, atol=0)


@settings(max_examples=25)
@given(
    B=st.integers(1, 5),
    M=st.integers(1, 9),
    N=st.integers(1, 12),
    seed=st.integers(0, 10**6),
    form=st.sampled_from(["whitened", "unwhitened", "rbf"]),
    ill=st.sampled_from([None, "nan", "inf", "singular"]),
)
def test_a_cell_in_a_batch_is_the_cell_alone(B, M, N, seed, form, ill, cells):
    """Value and gradient to 1e-10, with a neighbour that is no number or cannot be factorised in
    the batch or not."""
    c = cells(B + 1, M, N, 2, seed=seed)
    if ill in ("nan", "inf"):
        c["Z"][B] = float(ill)
    if ill == "singular":
        c["outputscale"][B] = -1.0
    together = c | {k: c[k].clone().requires_grad_() for k in LEARNED}
    values, ok = our_losses(together, form, "log_dlm")
    assert ok.tolist() == [True] * B + [ill is None]
    values.sum().backward()
    for i in range(B):
        alone = {k: t[i : i + 1].clone() for k, t in c.items()}
        alone |= {k: alone[k].requires_grad_() for k in LEARNED}
        value, _ = our_losses(alone, form, "log_dlm")
        value.backward()
        torch.testing.assert_close(values[i], value[0], rtol=1e-10, atol=1e-12)
        for k in LEARNED:
            torch.testing.assert_close(
                together[k].grad[i], alone[k].grad[0], rtol=1e-10, atol=1e-10
            )


SHAPES = {
    "usual": (3, 7, 40, 4, 1),
    "ard": (2, 9, 30, 3, 3),
    "strips": (2, 100, 600, 3, 1),
    "one": (1, 1, 1, 1, 1),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_rbf_form_is_the_general_one(shape, cells):
    B, M, N, D, P = SHAPES[shape]
    c, weight = cells(B, M, N, D, P > 1), cells(2 * B, 1, N, 1, seed=1)["y"].reshape(2, B, N)
    leaves = [c[name].requires_grad_() for name in LEARNED if name != "noise"]
    L = c["L"].tril()
    p = projection(rbf, c, c["X"], c["jitter"])
    mu, v, ok = rbf_marginals(c, c["X"], c["jitter"], c["m"], L, Workspace())
    found, expected = torch.stack([mu, v]), torch.stack(marginals(p, c["mean"], c["m"], L))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    assert ok.tolist() == p.ok.tolist() == [True] * B
    ours, theirs = (
        torch.autograd.grad((each * weight).sum(), leaves) for each in (found, expected)
    )
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9 * float(other.abs().max()))


@pytest.mark.parametrize("sizes", [(3, 3), (1, 1), (4, 1), (0, 5)])
@pytest.mark.parametrize("ill", [None, 1])
def test_shared_inputs_give_the_marginals_of_each_cell(sizes, ill, cells):
    """Also those of the other cells where one is NaN."""
    c, q = cells(2, 4, 15, 2), cells(sum(sizes), 4, 1, 1, seed=1)
    index = torch.repeat_interleave(torch.arange(2), torch.tensor(sizes))
    each = {name: value[index] for name, value in c.items()}
    weight = torch.randn(
        2, sum(sizes), 15, dtype=torch.float64, generator=torch.Generator().manual_seed(2)
    )
    well = [i for i in range(sum(sizes)) if i != ill]
    found = []
    for shared in (True, False):
        m, L = q["m"].clone(), q["L"].clone()
        if ill is not None:
            m[ill], L[ill] = torch.nan, torch.nan
        p = projection(
            rbf, *((c, c["X"], c["jitter"]) if shared else (each, each["X"], each["jitter"]))
        )
        leaves = m.requires_grad_(), L.requires_grad_()
        if shared:
            mu, v = shared_marginals(p.A, p.kff, c["mean"], m, L, sizes)
        else:
            mu, v = marginals(p, each["mean"], m, L)
        gradients = torch.autograd.grad((weight[0] * mu + weight[1] * v.log()).sum(), leaves)
        found.append([part[well] for part in (mu, v, *gradients)])
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)
