"""Records as one long table, and the selection of beta: pure functions of records."""

import math
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import numpy as np
import pandas as pd

from dlmexp.sweep.cell import Cell
from dlmexp.sweep.whole import choices

METRICS = ("nll", "mse", "error", "mre")
# Beta is chosen among rows that agree in all of these: every field of a cell but beta.
IDENTITY = [f.name for f in fields(Cell) if f.name != "beta"]


def flatten(record: dict[str, Any]) -> dict[str, Any]:
    """One record as one row: the cell's fields, the result's scalars, metrics as `test_nll`, `validation_mse`, ..."""
    result, made = record["result"], record["made"]
    row: dict[str, Any] = {"key": record["key"], "status": record["status"], **record["cell"]}
    for part in ("validation", "test"):
        for metric in METRICS:
            row[f"{part}_{metric}"] = result.get(part, {}).get(metric)
    for name in ("iterations", "converged", "seconds", "acceptance", "objective_value", "y_std", "reason", "bias"):
        row[name] = result.get(name)
    for name, value in result.get("hyperparameters", {}).items():
        row[f"hyper_{name}"] = value
    for name in ("device", "host", "time", "version", "commit", "command"):
        row[name] = made.get(name)
    return row


def table(records: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """All records, every beta, one row each."""
    frame = pd.DataFrame([flatten(r) for r in records])
    for column in frame.columns:
        if column.startswith(("validation_", "test_")) or column in ("beta", "seconds", "acceptance"):
            frame[column] = pd.to_numeric(frame[column])
    return frame


def select(cells: pd.DataFrame, methods: dict[str, dict[str, Any]], metric: str = "nll") -> pd.DataFrame:
    """One row per method and identity: the beta with the lowest validation `metric`, ties to the larger (SPEC 6).

    `methods` maps a method's name to its `objective`, `variant`, `select` (as in `conf/method`). A failed or
    non-finite candidate is never chosen; `candidates` and `failed` count what there was to choose from. Where part of
    the beta grid has not been run yet there is nothing to choose. Square-loss methods are always selected by MSE, the
    only metric they have.
    """
    chosen = []
    for name, method in methods.items():
        rows = cells[(cells["objective"] == method["objective"]) & (cells["variant"] == method["variant"])]
        if not method["select"]:
            rows = rows[rows["beta"].isna() | (rows["beta"] == 1.0)]
        if rows.empty:
            continue
        by = f"validation_{'mse' if method['objective'] == 'sq_dlm' else metric}"
        group = rows.groupby(IDENTITY, dropna=False, sort=False, observed=True).ngroup()
        rows = rows.assign(
            method=name,
            selected_by=by,
            candidates=group.map(group.value_counts()),
            failed=(rows["status"] == "failed").groupby(group).transform("sum"),
        )
        allowed = _choices(group, rows, chosen_beta(method, methods))
        usable = rows[allowed & (rows["status"] == "done") & np.isfinite(rows[by].astype(float))]
        ordered = usable.sort_values([by, "beta"], ascending=[True, False], kind="stable")
        chosen.append(ordered.drop_duplicates(IDENTITY).sort_values(IDENTITY))
    return pd.concat(chosen, ignore_index=True) if chosen else cells.iloc[:0]


def chosen_beta(method: dict[str, Any], methods: dict[str, dict[str, Any]]) -> bool:
    """Whether a method is another with its beta chosen (beta-ELBO, ELBO): where beta = 1 alone was run, that was the
    other."""
    others = ((m["objective"], m["variant"]) for m in methods.values() if not m["select"])
    return method["select"] and (method["objective"], method["variant"]) in others


def _choices(group: pd.Series, rows: pd.DataFrame, not_one_alone: bool) -> np.ndarray:
    """Which rows validation may choose. (Plain loops: a thousand small frames take a second.)"""
    betas: dict[int, set[float | None]] = {}
    values = [None if math.isnan(beta) else beta for beta in rows["beta"]]
    for number, beta in zip(group, values, strict=True):
        betas.setdefault(number, set()).add(beta)
    sizes = dict(zip(group, rows["n"], strict=True))
    allowed = {
        number: choices(int(sizes[number]), frozenset(some))
        for number, some in betas.items()
        if not (not_one_alone and some == {1.0})
    }
    return np.array([beta in allowed.get(number, ()) for number, beta in zip(group, values, strict=True)], dtype=bool)
