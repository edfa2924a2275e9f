"""Differences between results of the same cells: in two results folders, or trained here in batches
of different sizes, in float32 and float64 and, where there is a GPU, on CPU and GPU."""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

import dlmexp
from dlmexp.api import Results
from dlmexp.common.errors import UserError
from scripts.benchmark.measure import Measurement, print_all

MIN_SHARE = 95.0  # per cent
CLOSE, CLOSE_DTYPES = 1e-4, 1e-2  # nats; between float32 and float64
FEW = 3  # cells in a small batch
STANDARD = (
    {"dataset": ["banana", "ringnorm", "abalone"], "sizes": [100]},
    {"dataset": ["cadata"], "sizes": ["5%"]},
)
WITH_ALL = {
    "protocol": "annealed",
    "seeds": [0, 1],
}  # what results/paper/DETAILS.md states the share for
SAME = (
    "dataset",
    "n",
    "seed",
    "M",
    "method",
    "objective",
    "variant",
    "estimator",
    "samples",
    "sampler",
    "kernel",
    "parameterisation",
    "beta",
    "lr",
    "max_iterations",
    "minibatch",
)
WAYS = {
    "batches": [{"device": "cpu"}, {"device": "cpu", "batch_cells": FEW}],
    "gpu-batches": [{"device": "cuda"}, {"device": "cuda", "batch_cells": FEW}],
    "devices": [{"device": "cuda"}, {"device": "cpu"}],
    "dtypes": [{"dtype": "float64"}, {"dtype": "float32"}],
}


def main(argv: Sequence[str] | None = None) -> int:
    """Prints one line per measurement; exit code 1 if a limit is not met."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.benchmark agreement", description=__doc__
    )
    parser.add_argument(
        "folders",
        nargs="*",
        metavar="RESULTS",
        help="two results folders; none: cells trained here",
    )
    parser.add_argument(
        "--between",
        choices=sorted(WAYS),
        default="batches",
        help="ways of training (default: batches)",
    )
    parser.add_argument(
        "--keep",
        metavar="FOLDER",
        help="where the results go, and are taken from if they are there",
    )
    args = parser.parse_args(argv)
    if len(args.folders) not in (0, 2):
        raise UserError(
            f"'{' '.join(args.folders)}': give two results folders, or none to train the cells here"
        )
    if args.folders:
        first, second = args.folders
        return print_all(agreement(dlmexp.results(first), dlmexp.results(second)))
    with tempfile.TemporaryDirectory() as temporary:
        return print_all(trained(STANDARD, WAYS[args.between], Path(args.keep or temporary)))


def trained(runs: Sequence[dict], ways: Sequence[dict], root: Path) -> Iterator[Measurement]:
    """Train the cells of `runs` in each way, and compare every two."""
    results = {}
    for way in ways:
        name = " ".join(f"{key}={value}" for key, value in way.items())
        for run in runs:
            results[name] = dlmexp.run(
                **WITH_ALL | run | way, results=root / name.replace(" ", "-"), verbose=False
            )
    for first, second in combinations(results, 2):
        print(f"\n{first} | {second}")
        close = CLOSE_DTYPES if "float32" in first + second else CLOSE
        yield from agreement(results[first], results[second], close)


def agreement(one: Results, other: Results, close: float = CLOSE) -> list[Measurement]:
    """Failures, differences in test NLL (MSE where a method predicts no variance) of the cells in
    both results, altogether and by kind, the share that stops by its rule, and how often validation
    selects the same beta."""
    both = _joined(one.cells, other.cells)
    nll = (both["test_nll"] - both["test_nll_other"]).abs()
    if not nll.notna().any():
        raise UserError(
            "no finished cell in common: give two results of the same 'dlmexp run' command"
        )
    apart = nll.dropna().to_numpy()
    converged = both["converged"].eq(True) & both["converged_other"].eq(True) & nll.notna()
    failed = [int((results.cells["status"] == "failed").sum()) for results in (one, other)]
    lines = [
        Measurement("failed, of all cells of the first", failed[0], ""),
        Measurement("failed, of all cells of the second", failed[1], "", float(failed[0])),
        Measurement("cells in both", len(apart), ""),
        Measurement("test NLL identical in every bit", 100 * float((apart == 0).mean()), "%"),
        *(
            Measurement(f"test NLL within {d:g}", 100 * float((apart <= d).mean()), "%")
            for d in (1e-4, 1e-3, 1e-2)
        ),
        Measurement("largest difference in test NLL", float(apart.max()), "nats"),
    ]
    if converged.any():
        name = f"within {close:g}, of {converged.sum()} that stopped by their rule in both"
        lines.append(
            Measurement(
                name, 100 * float((nll[converged] <= close).mean()), "%", MIN_SHARE, at_least=True
            )
        )
    mse = (both["test_mse"] - both["test_mse_other"]).abs()[nll.isna()].dropna()
    if len(mse):
        lines.append(
            Measurement(
                f"largest difference in test MSE, of {len(mse)} without an NLL",
                float(mse.max()),
                "",
            )
        )
    kinds = both["dataset"] + ", " + both["variant"] + " " + both["objective"]
    edges = pd.cut(
        both["beta"],
        [-1, 0, 0.1, 1, np.inf],
        right=False,
        labels=["", "beta < 0.1", "< 1", "beta >= 1"],
    )
    for groups in (kinds, edges.astype(str)):
        for kind, values in nll.dropna().groupby(groups):
            share = 100 * float((values <= close).mean())
            lines.append(Measurement(f"{kind}: within {close:g}, of {len(values)}", share, "%"))
    return lines + _selected(one.selected, other.selected)


def _joined(one: pd.DataFrame, other: pd.DataFrame, without: tuple[str, ...] = ()) -> pd.DataFrame:
    """The rows of the same cells, whatever their number format; columns of the second end in
    `_other`."""
    by = [name for name in SAME if name in one and name in other and name not in without]
    values = ["key", "test_nll", "test_mse", "converged", "beta"]
    compared = [name for name in values if name in other and name not in by]
    of_other = other[[*by, *compared]].drop_duplicates(by)
    return one.merge(of_other, on=by, suffixes=("", "_other"))


def _selected(one: pd.DataFrame, other: pd.DataFrame) -> list[Measurement]:
    """How often validation selects the same beta, and how far the test NLL of what it selects is
    apart."""
    both = _joined(one, other, without=("beta",)).dropna(subset=["beta"])
    if not len(both):
        return []
    same = 100 * float((both["beta"] == both["beta_other"]).mean())
    apart = float((both["test_nll"] - both["test_nll_other"]).abs().max())
    return [
        Measurement(
            f"same beta selected, of {len(both)} selections", same, "%", MIN_SHARE, at_least=True
        ),
        Measurement("largest difference in test NLL of what is selected", apart, "nats"),
    ]
