"""The tidy table: one row per selected result, one column per fact (`columns.COLUMNS`).

It is made here, from records and the groups of candidates that runs requested. Figures, claims, the
report, closing tables and Python users read it and nothing else. `candidate_cells` returns a row
for every requested cell that has a record. `tidy` keeps of each group of candidates the one with
the lowest validation metric (`select`).
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

TEXT_DTYPE = pd.Series(["text"]).dtype  # depends on the version of pandas
# The columns that `candidate_cells` takes from groups of candidates.
GROUP = [
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
# Columns of groups that are dropped when `failed` and `missing` are known:
# - expected: the number of cells that need a record before the group is complete;
# - only_selected: whether folds have selected, so that the cells are the selected fits alone, or a
#   failed fold if every candidate failed in one;
# - folds_pending: whether folds are to select, but the selected fits are still missing.
ABOUT_FOLDS = ["expected", "only_selected", "folds_pending"]
BETAS = ["smallest_beta", "largest_beta"]  # of all candidates
# The columns that `_chosen` reads besides the validation metrics.
SELECTING = ["group", "role", "selection", "candidates", "failed", "missing", "status", "beta"]


def candidate_cells(cells: pa.Table, groups: Iterable[CandidateGroup]) -> pd.DataFrame:
    """Return one row per requested cell that has a record; a cell of two groups has two rows.

    Groups that folds select from have rows for the selected fits to all training data
    (`refits.Selections.shown`), or a single row while these are missing. Groups with the same
    cells, role and setting are merged into one, which names all their experiments. `failed` and
    `missing` are the numbers of such cells in the group of a row. Columns of texts, except keys,
    are categories.

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
    # If folds select and all rows of a group are failures, every candidate failed in some fold.
    has_all_failed = by_group.transform("all") & rows["only_selected"]
    rows["failed"] = by_group.transform("sum").where(~has_all_failed, rows["candidates"])
    # While folds are not complete, the selected fits are not known, and at least one is missing.
    missing = rows["expected"] - by_group.transform("size")
    rows["missing"] = missing.where(~rows["folds_pending"], missing.clip(lower=1))
    # A single row of such a group stands for all.
    rows = rows[~rows["folds_pending"] | ~rows["group"].duplicated()]
    return _ordered(rows.drop(columns=ABOUT_FOLDS))


def _group_rows(requested: Iterable[CandidateGroup]) -> pd.DataFrame:
    """Return one row per distinct group of candidates, with the list of its keys."""
    groups: dict[tuple[object, ...], CandidateGroup] = {}
    experiments: dict[tuple[object, ...], dict[str, None]] = {}  # ordered sets
    for group in requested:
        # The same group may be part of several experiments.
        _experiment, *other_values = group.identity
        identity = tuple(other_values)
        groups.setdefault(identity, group)
        experiments.setdefault(identity, {})[group.experiment] = None
    rows: list[dict[str, object]] = []
    for identity, group in groups.items():
        setting = group.setting
        smallest_beta, largest_beta = _ends(group.betas)
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
            "key": list(dict.fromkeys((*group.keys, *group.folds))),  # without repeats
        }
        rows.append(row)
    columns = [*GROUP, *ABOUT_FOLDS, *BETAS, "key"]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(GROUP, "category"))


def _expected(group: CandidateGroup) -> int:
    """Return how many cells with a record complete a group.

    While folds are pending it is the least number: one fit to all training data follows, or more.
    """
    if group.folds:
        return len(group.folds) + 1
    if group.only_selected:
        return len(group.keys)
    return len(group.betas)


def _ends(betas: Iterable[float | None]) -> tuple[float, float]:
    """Return the smallest and the largest beta; NaN if there are not at least two."""
    distinct = {beta for beta in betas if beta is not None}
    return (min(distinct), max(distinct)) if len(distinct) > 1 else (np.nan, np.nan)


def _records(cells: pa.Table) -> pd.DataFrame:
    """Return records as a frame.

    Each option of an estimator is a column. Initial hyperparameters and options of the objective,
    which are JSON in records, become texts such as `lengthscale=sqrt, noise=0.5`.
    """
    frame = cells.to_pandas()
    frame = frame.astype({"M": "int64", "n": "int64", "seed": "int64"})
    options = _options(frame)
    for name in ("initial", "objective_options"):
        if name in frame:
            texts = {text: _json_as_text(text) for text in frame[name].cat.categories}
            frame[name] = frame[name].map(texts).astype("category")
    for name in _categories(frame):
        sorted_texts = sorted(frame[name].cat.categories)
        frame[name] = frame[name].cat.set_categories(sorted_texts)
    frame = frame.join(options, on="options").drop(columns="options")
    absent = [name for name in SHOWN_TEST_METRICS if name not in frame]
    return frame.join(pd.DataFrame(np.nan, index=frame.index, columns=absent))


def _options(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one column per option of estimators, and one row per distinct text of options.

    The index of the rows is the text, which is JSON.
    """
    options = {text: json_value(text.encode()) for text in frame["options"].cat.categories}
    names = dict.fromkeys(FIRST_OPTIONS)
    for values in options.values():
        names |= dict.fromkeys(values)
    # An option of a plugin may have the name of a column, which then stays what it is.
    new = [name for name in names if name not in frame and name not in GROUP]
    rows = [[values.get(name) for name in new] for values in options.values()]
    columns = pd.DataFrame(rows, index=list(options), columns=new)
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
    """Return the tidy table from `candidate_cells`.

    It has the rows that are selected by NLL and, if candidates have an MSE, those selected by MSE.
    A group whose cells lack records or have failed is a row without metrics. Without validation
    rows, as on airline, a group has a selected row only if it has a single candidate.
    """
    chosen = _chosen(candidates)
    table = _defragmented(candidates.loc[chosen.index]).assign(
        selected_by=chosen["selected_by"], status=chosen["status"]
    )
    # The row of a group without a selection is one of its candidates: remove what is only that
    # candidate's.
    is_unselected = table["status"] != "done"
    results = names_with_role(table, "test", "validation", "hyperparameter")
    table.loc[is_unselected, [*results, "beta"]] = np.nan
    if "components" in table and is_unselected.any():
        table["components"] = table["components"].where(~is_unselected)
    table.loc[is_unselected, "key"] = None
    edges = pd.Series(_edges(table), index=table.index, name="edge")
    return _ordered(pd.concat([table, edges], axis=1))


def _chosen(candidates: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the tidy table, with `selected_by` and `status`.

    A group that no metric selects from has one row, with the status `incomplete` or `failed`.
    """
    metrics = dict.fromkeys(["validation_nll", "validation_mse"])
    metrics |= dict.fromkeys(names_with_role(candidates, "validation"))
    columns = [*SELECTING, *metrics]
    if "components" in candidates:
        columns.append("components")
    rows = candidates.reindex(columns=columns).astype({"status": str})
    # 1. Which metrics does a group have? Each of these is a value per row, equal within a group.
    has_metric = rows[list(metrics)].notna().groupby(rows["group"]).transform("any")
    has_nll = has_metric["validation_nll"]
    has_mse = has_metric["validation_mse"]
    is_validated = has_metric.any(axis=1)
    # 2. Which groups are in the table? Those with a validation metric, those with a single
    #    candidate, and those that lack records or whose candidates have all failed; but none that
    #    measure gradients.
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
    chosen = pd.concat([by_nll, by_mse, unselected])
    # In descending order nll comes before mse.
    return chosen.sort_values(["group", "selected_by"], ascending=[True, False])


def _edges(table: pd.DataFrame) -> np.ndarray:
    """Return for each row whether its beta is the `smallest` or `largest` of several, or ''."""
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
    components. A single candidate is selected without a validation metric, too. Groups without any
    such row are left out.
    """
    name = f"validation_{metric}"
    unknown = pd.Series(np.nan, index=candidates.index)
    values = candidates.get(name, unknown)
    is_finite = pd.Series(np.isfinite(values), index=candidates.index)
    is_single = (candidates["candidates"] == 1) & (candidates["role"] != "gradient")
    needs_no_metric = is_single & values.isna()
    is_usable = (candidates["status"] == "done") & (is_finite | needs_no_metric)
    # The columns to sort by, in this order.
    ranks = {
        "group": candidates["group"],
        "value": values,
        "minus_beta": -candidates["beta"].fillna(0.0),
    }
    if "components" in candidates:
        ranks["components"] = candidates["components"]
    ranked = pd.DataFrame(ranks)[is_usable].sort_values(list(ranks), kind="stable")
    return candidates.loc[ranked.drop_duplicates("group").index]


def best_at_each_beta(candidates: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return one candidate for each group and beta: the number of components with the best metric.

    The metric is the validation metric of this name. Without it, the fewest components are taken.
    """
    if "components" not in candidates or candidates["components"].nunique() < 2:
        return candidates
    value = candidates.get(f"validation_{metric}", pd.Series(np.nan, index=candidates.index))
    ranked = candidates.assign(value=value).sort_values(["value", "components"], kind="stable")
    best = ranked.drop_duplicates(["group", "beta"]).index
    return candidates.loc[candidates.index.isin(best)]


def rows_for(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the row of each group selected for a reported metric.

    For MSE it is the row selected by MSE, for other metrics the one selected by NLL. Of a group
    with a single row, that row is returned for every metric.
    """
    wanted = "mse" if metric == "mse" else "nll"
    # Put the wanted rows first, then keep the first row of each group.
    is_other = (table["selected_by"] != wanted).to_numpy()
    wanted_first = table.iloc[np.argsort(is_other, kind="stable")]
    return wanted_first.drop_duplicates("group").sort_index()


def _ordered(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with the columns first that people look for: identity, selection, scores."""
    in_order = (*IDENTITY, *SELECTION, *USER_TABLE_METRICS, *SHOWN_TEST_METRICS)
    leading = [name for name in in_order if name in frame]
    others = [name for name in frame.columns if name not in leading]
    return _defragmented(frame[[*leading, *others]].reset_index(drop=True))


def _defragmented(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a copy of the frame, whose columns lie together in memory.

    pandas keeps each added column in a block of its own, and warns when there are over 100 blocks.
    """
    return frame.copy()


def as_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with plain texts in place of categories, for users."""
    dtypes: dict[str, Any] = {}
    for name in _categories(frame):
        texts = frame[name].cat.categories
        dtypes[name] = texts.dtype if len(texts) else TEXT_DTYPE
    return _defragmented(frame.astype(dtypes))


def without_internal_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame without the columns that mean nothing outside of its results folder."""
    return frame[chosen_names(map(str, frame), lambda column: column.role != "internal")]


def _categories(frame: pd.DataFrame) -> list[str]:
    """Return the names of the columns whose texts are categories."""
    return [str(name) for name in frame if frame[name].dtype == "category"]
