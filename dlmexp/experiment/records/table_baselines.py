"""Test metrics of baselines on users' own tables, in the folder `tables` of the results."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from dlmexp.common.atomic import path_inside, write_atomically
from dlmexp.common.errors import Unreadable
from dlmexp.common.reading.files import json_value, read_content

SPLIT_COLUMNS = ("dataset", "data", "split", "n", "seed")
"""The columns whose values identify the training and test rows of a baseline, its split."""
Scores = dict[tuple[tuple[Any, ...], str], dict[str, float]]
"""Test metrics by split (a value for each of `SPLIT_COLUMNS`) and name of the baseline."""


class StoredBaseline(msgspec.Struct):
    """The test metrics of a baseline on one split.

    Attributes:
        split: A value for each of `SPLIT_COLUMNS`.
        method: The name of the baseline.
        scores: The metrics.
    """

    split: list[str | int]
    method: str
    scores: dict[str, float]


def row_of(split: tuple[Any, ...], method: str, scores: dict[str, float]) -> dict[str, Any]:
    """Return the metrics of a baseline as a row of a table."""
    row: dict[str, Any] = dict(zip(SPLIT_COLUMNS, split, strict=True))
    row["method"] = method
    for name, value in scores.items():
        row[f"test_{name}"] = value
    return row


def baselines_path(root: Path, table: str) -> Path:
    """Return the path of the file with the baselines of a user's table."""
    return path_inside(root, root / "tables" / f"{table}.baselines.json")


def stored_baselines(root: Path, table: str) -> Scores:
    """Return the stored metrics of baselines; empty if they can't be read."""
    try:
        stored = json_value(read_content(baselines_path(root, table)), list[StoredBaseline])
    except (OSError, Unreadable):
        return {}
    return {(tuple(item.split), item.method): item.scores for item in stored}


def store_baselines(root: Path, table: str, scores: Scores) -> None:
    """Write all baselines of a table."""
    stored: list[StoredBaseline] = []
    for (split, method), metrics in scores.items():
        stored.append(StoredBaseline(list(split), method, metrics))
    write_atomically(baselines_path(root, table), msgspec.json.encode(stored))


def read_table_baselines(root: Path, tables: Iterable[str]) -> pd.DataFrame:
    """Return the stored baselines of users' tables: a row per split and baseline."""
    rows: list[dict[str, Any]] = []
    for table in tables:
        for (split, method), metrics in stored_baselines(root, table).items():
            rows.append(row_of(split, method, metrics))
    return pd.DataFrame(rows)
