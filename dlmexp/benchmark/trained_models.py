"""What `dlmexp benchmark models` measures."""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from dlmexp.benchmark.measure import Measurement, fastest, peak_bytes
from dlmexp.data.schema import plain_schema
from dlmexp.data.splits import Normalisation
from dlmexp.models.export import import_gpytorch, to_gpytorch
from dlmexp.models.file import TrainedModel
from dlmexp.models.predictor import Predictor
from dlmexp.plan.cell import Cell

M, D = 206, 8
GPYTORCH_ROWS = 5_000  # at once: with all of them it takes more time, and 20 times the memory
GRID_ROWS, GRID_M, BETAS = 10_000, 206, 18  # cadata
TASKS = {"gaussian": "regression", "probit": "binary"}


def trained(likelihood: str, M: int = M, D: int = D) -> TrainedModel:
    """A model with made-up numbers."""
    rng, task = np.random.default_rng(0), TASKS[likelihood]
    cell = Cell(
        kind="fit", dataset="made-up", data="", split="", task=task, likelihood=likelihood, kernel="rbf", ard=False,
        mean="zero", M=M, n=1000, objective="log_dlm", variant="joint", form="explicit", parameterisation="whitened",
        estimator="exact", options={}, lr=0.1, minibatch=None, window=None, tolerance=None, max_iterations=1,
        epochs=None, evaluate="end", dtype="float64", seed=0, beta=1.0,
    )  # fmt: skip
    hyper = {"Z": rng.normal(size=(M, D)), "mean": np.array(0.0), "lengthscale": np.array([2.0])}
    hyper |= {"outputscale": np.array(1.0), **({"noise": np.array(0.1)} if task == "regression" else {})}
    scale = Normalisation(np.zeros(D), np.ones(D), np.zeros(D, dtype=bool))
    return TrainedModel(cell, plain_schema(D, task), scale, 0.0, 1.0, hyper, rng.normal(size=M), 0.5 * np.eye(M), 1e-6)


def predict(args: argparse.Namespace) -> list[Measurement]:
    """Seconds for all rows: ours in own units with intervals, GPyTorch's mean and standard deviation."""
    found = []
    X = np.random.default_rng(1).normal(size=(args.rows, D))
    for likelihood in TASKS:
        model = trained(likelihood)
        predictor = Predictor([model], args.device)
        exported = to_gpytorch(model)
        gp, noise = exported.model.to(args.device), exported.likelihood.to(args.device)

        @torch.no_grad()
        def theirs(gp: torch.nn.Module = gp, noise: torch.nn.Module = noise) -> None:
            for rows in torch.from_numpy(X).split(GPYTORCH_ROWS):
                y = noise(gp(rows.to(args.device)))
                _ = y.mean.cpu(), y.stddev.cpu()

        times = fastest({"ours": lambda p=predictor: p.predict(X), "theirs": theirs}, 0.0, args.device)
        about = f"{likelihood}, {args.rows} rows, M = {M}"
        found += [
            Measurement(f"predict, {about}", times["ours"], "s"),
            Measurement("  the exported GPyTorch model", times["theirs"], "s"),
            Measurement("  times as fast as GPyTorch", times["theirs"] / times["ours"], "x", 1.0, at_least=True),
        ]
    return found


def memory(args: argparse.Namespace) -> list[Measurement]:
    """The most that predictions hold at once, whatever the number of rows."""
    predictor = Predictor([trained("gaussian")], args.device)
    X = np.random.default_rng(1).normal(size=(args.rows, D))
    peak = peak_bytes(lambda: predictor.predict(X), args.device)
    return [Measurement(f"predict, {args.rows} rows, M = {M}: peak memory", peak / 1e6, "MB", 1000.0)]


def grid(args: argparse.Namespace) -> list[Measurement]:
    """`DLMRegressor` on data of cadata's size, and one GPyTorch model after another with the same number of steps."""
    from dlmexp.sklearn import DLMRegressor

    rng = np.random.default_rng(0)
    X = rng.normal(size=(GRID_ROWS, D))
    y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.3 * rng.normal(size=GRID_ROWS)
    betas = [10_000 / 2**k for k in range(BETAS)]
    ours = DLMRegressor(
        betas=betas, n_inducing=GRID_M, max_iter=args.iterations, tol=0.0, random_state=0, device=args.device
    )
    steps = _gpytorch_steps(X[: int(0.9 * GRID_ROWS)], y[: int(0.9 * GRID_ROWS)], args)
    times = fastest({"ours": lambda: ours.fit(X, y), "theirs": steps}, 0.0, args.device, repeats=1)
    theirs = times["theirs"] * BETAS
    return [
        Measurement(f"DLMRegressor, n = {GRID_ROWS}, {BETAS} betas, {args.iterations} iterations", times["ours"], "s"),
        Measurement("  GPyTorch, one beta after another (one measured)", theirs, "s"),
        Measurement("  times as fast as GPyTorch", theirs / times["ours"], "x", 4.0, at_least=True),
    ]


def _gpytorch_steps(X: np.ndarray, y: np.ndarray, args: argparse.Namespace) -> Callable[[], None]:
    """The training steps of one beta."""
    import_gpytorch()
    from gpytorch.mlls import PredictiveLogLikelihood

    x, target = (torch.from_numpy(part).to(args.device) for part in (X, y))

    def train() -> None:
        exported = to_gpytorch(trained("gaussian", GRID_M))
        model, likelihood = exported.model.to(args.device).train(), exported.likelihood.to(args.device).train()
        mll = PredictiveLogLikelihood(likelihood, model, len(target), beta=1.0)
        adam = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.1)
        for _ in range(args.iterations):
            adam.zero_grad()
            value: Any = mll(model(x), target)
            (-value).backward()
            adam.step()

    return train
