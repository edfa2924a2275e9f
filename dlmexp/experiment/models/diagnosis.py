"""How a trained model does on its own test rows, as numbers to draw: predictions against targets,
calibration, the betas that it was selected from, the course of its training."""

import os
import shlex
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from dlmexp.common.errors import UserError
from dlmexp.common.paths import data_root
from dlmexp.data.config import DatasetConfig
from dlmexp.data.dataset import Dataset
from dlmexp.data.raw_files import load
from dlmexp.data.splits import split
from dlmexp.experiment.models.choice import Chosen
from dlmexp.experiment.models.file import TrainedCell
from dlmexp.experiment.models.predictor import Columns, Predictor, errors_in_own_units
from dlmexp.experiment.plan.compose import compose, parts, with_default
from dlmexp.experiment.plan.overrides import spelled_out
from dlmexp.experiment.records.results import ResultsFolder

LEVELS = np.linspace(0.05, 0.95, 19)  # of central intervals
BINS = 10  # of probabilities
LINE = 400  # points of a curve over one feature


@dataclass(frozen=True)
class Diagnosis:
    """All in own units; `columns` are the predictions on the test rows (`Predictor.predict`),
    `targets` what was seen there, 0 and 1 for binary data."""

    model: TrainedCell
    columns: Columns
    targets: np.ndarray
    calibration: pd.DataFrame | None  # promised and observed shares, and of how many rows
    betas: pd.DataFrame  # beta, and by name the metrics of all candidates; empty with less than two
    metric: str  # of the candidates: nll | mse
    objective: np.ndarray  # by iteration; empty where nothing was trained
    line: Columns | None  # of one feature: x, predictions, rows of training, inducing inputs

    @property
    def errors(self) -> dict[str, float]:
        """RMSE and the like (`errors_in_own_units`); none of binary data."""
        return (
            errors_in_own_units(self.columns, self.targets)
            if self.model.schema.labels is None
            else {}
        )


def diagnose(
    results: ResultsFolder, chosen: Chosen, root: str | os.PathLike[str] | None = None
) -> Diagnosis:
    """Predict on the test rows of a model, whose data is loaded once more; `root` is the data
    root."""
    spec, data = reload_dataset(chosen.row, root)
    model, cell = chosen.model, chosen.model.cell
    rows = split(len(data.y), spec.split, cell.seed, spec.test_cap, data.arrangement)
    X, y = np.array(data.X[rows.test]), np.array(data.y[rows.test])
    predictor = Predictor([model])
    metric = "nll" if predictor.has_distribution else "mse"
    return Diagnosis(
        model,
        predictor.predict(X),
        np.exp(y) if model.schema.log else y,
        _calibration(predictor, X, y),
        _betas(results.candidates, cell.key, metric),
        metric,
        results.arrays(cell.key).get("objective", np.zeros(0)) if cell.iterations else np.zeros(0),
        _line(predictor, data, rows.train[: cell.n]) if data.X.shape[1] == 1 else None,
    )


def reload_dataset(
    row: Any, root: str | os.PathLike[str] | None = None
) -> tuple[DatasetConfig, Dataset]:
    """The data that a cell was trained on, found by the command of its run and checked to be the
    same."""
    name, command = row.dataset, row.command or ""
    words = shlex.split(command)
    overrides = (
        [word for word in words[words.index("run") + 1 :] if "=" in word] if "run" in words else []
    )
    again = f"the test rows of '{name}' are needed, and its run ('{command}')"
    try:
        cfg = compose(with_default(spelled_out(overrides)))
        spec = next(
            each for part in parts(cfg) for each in part.dataset.values() if each.name == name
        )
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
def _calibration(predictor: Predictor, X: np.ndarray, y: np.ndarray) -> pd.DataFrame | None:
    """Binary data: mean probability and share of class 1 in bins. Others: levels of central
    intervals, and the share of test rows in them; None without a distribution. A count y stands for
    all quantiles from F(y - 1) to F(y)."""
    (member,) = predictor.members
    mu, v = member.marginals(X)
    if predictor.task == "binary":
        p = member.likelihood.mean(mu, v)[0].cpu().numpy()
        bins = pd.DataFrame({"promised": p, "observed": y}).groupby(
            np.clip((p * BINS).astype(int), 0, BINS - 1)
        )
        return bins.mean().assign(rows=bins.size())
    if not predictor.has_distribution or member.likelihood.interval(mu, v) is None:
        return None
    scaled = torch.from_numpy((y - member.model.y_mean) / member.model.y_std).to(mu)[None]
    upper = below = member.likelihood.cdf(mu, v, scaled)[0].cpu().numpy()
    if predictor.task == "count":
        below = member.likelihood.cdf(mu, v, scaled - 1)[0].cpu().numpy()
    lower = np.minimum(below, upper - 1e-12)
    ends = (((1 - level) / 2, (1 + level) / 2) for level in LEVELS)
    inside = [
        np.clip((np.minimum(upper, b) - np.maximum(lower, a)) / (upper - lower), 0, 1).mean()
        for a, b in ends
    ]
    return pd.DataFrame({"promised": LEVELS, "observed": inside, "rows": len(y)})


def _betas(rows: pd.DataFrame, key: str, metric: str) -> pd.DataFrame:
    """Metrics by beta, in the largest selection that the cell was a candidate of."""
    groups = rows.loc[rows["key"] == key].sort_values("candidates")["group"]
    rows = rows[
        (rows["group"] == groups.iloc[-1]) & (rows["status"] == "done") & rows["beta"].notna()
    ]
    names = {"beta": "beta", f"validation_{metric}": "validation", f"test_{metric}": "test"}
    return (
        rows.reindex(columns=list(names)).rename(columns=names) if len(rows) > 1 else pd.DataFrame()
    )


def _line(predictor: Predictor, data: Dataset, rows: np.ndarray) -> Columns:
    """Predictions along the one feature, a little beyond its training rows, with those and the
    inducing inputs."""
    model, X, y = predictor.members[0].model, data.X[rows, 0], data.y[rows]
    margin = 0.1 * np.ptp(X)
    x = np.linspace(X.min() - margin, X.max() + margin, LINE)
    inducing = model.hyper["Z"][:, 0] * model.normalisation.std[0] + model.normalisation.mean[0]
    own = {"x": x, "rows": X, "targets": np.exp(y) if model.schema.log else y, "inducing": inducing}
    return own | predictor.predict(x[:, None])
