"""The same model in GPyTorch, for comparison: trained one at a time (as the authors do) or with `batch_shape`."""

from collections.abc import Callable
from typing import Any

import gpytorch
import torch
from torch import Tensor

OBJECTIVES = {"log_dlm": gpytorch.mlls.PredictiveLogLikelihood, "elbo": gpytorch.mlls.VariationalELBO}
LIKELIHOODS = {
    "probit": lambda batch: gpytorch.likelihoods.BernoulliLikelihood(),
    "gaussian": lambda batch: gpytorch.likelihoods.GaussianLikelihood(batch_shape=batch),
}


class SparseGP(gpytorch.models.ApproximateGP):
    """A model with inducing inputs Z, or a batch of B models with Z of shape [B, M, D]."""

    def __init__(self, Z: Tensor):
        batch = Z.shape[:-2]
        q = gpytorch.variational.CholeskyVariationalDistribution(Z.shape[-2], batch_shape=batch)
        super().__init__(gpytorch.variational.VariationalStrategy(self, Z, q))
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=batch)
        rbf = gpytorch.kernels.RBFKernel(batch_shape=batch)
        self.covar_module = gpytorch.kernels.ScaleKernel(rbf, batch_shape=batch)

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        mean: Any = self.mean_module(x)
        return gpytorch.distributions.MultivariateNormal(mean, self.covar_module(x))


def gpytorch_step(
    X: Tensor,
    y: Tensor,
    M: int,
    objective: str,
    B: int | None = None,
    only_q: bool = False,
    likelihood: str = "probit",
) -> Callable[[], None]:
    """A function that makes one training step (forward, backward, Adam) on X [N, D], y [N]: of one model, or of B
    models with GPyTorch's `batch_shape`. `only_q`: of the variational distribution only (as in the fixed variants)."""
    Z = X[:M] if B is None else X[:M].expand(B, M, -1)
    model: Any = SparseGP(Z.clone()).to(X)
    given: Any = LIKELIHOODS[likelihood](Z.shape[:-2]).to(X)
    mll = OBJECTIVES[objective](given, model, len(y))
    if only_q:
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("variational_distribution" in name)
    learned = [*model.parameters(), *(() if only_q else given.parameters())]
    adam = torch.optim.Adam([p for p in learned if p.requires_grad], lr=1e-3)

    def step() -> None:
        adam.zero_grad()
        loss = -mll(model(X), y).sum()
        loss.backward()
        adam.step()

    return step
