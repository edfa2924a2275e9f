"""The tidy table: one row per selected result, one column per fact (`columns.COLUMNS`).

The table is made here, from records and the groups of candidates that runs requested. Figures,
claims, the report, closing tables and Python users read only this table. `candidate_cells` returns
a row for every requested cell that has a record. Of each group of candidates `tidy` keeps the one
with the lowest validation metric (`select`).
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dlmexp.common.reading.files import json_value
from dlmexp.experiment.plan.cell import FIRST_OPTIONS, CandidateGroup
from dlmexp.experiment.records.columns import (
    IDENTITY,
    SELECTION,
    SHOWN_TEST_METRICS,
    USER_TABLE_METRICS,
    chosen_names,
    names_with_role,
)

TEXT_DTYPE = pd.Series(["text"]).dtype  # `object` or `str`, depending on the version of pandas
# The columns that `candidate_cells` takes from groups of candidates.
GROUP_COLUMNS = [
    "size",
    "method",
    "role",
    "protocol",
    "changes",
    "selection",
    "experiment",
    "stands_for",
    "candidates",
]
# Columns of groups that are dropped once `failed` and `missing` are computed:
# - expected: the number of cells that need a record before the group is complete;
# - only_selected: whether candidates were selected by folds, so that the cells of the group are the
#   selected fits, or the first fold if every candidate failed in some fold;
# - folds_pending: whether candidates are selected by folds, but the selected fits are missing.
TEMPORARY_COLUMNS = ["expected", "only_selected", "folds_pending"]
BETA_RANGE = ["smallest_beta", "largest_beta"]  # of all candidates
# The columns that `_selected_rows` reads besides the validation metrics.
GROUP_STATE = [
    "group",
    "role",
    "selection",
    "candidates",
    "failed",
    "missing",
    "status",
    "beta",
]


def candidate_cells(cells: pa.Table, groups: Iterable[CandidateGroup]) -> pd.DataFrame:
    """Return one row per requested cell that has a record; a cell of two groups has two rows.

    If the candidates of a group are selected by folds, the group has rows for the selected fits to
    all training data (`refits.Selections.shown`), or a single row while these fits are missing.
    Groups that differ only in their experiment are merged into one, which names all experiments.
    The columns `failed` and `missing` count the failed and the missing cells in the group of a row.
    Columns of texts, except keys, are categories.

    Args:
        cells: Records as rows (`Store.cells`).
        groups: Groups of candidates.
    """
    # One row per key of a group; `group` is the number of the group.
    requested = _group_rows(groups).explode("key").rename_axis("group").reset_index()
    records = _records(cells).set_index("key")
    rows = _defragmented(requested.join(records, on="key", how="inner").reset_index(drop=True))
    rows["candidates"] = rows["candidates"].astype("int64")
    is_failed = rows["status"] != "done"
    by_group = is_failed.groupby(rows["group"])
    # If the group was selected by folds and all its rows are failures, every candidate failed in
    # some fold.
    has_all_failed = by_group.transform("all") & rows["only_selected"]
    rows["failed"] = by_group.transform("sum").where(~has_all_failed, rows["candidates"])
    # While folds are not complete, the selected fits are not known, and at least one is missing.
    missing = rows["expected"] - by_group.transform("size")
    rows["missing"] = missing.where(~rows["folds_pending"], missing.clip(lower=1))
    # Of a group with pending folds a single row is shown.
    rows = rows[~rows["folds_pending"] | ~rows["group"].duplicated()]
    return _ordered(rows.drop(columns=TEMPORARY_COLUMNS))


def _group_rows(requested: Iterable[CandidateGroup]) -> pd.DataFrame:
    """Return one row per distinct group of candidates, with the list of its keys."""
    groups: dict[tuple[object, ...], CandidateGroup] = {}
    experiments: dict[tuple[object, ...], dict[str, None]] = {}  # ordered sets
    for group in requested:
        # The same group may be part of several experiments: merge groups that differ in it alone.
        _experiment, *further_values = group.identity
        identity = tuple(further_values)
        groups.setdefault(identity, group)
        experiments.setdefault(identity, {})[group.experiment] = None
    rows: list[dict[str, object]] = []
    for identity, group in groups.items():
        setting = group.setting
        smallest_beta, largest_beta = _beta_range(group.betas)
        row = {
            "size": group.size,
            "method": group.method,
            "role": group.role,
            "protocol": setting.protocol,
            "changes": setting.text,
            "selection": setting.selection,
            "experiment": ", ".join(experiments[identity]),
            "stands_for": group.stands_for,
            "candidates": len(group.betas),
            "expected": _expected(group),
            "only_selected": group.only_selected,
            "folds_pending": bool(group.folds),
            "smallest_beta": smallest_beta,
            "largest_beta": largest_beta,
            # `fromkeys` leaves out repeats and keeps the order.
            "key": list(dict.fromkeys((*group.keys, *group.folds))),
        }
        rows.append(row)
    columns = [*GROUP_COLUMNS, *TEMPORARY_COLUMNS, *BETA_RANGE, "key"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.astype(dict.fromkeys(GROUP_COLUMNS, "category"))


def _expected(group: CandidateGroup) -> int:
    """Return how many cells of a group need a record before the group is complete.

    While folds are pending it is the least number: at least one fit to all training data follows.
    """
    if group.folds:
        return len(group.folds) + 1
    if group.only_selected:
        return len(group.keys)
    return len(group.betas)


def _beta_range(betas: Iterable[float | None]) -> tuple[float, float]:
    """Return the smallest and the largest of at least two distinct betas, or NaN for both."""
    distinct = {beta for beta in betas if beta is not None}
    return (min(distinct), max(distinct)) if len(distinct) > 1 else (np.nan, np.nan)


def _records(cells: pa.Table) -> pd.DataFrame:
    """Return records as a frame.

    Each option of an estimator is a column. Initial hyperparameters and options of the objective,
    which are JSON in records, become texts such as `lengthscale=sqrt, noise=0.5`.
    """
    frame = cells.to_pandas()
    # A column of integers with missing values would be floats, but these have no missing values.
    frame = frame.astype({"M": "int64", "n": "int64", "seed": "int64"})
    options = _options(frame)
    for name in ("initial", "objective_options"):
        if name in frame:
            text_by_json = {text: _json_as_text(text) for text in frame[name].cat.categories}
            frame[name] = frame[name].map(text_by_json).astype("category")
    # Sorting by a column follows the order of its categories: make this order alphabetical.
    for name in _category_columns(frame):
        sorted_texts = sorted(frame[name].cat.categories)
        frame[name] = frame[name].cat.set_categories(sorted_texts)
    frame = frame.join(options, on="options").drop(columns="options")
    # Figures and closing tables expect these columns.
    absent = [name for name in SHOWN_TEST_METRICS if name not in frame]
    return frame.join(pd.DataFrame(np.nan, index=frame.index, columns=absent))


def _options(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one column per option of estimators, and one row per distinct text of options.

    The index of the rows is the text, which is JSON.
    """
    options_by_text = {text: json_value(text.encode()) for text in frame["options"].cat.categories}
    names = dict.fromkeys(FIRST_OPTIONS)  # an ordered set
    for options in options_by_text.values():
        names |= dict.fromkeys(options)
    # If an option of a plugin has the name of another column, the option gets no column.
    new_names = [name for name in names if name not in frame and name not in GROUP_COLUMNS]
    rows = [[options.get(name) for name in new_names] for options in options_by_text.values()]
    columns = pd.DataFrame(rows, index=list(options_by_text), columns=new_names)
    # `FIRST_OPTIONS` contains samples, so there is always such a column.
    columns["samples"] = pd.to_numeric(columns["samples"], errors="coerce").astype("float64")
    return columns


def _json_as_text(text: str) -> str:
    """Return a JSON dictionary as a text such as `lengthscale=sqrt, noise=0.5`."""
    assignments: list[str] = []
    for name, value in sorted(json_value(text.encode()).items()):
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        assignments.append(f"{name}={shown}")
    return ", ".join(assignments)


def tidy(candidates: pd.DataFrame) -> pd.DataFrame:
    """Return the tidy table.

    It has the rows that are selected by NLL and, if candidates have an MSE, those selected by MSE.
    A group that lacks records, or whose cells have all failed, has one row without metrics. Without
    validation rows, as on airline, a group has a selected row only if it has a single candidate.

    Args:
        candidates: One row per requested cell with a record (`candidate_cells`).
    """
    selected = _selected_rows(candidates)
    table = _defragmented(candidates.loc[selected.index]).assign(
        selected_by=selected["selected_by"], status=selected["status"]
    )
    # The row of a group without a selection is the row of one of its candidates. It keeps only what
    # the candidates have in common.
    is_unselected = table["status"] != "done"
    results = names_with_role(table, "test", "validation", "hyperparameter")
    table.loc[is_unselected, [*results, "beta"]] = np.nan
    if "components" in table and is_unselected.any():
        table["components"] = table["components"].where(~is_unselected)
    table.loc[is_unselected, "key"] = None
    edges = pd.Series(_edges(table), index=table.index, name="edge")
    return _ordered(pd.concat([table, edges], axis=1))


def _selected_rows(candidates: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the tidy table, with `selected_by` and `status`.

    A group that no metric selects from has one row, with the status `incomplete` or `failed`.
    """
    # An ordered set that has these two even if no candidate has them.
    metrics = dict.fromkeys(["validation_nll", "validation_mse"])
    metrics |= dict.fromkeys(names_with_role(candidates, "validation"))
    columns = [*GROUP_STATE, *metrics]
    if "components" in candidates:
        columns.append("components")
    rows = candidates.reindex(columns=columns).astype({"status": str})
    # 1. Which metrics does a group have? The answers are the same for all rows of a group.
    has_metric = rows[list(metrics)].notna().groupby(rows["group"]).transform("any")
    has_nll = has_metric["validation_nll"]
    has_mse = has_metric["validation_mse"]
    is_validated = has_metric.any(axis=1)
    # 2. Which groups are in the table? Those with a validation metric, those with a single
    #    candidate, and those that lack records or whose candidates have all failed. Groups that
    #    measure gradients are left out, as nothing is selected from them.
    is_undecided = (rows["missing"] > 0) | (rows["failed"] == rows["candidates"])
    is_shown = is_validated | (rows["candidates"] == 1) | is_undecided
    is_shown &= rows["role"] != "gradient"
    # 3. Select by each metric. MSE selects only where the protocol selects by the reported metric,
    #    or where there is no NLL.
    is_complete = is_shown & (rows["missing"] == 0)
    wants_nll = has_nll | ~is_validated
    wants_mse = has_mse & ((rows["selection"] == "reported") | ~has_nll)
    by_nll = select(rows[is_complete & wants_nll], "nll").assign(selected_by="nll")
    by_mse = select(rows[is_complete & wants_mse], "mse").assign(selected_by="mse")
    # 4. Groups without a selection get one row, with the reason as its status.
    is_selected = rows["group"].isin([*by_nll["group"], *by_mse["group"]])
    unselected = rows[is_shown & ~is_selected].drop_duplicates("group")
    status = np.where(unselected["missing"] > 0, "incomplete", "failed")
    unselected = unselected.assign(selected_by="nll", status=status)
    rows_of_table = pd.concat([by_nll, by_mse, unselected])
    # In descending order of names nll comes before mse.
    return rows_of_table.sort_values(["group", "selected_by"], ascending=[True, False])


def _edges(table: pd.DataFrame) -> np.ndarray:
    """Return `smallest` or `largest` for rows whose beta is at an end of its grid, else ''."""
    is_smallest = table["beta"] == table["smallest_beta"]
    is_largest = table["beta"] == table["largest_beta"]
    return np.select([is_smallest, is_largest], ["smallest", "largest"], "")


def selected_or_undecided(candidates: pd.DataFrame) -> pd.DataFrame:
    """Return the selected candidates, and all candidates of groups without a selection."""
    table = tidy(candidates)
    selected = table[table["status"] == "done"]
    is_undecided = ~candidates["group"].isin(selected["group"])
    return candidates[is_undecided | candidates["key"].isin(selected["key"])]


def select(candidates: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the row of each `group` with the lowest finite validation metric.

    Of rows with equal values the one with the larger beta is taken, then the one with fewer
    components. A single candidate is selected even without a validation metric. Groups from which
    nothing is selected are left out.
    """
    values = _validation_values(candidates, metric)
    is_finite = pd.Series(np.isfinite(values), index=candidates.index)
    is_single = (candidates["candidates"] == 1) & (candidates["role"] != "gradient")
    needs_no_metric = is_single & values.isna()
    is_usable = (candidates["status"] == "done") & (is_finite | needs_no_metric)
    # Sort by these columns, in this order.
    ranks = {
        "group": candidates["group"],
        "value": values,
        "minus_beta": -candidates["beta"].fillna(0.0),
    }
    if "components" in candidates:
        ranks["components"] = candidates["components"]
    ranked = pd.DataFrame(ranks)[is_usable].sort_values(list(ranks), kind="stable")
    return candidates.loc[ranked.drop_duplicates("group").index]


def _validation_values(candidates: pd.DataFrame, metric: str) -> pd.Series:
    """Return a validation metric for each row; NaN if no row has this metric."""
    unknown = pd.Series(np.nan, index=candidates.index)
    return candidates.get(f"validation_{metric}", unknown)


def best_at_each_beta(candidates: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return one candidate for each group and beta: the one with the best number of components.

    The best has the lowest validation metric of this name. Without this metric, it has the fewest
    components.
    """
    if "components" not in candidates or candidates["components"].nunique() < 2:
        return candidates
    values = _validation_values(candidates, metric)
    ranked = candidates.assign(value=values).sort_values(["value", "components"], kind="stable")
    best = ranked.drop_duplicates(["group", "beta"]).index
    return candidates.loc[candidates.index.isin(best)]


def rows_for(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the row of each group selected for a reported metric.

    For MSE it is the row selected by MSE, for other metrics the row selected by NLL. If a group has
    a single row, this row is returned for every metric.
    """
    preferred = "mse" if metric == "mse" else "nll"
    # Put the preferred rows first, then keep the first row of each group.
    is_not_preferred = (table["selected_by"] != preferred).to_numpy()
    preferred_first = table.iloc[np.argsort(is_not_preferred, kind="stable")]
    return preferred_first.drop_duplicates("group").sort_index()


def _ordered(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with the columns first that people look for: identity, selection, scores."""
    first_columns = (*IDENTITY, *SELECTION, *USER_TABLE_METRICS, *SHOWN_TEST_METRICS)
    leading = [name for name in first_columns if name in frame]
    trailing = [name for name in frame.columns if name not in leading]
    return _defragmented(frame[[*leading, *trailing]].reset_index(drop=True))


def _defragmented(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a copy of the frame, whose columns lie together in memory.

    pandas keeps each added column in a separate block, and warns if there are over 100 blocks.
    """
    return frame.copy()


def as_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with plain texts in place of categories, for users."""
    dtypes: dict[str, Any] = {}
    for name in _category_columns(frame):
        texts = frame[name].cat.categories
        # Without any texts, the dtype of the categories is arbitrary.
        dtypes[name] = texts.dtype if len(texts) else TEXT_DTYPE
    return _defragmented(frame.astype(dtypes))


def without_internal_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame without the columns that have no meaning outside of its results folder."""
    return frame[chosen_names(map(str, frame), lambda column: column.role != "internal")]


def _category_columns(frame: pd.DataFrame) -> list[str]:
    """Return the names of the columns whose texts are categories."""
    return [str(name) for name in frame if frame[name].dtype == "category"]
