"""The exact Gaussian process against GPyTorch's at the same hyperparameters: evidence, gradient, predictions."""

from typing import Any

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal

from dlmexp.gp.exact import exact_evidence
from dlmexp.gp.kernels import rbf
from dlmexp.gp.likelihoods import Gaussian
from dlmexp.gp.posterior import predict


class Reference(gpytorch.models.ExactGP):
    def __init__(self, X, y, likelihood):
        super().__init__(X, y, likelihood)
        self.mean_module: Any = gpytorch.means.ConstantMean()
        self.covar_module: Any = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def reference(c, i):
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Reference(c["X"][i], c["y"][i], likelihood).double()
    model.covar_module.base_kernel.lengthscale = c["lengthscale"][i]
    model.covar_module.outputscale = c["outputscale"][i]
    model.mean_module.constant.data = c["mean"][i]
    likelihood.noise = c["noise"][i]
    return model, likelihood


def test_equals_gpytorch(cells):
    c, new = cells(2, 30, 30, 2), cells(2, 1, 12, 2, seed=5)
    c["Z"] = c["X"]
    learned = ("lengthscale", "outputscale", "noise", "mean")
    ours = c | {name: c[name].clone().requires_grad_() for name in learned}
    closed = exact_evidence(rbf, ours, c["X"], c["y"], torch.ones(2), c["jitter"])
    closed.loss.sum().backward()
    mu, v = predict(rbf, c, closed.m, closed.L, c["jitter"], new["X"])
    nll = Gaussian(c["noise"][:, None]).log_loss(mu, v, new["y"])
    for i in range(2):
        model, likelihood = reference(c, i)
        evidence: Any = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        loss = -30 * evidence(model(c["X"][i]), c["y"][i])
        torch.testing.assert_close(closed.loss[i], loss, rtol=1e-8, atol=1e-8)
        loss.backward()
        # softplus is between GPyTorch's raw outputscale and ours
        raw = model.covar_module.raw_outputscale
        slope = torch.sigmoid(raw)
        torch.testing.assert_close(ours["outputscale"].grad[i] * slope, raw.grad, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(ours["mean"].grad[i], model.mean_module.constant.grad, rtol=1e-6, atol=1e-8)
        model.eval()
        likelihood.eval()
        with torch.no_grad():
            y = likelihood(model(new["X"][i]))
            theirs = -torch.distributions.Normal(y.mean, y.variance.sqrt()).log_prob(new["y"][i])
        torch.testing.assert_close(nll[i], theirs, rtol=1e-6, atol=1e-6)
