"""Candidates for the default model, on the UCI regression sets with at most 5000 rows and their
published splits, next to a linear model, gradient boosting and the exact Gaussian process."""

import argparse
import json
import math
import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning

import dlmexp
from dlmexp.core.baselines import BASELINES, available_baselines, gaussian_scores
from dlmexp.data.splits import (
    Prepared,
    Split,
    inducing_count_of_user_table,
    normalise_split,
    permutation,
)

MAX_ROWS = 5000
TOLERANCE = 2e-3
"""Of L-BFGS, as in conf/protocol/own.yaml."""
CLOSE = 1.1
"""An RMSE within this factor of the best is close to it."""
EXACT = "exact GP"
TIMED = "kin40k"
"""The data set that times are measured on, 40 000 rows of 8 features."""
TRAINED_ON = 0.75
"""The share of a regression table that `dlmexp run` trains on in the end."""
ESTIMATOR = "DLMRegressor()"
"""The default of estimators and of `dlmexp run dataset=csv`: log loss, beta selected by folds."""
LINEAR = "linear"
TREES = "trees"


@dataclass(frozen=True)
class Candidate:
    """A default model.

    Attributes:
        kernel: Its kernel, with a lengthscale per feature.
        M: The number of inducing inputs; None: that of the default.
        inducing: Where they start.
        iterations: Steps of Adam, whose learning rate decays to a hundredth, or the most
            evaluations of L-BFGS.
        objective: What is minimised.
        lengthscale: The initial one.
        lr: The learning rate at the start; None: L-BFGS in place of Adam.
        pilot: Evaluations of the ELBO at whose end training starts.
    """

    kernel: str
    M: int | None
    inducing: str = "kmeans"
    iterations: int = 300
    objective: str = "elbo"
    lengthscale: str | float = "sqrt"
    lr: float | None = 0.1
    pilot: int = 0


ELBO = "ELBO (the default of the command)"
LOG_LOSS = "log loss, beta = 1 (the default but for the choice of beta)"
CANDIDATES = {
    ELBO: Candidate("matern52+linear", None, iterations=150, lr=None),
    LOG_LOSS: Candidate(
        "matern52+linear", None, iterations=150, objective="log_dlm", lr=0.05, pilot=60
    ),
    "ELBO, M=200": Candidate("matern52+linear", 200, iterations=150, lr=None),
    "ELBO, M=400": Candidate("matern52+linear", 400, iterations=150, lr=None),
    "ELBO, M=1000": Candidate("matern52+linear", 1000, iterations=150, lr=None),
    "ELBO, 300 evaluations": Candidate("matern52+linear", None, iterations=300, lr=None),
    "log loss, M=200": Candidate(
        "matern52+linear", 200, iterations=150, objective="log_dlm", lr=0.05, pilot=60
    ),
    "log loss, M=400": Candidate(
        "matern52+linear", 400, iterations=150, objective="log_dlm", lr=0.05, pilot=60
    ),
    "log loss, pilot of 150": Candidate(
        "matern52+linear", None, iterations=150, objective="log_dlm", lr=0.05, pilot=150
    ),
    "0.3 (RBF, M=30, first rows)": Candidate("rbf", 30, "first", 500, lengthscale=1.0),
    "RBF": Candidate("rbf", 200),
    "Matern-5/2": Candidate("matern52", 200),
    "RBF + linear": Candidate("rbf+linear", 200, lengthscale=1.0),
    "Matern-5/2 + linear": Candidate("matern52+linear", 200, lengthscale=1.0),
    "Matern-3/2 + linear": Candidate("matern32+linear", 200, lengthscale=1.0),
    "Matern-5/2 + linear, M=50": Candidate("matern52+linear", 50, lengthscale=1.0),
    "Matern-5/2 + linear, M=100": Candidate("matern52+linear", 100, lengthscale=1.0),
    "Matern-5/2 + linear, M=400": Candidate("matern52+linear", 400, lengthscale=1.0),
    "Matern-5/2 + linear, 100 steps": Candidate(
        "matern52+linear", 200, iterations=100, lengthscale=1.0
    ),
    "Matern-5/2 + linear, first rows": Candidate("matern52+linear", 200, "first", lengthscale=1.0),
    "Matern-5/2 + linear, log loss": Candidate(
        "matern52+linear", 200, objective="log_dlm", lengthscale=1.0
    ),
    "Matern-5/2 + linear, log loss, M=50": Candidate(
        "matern52+linear", 50, objective="log_dlm", lengthscale=1.0
    ),
    EXACT: Candidate("matern52", 0, iterations=60, objective="exact", lr=None),
    "exact GP + linear": Candidate("matern52+linear", 0, iterations=60, objective="exact", lr=None),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, add the results to a file, and print the table of all results in it."""
    args = _arguments(argv)
    if args.times:
        for n in args.times:
            for line in _times(args, n):
                print(json.dumps(line), flush=True)
        return 0
    out = Path(args.out)
    known = _read(out)
    names = args.candidates
    if names == ["all"]:
        names = [*CANDIDATES, ESTIMATOR, *available_baselines()]
    elif names == ["models"]:
        names = [*CANDIDATES, ESTIMATOR]
    for name in args.sets or _small_sets(args.data):
        for model in names:
            if (name, model) in known:
                continue
            results = _measure(args, name, model)
            with out.open("a", encoding="utf-8") as file:
                for result in results:
                    file.write(json.dumps(result) + "\n")
            print(f"{name}: {model}: {len(results)} splits", flush=True)
    results = pd.read_json(out, lines=True)
    print(_goals(results).round(2).to_string())
    print(_by_set(results).to_string())
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m scripts.benchmark defaults", description=__doc__)
    data = Path(os.environ.get("DLMEXP_DATA", "../shared/data")) / "uci"
    parser.add_argument("--data", type=Path, default=data)
    parser.add_argument("--sets", nargs="*", help="names of data sets; all with at most 5000 rows")
    parser.add_argument("--splits", type=int, default=3, help="the first so many published splits")
    parser.add_argument(
        "--candidates", nargs="*", default=["all"], help="names; all; models: without baselines"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", default="defaults.jsonl", help="results; those in it are kept")
    parser.add_argument(
        "--times",
        nargs="*",
        type=int,
        metavar="N",
        help=f"only measure how long the defaults take on N training rows of {TIMED}",
    )
    return parser.parse_args(argv)


def _times(args: argparse.Namespace, n: int) -> Iterator[dict[str, Any]]:
    """Yield the seconds that the defaults take on n training rows, and those of processors.

    The command holds rows back in addition, to report on.
    """
    table = np.loadtxt(args.data / TIMED / "data.csv.gz", delimiter=",")
    rows = table[permutation(len(table), 0)]
    model = dlmexp.DLMRegressor(random_state=0, device=args.device)
    with (
        tempfile.TemporaryDirectory() as folder,
        warnings.catch_warnings(action="ignore", category=ConvergenceWarning),
    ):
        all_rows = math.ceil(n / TRAINED_ON)
        of_command = (rows[:all_rows, :-1], rows[:all_rows, -1])
        timed = {
            "estimator": lambda: model.fit(rows[:n, :-1], rows[:n, -1]),
            "command": lambda: dlmexp.run(
                of_command, task="regression", results=folder, device=args.device, verbose=False
            ),
        }
        for name, action in timed.items():
            began = perf_counter()
            cpu_began = process_time()
            action()
            seconds = perf_counter() - began
            yield {"n": n, "of": name, "seconds": seconds, "cpu": process_time() - cpu_began}


def _read(out: Path) -> set[tuple[str, str]]:
    """Return the data sets and models that a file has results of."""
    if not out.exists():
        return set()
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    return {(line["set"], line["model"]) for line in lines}


def _small_sets(data: Path) -> list[str]:
    """Return the sets with at most MAX_ROWS rows, the smallest first."""
    rows = {}
    for folder in sorted(data.iterdir()):
        mask = np.loadtxt(folder / "test_mask.csv.gz", delimiter=",", max_rows=MAX_ROWS + 1)
        if len(mask) <= MAX_ROWS:
            rows[folder.name] = len(mask)
    return sorted(rows, key=lambda name: rows[name])


def _splits(data: Path, name: str, count: int) -> list[Prepared]:
    """Return published splits, normalised by their training rows.

    All have as many training rows as the one with the fewest, so that they train as one batch.
    """
    table = np.loadtxt(data / name / "data.csv.gz", delimiter=",")
    masks = np.loadtxt(data / name / "test_mask.csv.gz", delimiter=",").astype(bool)
    n_train = int((~masks).sum(axis=0).min())
    splits = []
    for number, mask in enumerate(masks.T[:count]):
        order = np.random.default_rng(number).permutation(np.flatnonzero(~mask))
        test = np.flatnonzero(mask)
        rows = Split(order[:n_train], test[:0], test)
        splits.append(normalise_split(table[:, :-1], table[:, -1], "regression", rows))
    return splits


def _measure(args: argparse.Namespace, name: str, model: str) -> list[dict]:
    """Return the scores of a model on the splits of a data set."""
    splits = _splits(args.data, name, args.splits)
    began = perf_counter()
    if model in BASELINES:
        scores = [_baseline_scores(model, split) for split in splits]
    elif model == ESTIMATOR:
        scores = [_estimator_scores(split, args.device) for split in splits]
    else:
        scores = _candidate_scores(CANDIDATES[model], splits, args.device)
    seconds = (perf_counter() - began) / len(splits)
    n, D = splits[0].X_train.shape
    facts = {"set": name, "model": model, "n": n, "D": D, "seconds": seconds}
    return [{**facts, "split": number, **score} for number, score in enumerate(scores)]


def _baseline_scores(model: str, split: Prepared) -> dict[str, float]:
    """Return NLL and RMSE of a baseline on the test rows."""
    baseline = BASELINES[model]("regression", split.X_train, split.y_train)
    return baseline.scores(split.X_test, split.y_test)


def _estimator_scores(split: Prepared, device: str) -> dict[str, float]:
    """Return NLL and RMSE of the estimator with its defaults on the test rows."""
    model = dlmexp.DLMRegressor(random_state=0, device=device)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        model.fit(split.X_train, split.y_train)
    mean, std = model.predict(split.X_test, return_std=True)
    return gaussian_scores(mean, std**2, split.y_test)


def _inducing_count(candidate: Candidate, n: int) -> int:
    """Return the number of inducing inputs of a candidate with n training rows."""
    if candidate.M is None:
        return inducing_count_of_user_table(n)
    return min(candidate.M or n, n)


def _settings(candidate: Candidate) -> dlmexp.Settings:
    """Return how a candidate is trained."""
    if candidate.lr is None:
        return dlmexp.Settings(
            optimizer="lbfgs",
            iterations=candidate.iterations,
            tolerance=TOLERANCE,
            calibration=False,
        )
    return dlmexp.Settings(
        lr=candidate.lr,
        final_lr=candidate.lr / 100,
        decay=candidate.iterations,
        iterations=candidate.iterations,
        window=None,
        calibration=False,
    )


def _candidate_scores(
    candidate: Candidate, splits: Sequence[Prepared], device: str
) -> list[dict[str, float]]:
    """Return NLL and RMSE on the test rows of every split, of targets scaled to variance 1."""
    n = len(splits[0].y_train)
    fits = dlmexp.fit(
        np.stack([split.X_train for split in splits]),
        np.stack([split.y_train for split in splits]),
        dlmexp.Model(
            candidate.kernel,
            M=_inducing_count(candidate, n),
            ard=True,
            inducing=candidate.inducing,
            initial={"lengthscale": candidate.lengthscale},
            pilot=candidate.pilot,
        ),
        candidate.objective,
        betas=1.0,
        settings=_settings(candidate),
        device=device,
    )
    scores = []
    for fit, split in zip(fits, splits, strict=True):
        if fit.failed:
            scores.append({"nll": math.nan, "rmse": math.nan})
            continue
        prediction = fit.predict(split.X_test, device=device)
        assert prediction.variance is not None
        scores.append(gaussian_scores(prediction.mean, prediction.variance, split.y_test))
    return scores


def _by_set(results: pd.DataFrame) -> pd.DataFrame:
    """Return RMSE / NLL of every model on every data set, averaged over the splits."""
    means = results.groupby(["set", "model"])[["rmse", "nll"]].mean()
    text = means["rmse"].map("{:.3f}".format) + " / " + means["nll"].map("{:.3f}".format)
    return text.unstack()


def _goals(results: pd.DataFrame) -> pd.DataFrame:
    """Return on which share of the data sets each model reaches the goals, and its time."""
    means = results.groupby(["model", "set"])[["rmse", "nll", "seconds"]].mean()
    nll = means["nll"].unstack("model")
    rmse = means["rmse"].unstack("model")
    references = [name for name in (LINEAR, TREES) if name in nll]
    best_nll = nll[references].min(axis=1)
    exact = [name for name in (LINEAR, EXACT) if name in rmse]
    best_rmse = rmse[exact].min(axis=1)
    shares = {
        "NLL ahead of linear model and trees": nll.lt(best_nll, axis=0).mean(),
        "RMSE within 10 % of exact GP and linear model": rmse.le(CLOSE * best_rmse, axis=0).mean(),
        "mean NLL": nll.mean(),
        "mean RMSE": rmse.mean(),
        "sets": nll.notna().sum(),
        "median seconds": means["seconds"].unstack("model").median(),
    }
    return pd.DataFrame(shares).sort_values("mean NLL")


if __name__ == "__main__":
    raise SystemExit(main())
