"""Baselines from scikit-learn on the splits of our datasets: `baselines.parquet` for leaderboards.

    python -m scripts.benchmark baselines --data-root DIR --out results/uci

`linear` is ridge regression, logistic regression or Poisson regression; its penalty is chosen by
cross-validation. `trees` is histogram gradient boosting with scikit-learn's own settings. Both see
all training rows of a split, validation rows included, and features and targets on the scale of our
models. In regression they predict a Gaussian whose variance is that of the residuals in
cross-validation, for counts a Poisson distribution. Datasets that the folder has already are not
fitted again.
"""

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from scipy.special import ive
from scipy.stats import poisson
from sklearn.linear_model import LogisticRegression, PoissonRegressor, RidgeCV
from sklearn.model_selection import GridSearchCV

from dlmexp.common.atomic import write_atomically
from dlmexp.common.catalogue import with_members
from dlmexp.common.paths import data_root
from dlmexp.core.baselines import MIN_VARIANCE, Baseline, Rows, Targets, fit_trees
from dlmexp.core.likelihoods.calibration import normal_scores
from dlmexp.data.config import DatasetConfig
from dlmexp.data.dataset import Dataset, read_spec
from dlmexp.data.raw_files import find_files, load
from dlmexp.data.splits import Prepared, prepare
from dlmexp.experiment.records.baselines import COLUMNS, read_baselines
from dlmexp.experiment.records.packed import BASELINES

SUITES = ("uci", "uci_binary", "uci_counts")
SEEDS = 10
FOLDS = 5
PENALTIES = tuple(10.0 ** np.arange(-4.0, 5.0))
NEWTON_STEPS = 1000


def main(argv: Sequence[str] | None = None) -> int:
    """Fit the baselines to every split, and write their scores after each dataset."""
    args = _arguments(argv)
    out = args.out / BASELINES
    known = read_baselines([args.out])
    rows = cast(list[dict[str, Any]], known.to_dict("records"))
    for name in with_members(args.datasets):
        if _is_complete(known[known["dataset"] == name], args.seeds):
            print(f"{name}: in {out} already", flush=True)
            continue
        spec = replace(read_spec(name), validation="train")
        if find_files(spec, args.data_root).state == "missing":
            print(f"{name}: not in {args.data_root}", flush=True)
            continue
        data = load(spec, args.data_root)
        results = list(_results(spec, data, args.seeds))
        rows = [row for row in rows if row["dataset"] != name] + results
        _write(out, rows, args.untimed)
        print(_line(name, results), flush=True)
    _write(out, rows, args.untimed)
    print(out)
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m scripts.benchmark baselines",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("datasets", nargs="*", default=list(SUITES), help="datasets and suites")
    parser.add_argument("--data-root", type=Path, default=data_root())
    parser.add_argument("--seeds", type=int, default=SEEDS, help="the first so many splits")
    parser.add_argument(
        "--untimed", action="store_true", help="leave the seconds empty: the machine is busy"
    )
    parser.add_argument("--out", type=Path, required=True, help=f"the folder of {BASELINES}")
    return parser.parse_args(argv)


def _is_complete(rows: pd.DataFrame, seeds: int) -> bool:
    """Return whether a dataset has the scores of every method on every split."""
    known = set(zip(rows["method"], rows["seed"], strict=True))
    return known >= set(product(METHODS, range(seeds)))


def _results(spec: DatasetConfig, data: Dataset, seeds: int) -> Iterator[dict[str, Any]]:
    """Yield the row of every method on every split of a dataset, and show which one it is."""
    for seed in range(seeds):
        print(f"\r{spec.name}: split {seed + 1} of {seeds} ", end="", file=sys.stderr, flush=True)
        split = prepare(data, spec, seed, "100%")
        for method, fit in METHODS.items():
            began = perf_counter()
            baseline = fit(spec.task, split.X_train, split.y_train)
            seconds = perf_counter() - began
            yield {
                "method": method,
                "dataset": spec.name,
                "seed": seed,
                "n": len(split.y_train),
                "trained_by": "scikit-learn",
                **test_scores(baseline, split),
                "seconds": seconds,
            }
    print("\r", end="", file=sys.stderr)


def fit_linear(task: str, X: Rows, y: Targets) -> Baseline:
    """Return ridge, logistic or Poisson regression, with the best penalty in cross-validation."""
    if task == "regression":
        # Leaves one row out at a time, which has a closed form.
        ridge = RidgeCV(alphas=PENALTIES, scoring=None).fit(X, y)
        variance = max(-float(ridge.best_score_), MIN_VARIANCE)  # pyright: ignore[reportArgumentType]
        return Baseline(task, ridge.predict, variance)
    if task == "binary":
        weights = [1 / penalty for penalty in PENALTIES]
        model = LogisticRegression(max_iter=NEWTON_STEPS, solver="newton-cholesky")
        search = GridSearchCV(model, {"C": weights}, scoring="neg_log_loss", cv=FOLDS).fit(X, y)
        return Baseline(task, lambda X: search.predict_proba(X)[:, 1])
    # PoissonRegressor divides the sum of losses by the number of rows.
    weights = [penalty / len(y) for penalty in PENALTIES]
    model = PoissonRegressor(max_iter=NEWTON_STEPS, solver="newton-cholesky")
    scoring = "neg_mean_poisson_deviance"
    search = GridSearchCV(model, {"alpha": weights}, scoring=scoring, cv=FOLDS).fit(X, y)
    return Baseline(task, search.predict)


METHODS: dict[str, Callable[[str, Rows, Targets], Baseline]] = {
    "linear": fit_linear,
    "trees": fit_trees,
}
"""Functions of task, training rows and targets, by the names of leaderboards."""


def test_scores(baseline: Baseline, split: Prepared) -> dict[str, float]:
    """Return the metrics of a table of baselines on the test rows; NaN where one does not apply."""
    mean = baseline.predict(split.X_test)
    y = split.y_test
    scores = baseline.scores(split.X_test, y)
    row = {"test_nll": scores["nll"]}
    if baseline.task == "binary":
        return row | {"test_error": scores["error"]}
    row["test_mse"] = scores["rmse"] ** 2
    spread = _normal_scores(mean, baseline.variance, y)
    if baseline.task == "count":
        spread = poisson_scores(mean, y)
    return row | {"test_crps": spread.crps, "coverage_95": spread.coverage}


@dataclass(frozen=True)
class Spread:
    """Mean CRPS, and the share of rows inside of the central 95 % interval."""

    crps: float
    coverage: float


def _normal_scores(mean: Targets, variance: float, y: Targets) -> Spread:
    """Return the scores of Gaussian predictions."""
    tensors = [torch.from_numpy(np.array(values)) for values in (mean, mean * 0 + variance, y)]
    scores = normal_scores(*tensors)
    return Spread(float(scores["crps"].mean()), float(scores["coverage_95"].mean()))


def poisson_scores(rate: Targets, y: Targets) -> Spread:
    """Return the scores of Poisson predictions.

    With distribution function F and probabilities p (Wei, Held 2014):
    CRPS = (y - rate) (2 F(y) - 1) + 2 rate p(y) - rate e^(-2 rate) (I0(2 rate) + I1(2 rate)).
    """
    inside = 2 * poisson.cdf(y, rate) - 1
    bessel = ive(0, 2 * rate) + ive(1, 2 * rate)
    crps = (y - rate) * inside + 2 * rate * poisson.pmf(y, rate) - rate * bessel
    is_covered = (poisson.ppf(0.025, rate) <= y) & (y <= poisson.ppf(0.975, rate))
    return Spread(float(crps.mean()), float(is_covered.mean()))


def _write(path: Path, rows: list[dict[str, Any]], is_untimed: bool) -> None:
    """Write the rows as Parquet, in the columns that leaderboards read."""
    table = pd.DataFrame(rows).reindex(columns=list(COLUMNS))
    if is_untimed:
        table["seconds"] = math.nan
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pandas(table, preserve_index=False), sink, compression="zstd")
    write_atomically(path, sink.getvalue().to_pybytes())


def _line(name: str, results: list[dict[str, Any]]) -> str:
    """Return mean NLL and seconds of every method on a dataset."""
    words = [f"{name}:"]
    for method in METHODS:
        rows = [row for row in results if row["method"] == method]
        nll = math.fsum(row["test_nll"] for row in rows) / len(rows)
        seconds = math.fsum(row["seconds"] for row in rows) / len(rows)
        words.append(f"{method} NLL {nll:.3f} ({seconds:.2g} s)")
    return " ".join(words)
