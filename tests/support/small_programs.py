"""Small programs on synthetic data for the tests of training; no configuration, no files."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dlmexp.core.estimators import BMC, UPS, Estimator, Exact
from dlmexp.core.gp.cholesky import FIRST_JITTER
from dlmexp.core.likelihoods import LIKELIHOODS
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.core.training.batch import Training
from dlmexp.core.training.collapsed import Collapsed
from dlmexp.core.training.data import BatchData, Minibatches
from dlmexp.core.training.finished import FinishedFit
from dlmexp.core.training.fixed import Fixed
from dlmexp.core.training.joint import Joint
from dlmexp.core.training.model import Loss, Model
from dlmexp.core.training.parameters import Tensors
from dlmexp.core.training.program import ObjectiveValue, Program
from dlmexp.core.training.settings import Settings
from dlmexp.core.training.train import train

M, N, D, TESTS = 6, 30, 2, 11
PROGRAMS: dict[str, dict[str, Any]] = {
    "joint": {},
    "regression": {"likelihood": "gaussian"},
    "counts": {"likelihood": "poisson"},
    "bmc": {"estimator": BMC(3)},
    "ups": {"estimator": UPS(3)},
    "ups of counts": {"estimator": UPS(3), "likelihood": "poisson"},
    "unwhitened": {"whitened": False},
    "minibatch": {"minibatch": 7},
    "afresh": {"likelihood": "gaussian", "minibatch": 7, "afresh": True},
    "kernel of GPyTorch": {"likelihood": "gaussian", "kernel": "gpytorch.kernels.RQKernel"},
    "fixed": {"kind": "fixed"},
    "fixed elbo": {"kind": "fixed", "objective": "elbo"},
    "fixed minibatch": {"kind": "fixed", "minibatch": 7},
    "elbo": {"kind": "collapsed", "likelihood": "gaussian", "objective": "elbo"},
    "power EP": {
        "kind": "collapsed",
        "likelihood": "gaussian",
        "objective": "power_ep",
        "betas": (1.0, 0.5, 0.1),
    },
    "sq_dlm": {"kind": "collapsed", "likelihood": "gaussian", "objective": "sq_dlm"},
}


def targets(X: Tensor, likelihood: str, generator: torch.Generator) -> Tensor:
    f = torch.sin(2 * X[..., 0]) + 0.3 * torch.randn(
        X.shape[:-1], generator=generator, dtype=X.dtype
    )
    task = LIKELIHOODS[likelihood].task
    if task == "binary":
        return (f > 0).to(X.dtype)
    return f if task == "regression" else torch.poisson(f.exp(), generator=generator)


def split(
    index: Sequence[int], likelihood: str = "probit", n: int = N, device: str = "cpu"
) -> BatchData:
    """Repetitions 0 .. max(index), with seeds 10, 11, ...; `index` says which one each cell belongs
    to."""
    S = max(index) + 1
    found = {}
    for name, rows in {"train": n, "validation": 5, "test": TESTS}.items():
        generators = [torch.Generator().manual_seed(rows + 100 * s) for s in range(S)]
        X = [torch.randn(rows, D, generator=g, dtype=torch.float64) for g in generators]
        y = [targets(x, likelihood, g) for x, g in zip(X, generators, strict=True)]
        found[name] = (torch.stack(X).to(device), torch.stack(y).to(device))
    X, y = found.pop("train")
    return BatchData(X, y, found, list(range(10, 10 + S)), list(index))


def stopped_cells(training: Training, settings: Settings, *rest: Any) -> Iterator[FinishedFit]:
    """The cells as they stop; `train` also says where it waits for a GPU."""
    return filter(None, train(training, settings, *rest))


def held(S: int, dtype: torch.dtype = torch.float64, device: str = "cpu") -> dict[str, Tensor]:
    """Hyperparameters for the fixed variants, one line per repetition."""
    lines = torch.arange(S, dtype=dtype, device=device)
    Z = torch.stack(
        [
            torch.randn(M, D, generator=torch.Generator().manual_seed(s), dtype=dtype)
            for s in range(S)
        ]
    )
    return {
        "lengthscale": (0.8 + 0.1 * lines)[:, None], "outputscale": 1.5 - 0.2 * lines, "noise": 0.2 + 0.1 * lines,
        "mean": 0.1 * lines, "Z": Z.to(device),
    }  # fmt: skip


def program(
    kind: str = "joint",
    betas: Sequence[float] = (10.0, 1.0, 0.1),
    index: Sequence[int] = (0, 0, 0),
    n: int = N,
    device: str = "cpu",
    likelihood: str = "probit",
    objective: str = "log_dlm",
    estimator: Estimator | None = None,
    minibatch: int | None = None,
    afresh: bool = False,
    **of_model: Any,
) -> Program:
    """A program of cells with these betas, of the splits in `index`; `of_model` goes to `Model`."""
    model = Model(likelihood=likelihood, M=M, **of_model)
    loss = Loss(OBJECTIVES[objective], estimator or Exact())
    data = split(index, likelihood, n, device)
    beta = torch.tensor(list(betas), dtype=torch.float64, device=device)
    rows = Minibatches(minibatch, resample_each_step=afresh) if minibatch else None
    if kind == "fixed":
        hyper = held(len(data.seeds), device=device)
        return Fixed(model, loss, data, beta, hyper, minibatches=rows)
    return {"joint": Joint, "collapsed": Collapsed}[kind](model, loss, data, beta, minibatches=rows)


def in_float32(made: Program) -> Program:
    """The same program on the same rows, rounded to float32."""
    s = made.data
    parts = {name: (X.float(), y.float()) for name, (X, y) in s.parts.items()}
    return replace(made, data=BatchData(s.X.float(), s.y.float(), parts, s.seed_of, s.split_of))


def trained(
    made: Program | Training,
    settings: Settings,
    between: Callable[[Training], None] = lambda training: None,
) -> dict[int, FinishedFit]:
    """Every cell's end, by its index in the batch."""
    training = made if isinstance(made, Training) else Training.start(made, settings)
    return {finished.cell: finished for finished in stopped_cells(training, settings, between)}


def value_of(
    made: Program, values: Tensors, iteration: int = 0, jitter: float = FIRST_JITTER
) -> ObjectiveValue:
    """Objectives at these values, on the rows of an iteration."""
    made.load_minibatch(iteration)
    return made.objective(values, torch.full_like(made.beta, jitter), torch.tensor(iteration))


def perturbed(values: Tensors, scale: float, seed: int = 0) -> Tensors:
    """The values with independent normal errors of this scale."""
    g = torch.Generator().manual_seed(seed)
    errors = {
        name: torch.randn(value.shape, generator=g, dtype=value.dtype)
        for name, value in values.items()
    }
    return {name: value + scale * errors[name].to(value.device) for name, value in values.items()}
