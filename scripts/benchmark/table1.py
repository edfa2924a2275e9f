"""Table 1 of Bui and Titsias ("Sparse Gaussian processes: structured approximations and power-EP
revisited"): 5000 rows of kin40k, L-BFGS from k-means, beside the numbers in print."""

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import dlmexp
from dlmexp.common.paths import data_root
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.data.splits import Prepared
from scripts.benchmark.rows import drawn_rows

ROWS = 5000
REPEATS = 3
SOURCE = "Bui and Titsias"
METHODS = {
    "SGPR": "elbo",
    "T-SGPR (tighter bound)": "tighter",
    "block bound, 10 blocks": "block_tighter",
    "PEP 0.5": "power_ep",
    "T-PEP 0.5": "t_pep",
    "exact GP": "exact",
}
METRICS = ("objective_per_row", "test_rmse", "test_log_likelihood", "noise_std")
LBFGS = dlmexp.Settings(optimizer="lbfgs", tolerance=1e-6, calibration=False)
Printed = dict[tuple[str, str, str], float]
"""Numbers in print by method, M and metric."""


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table, line by line."""
    parser = argparse.ArgumentParser("python -m scripts.benchmark table1", description=__doc__)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--M", nargs="*", type=int, default=[256, 512], help="inducing inputs")
    parser.add_argument("--methods", nargs="*", default=list(METHODS), metavar="METHOD")
    parser.add_argument("--iterations", type=int, default=1000, help="evaluations at most")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    args = parser.parse_args(argv)
    printed = numbers_in_print(data_root() / "published" / "scores.csv")
    splits = [drawn_rows("uci_kin40k", ROWS, seed) for seed in range(args.repeats)]
    print("ours / in print; the objective in print counts every row twice, and so does ours here")
    columns = ["method", "M", *METRICS, "evaluations"]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for method in args.methods:
        for M in args.M if method != "exact GP" else [ROWS]:
            fits = trained(method, M, splits, args)
            cells = [method, str(M), *compared(fits, splits, printed, method, M, args.device)]
            iterations = "-".join(str(fit.iterations) for fit in fits)
            print(f"| {' | '.join(cells)} | {iterations} |", flush=True)
    return 0


def numbers_in_print(path: Path) -> Printed:
    """Return the numbers of the table; empty where the file is missing."""
    if not path.exists():
        return {}
    printed = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["source"].startswith(SOURCE):
                printed[row["method"], row["M"], row["metric"]] = float(row["value"])
    return printed


def trained(
    method: str, M: int, splits: Sequence[Prepared], args: argparse.Namespace
) -> list[dlmexp.Fit]:
    """Return a fit per split."""
    model = dlmexp.Model("rbf", M=M, ard=True, inducing="kmeans", initial={"lengthscale": "sqrt"})
    if method == "exact GP":
        model = dlmexp.Model("rbf", ard=True, initial={"lengthscale": "sqrt"})
    objective = OBJECTIVES[METHODS[method]].with_options({})
    settings = dlmexp.Settings(**{**vars(LBFGS), "iterations": args.iterations})
    return dlmexp.fit(
        np.stack([split.X_train for split in splits]),
        np.stack([split.y_train for split in splits]),
        model,
        objective,
        betas=0.5 if objective.name == "power_ep" else 1.0,
        settings=settings,
        device=args.device,
    )


def compared(
    fits: Sequence[dlmexp.Fit],
    splits: Sequence[Prepared],
    printed: Printed,
    method: str,
    M: int,
    device: str,
) -> list[str]:
    """Return `ours / in print` for each of METRICS, ours averaged over the splits."""
    by_fit = []
    for fit, split in zip(fits, splits, strict=True):
        prediction = fit.predict(split.X_test, device=device)
        error = split.y_test - prediction.mean
        variance = prediction.variance
        assert variance is not None
        log_likelihood = -0.5 * (np.log(2 * np.pi * variance) + error**2 / variance)
        noise_std = float(fit.hyperparameters["noise"]) ** 0.5
        rmse = float(np.sqrt(np.mean(error**2)))
        by_fit.append((2 * fit.objective[-1], rmse, log_likelihood.mean(), noise_std))
    texts = []
    number_of_inducing = "" if method == "exact GP" else str(M)
    for metric, ours in zip(METRICS, np.mean(by_fit, axis=0), strict=True):
        theirs = printed.get((method, number_of_inducing, metric))
        texts.append(f"{ours:.3f} / {'-' if theirs is None else f'{theirs:.2f}'}")
    return texts
