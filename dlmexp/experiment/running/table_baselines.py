"""How the mean, a linear model and boosted trees do on a user's own table, next to the models.

They are fitted to the rows that the models of a seed were trained on and tested on the same rows.
What was computed is kept in the folder `tables` of the results.
"""

from collections.abc import Callable
from itertools import product
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
    IDENTITY,
    keep_baselines,
    known_baselines,
    row_of,
)
from dlmexp.experiment.running.sweep import Sweep, prepared_splits

MAX_ENTRIES = 100_000_000
"""Training rows times features, above which no baselines are fitted."""
INTERVAL_DEVIATIONS = 1.959963984540054
"""Standard deviations from the mean to the ends of the central 95 % of a normal distribution."""


def table_baselines(sweep: Sweep, root: Path) -> pd.DataFrame:
    """Return test metrics of the baselines on the user's own tables of a sweep, a row per fit.

    The columns are `IDENTITY` and metrics such as `test_rmse`; the frame is empty if the sweep has
    no table of a user.
    """
    prepared = prepared_splits(sweep)
    rows = []
    for name in _tables(sweep):
        rows += _rows_of_table(sweep, root, name, prepared)
    return pd.DataFrame(rows)


def _rows_of_table(
    sweep: Sweep, root: Path, name: str, prepared: Callable[[Cell], Prepared]
) -> list[dict[str, Any]]:
    """Return a row per split and baseline of one table. What is not known yet is computed."""
    known = known_baselines(root, name)
    cells = _cells_by_split(sweep, name)
    wanted = list(product(cells, available_baselines()))
    missing = [pair for pair in wanted if pair not in known]
    for split, method in missing:
        cell = cells[split]
        scores = _scores(method, cell, prepared(cell), sweep)
        if scores:
            known[split, method] = scores
    if missing:
        keep_baselines(root, name, known)
    computed = [pair for pair in wanted if pair in known]
    return [row_of(split, method, known[split, method]) for split, method in computed]


def _cells_by_split(sweep: Sweep, dataset: str) -> dict[tuple[Any, ...], Cell]:
    """Return for each split of a dataset one of the cells that are trained on all its rows."""
    cells: dict[tuple[Any, ...], Cell] = {}
    for cell in sweep.cells:
        if cell.dataset == dataset and cell.fold is None:
            cells[_split_of(cell)] = cell
    return cells


def _tables(sweep: Sweep) -> list[str]:
    """Return the names of the user's own tables."""
    return [data.name for spec, data in sweep.datasets.values() if spec.loader == "table"]


def _split_of(cell: Cell) -> tuple[Any, ...]:
    return tuple(getattr(cell, name) for name in IDENTITY[:-1])


def _scores(method: str, cell: Cell, split: Prepared, sweep: Sweep) -> dict[str, float]:
    """Return the test metrics of a baseline; none without test rows, or of very large tables."""
    if not len(split.y_test) or split.X_train.size > MAX_ENTRIES:
        return {}
    baseline = BASELINES[method](cell.task, split.X_train, split.y_train)
    scores = baseline.scores(split.X_test, split.y_test)
    if cell.task == "binary":
        of_labels = label_scores(baseline.predict(split.X_test), split.y_test)
        for name in ("auc", "brier", "base_rate"):
            scores[name] = of_labels[name]
        return scores
    _, data = sweep.datasets[cell.dataset, cell.split]
    return scores | _scores_in_units(baseline, split, data.schema.log)


def _scores_in_units(baseline: Baseline, split: Prepared, log: bool) -> dict[str, float]:
    """Return errors in the units of the target, and the share of rows in their interval."""
    mean = baseline.predict(split.X_test) * split.y_std + split.y_mean
    y = split.y_test * split.y_std + split.y_mean
    std = np.sqrt(baseline.variance) * split.y_std
    scores = {}
    if baseline.task == "regression":
        is_covered = np.abs(y - mean) <= INTERVAL_DEVIATIONS * std
        scores["coverage_95"] = float(is_covered.mean())
    if log:
        # The mean of a log-normal variable.
        mean = np.exp(mean + std**2 / 2)
        y = np.exp(y)
    return scores | _errors(mean, y)


def _errors(mean: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"]) -> dict[str, float]:
    residuals = y - mean
    rmse = float(np.sqrt(np.mean(residuals**2)))
    mae = float(np.abs(residuals).mean())
    errors = {"rmse": rmse, "mae": mae}
    if y.var() > 0:
        errors["r2"] = 1 - rmse**2 / float(y.var())
    return errors


def which_is_best(models: pd.DataFrame, baselines: pd.DataFrame) -> list[str]:
    """Return a line per table: which is best at what, models or baselines.

    Args:
        models: The selected results, with `dataset`, `n`, `method` and test metrics.
        baselines: Those of `table_baselines`.
    """
    if baselines.empty:
        return []
    lines = []
    rivals = baselines[baselines["method"] != "mean"]
    for dataset, of_dataset in models.groupby("dataset", observed=True, sort=False):
        n = of_dataset["n"].max()
        largest = of_dataset[of_dataset["n"] == n]
        same_rows = (rivals["dataset"] == dataset) & (rivals["n"] == n)
        comparisons: list[str] = []
        for metric in ("rmse", "error", "nll"):
            comparisons += _comparison(metric, largest, rivals[same_rows])
        if comparisons:
            lines.append(f"{dataset}: {'; '.join(comparisons)}")
    return lines


def _comparison(metric: str, models: pd.DataFrame, rivals: pd.DataFrame) -> list[str]:
    """Return who has the lowest value of a metric, and the best of the other side.

    The list is empty if a side has no value of it.
    """
    column = f"test_{metric}"
    if column not in models or column not in rivals or models[column].isna().all():
        return []
    of_models = models.groupby("method", observed=True)[column].mean().dropna()
    of_rivals = rivals.groupby("method")[column].mean().dropna()
    if of_models.empty or of_rivals.empty:
        return []
    best_model = f"{of_models.idxmin()} {of_models.min():.4g}"
    best_rival = f"{of_rivals.idxmin()} {of_rivals.min():.4g}"
    if of_models.min() <= of_rivals.min():
        return [f"lowest {metric}: {best_model} (best baseline: {best_rival})"]
    return [f"lowest {metric}: the baseline {best_rival} (best model: {best_model})"]
