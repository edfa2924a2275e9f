"""L-BFGS against Adam on closed forms over q: where five fits end that start from other inducing
inputs, and after how many seconds they pass the end of a short Adam run."""

import argparse
import csv
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import NamedTuple

import numpy as np

import dlmexp
from dlmexp.core.device import select_device
from scripts.benchmark.rows import drawn_rows

SETS = ("uci_pol", "cadata", "uci_kin40k")
SEEDS = range(5)
LONG = dlmexp.Settings(
    lr=0.1,
    final_lr=1e-4,
    decay=6000,
    iterations=6000,
    window=None,
    epsilon=1e-6,
    calibration=False,
)
SHORT = replace(LONG, final_lr=1e-3, decay=300, iterations=300)
"""As the protocol of own tables has it."""
LBFGS = dlmexp.Settings(optimizer="lbfgs", iterations=2000, tolerance=1e-8, calibration=False)
COLUMNS = (
    "data",
    "optimiser",
    "best",
    "median",
    "worst",
    "steps",
    "s per fit",
    "s to the end of Adam, 300",
)


class Ends(NamedTuple):
    """How the fits of an optimiser ended.

    Attributes:
        objectives: The objective per row at every step of every fit.
        seconds: Of all fits together.
    """

    objectives: list[np.ndarray]
    seconds: float

    @property
    def last(self) -> np.ndarray:
        """Return the objective per row at the end of every fit."""
        return np.array([curve[-1] for curve in self.objectives])

    @property
    def steps(self) -> list[int]:
        """Return the steps of every fit."""
        return [len(curve) for curve in self.objectives]

    def seconds_to(self, goals: np.ndarray) -> float:
        """Return the seconds per fit until its objective is at its goal; inf if it never is."""
        per_step = self.seconds / sum(self.steps)
        seconds = []
        for curve, goal in zip(self.objectives, goals, strict=True):
            reached = np.flatnonzero(curve <= goal)
            seconds.append((reached[0] + 1) * per_step if len(reached) else np.inf)
        return float(np.median(seconds))


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table, line by line."""
    parser = argparse.ArgumentParser("python -m scripts.benchmark lbfgs", description=__doc__)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--rows", type=int, default=5000, help="training rows")
    parser.add_argument("--M", type=int, default=256, help="inducing inputs")
    parser.add_argument("--objective", default="elbo")
    parser.add_argument("--steps", type=int, default=LONG.iterations, help="of the long Adam runs")
    parser.add_argument("--out", default="", help="a CSV file of the end of every fit")
    args = parser.parse_args(argv)
    device = select_device(args.device)
    print(
        f"{args.objective}, {args.rows} rows, M = {args.M}, RBF ARD, {device}; "
        "objectives relative to the best of the long Adam runs"
    )
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for name in args.sets:
        for line in lines(name, args):
            print(f"| {' | '.join(line)} |", flush=True)
    return 0


def lines(name: str, args: argparse.Namespace) -> list[list[str]]:
    """Return a line per optimiser."""
    data = drawn_rows(name, args.rows, seed=0, most_tests=1)
    long = replace(LONG, decay=args.steps, iterations=args.steps)
    runs = {
        "L-BFGS, 3 restarts": (replace(LBFGS, restarts=3), 1),
        "L-BFGS": (LBFGS, len(SEEDS)),
        "Adam, 300": (SHORT, len(SEEDS)),
        f"Adam, {args.steps}": (long, len(SEEDS)),
    }
    ends = {}
    for optimiser, (settings, seeds) in runs.items():
        ends[optimiser] = trained(data.X_train, data.y_train, settings, args, seeds)
        write_ends(args.out, name, optimiser, ends[optimiser])
    best = ends[f"Adam, {args.steps}"].last.min()
    goals = ends["Adam, 300"].last
    table = []
    for optimiser, fits in ends.items():
        differences = fits.last - best
        table.append(
            [
                name,
                optimiser,
                f"{differences.min():+.1e}",
                f"{np.median(differences):+.1e}",
                f"{differences.max():+.1e}",
                f"{np.median(fits.steps):.0f}",
                f"{fits.seconds / len(fits.steps):.1f}",
                f"{fits.seconds_to(goals[: len(fits.steps)]):.1f}",
            ]
        )
    return table


def write_ends(out: str, name: str, optimiser: str, ends: Ends) -> None:
    """Add where every fit ended to a CSV file, if there is to be one."""
    if not out:
        return
    seconds = f"{ends.seconds / len(ends.steps):.2f}"
    with open(out, "a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        for last, steps in zip(ends.last, ends.steps, strict=True):
            writer.writerow([name, optimiser, f"{last:.8f}", steps, seconds])


def trained(
    X: np.ndarray,
    y: np.ndarray,
    settings: dlmexp.Settings,
    args: argparse.Namespace,
    seeds: int,
) -> Ends:
    """Return the ends of fits that start from inducing inputs of k-means with other seeds."""
    model = dlmexp.Model(
        "rbf", M=args.M, ard=True, inducing="kmeans", initial={"lengthscale": "sqrt"}
    )
    began = perf_counter()
    fits = dlmexp.fit(
        X,
        y,
        model,
        args.objective,
        seeds=list(SEEDS)[:seeds],
        settings=settings,
        device=args.device,
    )
    seconds = perf_counter() - began
    return Ends([fit.objective for fit in fits], seconds)
