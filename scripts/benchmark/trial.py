"""The engine's own step on synthetic data, for those who time it."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from dlmexp.estimators import Estimator, Exact
from dlmexp.gp.kernels import rbf
from dlmexp.gp.likelihoods import LIKELIHOODS
from dlmexp.objectives import OBJECTIVES
from dlmexp.training.program import Model
from dlmexp.training.rows import Split
from dlmexp.training.state import Settings, State
from dlmexp.training.step import step
from dlmexp.training.stepper import stepper
from dlmexp.training.variants import Joint

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
    """The engine's own step (objective, gradient, Adam, stopping rule) of B cells; a replayed graph on a GPU."""
    X, y = synthetic_data(1, n, D, likelihood, device)
    split = Split(X, y, {}, [0], [0] * B)
    kind = LIKELIHOODS[likelihood]
    model = Model(
        rbf, kind, kind.task == "binary", False, True, M, OBJECTIVES[objective], estimator or Exact(), minibatch=None
    )
    program = Joint(model, split, torch.logspace(-2, 2, B, dtype=X.dtype, device=device))
    state = State.fresh(program.initial(), STEPS)
    return stepper(program, state, STEPS) if captured else partial(step, program, state, STEPS)


def synthetic_data(S: int, n: int, D: int, likelihood: str, device: str) -> tuple[Tensor, Tensor]:
    """Inputs and targets of S splits, of the kind that the likelihood is for."""
    g = torch.Generator().manual_seed(0)
    X = torch.randn(S, n, D, generator=g, dtype=torch.float64)
    f = X[..., 0] + 0.5 * torch.randn(S, n, generator=g, dtype=torch.float64)
    y = {"regression": f, "binary": (f > 0).double(), "count": torch.poisson(f.clamp(-2, 2).exp(), generator=g)}
    return X.to(device), y[LIKELIHOODS[likelihood].task].to(device)
