"""GPyTorch's own model, trained one at a time, as the authors' code does: what our batched step is measured against."""

from collections.abc import Callable
from typing import Any

import gpytorch
import torch
from torch import Tensor

OBJECTIVES = {"log_dlm": gpytorch.mlls.PredictiveLogLikelihood, "elbo": gpytorch.mlls.VariationalELBO}


class Classifier(gpytorch.models.ApproximateGP):
    def __init__(self, Z: Tensor):
        q = gpytorch.variational.CholeskyVariationalDistribution(len(Z))
        super().__init__(gpytorch.variational.VariationalStrategy(self, Z, q))
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        mean: Any = self.mean_module(x)
        return gpytorch.distributions.MultivariateNormal(mean, self.covar_module(x))


def gpytorch_step(X: Tensor, y: Tensor, M: int, objective: str) -> Callable[[], None]:
    """One training step (forward, backward, Adam) of a probit model on X [N, D], y [N]."""
    model: Any = Classifier(X[:M].clone()).to(X)
    likelihood = gpytorch.likelihoods.BernoulliLikelihood().to(X)
    mll = OBJECTIVES[objective](likelihood, model, len(y))
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> None:
        adam.zero_grad()
        loss = -mll(model(X), y)
        loss.backward()
        adam.step()

    return step
