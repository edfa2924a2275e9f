"""The sparse posterior against GPyTorch, 40 digits and finite differences."""

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
from torch.autograd import gradcheck
from torch.distributions import MultivariateNormal, kl_divergence

from dlmexp.core.gp.kernels import rbf
from dlmexp.core.gp.posterior import (
    component_marginals,
    floored_variance,
    kl,
    marginals,
    projection,
    shared_marginals,
    to_whitened,
)
from dlmexp.core.gp.rbf_posterior import rbf_marginals
from dlmexp.core.gp.workspace import Workspace

LEARNED = ("Z", "lengthscale", "outputscale", "noise", "mean", "m", "L")
FORMS = ["whitened", "unwhitened", "rbf"]
TINY = 1e-12
"""GPyTorch's jitter is absolute and ours relative: this small, the difference is below the
tolerance."""


class Oracle(gpytorch.models.ApproximateGP):
    """GPyTorch's model at our parameters.

    Its unwhitened q(u) includes the constant mean, ours is that of u - mean.
    """

    likelihood: Any
    mean_module: Any
    covar_module: Any
    variational_strategy: Any

    def __init__(self, c, strategy):
        q = CholeskyVariationalDistribution(c["m"].shape[-1])
        super().__init__(strategy(self, c["Z"][0].clone(), q, True, jitter_val=TINY))
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
        """Return gradients by our names, in the values of positive parameters."""
        q = self.variational_strategy._variational_distribution
        raw = {
            "lengthscale": self.covar_module.base_kernel.raw_lengthscale,
            "outputscale": self.covar_module.raw_outputscale,
            "noise": self.likelihood.noise_covar.raw_noise,
        }
        gradients = {
            "mean": self.mean_module.constant.grad,
            "Z": self.variational_strategy.inducing_points.grad,
            "m": q.variational_mean.grad,
            "L": q.chol_variational_covar.grad.tril(),
        }
        for name, parameter in raw.items():
            # Without the softplus that stands before them.
            gradients[name] = (parameter.grad / torch.sigmoid(parameter.detach())).flatten()
        if isinstance(self.variational_strategy, UnwhitenedVariationalStrategy):
            gradients["mean"] = gradients["mean"] + q.variational_mean.grad.sum()
        return gradients


def losses(c, form, objective):
    """Return the objective per row with a Gaussian likelihood, and which cells factorise."""
    L = c["L"].tril()
    m = c["m"]
    if form == "rbf":
        mu, v, ok = rbf_marginals(c, c["X"], c["jitter"], m, L, Workspace())
    else:
        p = projection(rbf, c, c["X"], c["jitter"])
        if form == "unwhitened":
            m, L = to_whitened(m, L, p.Kuu)
        mu, v = marginals(p, c["mean"], m, L)
        ok = p.ok
    noise = c["noise"][:, None]
    error = (c["y"] - mu).square()
    if objective == "elbo":
        loss = 0.5 * (torch.log(2 * torch.pi * noise) + (error + v) / noise)
    else:
        loss = 0.5 * (torch.log(2 * torch.pi * (noise + v)) + error / (noise + v))
    return loss.mean(-1) + 0.7 * kl(m, L) / c["X"].shape[1], ok


def with_leaves(c):
    return c | {name: c[name].clone().requires_grad_() for name in LEARNED}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("objective", ["elbo", "log_dlm"])
def test_value_and_every_gradient_equal_gpytorchs(form, objective, cells):
    c = cells(1, 8, 40, 3) | {"jitter": torch.full((1,), TINY, dtype=torch.float64)}
    unwhitened = form == "unwhitened"
    oracle = Oracle(c, UnwhitenedVariationalStrategy if unwhitened else VariationalStrategy)
    mll = {"elbo": VariationalELBO, "log_dlm": PredictiveLogLikelihood}[objective]
    with (
        gpytorch.settings.variational_cholesky_jitter(double_value=TINY),
        gpytorch.settings.cholesky_jitter(double_value=0.0),
    ):
        expected = -mll(oracle.likelihood, oracle, 40, beta=0.7)(oracle(c["X"][0]), c["y"][0])
        expected.backward()
    c = with_leaves(c)
    value, _ = losses(c, form, objective)
    value.sum().backward()
    torch.testing.assert_close(value[0], expected, rtol=1e-8, atol=1e-8)
    for name, gradient in oracle.gradients().items():
        torch.testing.assert_close(
            c[name].grad.flatten(),
            gradient.flatten(),
            rtol=1e-8,
            atol=1e-8,
            msg=lambda s, n=name: f"{n}: {s}",
        )


def test_variance_keeps_its_digits_where_inducing_points_nearly_coincide():
    """A smooth kernel on a line, q nearly a point mass: v is 1e-6 of the prior variance.

    All of it is jitter. The reference is computed with 40 digits.
    """
    from mpmath import cholesky, lu_solve, matrix, mp

    Z = torch.linspace(-1, 1, 12, dtype=torch.float64)[None, :, None]
    unit = torch.ones(1, dtype=torch.float64)
    X = Z[:, ::3]
    m = torch.zeros(1, 12, dtype=torch.float64)
    L = 1e-4 * torch.eye(12, dtype=torch.float64)[None]
    hyper = {"Z": Z, "lengthscale": 2 * unit[:, None], "outputscale": unit}
    p = projection(rbf, hyper, X, 1e-6 * unit)
    _, v = marginals(p, 0 * unit, m, L)
    with mp.workdps(40):
        Luu = cholesky(matrix(p.Kuu.K[0].tolist()))
        exact = []
        for i in range(X.shape[1]):
            column = lu_solve(Luu, matrix(p.Kuf[0, :, i].tolist()))
            square = sum(a * a for a in column)
            exact.append(float(1 - square + mp.mpf(1e-4) ** 2 * square))
    assert v.max() < 2e-6
    assert v.min() > 0
    torch.testing.assert_close(v, torch.tensor([exact], dtype=torch.float64), rtol=5e-7, atol=0)


def test_variance_stays_above_its_rounding_error():
    kff = torch.tensor([[1.0, 1.0, 2.0]])
    v = torch.tensor([[0.5, -1e-3, 0.0]])
    eps = torch.finfo(torch.float32).eps
    assert floored_variance(v, kff).tolist() == [[0.5, eps, 2 * eps]]
    above = torch.tensor([[0.5, 0.1, 0.2]])
    assert floored_variance(above, kff) is above


def test_kl_is_that_of_normal_distributions_with_its_gradient(cells):
    c = cells(3, 4, 1, 1)
    m = c["m"].requires_grad_()
    L = c["L"].requires_grad_()
    prior = MultivariateNormal(torch.zeros(4, dtype=torch.float64), torch.eye(4).double())
    expected = kl_divergence(MultivariateNormal(m, L.tril() @ L.tril().mT), prior)
    torch.testing.assert_close(kl(m, L), expected, rtol=1e-12, atol=1e-12)
    assert gradcheck(kl, (m, L))


@settings(max_examples=25)
@given(
    B=st.integers(1, 5),
    M=st.integers(1, 9),
    N=st.integers(1, 12),
    seed=st.integers(0, 10**6),
    form=st.sampled_from(FORMS),
    ill=st.sampled_from([None, "nan", "inf", "singular"]),
)
def test_cell_in_a_batch_is_the_cell_alone(B, M, N, seed, form, ill, cells):
    """With a neighbour in the batch that is no number or cannot be factorised, or without."""
    c = cells(B + 1, M, N, 2, seed=seed)
    if ill in ("nan", "inf"):
        c["Z"][B] = float(ill)
    if ill == "singular":
        c["outputscale"][B] = -1.0
    together = with_leaves(c)
    values, ok = losses(together, form, "log_dlm")
    assert ok.tolist() == [True] * B + [ill is None]
    values.sum().backward()
    for i in range(B):
        alone = with_leaves({name: tensor[i : i + 1].clone() for name, tensor in c.items()})
        value, _ = losses(alone, form, "log_dlm")
        value.backward()
        torch.testing.assert_close(values[i], value[0], rtol=1e-10, atol=1e-12)
        for name in LEARNED:
            gradient = together[name].grad[i]
            torch.testing.assert_close(gradient, alone[name].grad[0], rtol=1e-10, atol=1e-10)


def marginals_and_gradients(compute, q, weight):
    """Return mu and v of `compute(m, L)`, and gradients of a weighted sum in m and L."""
    m = q["m"].clone().requires_grad_()
    L = q["L"].clone().requires_grad_()
    mu, v = compute(m, L)
    total = (weight[0] * mu + weight[1] * v.log()).sum()
    return mu, v, *torch.autograd.grad(total, (m, L))


@pytest.mark.parametrize("sizes", [(3, 3), (1, 1), (4, 1), (0, 5)])
@pytest.mark.parametrize("ill", [None, 1])
def test_shared_inputs_give_the_marginals_of_each_cell(sizes, ill, cells):
    """Also those of the other cells where one is NaN."""
    B = sum(sizes)
    c = cells(2, 4, 15, 2)
    q = cells(B, 4, 1, 1, seed=1)
    if ill is not None:
        q["m"][ill] = torch.nan
        q["L"][ill] = torch.nan
    index = torch.repeat_interleave(torch.arange(2), torch.tensor(sizes))
    by_cell = {name: value[index] for name, value in c.items()}
    generator = torch.Generator().manual_seed(2)
    weight = torch.randn(2, B, 15, dtype=torch.float64, generator=generator)
    shared = projection(rbf, c, c["X"], c["jitter"])
    own = projection(rbf, by_cell, by_cell["X"], by_cell["jitter"])
    results = marginals_and_gradients(
        lambda m, L: shared_marginals(shared.A, shared.kff, c["mean"], m, L, sizes), q, weight
    )
    expected = marginals_and_gradients(
        lambda m, L: marginals(own, by_cell["mean"], m, L), q, weight
    )
    well = [i for i in range(B) if i != ill]
    for result, other in zip(results, expected, strict=True):
        torch.testing.assert_close(result[well], other[well], rtol=1e-9, atol=1e-9)


def written_out(c, m, L):
    """Mean and variance of every component, by autograd through a triangular solve."""
    K = rbf(c["Z"], c["Z"], c)
    jitter = c["jitter"][:, None] * K.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True)
    Luu = torch.linalg.cholesky(K + torch.diag_embed(jitter.expand(K.shape[:-1])))
    A = torch.linalg.solve_triangular(Luu, rbf(c["Z"], c["X"], c), upper=False)
    residual = rbf.diagonal(c["X"], c) - A.square().sum(-2)
    mu = c["mean"][:, None, None] + torch.einsum("bkm,bmn->bkn", m, A)
    spread = torch.einsum("bkml,bmn->bkln", L, A).square().sum(-2)
    return mu, residual.unsqueeze(-2) + spread


@pytest.mark.parametrize("K", [1, 3])
def test_components_have_the_marginals_and_gradients_that_are_written_out(K, cells):
    names = ("Z", "lengthscale", "outputscale", "mean")
    generator = torch.Generator().manual_seed(3)
    m = torch.randn(2, K, 4, dtype=torch.float64, generator=generator)
    L = torch.randn(2, K, 4, 4, dtype=torch.float64, generator=generator).tril()
    weight = torch.randn(2, 2, K, 15, dtype=torch.float64, generator=generator)
    results = []
    for is_ours in (True, False):
        c = cells(2, 4, 15, 2)
        leaves = [c[name].requires_grad_() for name in names]
        leaves += [m.clone().requires_grad_(), L.clone().requires_grad_()]
        if is_ours:
            p = projection(rbf, c, c["X"], c["jitter"])
            mu, v = component_marginals(p, c["mean"], leaves[-2], leaves[-1])
        else:
            mu, v = written_out(c, leaves[-2], leaves[-1])
        total = (weight[0] * mu + weight[1] * v.log()).sum()
        *gradients, d_L = torch.autograd.grad(total, leaves)
        results.append([mu, v, *gradients, d_L.tril()])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-8, atol=1e-9)
