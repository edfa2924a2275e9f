"""Training steps on synthetic data: our own, and those of GPyTorch to compare with."""

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
from dlmexp.core.training.mixture import Mixture
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
    """Return our training step of B models, which is collapsed for the ELBO of Gaussian data.

    On a GPU, it replays a CUDA graph, unless it is not to be `captured`.
    """
    X, y = synthetic_data(1, n, D, likelihood, device)
    model = Model("rbf", likelihood, M=M)
    loss = Loss(OBJECTIVES[objective], estimator or Exact())
    betas = torch.logspace(-2, 2, B, dtype=X.dtype, device=device)
    data = BatchData(X, y, {}, [0], [0] * B)
    has_closed_form = (likelihood, objective) == ("gaussian", "elbo")
    program_class = Collapsed if has_closed_form else Joint
    program = program_class(model, loss, data, betas)
    state = State.fresh(program.initial(), STEPS)
    if captured:
        return make_stepper(program, state, STEPS)
    return partial(step, program, state, STEPS)


def mixture_step(B: int, n: int, M: int, D: int, K: int, device: str = "cpu") -> Callable[[], None]:
    """The engine's step of the log-loss DLM of B cells whose q has K Gaussians, after they were
    split; n is the size of a minibatch."""
    X, y = synthetic_data(1, n, D, "gaussian", device)
    model = Model("rbf", "gaussian", M=M, components=K)
    beta = torch.ones(B, dtype=X.dtype, device=device)
    data = BatchData(X, y, {}, [0], [0] * B)
    program = Mixture(model, Loss(OBJECTIVES["log_dlm"], Exact()), data, beta)
    state = State.fresh(program.initial(), STEPS)
    program.split_gaussian(state)
    return make_stepper(program, state, STEPS)


def one_split(n: int, D: int, likelihood: str, device: str) -> tuple[Tensor, Tensor]:
    """Return inputs [n, D] and targets [n] that the likelihood allows."""
    X, y = synthetic_data(1, n, D, likelihood, device)
    return X[0], y[0]


def synthetic_data(S: int, n: int, D: int, likelihood: str, device: str) -> tuple[Tensor, Tensor]:
    """Return inputs [S, n, D] and targets [S, n] that the likelihood allows."""
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(S, n, D, generator=generator, dtype=torch.float64)
    f = X[..., 0] + 0.5 * torch.randn(S, n, generator=generator, dtype=torch.float64)
    targets_by_task = {
        "regression": f,
        "binary": (f > 0).double(),
        "count": torch.poisson(f.clamp(-2, 2).exp(), generator=generator),
    }
    y = targets_by_task[LIKELIHOODS[likelihood].task]
    return X.to(device), y.to(device)


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
    """Return GPyTorch's training step (forward, backward, Adam) on X [N, D] and y [N].

    It is a step of one model, or of B models with GPyTorch's `batch_shape`.
    """
    Z = X[:M] if B is None else X[:M].expand(B, M, -1)
    model: Any = SparseGP(Z.clone()).to(X)
    likelihood_module: Any = gpytorch.likelihoods.GaussianLikelihood(batch_shape=Z.shape[:-2])
    if likelihood == "probit":
        likelihood_module = gpytorch.likelihoods.BernoulliLikelihood()
    likelihood_module = likelihood_module.to(X)
    objectives = {
        "log_dlm": gpytorch.mlls.PredictiveLogLikelihood,
        "elbo": gpytorch.mlls.VariationalELBO,
    }
    mll = objectives[objective](likelihood_module, model, len(y))
    adam = torch.optim.Adam([*model.parameters(), *likelihood_module.parameters()], lr=1e-3)

    def train_step() -> None:
        adam.zero_grad()
        loss: Any = -mll(model(X), y).sum()
        loss.backward()
        adam.step()

    return train_step
