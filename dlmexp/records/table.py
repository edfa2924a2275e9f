"""Records as tables: one row per record, and one row per selection."""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from dlmexp.catalogue import methods
from dlmexp.plan.cell import FIRST_OPTIONS, IDENTITY, LATER_FIELDS
from dlmexp.records.schema import Record
from dlmexp.records.selection import Choice

METRICS = ("nll", "mse", "error", "mre")
# Beside them where a record has them: records from before they were measured have none.
CALIBRATION = (
    "crps", "coverage_50", "width_50", "coverage_90", "width_90", "coverage_95", "width_95", "brier", "ece",
)  # fmt: skip
# The columns that tell selections apart, estimator options under their own names.
BY = [name for field in IDENTITY for name in (FIRST_OPTIONS if field == "options" else (field,))]


def row(record: Record) -> dict[str, Any]:
    """One record as one row: the cell's fields, the result's scalars, metrics as `test_nll`, `validation_mse`, ..."""
    result, made = record.result, record.made
    found: dict[str, Any] = {"key": record.key, "status": record.status, **dict(sorted(record.cell.flat().items()))}
    for part, values in (("validation", result.validation), ("test", result.test)):
        for metric in dict.fromkeys((*METRICS, *values)):
            found[f"{part}_{metric}"] = values.get(metric)
    for name in ("iterations", "converged", "seconds", "acceptance", "objective_value", "y_std", "reason", "bias"):
        found[name] = getattr(result, name)
    for name, value in result.hyperparameters.items():
        found[f"hyper_{name}"] = value
    for name in ("device", "host", "time", "version", "commit", "command"):
        found[name] = getattr(made, name)
    return found


def table(records: Iterable[Record]) -> pd.DataFrame:
    """All records, every beta, one row each. A field that cells have had since a later version is a column only where
    some record has another value than its default."""
    records = list(records)
    frame = pd.DataFrame([row(record) for record in records])
    usual = [name for name, value in LATER_FIELDS.items() if all(getattr(r.cell, name) == value for r in records)]
    frame = frame.drop(columns=usual, errors="ignore")
    for column in frame.columns:
        if column.startswith(("validation_", "test_")) or column in ("beta", "seconds", "acceptance"):
            frame[column] = pd.to_numeric(frame[column])
        elif frame[column].dtype == object and len({type(value) for value in frame[column].dropna()}) > 1:
            frame[column] = frame[column].map(str, na_action="ignore")  # an option that is a word here, a number there
    return frame


def selected_table(several: Iterable[Choice], cells: pd.DataFrame) -> pd.DataFrame:
    """One row per selection for NLL: the selected record's row of `cells`, with `method`, `selected_by`, and how many
    `candidates` there were, `failed` ones included. Where a method has selections from two beta grids, `betas` names
    the grid; where there are other protocols than `paper`, `protocol` names the one."""
    chosen: dict[str, list[dict[str, Any]]] = {name: [] for name in methods()}
    grids: dict[tuple, set[str]] = {}
    for one in several:
        record = one.selected("nll") if one.cell.kind == "fit" else None
        if record is not None:
            grids.setdefault((one.method, one.cell.identity), set()).add(one.betas)
            about = {"method": one.method, "selected_by": f"validation_{one.selected_by('nll')}"}
            counts = {"candidates": len(one.records), "failed": one.failed}
            found = {"key": record.key, **about, **counts, "betas": one.betas, "protocol": one.protocol}
            chosen.setdefault(one.method, []).append(found)
    rows = pd.DataFrame([line for lines in chosen.values() for line in lines])
    if rows.empty:
        return cells.iloc[:0]
    if all(len(rules) == 1 for rules in grids.values()):
        rows = rows.drop(columns="betas")
    if set(rows["protocol"]) == {"paper"}:
        rows = rows.drop(columns="protocol")
    together = cells.merge(rows, on="key", how="inner")
    ordered = [
        together[together["method"] == name].sort_values([name for name in BY if name in together]) for name in chosen
    ]
    return pd.concat([some for some in ordered if len(some)], ignore_index=True)
