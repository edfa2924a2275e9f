"""Scores of baselines on a user's own table: the mean, a linear model and boosted trees.

The baselines are fitted to and tested on the same rows as the models of a seed, for comparison.
Their scores are stored in the folder `tables` of the results.
"""

from collections.abc import Callable
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from dlmexp.core.baselines import BASELINES, Baseline, available_baselines
from dlmexp.data.splits import Prepared
from dlmexp.experiment.models.scores import label_scores
from dlmexp.experiment.plan.cell import Cell
from dlmexp.experiment.records.table_baselines import (
    SPLIT_COLUMNS,
    row_of,
    store_baselines,
    stored_baselines,
)
from dlmexp.experiment.running.sweep import Sweep, make_split_preparer

MAX_ENTRIES = 100_000_000
"""Training rows times features, above which no baselines are fitted."""
INTERVAL_DEVIATIONS = 1.959963984540054
"""Standard deviations from the mean to the ends of the central 95 % of a normal distribution."""


def table_baselines(sweep: Sweep, root: Path) -> pd.DataFrame:
    """Return test metrics of the baselines on the user's own tables of a sweep, a row per fit.

    The columns are `SPLIT_COLUMNS`, `method`, and metrics such as `test_rmse`. The frame is empty
    if the sweep has no table of a user.
    """
    prepare_split = make_split_preparer(sweep)
    rows: list[dict[str, Any]] = []
    for spec, data in sweep.datasets.values():
        if spec.loader == "table":
            rows += _rows_of_table(sweep, root, data.name, prepare_split)
    return pd.DataFrame(rows)


def _rows_of_table(
    sweep: Sweep, root: Path, table: str, prepare_split: Callable[[Cell], Prepared]
) -> list[dict[str, Any]]:
    """Return a row per split and baseline of one table.

    Scores that are not stored are computed and stored.
    """
    scores = stored_baselines(root, table)
    cells = _cells_by_split(sweep, table)
    fits = list(product(cells, available_baselines()))  # pairs of a split and a baseline
    missing = [fit for fit in fits if fit not in scores]
    for split, method in missing:
        cell = cells[split]
        metrics = _scores(method, cell, prepare_split(cell), sweep)
        if metrics:
            scores[split, method] = metrics
    if missing:
        store_baselines(root, table, scores)
    rows: list[dict[str, Any]] = []
    for split, method in fits:
        if (split, method) in scores:
            rows.append(row_of(split, method, scores[split, method]))
    return rows


def _cells_by_split(sweep: Sweep, dataset: str) -> dict[tuple[Any, ...], Cell]:
    """Return a cell for each split of a dataset, by the values of `SPLIT_COLUMNS`.

    The cells are trained on all rows of the split, without a fold that is left out.
    """
    split_of = attrgetter(*SPLIT_COLUMNS)
    cells: dict[tuple[Any, ...], Cell] = {}
    for cell in sweep.cells:
        if cell.dataset == dataset and cell.fold is None:
            cells[split_of(cell)] = cell
    return cells


def _scores(method: str, cell: Cell, split: Prepared, sweep: Sweep) -> dict[str, float]:
    """Return the test metrics of a baseline; empty without test rows, or for a large table."""
    if not len(split.y_test) or split.X_train.size > MAX_ENTRIES:
        return {}
    baseline = BASELINES[method](cell.task, split.X_train, split.y_train)
    scores = baseline.scores(split.X_test, split.y_test)
    if cell.task == "binary":
        scores_of_labels = label_scores(baseline.predict(split.X_test), split.y_test)
        for name in ("auc", "brier", "base_rate"):
            scores[name] = scores_of_labels[name]
        return scores
    _, data = sweep.datasets[cell.dataset, cell.split]
    return scores | _scores_in_units(baseline, split, data.schema.log)


def _scores_in_units(baseline: Baseline, split: Prepared, log: bool) -> dict[str, float]:
    """Return errors in the units of the target, and the coverage of the 95 % interval.

    Args:
        baseline: A fitted baseline.
        split: The normalised data.
        log: Whether the logarithm of the target was modelled.
    """
    mean = baseline.predict(split.X_test) * split.y_std + split.y_mean
    y = split.y_test * split.y_std + split.y_mean
    std = np.sqrt(baseline.variance) * split.y_std
    scores: dict[str, float] = {}
    if baseline.task == "regression":
        is_covered = np.abs(y - mean) <= INTERVAL_DEVIATIONS * std
        scores["coverage_95"] = float(is_covered.mean())
    if log:
        # The mean of a log-normal variable: exp(mean + variance / 2)
        mean = np.exp(mean + std**2 / 2)
        y = np.exp(y)
    return scores | _errors(mean, y)


def _errors(mean: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"]) -> dict[str, float]:
    """Return RMSE, MAE and R², which is left out if all targets are equal."""
    residuals = y - mean
    rmse = float(np.sqrt(np.mean(residuals**2)))
    mae = float(np.abs(residuals).mean())
    errors = {"rmse": rmse, "mae": mae}
    if y.var() > 0:
        errors["r2"] = 1 - rmse**2 / float(y.var())
    return errors


def lines_about_best(models: pd.DataFrame, baselines: pd.DataFrame) -> list[str]:
    """Return a line per table with the best model and the best baseline by each metric.

    They are compared at the largest training size. The mean is left out of the baselines.

    Args:
        models: The selected results, with columns `dataset`, `n`, `method` and test metrics.
        baselines: The table of `table_baselines`.
    """
    if baselines.empty:
        return []
    lines: list[str] = []
    rivals = baselines[baselines["method"] != "mean"]
    for dataset, models_of_dataset in models.groupby("dataset", observed=True, sort=False):
        n = models_of_dataset["n"].max()
        largest = models_of_dataset[models_of_dataset["n"] == n]
        is_comparable = (rivals["dataset"] == dataset) & (rivals["n"] == n)
        comparisons: list[str] = []
        for metric in ("rmse", "error", "nll"):
            comparison = _comparison(metric, largest, rivals[is_comparable])
            if comparison:
                comparisons.append(comparison)
        if comparisons:
            lines.append(f"{dataset}: {'; '.join(comparisons)}")
    return lines


def _comparison(metric: str, models: pd.DataFrame, rivals: pd.DataFrame) -> str:
    """Return a text about the best model and the best baseline by a metric.

    It is '' if no model or no baseline has the metric.
    """
    column = f"test_{metric}"
    if column not in models or column not in rivals or models[column].isna().all():
        return ""
    model_means = models.groupby("method", observed=True)[column].mean().dropna()
    rival_means = rivals.groupby("method")[column].mean().dropna()
    if model_means.empty or rival_means.empty:
        return ""
    best_model = f"{model_means.idxmin()} {model_means.min():.4g}"
    best_rival = f"{rival_means.idxmin()} {rival_means.min():.4g}"
    if model_means.min() <= rival_means.min():
        return f"lowest {metric}: {best_model} (best baseline: {best_rival})"
    return f"lowest {metric}: the baseline {best_rival} (best model: {best_model})"
