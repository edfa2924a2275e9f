"""How much initial values matter: the initial lengthscale, and where inducing inputs start, on
three sets; objective and test NLL after a short run of Adam and at the end of L-BFGS."""

import argparse
from collections.abc import Iterator, Sequence

import numpy as np

import dlmexp
from dlmexp.data.splits import Prepared
from scripts.benchmark.rows import drawn_rows

SETS = ("uci_pol", "cadata", "uci_kin40k")
LENGTHSCALES: tuple[float | str, ...] = (1.0, "sqrt", "median")
INDUCING = ("first", "kmeans", "greedy")
MOST_TESTS = 5000
SETTINGS = {
    "Adam, 300": dlmexp.Settings(
        lr=0.1, final_lr=1e-3, decay=300, iterations=300, window=None, calibration=False
    ),
    "L-BFGS, 300": dlmexp.Settings(
        optimizer="lbfgs", iterations=300, tolerance=1e-5, calibration=False
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Print two tables, line by line."""
    parser = argparse.ArgumentParser("python -m scripts.benchmark initial", description=__doc__)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--rows", type=int, default=5000, help="training rows")
    parser.add_argument("--M", type=int, default=256, help="inducing inputs")
    parser.add_argument("--seeds", type=int, default=3, help="drawings of the rows")
    args = parser.parse_args(argv)
    print(
        f"ELBO, {args.rows} rows, M = {args.M}, RBF ARD, mean of {args.seeds} drawings of rows: "
        "objective per row / test NLL"
    )
    columns = ["data", "start", *SETTINGS]
    splits = {}
    for name in args.sets:
        splits[name] = [drawn_rows(name, args.rows, seed, MOST_TESTS) for seed in range(args.seeds)]
    for title, models in tables(args.M).items():
        print(f"\n| {title} | {' | '.join(columns[:1] + columns[2:])} |\n|{'---|' * len(columns)}")
        for name in args.sets:
            for start, model in models:
                cells = list(scores(model, splits[name], args.device))
                print(f"| {start} | {name} | {' | '.join(cells)} |", flush=True)
    return 0


def tables(M: int) -> dict[str, list[tuple[str, dlmexp.Model]]]:
    """Return by title the models of a table, each with the name of its start."""
    by_lengthscale = []
    for lengthscale in LENGTHSCALES:
        initial = {"lengthscale": lengthscale}
        model = dlmexp.Model("rbf", M=M, ard=True, inducing="kmeans", initial=initial)
        by_lengthscale.append((str(lengthscale), model))
    by_inducing = []
    for inducing in INDUCING:
        initial: dict[str, float | str] = {"lengthscale": "sqrt"}
        model = dlmexp.Model("rbf", M=M, ard=True, inducing=inducing, initial=initial)
        by_inducing.append((inducing, model))
    return {"lengthscale": by_lengthscale, "inducing inputs": by_inducing}


def scores(model: dlmexp.Model, splits: Sequence[Prepared], device: str) -> Iterator[str]:
    """Yield objective and test NLL for each of SETTINGS, averaged over the splits."""
    for settings in SETTINGS.values():
        fits = dlmexp.fit(
            np.stack([split.X_train for split in splits]),
            np.stack([split.y_train for split in splits]),
            model,
            "elbo",
            settings=settings,
            test=(
                np.stack([split.X_test for split in splits]),
                np.stack([split.y_test for split in splits]),
            ),
            device=device,
        )
        objective = np.mean([fit.objective[-1] for fit in fits])
        nll = np.mean([fit.metrics["test"]["nll"] for fit in fits])
        yield f"{objective:.3f} / {nll:.3f}"
