"""The tidy table: one row per selected result, one column per fact (`columns.COLUMNS`).

It is made here, from records and what was asked for. Figures, claims, the report, closing tables
and Python users read it and nothing else. `candidate_cells` has a row for every cell that was asked
for and has a record. `tidy` keeps of each group of candidates the one with the lowest validation
metric (`select`); no refit follows.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dlmexp.common.reading.files import json_value
from dlmexp.experiment.plan.cell import FIRST_OPTIONS, Asked
from dlmexp.experiment.records.columns import (
    IDENTITY,
    SELECTION,
    SHOWN_TEST_METRICS,
    USER_TABLE_METRICS,
    chosen_names,
    names_with_role,
)

TEXT_DTYPE = pd.Series(["text"]).dtype  # depends on the version of pandas
# What `candidate_cells` takes from a group of candidates, apart from the keys of its cells.
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
ABOUT_FOLDS = ["expected", "only_selected", "has_folds"]
BETAS = ["smallest_beta", "largest_beta"]  # of all candidates
# What `_chosen` reads besides the validation metrics.
SELECTING = ["group", "role", "selection", "candidates", "failed", "missing", "status", "beta"]


def candidate_cells(cells: pa.Table, asked: Iterable[Asked]) -> pd.DataFrame:
    """Return one row per cell that was asked for and has a record; a cell in two groups has two.

    Selections by folds have the fits to all rows (`refits.Selections.shown`), or a single row where
    these are still missing. Groups with the same cells, role and setting are one, which names all
    their experiments. `failed` and `missing` count the cells of the group of a row. Texts, but for
    keys, are categories.

    Args:
        cells: Records as rows (`Store.cells`).
        asked: Groups of candidates.
    """
    # One row per key of a group; `group` is the number of the group.
    asked_keys = _groups(asked).explode("key").rename_axis("group").reset_index()
    records = _records(cells).set_index("key")
    rows = _joined(asked_keys.join(records, on="key", how="inner").reset_index(drop=True))
    rows["candidates"] = rows["candidates"].astype("int64")
    is_failed = rows["status"] != "done"
    by_group = is_failed.groupby(rows["group"])
    # Where folds select, the only candidates with rows are the selected ones.
    has_all_failed = by_group.transform("all") & rows["only_selected"]
    rows["failed"] = by_group.transform("sum").where(~has_all_failed, rows["candidates"])
    missing = rows["expected"] - by_group.transform("size")
    rows["missing"] = missing.where(~rows["has_folds"], missing.clip(lower=1))
    rows = rows[~rows["has_folds"] | ~rows["group"].duplicated()]
    return _ordered(rows.drop(columns=ABOUT_FOLDS))


def _groups(asked: Iterable[Asked]) -> pd.DataFrame:
    """Return one row per distinct group of candidates, with the list of its keys."""
    groups: dict[tuple[object, ...], Asked] = {}
    experiments: dict[tuple[object, ...], dict[str, None]] = {}
    for group in asked:
        # The same group may be part of several experiments.
        _, *same = group.identity
        groups.setdefault(tuple(same), group)
        experiments.setdefault(tuple(same), {})[group.experiment] = None
    rows = []
    for identity, group in groups.items():
        setting = group.setting
        rows.append(
            (
                group.size,
                group.method,
                group.role,
                setting.protocol,
                setting.text,
                setting.selection,
                ", ".join(experiments[identity]),
                group.stands_for,
                len(group.betas),
                _expected(group),
                group.only_selected,
                bool(group.folds),
                *_ends(group.betas),
                list(dict.fromkeys((*group.keys, *group.folds))),
            )
        )
    columns = [*GROUP, *ABOUT_FOLDS, *BETAS, "key"]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(GROUP, "category"))


def _expected(group: Asked) -> int:
    """Return how many cells with a record complete a group; of a selection by folds, at least."""
    if group.folds:
        return len(group.folds) + 1
    return len(group.keys if group.only_selected else group.betas)


def _ends(betas: Iterable[float | None]) -> tuple[float, float]:
    """Return the smallest and the largest of some betas; NaN where there is no choice."""
    values = {beta for beta in betas if beta is not None}
    return (min(values), max(values)) if len(values) > 1 else (np.nan, np.nan)


def _records(cells: pa.Table) -> pd.DataFrame:
    """Return records as a frame: options of estimators as columns, numbers by name as one text."""
    frame = cells.to_pandas()
    frame = frame.astype({"M": "int64", "n": "int64", "seed": "int64"})
    options = _options(frame)
    for name in ("initial", "objective_options"):
        if name in frame:
            texts = {text: _settings_as_text(text) for text in frame[name].cat.categories}
            frame[name] = frame[name].map(texts).astype("category")
    for name in _categories(frame):
        sorted_texts = sorted(frame[name].cat.categories)
        frame[name] = frame[name].cat.set_categories(sorted_texts)
    frame = frame.join(options, on="options").drop(columns="options")
    absent = [name for name in SHOWN_TEST_METRICS if name not in frame]
    return frame.join(pd.DataFrame(np.nan, index=frame.index, columns=absent))


def _options(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the options of estimators as columns, by their JSON text."""
    options = {text: json_value(text.encode()) for text in frame["options"].cat.categories}
    names = dict.fromkeys(FIRST_OPTIONS)
    for values in options.values():
        names |= dict.fromkeys(values)
    new = [name for name in names if name not in frame and name not in GROUP]
    rows = [[values.get(name) for name in new] for values in options.values()]
    columns = pd.DataFrame(rows, index=list(options), columns=new)
    columns["samples"] = pd.to_numeric(columns["samples"], errors="coerce").astype("float64")
    return columns


def _settings_as_text(text: str) -> str:
    """Return values by name, which are JSON, as `lengthscale=sqrt, noise=0.5`."""
    values = json_value(text.encode())
    return ", ".join(f"{name}={_short(values[name])}" for name in sorted(values))


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def tidy(candidates: pd.DataFrame) -> pd.DataFrame:
    """Return the tidy table from `candidate_cells`.

    It has the selected rows, by NLL and by MSE where candidates have both. Groups that lack records
    or failed are rows without metrics. Without validation rows, as on airline, only groups with a
    single candidate are selected.
    """
    chosen = _chosen(candidates)
    table = _joined(candidates.loc[chosen.index]).assign(
        selected_by=chosen["selected_by"], status=chosen["status"]
    )
    undone = table["status"] != "done"
    results = names_with_role(table, "test", "validation", "hyperparameter")
    table.loc[undone, [*results, "beta"]] = np.nan
    if "components" in table and undone.any():
        table["components"] = table["components"].where(~undone)
    table.loc[undone, "key"] = None
    edges = pd.Series(_edges(table), index=table.index, name="edge")
    return _ordered(pd.concat([table, edges], axis=1))


def _chosen(candidates: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the tidy table, with `selected_by` and `status`.

    A group that no metric selects from has one row, with the status `incomplete` or `failed`.
    """
    metrics = dict.fromkeys(["validation_nll", "validation_mse"])
    metrics |= dict.fromkeys(names_with_role(candidates, "validation"))
    ranks = [name for name in ("components",) if name in candidates]
    rows = candidates.reindex(columns=[*SELECTING, *ranks, *metrics]).astype({"status": str})
    is_known = rows[list(metrics)].notna().groupby(rows["group"]).transform("any")
    has_nll = is_known["validation_nll"]
    has_mse = is_known["validation_mse"]
    is_validated = is_known.any(axis=1)
    # Groups that measure gradients have no row, nor have complete ones of several candidates that
    # no validation metric tells apart.
    is_undecided = (rows["missing"] > 0) | (rows["failed"] == rows["candidates"])
    is_shown = is_validated | (rows["candidates"] == 1) | is_undecided
    is_shown &= rows["role"] != "gradient"
    is_complete = is_shown & (rows["missing"] == 0)
    wants_nll = has_nll | ~is_validated
    # A protocol may select by NLL whatever is reported.
    wants_mse = has_mse & ((rows["selection"] == "reported") | ~has_nll)
    by_nll = select(rows[is_complete & wants_nll], "nll").assign(selected_by="nll")
    by_mse = select(rows[is_complete & wants_mse], "mse").assign(selected_by="mse")
    is_selected = rows["group"].isin([*by_nll["group"], *by_mse["group"]])
    rest = rows[is_shown & ~is_selected].drop_duplicates("group")
    status = np.where(rest["missing"] > 0, "incomplete", "failed")
    rest = rest.assign(selected_by="nll", status=status)
    chosen = pd.concat([by_nll, by_mse, rest])
    # In each group nll is before mse.
    return chosen.sort_values(["group", "selected_by"], ascending=[True, False])


def _edges(table: pd.DataFrame) -> np.ndarray:
    """Return for each row whether its beta is the `smallest` or `largest` of several, or ''."""
    conditions = [table["beta"] == table[name] for name in BETAS]
    return np.select(conditions, ["smallest", "largest"], "")


def selected_or_undecided(candidates: pd.DataFrame) -> pd.DataFrame:
    """Return the candidates that some metric selects, and all of groups without a selection yet."""
    table = tidy(candidates)
    selected = table[table["status"] == "done"]
    is_undecided = ~candidates["group"].isin(selected["group"])
    return candidates[is_undecided | candidates["key"].isin(selected["key"])]


def select(candidates: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the row of each `group` with the lowest finite validation metric.

    Of equals the one with the larger beta, then with fewer components, is taken. Groups without
    such a row are left out. A single candidate needs no validation rows.
    """
    name = f"validation_{metric}"
    unknown = pd.Series(np.nan, index=candidates.index)
    values = candidates.get(name, unknown)
    is_alone = (candidates["candidates"] == 1) & (candidates["role"] != "gradient")
    is_finite = pd.Series(np.isfinite(values), index=candidates.index)
    is_usable = (candidates["status"] == "done") & (is_finite | (is_alone & values.isna()))
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
    """Return of candidates that differ in their components alone the one with the lowest metric.

    The metric is that of the validation rows. Where they have none, the fewest components stay.
    """
    if "components" not in candidates or candidates["components"].nunique() < 2:
        return candidates
    value = candidates.get(f"validation_{metric}", pd.Series(np.nan, index=candidates.index))
    ranked = candidates.assign(value=value).sort_values(["value", "components"], kind="stable")
    best = ranked.drop_duplicates(["group", "beta"]).index
    return candidates.loc[candidates.index.isin(best)]


def rows_for(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the row of each group selected for a reported metric.

    MSE takes the row selected by MSE, other metrics the one selected by NLL. A group with a single
    row has that one.
    """
    wanted = "mse" if metric == "mse" else "nll"
    is_other = (table["selected_by"] != wanted).to_numpy()
    wanted_first = table.iloc[np.argsort(is_other, kind="stable")]
    return wanted_first.drop_duplicates("group").sort_index()


def _ordered(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns in the order in which people look for them."""
    in_order = (*IDENTITY, *SELECTION, *USER_TABLE_METRICS, *SHOWN_TEST_METRICS)
    leading = [name for name in in_order if name in frame]
    rest = [name for name in frame.columns if name not in leading]
    return _joined(frame[[*leading, *rest]].reset_index(drop=True))


def _joined(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame in few blocks of memory: pandas warns where columns are added to 100."""
    return frame.copy()


def as_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with plain texts in place of categories, for users."""
    dtypes = {}
    for name in _categories(frame):
        texts = frame[name].cat.categories
        dtypes[name] = texts.dtype if len(texts) else TEXT_DTYPE
    return _joined(frame.astype(dtypes))


def without_internal_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame without the columns that mean nothing outside of its results folder."""
    return frame[chosen_names(map(str, frame), lambda column: column.role != "internal")]


def _categories(frame: pd.DataFrame) -> list[str]:
    """Return the names of the columns of categories."""
    return [str(name) for name in frame if frame[name].dtype == "category"]
