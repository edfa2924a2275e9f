"""Differences between results of the same cells: in two results folders, or trained here in batches
of different sizes, in float32 and float64, or on CPU and GPU."""

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

MIN_SHARE = 95.0  # per cent of the cells that must agree
# Differences in test NLL that count as agreement, in nats; between float32 and float64.
CLOSE = 1e-4
CLOSE_DTYPES = 1e-2
FEW = 3  # cells in a small batch
STANDARD_RUNS = (
    {"dataset": ["banana", "ringnorm", "abalone"], "sizes": [100]},
    {"dataset": ["cadata"], "sizes": ["5%"]},
)
# Settings of all runs: results/paper/DETAILS.md states the share of cells that agree for them.
COMMON_SETTINGS = {
    "protocol": "annealed",
    "seeds": [0, 1],
}
# The columns that identify a cell. Its key would not do: it depends on the number format.
IDENTITY = (
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
    """Print a line per measurement; return 1 if a limit is not met."""
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
        root = Path(args.keep or temporary)
        return print_all(trained(STANDARD_RUNS, WAYS[args.between], root))


def trained(runs: Sequence[dict], ways: Sequence[dict], root: Path) -> Iterator[Measurement]:
    """Train the cells of `runs` in each way, and compare every two ways."""
    results = {}
    for way in ways:
        name = " ".join(f"{key}={value}" for key, value in way.items())
        folder = root / name.replace(" ", "-")
        for run in runs:
            settings = COMMON_SETTINGS | run | way
            # All runs of a way share a folder: the last result has the cells of all.
            results[name] = dlmexp.run(**settings, results=folder, verbose=False)
    for first, second in combinations(results, 2):
        print(f"\n{first} | {second}")
        close = CLOSE_DTYPES if "float32" in first + second else CLOSE
        yield from agreement(results[first], results[second], close)


def agreement(first: Results, second: Results, close: float = CLOSE) -> list[Measurement]:
    """Return how much the results of the same cells differ.

    Args:
        first: Results.
        second: Results of the same command.
        close: The difference in test NLL that counts as agreement, in nats.
    """
    both = _joined(first.cells, second.cells)
    differences = (both["test_nll"] - both["test_nll_other"]).abs()
    if not differences.notna().any():
        raise UserError(
            "no finished cell in common: give two results of the same 'dlmexp run' command"
        )
    lines = _failures(first, second)
    lines += _overall(differences.dropna())
    lines += _among_converged(both, differences, close)
    lines += _mean_squared_errors(both[differences.isna()])
    lines += _by_kind_and_beta(both, differences, close)
    return lines + _selected(first.selected, second.selected)


def _share(is_met: "pd.Series[bool]") -> float:
    """Return a share in per cent."""
    return 100 * float(is_met.mean())


def _failures(first: Results, second: Results) -> list[Measurement]:
    """Return how many cells failed; the second results should not have more."""
    failed_first = int((first.cells["status"] == "failed").sum())
    failed_second = int((second.cells["status"] == "failed").sum())
    return [
        Measurement("failed, of all cells of the first", failed_first, ""),
        Measurement("failed, of all cells of the second", failed_second, "", float(failed_first)),
    ]


def _overall(differences: "pd.Series[float]") -> list[Measurement]:
    """Return the differences in test NLL of all cells."""
    lines = [
        Measurement("cells in both", len(differences), ""),
        Measurement("test NLL identical in every bit", _share(differences == 0), "%"),
    ]
    for limit in (1e-4, 1e-3, 1e-2):
        share = _share(differences <= limit)
        lines.append(Measurement(f"test NLL within {limit:g}", share, "%"))
    largest = float(differences.max())
    return [*lines, Measurement("largest difference in test NLL", largest, "nats")]


def _among_converged(
    both: pd.DataFrame, differences: "pd.Series[float]", close: float
) -> list[Measurement]:
    """Return the share that agrees, of the cells that met the stopping rule in both results."""
    has_converged = both["converged"].eq(True) & both["converged_other"].eq(True)
    converged = differences[has_converged].dropna()
    if converged.empty:
        return []
    name = f"within {close:g}, of {len(converged)} that stopped by their rule in both"
    return [Measurement(name, _share(converged <= close), "%", MIN_SHARE, at_least=True)]


def _mean_squared_errors(without_nll: pd.DataFrame) -> list[Measurement]:
    """Return the largest difference in test MSE of methods that predict no variance."""
    differences = (without_nll["test_mse"] - without_nll["test_mse_other"]).abs().dropna()
    if differences.empty:
        return []
    name = f"largest difference in test MSE, of {len(differences)} without an NLL"
    return [Measurement(name, float(differences.max()), "")]


def _by_kind_and_beta(
    both: pd.DataFrame, differences: "pd.Series[float]", close: float
) -> list[Measurement]:
    """Return the share that agrees by dataset and objective, and by the size of beta."""
    kinds = both["dataset"] + ", " + both["variant"] + " " + both["objective"]
    ranges_of_beta = pd.cut(
        both["beta"],
        [-1, 0, 0.1, 1, np.inf],
        right=False,
        labels=["", "beta < 0.1", "< 1", "beta >= 1"],
    )
    lines = []
    for groups in (kinds, ranges_of_beta.astype(str)):
        for group, values in differences.dropna().groupby(groups):
            name = f"{group}: within {close:g}, of {len(values)}"
            lines.append(Measurement(name, _share(values <= close), "%"))
    return lines


def _joined(
    first: pd.DataFrame, second: pd.DataFrame, without: tuple[str, ...] = ()
) -> pd.DataFrame:
    """Return the rows of cells in both tables; columns of the second end in `_other`.

    Args:
        first: A table of cells.
        second: Another one.
        without: Columns in which the cells of a pair may differ.
    """
    in_both = [name for name in IDENTITY if name in first and name in second]
    by = [name for name in in_both if name not in without]
    values = ["key", "test_nll", "test_mse", "converged", "beta"]
    compared = [name for name in values if name in second and name not in by]
    columns = second[[*by, *compared]].drop_duplicates(by)
    return first.merge(columns, on=by, suffixes=("", "_other"))


def _selected(first: pd.DataFrame, second: pd.DataFrame) -> list[Measurement]:
    """Return how often validation selects the same beta, and how much the selected fits differ."""
    both = _joined(first, second, without=("beta",)).dropna(subset=["beta"])
    if both.empty:
        return []
    same = _share(both["beta"] == both["beta_other"])
    name = f"same beta selected, of {len(both)} selections"
    largest = float((both["test_nll"] - both["test_nll_other"]).abs().max())
    return [
        Measurement(name, same, "%", MIN_SHARE, at_least=True),
        Measurement("largest difference in test NLL of what is selected", largest, "nats"),
    ]
