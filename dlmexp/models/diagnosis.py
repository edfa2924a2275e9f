"""How a trained model does on its own test rows, as numbers to draw: predictions against targets, calibration, the
betas that it was selected from, the course of its training."""

import os
import shlex
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dlmexp.config import DatasetConfig
from dlmexp.data.dataset import Dataset, load
from dlmexp.data.splits import split, training_rows
from dlmexp.errors import UserError
from dlmexp.models.choice import load_model
from dlmexp.models.predictor import Predictor, errors_in_own_units
from dlmexp.paths import data_root
from dlmexp.plan.compose import compose, parts, with_default
from dlmexp.plan.overrides import spelled_out
from dlmexp.records.results import ResultsFolder

LEVELS = np.linspace(0.05, 0.95, 19)  # of central intervals
BINS = 10  # of probabilities
LINE = 400  # points of a curve over one feature


@dataclass(frozen=True)
class Diagnosis:
    """All in own units; `columns` are the predictions on the test rows (`Predictor.predict`), `targets` what was seen
    there, 0 and 1 for binary data."""

    row: Any  # of `results.candidates`
    title: str
    target: str
    features: tuple[str, ...]
    labels: tuple[object, object] | None
    columns: dict[str, np.ndarray]
    targets: np.ndarray
    errors: dict[str, float]  # rmse, mae, r2, coverage_95; none of binary data
    calibration: dict[str, np.ndarray] | None  # promised and observed shares, and of how many rows
    betas: dict[str, np.ndarray]  # beta, validation and test (the metric of `metric`), of all candidates
    metric: str
    objective: np.ndarray  # by iteration; empty where nothing was trained
    line: dict[str, np.ndarray] | None  # of one feature: x, predictions, rows of training, inducing inputs


def diagnose(results: ResultsFolder, row: Any, root: str | os.PathLike[str] | None = None) -> Diagnosis:
    """Predict on the test rows of a cell, whose data is loaded once more; `root` is the data root."""
    spec, data = reload_dataset(row, root)
    model = load_model(results, row)
    cell = model.cell
    rows = split(len(data.y), spec.split, cell.seed, spec.test_cap, data.arrangement)
    X, y = np.array(data.X[rows.test]), np.array(data.y[rows.test])
    predictor = Predictor([model])
    metric = "nll" if predictor.has_distribution else "mse"
    objective = results.arrays(row.key).get("objective", np.zeros(0)) if cell.iterations else np.zeros(0)
    columns, targets = predictor.predict(X), np.exp(y) if model.schema.log else y
    return Diagnosis(
        row=row,
        title=cell.describe(),
        target=model.schema.target,
        features=model.schema.features,
        labels=model.schema.labels,
        columns=columns,
        targets=targets,
        errors={} if predictor.task == "binary" else errors_in_own_units(columns, targets),
        calibration=_calibration(predictor, X, y),
        betas=_betas(results, row.key, metric),
        metric=metric,
        objective=np.asarray(objective, dtype=np.float64),
        line=_line(predictor, data, training_rows(rows, cell.n)) if data.X.shape[1] == 1 else None,
    )


def reload_dataset(row: Any, root: str | os.PathLike[str] | None = None) -> tuple[DatasetConfig, Dataset]:
    """The data that a cell was trained on, found by the command of its run and checked to be the same."""
    name, command = row.dataset, row.command or ""
    words = shlex.split(command)
    overrides = [word for word in words[words.index("run") + 1 :] if "=" in word] if "run" in words else []
    again = f"the test rows of '{name}' are needed, and its run ('{command}')"
    try:
        cfg = compose(with_default(spelled_out(overrides)))
        spec = next(each for part in parts(cfg) for each in part.dataset.values() if each.name == name)
    except (UserError, StopIteration):
        raise UserError(f"{again} does not say where they are") from None
    try:
        data = load(spec, data_root(root))
    except UserError as error:
        raise UserError(f"{again} read them from a file that can't be read here: {error}") from None
    if data.checksum != row.data:
        raise UserError(f"{again} read other data: the file has changed since")
    return spec, data


@torch.no_grad()
def _calibration(predictor: Predictor, X: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray] | None:
    """Binary data: mean probability and share of class 1 in bins. Others: levels of central intervals, and the share of
    test rows in them; None without a distribution. A count y stands for all quantiles from F(y - 1) to F(y)."""
    (member,) = predictor.members
    mu, v = member.marginals(X)
    if predictor.task == "binary":
        p = member.likelihood.mean(mu, v)[0].cpu().numpy()
        which = np.clip((p * BINS).astype(int), 0, BINS - 1)
        bins = [(p[which == k], y[which == k]) for k in range(BINS) if (which == k).any()]
        promised, observed = (np.array([part[side].mean() for part in bins]) for side in (0, 1))
        return {"promised": promised, "observed": observed, "rows": np.array([len(part[0]) for part in bins])}
    if not predictor.has_distribution or member.likelihood.interval(mu, v) is None:
        return None
    scaled = torch.from_numpy((y - member.model.y_mean) / member.model.y_std).to(mu)[None]
    upper = member.likelihood.cdf(mu, v, scaled)[0].cpu().numpy()
    if predictor.task == "count":
        lower = member.likelihood.cdf(mu, v, scaled - 1)[0].cpu().numpy()
        width = np.maximum(upper - lower, 1e-12)
        ends = (((1 - level) / 2, (1 + level) / 2) for level in LEVELS)
        inside = [np.clip((np.minimum(upper, b) - np.maximum(lower, a)) / width, 0, 1).mean() for a, b in ends]
    else:
        inside = [(np.abs(upper - 0.5) <= level / 2).mean() for level in LEVELS]
    return {"promised": LEVELS, "observed": np.array(inside), "rows": np.full(len(LEVELS), len(y))}


def _betas(results: ResultsFolder, key: str, metric: str) -> dict[str, np.ndarray]:
    """Metrics by beta, in the largest selection that the cell was a candidate of."""
    rows = results.candidates
    groups = rows.loc[rows["key"] == key].sort_values("candidates")["group"]
    rows = rows[(rows["group"] == groups.iloc[-1]) & (rows["status"] == "done") & rows["beta"].notna()]
    if len(rows) < 2:
        return {}
    names = {"beta": "beta", "validation": f"validation_{metric}", "test": f"test_{metric}"}
    return {name: rows[column].to_numpy() for name, column in names.items() if column in rows}


def _line(predictor: Predictor, data: Dataset, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Predictions along the one feature, a little beyond its training rows, with those and the inducing inputs."""
    (member,) = predictor.members
    low, high = data.X[rows].min(), data.X[rows].max()
    x = np.linspace(low - 0.1 * (high - low), high + 0.1 * (high - low), LINE)
    n = member.model.normalisation
    inducing = member.model.hyper["Z"][:, 0] * n.std[0] + n.mean[0]
    line = {
        "x": x,
        "rows": data.X[rows, 0],
        "targets": np.exp(data.y[rows]) if member.model.schema.log else np.array(data.y[rows]),
        "inducing": inducing,
    }
    return line | predictor.predict(x[:, None])
