"""The tidy table: one row per selected result, one column per fact. Made here, from records and
what was asked for; figures, claims, the report, closing tables and Python users read it and nothing
else.

`candidate_cells` has a row for every cell that was asked for and has a record, `tidy` keeps of each
group of candidates the one with the lowest validation metric (`select`). No refit follows."""

from collections.abc import Iterable

import numpy as np
import pandas as pd
import pyarrow as pa

from dlmexp.common.reading.files import json_value
from dlmexp.experiment.plan.cell import FIRST_OPTIONS, Asked

IDENTITY = [
    "dataset", "stands_for", "task", "n", "size", "seed", "method", "estimator", "samples", "parameterisation", "role",
    "protocol", "changes",
]  # fmt: skip
SELECTION = ["selected_by", "beta", "candidates", "missing", "failed", "edge", "status", "key"]
TEST = [f"test_{name}" for name in ("nll", "mse", "error", "mre")]
OWN_UNITS = [
    f"test_{name}" for name in ("rmse", "mae", "r2", "coverage_95")
]  # of users' own tables, beside TEST
PLAIN = pd.Series(["text"]).dtype  # of texts, which depends on the version of pandas
JSON = ("options", "initial")  # columns of records that are objects
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


def candidate_cells(cells: pa.Table, asked: Iterable[Asked]) -> pd.DataFrame:
    """One row per cell that was asked for and has a record, from `Store.cells`; a cell of two
    groups of candidates has two. Groups with the same cells, role and setting are one, which names
    all their experiments. `failed` and `missing` count the cells of a row's group. Texts other than
    keys are categories."""
    groups: dict[tuple[object, ...], tuple[Asked, dict[str, None]]] = {}
    for each in asked:
        groups.setdefault(each.identity[1:], (each, {}))[1][each.experiment] = None
    rows = [
        (each.size, each.method, each.role, each.setting.protocol, each.setting.text, each.setting.selection,
         ", ".join(experiments), each.stands_for, len(each.betas), [*dict.fromkeys(each.keys)])
        for each, experiments in groups.values()
    ]  # fmt: skip
    about = pd.DataFrame(rows, columns=[*GROUP, "key"]).astype(dict.fromkeys(GROUP, "category"))
    groups_of_cells = about.explode("key").rename_axis("group").reset_index()
    frame = groups_of_cells.join(
        _records(cells).set_index("key"), on="key", how="inner"
    ).reset_index(drop=True)
    by_group = frame.assign(failed=frame["status"] != "done").groupby("group")["failed"]
    frame["candidates"] = frame["candidates"].astype("int64")
    frame["failed"], frame["missing"] = (
        by_group.transform("sum"),
        frame["candidates"] - by_group.transform("size"),
    )
    return _ordered(frame)


def _records(cells: pa.Table) -> pd.DataFrame:
    """Records as a frame: options of estimators as columns, initial values as one text."""
    frame = cells.to_pandas(split_blocks=True).astype(dict.fromkeys(["M", "n", "seed"], "int64"))
    given, initial = (
        {text: json_value(text.encode()) for text in frame[name].cat.categories} for name in JSON
    )
    names = dict.fromkeys([*FIRST_OPTIONS, *(name for each in given.values() for name in each)])
    names = [name for name in names if name not in {*frame, *GROUP}]
    options = pd.DataFrame(
        [[each.get(name) for name in names] for each in given.values()], list(given), names
    )
    options["samples"] = pd.to_numeric(options["samples"], errors="coerce").astype("float64")
    texts = {
        text: ", ".join(f"{name}={each[name]:g}" for name in sorted(each))
        for text, each in initial.items()
    }
    frame["initial"] = frame["initial"].map(texts).astype("category")
    coded = {name: frame[name].cat for name in frame if frame[name].dtype == "category"}
    frame = frame.assign(
        **{name: text.set_categories(sorted(text.categories)) for name, text in coded.items()}
    )
    frame = frame.join(options, "options").drop(columns="options")
    return frame.assign(**{name: np.nan for name in TEST if name not in frame})


def tidy(candidates: pd.DataFrame) -> pd.DataFrame:
    """The tidy table from `candidate_cells`: selected rows, by NLL and by MSE where candidates have
    both; groups that lack records or failed are rows without metrics. Without validation rows, as
    on airline, only groups with a single candidate are selected."""
    names = ["group", "role", "selection", "candidates", "failed", "missing", "status", "beta"]
    measured = dict.fromkeys(
        ["validation_nll", "validation_mse", *_starting(candidates, "validation_")]
    )
    rows = candidates.reindex(columns=[*names, *measured]).astype({"status": str})
    known = rows[[*measured]].notna().groupby(rows["group"]).transform("any")
    nll, mse, validated = known["validation_nll"], known["validation_mse"], known.any(axis=1)
    undecided = (rows["missing"] > 0) | (rows["failed"] == rows["candidates"])
    fits = (rows["role"] != "gradient") & (validated | (rows["candidates"] == 1) | undecided)
    complete = fits & (rows["missing"] == 0)
    by_mse = mse & (
        (rows["selection"] == "reported") | ~nll
    )  # a protocol may ask for NLL whatever is reported
    by_nll = select(rows[complete & (nll | ~validated)], "nll").assign(selected_by="nll")
    by_mse = select(rows[complete & by_mse], "mse").assign(selected_by="mse")
    rest = rows[fits & ~rows["group"].isin([*by_nll["group"], *by_mse["group"]])].drop_duplicates(
        "group"
    )
    rest = rest.assign(
        selected_by="nll", status=np.where(rest["missing"] > 0, "incomplete", "failed")
    )
    chosen = pd.concat([by_nll, by_mse, rest]).sort_values(
        ["group", "selected_by"], ascending=[True, False]
    )
    table = candidates.loc[chosen.index].assign(
        selected_by=chosen["selected_by"], status=chosen["status"]
    )
    empty = table["status"] != "done"
    table.loc[empty, [*_starting(table, "test_", "validation_", "hyper_"), "beta"]] = np.nan
    table.loc[empty, "key"] = None
    betas = rows.groupby("group")["beta"]
    ends = [betas.transform(end)[table.index] == table["beta"] for end in ("min", "max")]
    table["edge"] = np.select(
        [end & (table["candidates"] > 1) for end in ends], ["smallest", "largest"], ""
    )
    return _ordered(table)


def selected_or_undecided(candidates: pd.DataFrame) -> pd.DataFrame:
    """The candidates that some metric selects, and all of a group in which nothing is selected
    (yet)."""
    table = tidy(candidates)
    selected = table[table["status"] == "done"]
    undecided = ~candidates["group"].isin(selected["group"])
    return candidates[undecided | candidates["key"].isin(selected["key"])]


def select(candidates: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The row of each `group` with the lowest finite validation metric, the larger beta of equals.
    Groups without such a row are left out. A single candidate needs no validation rows."""
    name = f"validation_{metric}"
    values = candidates[name] if name in candidates else pd.Series(np.nan, index=candidates.index)
    alone = (candidates["candidates"] == 1) & values.isna() & (candidates["role"] != "gradient")
    usable = (candidates["status"] == "done") & (np.isfinite(values) | alone)
    ranked = pd.DataFrame(
        {"group": candidates["group"], "value": values, "beta": -candidates["beta"].fillna(0.0)}
    )
    ranked = ranked[usable].sort_values(["group", "value", "beta"], kind="stable")
    return candidates.loc[ranked.drop_duplicates("group").index]


def _starting(frame: pd.DataFrame, *beginnings: str) -> list[str]:
    """The columns whose names begin so."""
    return [name for name in map(str, frame.columns) if name.startswith(beginnings)]


def _ordered(frame: pd.DataFrame) -> pd.DataFrame:
    """The columns in the order in which people look for them."""
    first = [name for name in (*IDENTITY, *SELECTION, *OWN_UNITS, *TEST) if name in frame]
    return frame[[*first, *(name for name in frame.columns if name not in first)]].reset_index(
        drop=True
    )


def as_text(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with plain texts in place of categories, for users."""
    coded = {name: frame[name].cat.categories for name in frame if frame[name].dtype == "category"}
    return frame.astype(
        {name: texts.dtype if len(texts) else PLAIN for name, texts in coded.items()}
    )


def rows_for(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """The row of each group selected for a reported metric: by MSE for MSE, by NLL for all others;
    the only row where there is one."""
    wanted = "mse" if metric == "mse" else "nll"
    ordered = table.iloc[np.argsort((table["selected_by"] != wanted).to_numpy(), kind="stable")]
    return ordered.drop_duplicates("group").sort_index()
