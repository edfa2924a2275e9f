"""Diagnose a trained model on its own test rows: the numbers that `dlmexp diagnose` draws."""

import os
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from dlmexp.common.errors import UserError
from dlmexp.common.paths import data_root
from dlmexp.core.folds import in_normalised_units
from dlmexp.data.config import DatasetConfig
from dlmexp.data.dataset import Dataset, as_spec
from dlmexp.data.raw_files import load
from dlmexp.data.splits import split, with_validation_in_pool
from dlmexp.experiment.models.choice import HOW_TO_TRAIN, ChosenModel
from dlmexp.experiment.models.file import TrainedCell
from dlmexp.experiment.models.importance import Rows, importance
from dlmexp.experiment.models.predictor import Columns, Predictor, errors_in_target_units
from dlmexp.experiment.records.refits import losses_of_candidates
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.records.table import as_text, rows_for
from dlmexp.experiment.records.table_baselines import read_table_baselines

LEVELS = np.linspace(0.05, 0.95, 19)
"""Probabilities of central intervals."""
BINS = 10
"""The number of bins of predicted probabilities."""
SMALLEST_PROBABILITY = 1e-12
"""The probability that a count has at least, where rounding would make it 0."""
SHOWN = ("test_rmse", "test_error", "test_nll")
"""Metrics that models and baselines are compared by."""
LINE_POINTS = 400
"""Points of a curve over one feature."""
LINE_MARGIN = 0.1
"""How far a curve goes beyond the training rows, as a share of their range."""


@dataclass(frozen=True)
class Diagnosis:
    """Predictions on the test rows, their targets and more, in the units of the data.

    Attributes:
        model: The model.
        columns: The predictions on the test rows (`Predictor.predict`).
        targets: The targets of the test rows, 0 and 1 for binary data.
        calibration: A table with predicted shares (`promised`), observed shares and the number of
            rows; None if the model predicts no distribution.
        betas: A table with the metrics of all candidates, `validation` and `test`, by beta; empty
            if there are fewer than two. If folds select, `test` is missing, since only the
            selected candidate has a metric on test rows.
        metric: The metric of the candidates: nll or mse.
        objective: The objective by iteration; empty if nothing was trained.
        line: For data with one feature: x, predictions, training rows and inducing inputs; None
            for data with more.
        importance: For a user's own table: the importance of its columns (`importance`); None for
            other data.
        baselines: For a user's own table: test metrics of the models and baselines of the same
            split, a row for each; empty for other data.
    """

    model: TrainedCell
    columns: Columns
    targets: np.ndarray
    calibration: pd.DataFrame | None
    betas: pd.DataFrame
    metric: str
    objective: np.ndarray
    line: Columns | None
    importance: pd.DataFrame | None = None
    baselines: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def errors(self) -> dict[str, float]:
        """RMSE, MAE and more (`errors_in_target_units`); empty for binary data."""
        if self.model.schema.labels is not None:
            return {}
        return errors_in_target_units(self.columns, self.targets)


def diagnose(
    results: ResultsFolder, chosen: ChosenModel, root: str | os.PathLike[str] | None = None
) -> Diagnosis:
    """Return the diagnosis of a model, whose data is loaded again.

    Args:
        results: The folder with its record.
        chosen: The model.
        root: The folder of raw data files.

    Raises:
        UserError: the data cannot be loaded, or has changed.
    """
    model = chosen.model
    cell = model.cell
    spec, data = reload_dataset(results, chosen.row, root)
    rows = split(len(data.y), spec.split, cell.seed, spec.test_cap, data.arrangement)
    if spec.validation == "pool":
        rows = with_validation_in_pool(rows)
    test_rows = _rows_of(data, rows.test)
    predictor = Predictor([model])
    metric = "nll" if predictor.has_distribution else "mse"
    objective = np.zeros(0)
    if cell.iterations:
        objective = results.arrays(cell.key).get("objective", objective)
    betas = _betas(results.candidates, cell.key, metric)
    if betas.empty:
        betas = _betas_by_folds(results.store, model, metric)
    has_one_feature = data.X.shape[1] == 1
    diagnosis = Diagnosis(
        model=model,
        columns=predictor.predict(test_rows.X),
        targets=_in_own_units(test_rows.y, model),
        calibration=_calibration(predictor, test_rows.X, test_rows.y),
        betas=betas,
        metric=metric,
        objective=objective,
        line=_line(predictor, data, rows.train[: cell.n]) if has_one_feature else None,
    )
    if spec.loader != "table":
        return diagnosis
    return replace(
        diagnosis,
        importance=importance(predictor, test_rows) if len(test_rows.y) > 1 else None,
        baselines=_models_and_baselines(results, chosen.row),
    )


def known_test_rows(
    results: ResultsFolder, chosen: ChosenModel, root: str | os.PathLike[str] | None = None
) -> Rows:
    """Return the test rows of a model, whose data is loaded again.

    Raises:
        UserError: the data cannot be loaded, or has changed.
    """
    spec, data = reload_dataset(results, chosen.row, root)
    seed = chosen.model.cell.seed
    rows = split(len(data.y), spec.split, seed, spec.test_cap, data.arrangement)
    return _rows_of(data, rows.test)


def _rows_of(data: Dataset, numbers: np.ndarray) -> Rows:
    return Rows(np.array(data.X[numbers]), np.array(data.y[numbers]))


def _in_own_units(y: Float[np.ndarray, " N"], model: TrainedCell) -> Float[np.ndarray, " N"]:
    """Return targets in the units of the data, also for a model of their logarithms."""
    return np.exp(y) if model.schema.log else y


def _models_and_baselines(results: ResultsFolder, row: Any) -> pd.DataFrame:
    """Return test metrics of the selected models and the baselines on the same test rows."""
    fits = _with_split_of(row, results.table)
    models = rows_for(fits[fits["status"] == "done"], "nll")
    baselines = read_table_baselines(results.root, [str(row.dataset)])
    if not baselines.empty:
        baselines = _with_split_of(row, baselines)
    both = pd.concat([as_text(models), baselines], ignore_index=True)
    metrics = [name for name in SHOWN if name in both and both[name].notna().any()]
    return both[["method", *metrics]].drop_duplicates("method")


def _with_split_of(row: Any, table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a table whose fits saw the same training and test rows as this one."""
    is_same = table["seed"] == row.seed
    is_same &= table["data"] == row.data
    is_same &= table["n"] == row.n
    return table[is_same]


def reload_dataset(
    results: ResultsFolder, row: Any, root: str | os.PathLike[str] | None = None
) -> tuple[DatasetConfig, Dataset]:
    """Return the data that a cell was trained on, with its spec.

    Args:
        results: The folder with the record of the cell.
        row: The row of the cell in `results.candidates`.
        root: The folder of raw data files.

    Raises:
        UserError: the record has no spec, as before version 0.4, or the files cannot be read, or
            they have changed.
    """
    needed = f"the test rows of '{row.dataset}' are needed, and its"
    record = results.store.read(results.store.path(row.dataset, row.key))
    if record is None or record.dataset_spec is None:
        where = "record does not say where they are, as it was written before version 0.4"
        raise UserError(f"{needed} {where}: {HOW_TO_TRAIN}")
    spec = as_spec(record.dataset_spec)
    run = f"{needed} run ('{row.command or ''}')"
    try:
        data = load(spec, data_root(root))
    except UserError as error:
        raise UserError(f"{run} read them from a file that can't be read here: {error}") from None
    if data.checksum != row.data:
        raise UserError(f"{run} read other data: the file has changed since")
    return spec, data


@torch.no_grad()
def _calibration(
    predictor: Predictor, X: Float[np.ndarray, "N D"], y: Float[np.ndarray, " N"]
) -> pd.DataFrame | None:
    """Return predicted and observed shares with their numbers of rows (`Diagnosis.calibration`).

    For binary data these are the mean probability and the share of class 1 in bins of probability.
    For other data they are the levels of central intervals and the share of test rows in them. None
    if the model predicts no distribution.
    """
    (member,) = predictor.members
    mu, v = member.marginals(X)
    likelihood = member.likelihood
    if predictor.task == "binary":
        probability = likelihood.mean(mu, v)[0].cpu().numpy()
        return _calibration_of_classes(probability, y)
    if not predictor.has_distribution or likelihood.interval(mu, v) is None:
        return None
    normalised = (y - member.model.y_mean) / member.model.y_std
    targets = torch.from_numpy(normalised).to(mu)[None]
    upper = likelihood.cdf(mu, v, targets)[0].cpu().numpy()
    if predictor.task == "count":
        lower = likelihood.cdf(mu, v, targets - 1)[0].cpu().numpy()
    else:
        lower = upper
    return _calibration_of_intervals(lower, upper)


def _calibration_of_classes(
    probability: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"]
) -> pd.DataFrame:
    """Return mean probability, share of class 1 and number of rows by bin of probability."""
    numbers = np.clip((probability * BINS).astype(int), 0, BINS - 1)
    bins = pd.DataFrame({"promised": probability, "observed": y}).groupby(numbers)
    return bins.mean().assign(rows=bins.size())


def _calibration_of_intervals(
    lower: Float[np.ndarray, " N"], upper: Float[np.ndarray, " N"]
) -> pd.DataFrame:
    """Return the share of rows in central intervals, by level.

    The probability integral transform of a number y is F(y), so lower = upper. For a count it is
    the range from `lower` = F(y - 1) to `upper` = F(y), of which a part may lie in an interval: the
    count is then in the interval by that part.
    """
    # A range has a positive length, by which the common part is divided.
    lower = np.minimum(lower, upper - SMALLEST_PROBABILITY)
    observed: list[float] = []
    for level in LEVELS:
        low_end = (1 - level) / 2
        high_end = (1 + level) / 2
        common_length = np.minimum(upper, high_end) - np.maximum(lower, low_end)
        part = np.clip(common_length / (upper - lower), 0, 1)
        observed.append(part.mean())
    return pd.DataFrame({"promised": LEVELS, "observed": observed, "rows": len(upper)})


def _betas(rows: pd.DataFrame, key: str, metric: str) -> pd.DataFrame:
    """Return metrics by beta, in the largest group of candidates that a cell belongs to.

    Candidates with another number of components than the cell are left out.
    """
    groups = rows.loc[rows["key"] == key].sort_values("candidates")["group"]
    largest_group = groups.iloc[-1]
    is_done = rows["status"] == "done"
    candidates = rows[(rows["group"] == largest_group) & is_done & rows["beta"].notna()]
    if "components" in candidates:
        components_of_cell = candidates.loc[candidates["key"] == key, "components"]
        candidates = candidates[candidates["components"].isin(components_of_cell)]
    if len(candidates) < 2:
        return pd.DataFrame()
    names = {"beta": "beta", f"validation_{metric}": "validation", f"test_{metric}": "test"}
    return candidates.reindex(columns=list(names)).rename(columns=names)


def _betas_by_folds(store: Store, model: TrainedCell, metric: str) -> pd.DataFrame:
    """Return the pooled metric of the folds by beta, for targets normalised as in the model.

    Candidates with another number of components are left out, and those that failed in a fold.
    """
    betas: list[float] = []
    validation: list[float] = []
    for candidate, loss in losses_of_candidates(store, model.cell.key, metric).items():
        if candidate.components == model.cell.components and np.isfinite(loss):
            betas.append(candidate.beta)
            validation.append(in_normalised_units(metric, loss, model.y_std))
    if len(betas) < 2:
        return pd.DataFrame()
    return pd.DataFrame({"beta": betas, "validation": validation, "test": np.nan})


def _line(predictor: Predictor, data: Dataset, rows: np.ndarray) -> Columns:
    """Return predictions along the only feature, with training rows and inducing inputs."""
    model = predictor.members[0].model
    feature = data.X[rows, 0]
    margin = LINE_MARGIN * np.ptp(feature)
    x = np.linspace(feature.min() - margin, feature.max() + margin, LINE_POINTS)
    Z = model.hyper["Z"][:, 0]
    normalisation = model.normalisation
    columns = {
        "x": x,
        "rows": feature,
        "targets": _in_own_units(data.y[rows], model),
        "inducing": Z * normalisation.std[0] + normalisation.mean[0],
    }
    return columns | predictor.predict(x[:, None])
