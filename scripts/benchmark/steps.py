"""Training steps on synthetic data: the engine's own, and GPyTorch's to compare with."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dlmexp.core.estimators import Estimator, Exact
from dlmexp.core.likelihoods import LIKELIHOODS
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.core.training.collapsed import Collapsed
from dlmexp.core.training.data import BatchData
from dlmexp.core.training.joint import Joint
from dlmexp.core.training.model import Loss, Model
from dlmexp.core.training.settings import Settings
from dlmexp.core.training.state import State
from dlmexp.core.training.step import step
from dlmexp.core.training.stepper import make_stepper

with warnings.catch_warnings():  # torch deprecates what GPyTorch uses when it is imported
    warnings.simplefilter("ignore", DeprecationWarning)
    import gpytorch

STEPS = Settings(lr=1e-3, iterations=100_000, window=None)


def joint_step(
    B: int,
    likelihood: str = "probit",
    objective: str = "log_dlm",
    estimator: Estimator | None = None,
    n: int = 1000,
    M: int = 74,
    D: int = 20,
    device: str = "cpu",
    captured: bool = True,
) -> Callable[[], None]:
    """The engine's own step of B cells (collapsed, if it is the ELBO of Gaussian data); a replayed
    graph on a GPU."""
    X, y = synthetic_data(1, n, D, likelihood, device)
    model = Model("rbf", likelihood, M=M)
    loss = Loss(OBJECTIVES[objective], estimator or Exact())
    betas = torch.logspace(-2, 2, B, dtype=X.dtype, device=device)
    variant = Collapsed if (likelihood, objective) == ("gaussian", "elbo") else Joint
    program = variant(model, loss, BatchData(X, y, {}, [0], [0] * B), betas)
    state = State.fresh(program.initial(), STEPS)
    return make_stepper(program, state, STEPS) if captured else partial(step, program, state, STEPS)


def one_split(n: int, D: int, likelihood: str, device: str) -> tuple[Tensor, Tensor]:
    """Return inputs [n, D] and targets [n], of the kind that the likelihood is for."""
    X, y = synthetic_data(1, n, D, likelihood, device)
    return X[0], y[0]


def synthetic_data(S: int, n: int, D: int, likelihood: str, device: str) -> tuple[Tensor, Tensor]:
    """Inputs and targets of S splits, of the kind that the likelihood is for."""
    g = torch.Generator().manual_seed(0)
    X = torch.randn(S, n, D, generator=g, dtype=torch.float64)
    f = X[..., 0] + 0.5 * torch.randn(S, n, generator=g, dtype=torch.float64)
    y = {
        "regression": f,
        "binary": (f > 0).double(),
        "count": torch.poisson(f.clamp(-2, 2).exp(), generator=g),
    }
    return X.to(device), y[LIKELIHOODS[likelihood].task].to(device)


class SparseGP(gpytorch.models.ApproximateGP):
    """GPyTorch's model with inducing inputs Z, or a batch of B models with Z of shape [B, M, D]."""

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
    X: Tensor, y: Tensor, M: int, objective: str, B: int | None = None, likelihood: str = "probit"
) -> Callable[[], None]:
    """A function that makes one training step (forward, backward, Adam) on X [N, D], y [N]: of one
    model, or of B models with GPyTorch's `batch_shape`."""
    Z = X[:M] if B is None else X[:M].expand(B, M, -1)
    model: Any = SparseGP(Z.clone()).to(X)
    noise = gpytorch.likelihoods.GaussianLikelihood(batch_shape=Z.shape[:-2])
    is_binary = likelihood == "probit"
    of_targets: Any = gpytorch.likelihoods.BernoulliLikelihood() if is_binary else noise
    of_targets = of_targets.to(X)
    kinds = {
        "log_dlm": gpytorch.mlls.PredictiveLogLikelihood,
        "elbo": gpytorch.mlls.VariationalELBO,
    }
    mll = kinds[objective](of_targets, model, len(y))
    adam = torch.optim.Adam([*model.parameters(), *of_targets.parameters()], lr=1e-3)

    def one_step() -> None:
        adam.zero_grad()
        loss: Any = -mll(model(X), y).sum()
        loss.backward()
        adam.step()

    return one_step
