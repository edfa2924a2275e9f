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
"""The probabilities of the central intervals whose coverage is measured."""
BINS = 10
"""The number of bins of predicted probabilities."""
SMALLEST_PROBABILITY = 1e-12
"""The least probability of a count, since rounding may make it 0."""
COMPARED_METRICS = ("test_rmse", "test_error", "test_nll")
"""Metrics by which models and baselines are compared."""
CURVE_POINTS = 400
"""Points of a curve over one feature."""
CURVE_MARGIN = 0.1
"""How far a curve goes beyond the training rows, as a share of their range."""


@dataclass(frozen=True)
class Diagnosis:
    """Predictions on the test rows of a model, and how good they are, in the units of the data.

    Attributes:
        model: The model.
        predictions: The predictions on the test rows (`Predictor.predict`).
        targets: The targets of the test rows, 0 and 1 for binary data.
        calibration: A table with predicted shares (`promised`), observed shares and the number of
            rows; None if the model predicts no distribution.
        betas: A table with the columns `beta`, `validation` and `test`, which have the metric of
            every candidate; empty if there are fewer than two candidates. If folds select, `test`
            is NaN, since only the selected candidate is evaluated on test rows.
        metric: The metric of the candidates: nll or mse.
        objective: The objective by iteration; empty if nothing was trained.
        curve: For data with one feature: predictions on a grid of inputs, training rows and
            inducing inputs; None for data with more features.
        importance: For a user's own table: the importance of its columns (`importance`); None for
            other data.
        baselines: For a user's own table: test metrics of the models and baselines of the same
            split, a row for each; empty for other data.
    """

    model: TrainedCell
    predictions: Columns
    targets: np.ndarray
    calibration: pd.DataFrame | None
    betas: pd.DataFrame
    metric: str
    objective: np.ndarray
    curve: Columns | None
    importance: pd.DataFrame | None = None
    baselines: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def errors(self) -> dict[str, float]:
        """RMSE, MAE and more (`errors_in_target_units`); empty for binary data."""
        if self.model.schema.labels is not None:
            return {}
        return errors_in_target_units(self.predictions, self.targets)


def diagnose(
    results: ResultsFolder, chosen: ChosenModel, root: str | os.PathLike[str] | None = None
) -> Diagnosis:
    """Return the diagnosis of a model, whose data is loaded again.

    Args:
        results: The folder with the record of the model.
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
    # Where folds select, tables have no candidates that are not selected: their metrics are in the
    # records of the folds.
    betas = _betas(results.candidates, cell.key, metric)
    if betas.empty:
        betas = _betas_by_folds(results.store, model, metric)
    has_one_feature = data.X.shape[1] == 1
    diagnosis = Diagnosis(
        model=model,
        predictions=predictor.predict(test_rows.X),
        targets=_in_target_units(test_rows.y, model),
        calibration=_calibration(predictor, test_rows.X, test_rows.y),
        betas=betas,
        metric=metric,
        objective=objective,
        curve=_curve(predictor, data, rows.train[: cell.n]) if has_one_feature else None,
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
    """Return the rows of a dataset with these numbers."""
    return Rows(np.array(data.X[numbers]), np.array(data.y[numbers]))


def _in_target_units(y: Float[np.ndarray, " N"], model: TrainedCell) -> Float[np.ndarray, " N"]:
    """Return targets in the units of the data; y has the logarithms of targets if `Schema.log`."""
    return np.exp(y) if model.schema.log else y


def _models_and_baselines(results: ResultsFolder, row: Any) -> pd.DataFrame:
    """Return test metrics of the selected models and the baselines on the same test rows."""
    fits = _with_split_of(row, results.table)
    models = rows_for(fits[fits["status"] == "done"], "nll")
    baselines = read_table_baselines(results.root, [str(row.dataset)])
    if not baselines.empty:
        baselines = _with_split_of(row, baselines)
    scores = pd.concat([as_text(models), baselines], ignore_index=True)
    metrics = [name for name in COMPARED_METRICS if name in scores and scores[name].notna().any()]
    return scores[["method", *metrics]].drop_duplicates("method")


def _with_split_of(row: Any, table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a table with the same training and test rows as the fit in `row`."""
    is_same = table["seed"] == row.seed
    is_same &= table["data"] == row.data
    is_same &= table["n"] == row.n
    return table[is_same]


def reload_dataset(
    results: ResultsFolder, row: Any, root: str | os.PathLike[str] | None = None
) -> tuple[DatasetConfig, Dataset]:
    """Return the data that a cell was trained on, and the spec by which it is loaded.

    Args:
        results: The folder with the record of the cell.
        row: The row of the cell in `results.candidates`.
        root: The folder of raw data files.

    Raises:
        UserError: the record has no spec, because it was written before version 0.4; or the files
            cannot be read, or have changed.
    """
    needed = f"the test rows of '{row.dataset}' are needed, and its"
    record = results.store.read(results.store.path(row.dataset, row.key))
    if record is None or record.dataset_spec is None:
        problem = "record does not say where they are, as it was written before version 0.4"
        raise UserError(f"{needed} {problem}: {HOW_TO_TRAIN}")
    spec = as_spec(record.dataset_spec)
    needed_from_run = f"{needed} run ('{row.command or ''}')"
    try:
        data = load(spec, data_root(root))
    except UserError as error:
        problem = f"read them from a file that can't be read here: {error}"
        raise UserError(f"{needed_from_run} {problem}") from None
    if data.checksum != row.data:
        raise UserError(f"{needed_from_run} read other data: the file has changed since")
    return spec, data


@torch.no_grad()
def _calibration(
    predictor: Predictor, X: Float[np.ndarray, "N D"], y: Float[np.ndarray, " N"]
) -> pd.DataFrame | None:
    """Return predicted and observed shares, and numbers of rows (`Diagnosis.calibration`).

    For binary data the shares are the mean probability and the share of class 1 in bins of
    probability. For other data they are the probabilities of central intervals, and the shares of
    test rows inside of them. The result is None if the model predicts no distribution.
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
        lower = likelihood.cdf(mu, v, targets - 1)[0].cpu().numpy()  # P(Y < y)
    else:
        lower = upper
    return _calibration_of_intervals(lower, upper)


def _calibration_of_classes(
    probability: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"]
) -> pd.DataFrame:
    """Return mean probability, share of class 1 and number of rows by bin of probability."""
    bin_numbers = np.clip((probability * BINS).astype(int), 0, BINS - 1)
    bins = pd.DataFrame({"promised": probability, "observed": y}).groupby(bin_numbers)
    return bins.mean().assign(rows=bins.size())


def _calibration_of_intervals(
    lower: Float[np.ndarray, " N"], upper: Float[np.ndarray, " N"]
) -> pd.DataFrame:
    """Return the share of rows in central intervals, by level.

    The probability integral transform of a number y is F(y): `lower` = `upper` = F(y). The
    transform of a count y is the range from `lower` = F(y - 1) to `upper` = F(y). If a share of the
    range lies in an interval, the row counts as inside by this share.
    """
    # Give each range a positive length, by which the length of the common part is divided.
    lower = np.minimum(lower, upper - SMALLEST_PROBABILITY)
    observed: list[float] = []
    for level in LEVELS:
        low_end = (1 - level) / 2
        high_end = (1 + level) / 2
        common_length = np.minimum(upper, high_end) - np.maximum(lower, low_end)
        share_inside = np.clip(common_length / (upper - lower), 0, 1)
        observed.append(share_inside.mean())
    return pd.DataFrame({"promised": LEVELS, "observed": observed, "rows": len(upper)})


def _betas(rows: pd.DataFrame, key: str, metric: str) -> pd.DataFrame:
    """Return metrics by beta, in the largest group of candidates that a cell belongs to.

    Candidates that have another number of components than the cell are left out.

    Args:
        rows: All candidates (`ResultsFolder.candidates`).
        key: The key of the cell.
        metric: The metric: nll or mse.
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

    Candidates that have another number of components than the model are left out, and candidates
    that failed in a fold.
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


def _curve(predictor: Predictor, data: Dataset, rows: np.ndarray) -> Columns:
    """Return predictions along the only feature, with training rows and inducing inputs.

    Args:
        predictor: The model.
        data: The data.
        rows: The numbers of the training rows.
    """
    model = predictor.members[0].model
    feature = data.X[rows, 0]
    margin = CURVE_MARGIN * np.ptp(feature)
    x = np.linspace(feature.min() - margin, feature.max() + margin, CURVE_POINTS)
    Z = model.hyper["Z"][:, 0]
    normalisation = model.normalisation
    columns = {
        "x": x,
        "rows": feature,
        "targets": _in_target_units(data.y[rows], model),
        "inducing": Z * normalisation.std[0] + normalisation.mean[0],
    }
    return columns | predictor.predict(x[:, None])
