"""Speed of trained models: predictions compared with the GPyTorch model exported from the same
file, their memory, their time by the number of inducing inputs, and `DLMRegressor` over a grid of
betas compared with GPyTorch models one after another."""

import argparse
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pandas as pd
import torch

from dlmexp.data.schema import Schema
from dlmexp.data.splits import Normalisation
from dlmexp.experiment.models.export import to_gpytorch
from dlmexp.experiment.models.file import TrainedCell
from dlmexp.experiment.models.predictor import Predictor
from dlmexp.experiment.plan.cell import Cell
from scripts.benchmark.measure import Measurement, arguments, fastest, peak_bytes, print_all
from scripts.benchmark.steps import gpytorch_step

M = 206  # inducing inputs
D = 8  # features
GPYTORCH_ROWS = 5_000  # predicted at once; all together take more time, and 20 times the memory
GRID_ROWS = 10_000
BETAS = 18  # as many as for cadata
TASKS = {"gaussian": "regression", "probit": "binary"}
# By dataset, its number of features and the largest number of inducing inputs.
INDUCING = {
    "pol": (26, 800),
    "cadata": (8, 800),
    "sarcos_test": (21, 596),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line per measurement; return 1 if a limit is not met."""
    args = arguments("models", __doc__, list(PARTS), argv, rows=100_000, iterations=10, out="")
    return print_all(line for part in args.parts for line in PARTS[part](args))


def made_up(likelihood: str, M: int = M, D: int = D) -> TrainedCell:
    """Return a model of made-up numbers with M inducing inputs on D features."""
    rng = np.random.default_rng(0)
    task = TASKS[likelihood]
    cell = Cell(
        kind="fit",
        dataset="made-up",
        data="",
        split="",
        task=task,
        likelihood=likelihood,
        kernel="rbf",
        ard=False,
        mean="zero",
        M=M,
        n=1000,
        objective="log_dlm",
        variant="joint",
        form="explicit",
        parameterisation="whitened",
        estimator="exact",
        options={},
        lr=0.1,
        minibatch=None,
        window=None,
        tolerance=None,
        max_iterations=1,
        epochs=None,
        evaluate="end",
        dtype="float64",
        seed=0,
        beta=1.0,
    )
    hyper = {"Z": rng.normal(size=(M, D)), "mean": np.array(0.0), "lengthscale": np.array([2.0])}
    hyper["outputscale"] = np.array(1.0)
    if task == "regression":
        hyper["noise"] = np.array(0.1)
    scale = Normalisation(np.zeros(D), np.ones(D), np.zeros(D, dtype=bool))
    return TrainedCell(
        cell,
        Schema.plain(D, task),
        scale,
        0.0,
        1.0,
        hyper,
        rng.normal(size=M),
        0.5 * np.eye(M),
        1e-6,
    )


def predict(args: argparse.Namespace) -> Iterator[Measurement]:
    """Yield the seconds of predictions, compared with GPyTorch.

    Ours are in the units of the target, with intervals; GPyTorch's are means and standard
    deviations of scaled targets.
    """
    X = np.random.default_rng(1).normal(size=(args.rows, D))
    for likelihood in TASKS:
        predictor = Predictor([made_up(likelihood)], args.device)
        exported = to_gpytorch(made_up(likelihood))
        gp = exported.model.to(args.device)
        noise = exported.likelihood.to(args.device)

        @torch.no_grad()
        def predict_by_gpytorch(gp=gp, noise=noise) -> None:
            for rows in torch.from_numpy(X).split(GPYTORCH_ROWS):
                y = noise(gp(rows.to(args.device)))
                _ = y.mean.cpu(), y.stddev.cpu()

        cases = {"ours": partial(predictor.predict, X), "gpytorch": predict_by_gpytorch}
        times = fastest(cases, 0.0, args.device)
        ours = times["ours"]
        gpytorch = times["gpytorch"]
        yield Measurement(f"predict, {likelihood}, {args.rows} rows, M = {M}", ours, "s")
        yield Measurement("  the exported GPyTorch model", gpytorch, "s")
        yield Measurement("  times as fast as GPyTorch", gpytorch / ours, "x", 1.0, at_least=True)


def memory(args: argparse.Namespace) -> Iterator[Measurement]:
    """Yield the most memory that predictions hold at once, which no number of rows exceeds."""
    predictor = Predictor([made_up("gaussian")], args.device)
    X = np.random.default_rng(1).normal(size=(args.rows, D))
    peak = peak_bytes(partial(predictor.predict, X), args.device)
    yield Measurement(f"predict, {args.rows} rows, M = {M}: peak memory", peak / 1e6, "MB", 1000.0)


def inducing(args: argparse.Namespace) -> Iterator[Measurement]:
    """Yield the seconds to predict 10 000 rows by the number of inducing inputs.

    They depend on it and the number of features alone, not on the method. `--out` names a CSV file
    to write, against which figures draw other results.
    """
    rows = []
    for dataset, (features, most) in INDUCING.items():
        X = np.random.default_rng(1).normal(size=(10_000, features))
        for count in (25, 50, 100, 200, 400, most):
            predictor = Predictor([made_up("gaussian", count, features)], args.device)
            seconds = fastest({"": partial(predictor.predict, X)}, 1.0, args.device)[""]
            rows.append((dataset, count, float(f"{seconds:.3g}")))
            name = f"predict, {dataset} ({features} features), 10 000 rows, M = {count}"
            yield Measurement(name, seconds, "s")
    if args.out:
        table = pd.DataFrame(rows, columns=["dataset", "M", "predict_seconds"])
        table.to_csv(args.out, index=False)


def grid(args: argparse.Namespace) -> Iterator[Measurement]:
    """Yield the seconds of `DLMRegressor` over a grid of betas, compared with GPyTorch.

    The data have the size of cadata. GPyTorch trains one model after another, with as many steps.
    """
    from dlmexp.sklearn import DLMRegressor

    rng = np.random.default_rng(0)
    X = rng.normal(size=(GRID_ROWS, D))
    y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.3 * rng.normal(size=GRID_ROWS)
    betas = [GRID_ROWS / 2**k for k in range(BETAS)]
    settings = {"max_iter": args.iterations, "tol": 0.0, "random_state": 0, "device": args.device}
    ours = DLMRegressor(betas=betas, n_inducing=M, **settings)
    rows = int(0.9 * GRID_ROWS)
    inputs = torch.from_numpy(X[:rows]).to(args.device)
    targets = torch.from_numpy(y[:rows]).to(args.device)
    step = gpytorch_step(inputs, targets, M, "log_dlm", likelihood="gaussian")
    times = fastest({"ours": lambda: ours.fit(X, y), "step": step}, 0.0, args.device, repeats=1)
    gpytorch = times["step"] * BETAS * args.iterations
    name = f"DLMRegressor, n = {GRID_ROWS}, {BETAS} betas, {args.iterations} iterations"
    yield Measurement(name, times["ours"], "s")
    yield Measurement("  GPyTorch, one beta after another (a step measured)", gpytorch, "s")
    speedup = gpytorch / times["ours"]
    yield Measurement("  times as fast as GPyTorch", speedup, "x", 4.0, at_least=True)


PARTS = {f.__name__: f for f in (predict, memory, inducing, grid)}
