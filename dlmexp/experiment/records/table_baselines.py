"""Test metrics of baselines on users' own tables, which are kept in the folder `tables`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from dlmexp.common.atomic import within, write_atomically
from dlmexp.common.errors import Unreadable
from dlmexp.common.reading.files import content, json_value

IDENTITY = ("dataset", "data", "split", "n", "seed", "method")


class Kept(msgspec.Struct):
    """What is kept of a baseline: the split by the fields of its cells, and test metrics."""

    split: list[str | int]
    method: str
    scores: dict[str, float]


def row_of(split: tuple[Any, ...], method: str, scores: dict[str, float]) -> dict[str, Any]:
    """Return the metrics of a baseline as a row of a table."""
    row = dict(zip(IDENTITY, (*split, method), strict=True))
    return row | {f"test_{name}": value for name, value in scores.items()}


def kept_path(root: Path, name: str) -> Path:
    """Return the file of the baselines of a table."""
    return within(root, root / "tables" / f"{name}.baselines.json")


def known_baselines(root: Path, name: str) -> dict[tuple[tuple[Any, ...], str], dict[str, float]]:
    """Return what was computed before, by split and method; nothing if it can't be read."""
    try:
        rows = json_value(content(kept_path(root, name)), list[Kept])
    except (OSError, Unreadable):
        return {}
    return {(tuple(kept.split), kept.method): kept.scores for kept in rows}


def keep_baselines(root: Path, name: str, known: dict) -> None:
    """Write all baselines of a table."""
    rows = [Kept(list(split), method, scores) for (split, method), scores in known.items()]
    write_atomically(kept_path(root, name), msgspec.json.encode(rows))


def read_table_baselines(root: Path, names: Iterable[str]) -> pd.DataFrame:
    """Return the baselines that are kept in a results folder, as `table_baselines` does."""
    rows = []
    for name in names:
        known = known_baselines(root, name)
        rows += [row_of(split, method, scores) for (split, method), scores in known.items()]
    return pd.DataFrame(rows)
