"""One results folder in memory: every sound record, the selected ones, and the arrays on demand.

Plain dictionaries rather than a table: a panel takes some hundreds of small picks, each far cheaper this way.
"""

import gc
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dlmexp.errors import UserError
from dlmexp.figures import conf
from dlmexp.sweep.store import Store
from dlmexp.sweep.table import IDENTITY, chosen_beta, select, table

Record = dict[str, Any]


def on_test(record: Record, metric: str) -> float:
    """A record's test metric; NaN for a failed cell and for a metric it does not have."""
    return _number(record["result"].get("test", {}).get(metric))


def on_validation(record: Record, metric: str) -> float:
    return _number(record["result"].get("validation", {}).get(metric))


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else np.nan


def _candidates(fits: list[Record]) -> pd.DataFrame:
    """What `select` needs of the records' table, as categories: half the time for 20 000 records."""
    if not fits:
        return pd.DataFrame()
    values_of = itemgetter(*IDENTITY)
    values = zip(*(values_of(record["cell"]) for record in fits), strict=True)
    columns: dict[str, Any] = {name: _categories(column) for name, column in zip(IDENTITY, values, strict=True)}
    columns["key"] = [record["key"] for record in fits]
    columns["status"] = pd.Series([record["status"] for record in fits], dtype=object)
    columns["beta"] = np.array([_number(record["cell"]["beta"]) for record in fits])
    for metric in ("nll", "mse"):
        columns[f"validation_{metric}"] = np.array([on_validation(record, metric) for record in fits])
    return pd.DataFrame(columns)


def _categories(values: tuple[Any, ...]) -> Any:
    distinct = [value for value in dict.fromkeys(values) if value is not None]
    numbers: dict[Any, int] = {None: -1} | {value: number for number, value in enumerate(distinct)}
    codes = list(map(numbers.__getitem__, values))
    return pd.Categorical.from_codes(codes, dtype=pd.CategoricalDtype(distinct))


def _place(record: Record) -> tuple[Any, ...]:
    """Where beta is chosen."""
    cell = record["cell"]
    return cell["n"], cell["seed"], cell["parameterisation"]


def part_of(record: Record) -> str:
    """`fits` evaluated at their end, `curves` (fits with learning curves), or `gradients`."""
    if record["cell"]["kind"] == "gradient":
        return "gradients"
    return "fits" if record["cell"]["evaluate"] == "end" else "curves"


class Results:
    """Records that are looked at together. `label` tells them from others they are compared with."""

    def __init__(self, store: Store, records: Iterable[Record], label: str = ""):
        self.store = store
        self.label = label
        self.records: dict[str, Record] = {record["key"]: record for record in records}

    def restricted(self, keep: Iterable[Record]) -> "Results":
        """The same results with only some of the records left."""
        return Results(self.store, keep, self.label)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Every record, one row each (`dlmexp.sweep.table.table`)."""
        return table(self.records.values())

    @cached_property
    def tasks(self) -> dict[str, str]:
        """Every dataset with records, and its task."""
        return {record["cell"]["dataset"]: record["cell"]["task"] for record in self.records.values()}

    @cached_property
    def parameterisations(self) -> set[str]:
        return {record["cell"]["parameterisation"] for record in self.records.values()}

    @cached_property
    def _groups(self) -> dict[tuple[Any, ...], list[Record]]:
        groups: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
        for record in self.records.values():
            cell = record["cell"]
            names = ("dataset", "objective", "variant", "estimator", "samples")
            groups[part_of(record), *(cell[name] for name in names)].append(record)
        return groups

    def candidates(
        self, part: str, dataset: str, method: str, estimator: str = "exact", samples: int | None = None
    ) -> list[Record]:
        """All records of one method on one dataset: every n, seed and beta, failed ones included."""
        spec = conf.methods()[method]
        found = self._groups.get((part, dataset, spec["objective"], spec["variant"], estimator, samples), [])
        if not spec["select"]:
            return [record for record in found if record["cell"]["beta"] in (None, 1.0)]
        if not chosen_beta(spec, conf.methods()):
            return found
        others = {_place(record) for record in found if record["cell"]["beta"] != 1.0}
        return [record for record in found if _place(record) in others]

    def selected(self, metric: str) -> set[tuple[str, str]]:
        """(method, key) of every record whose beta validation chose: by MSE where MSE is reported, else by NLL.

        Error rates and MRE are those of the NLL experiments ("in the same experiments", appendix), so NLL selects them.
        """
        return self._selected_by_mse if metric == "mse" else self._selected_by_nll

    @cached_property
    def _selected_by_nll(self) -> set[tuple[str, str]]:
        return self._select("nll")

    @cached_property
    def _selected_by_mse(self) -> set[tuple[str, str]]:
        return self._select("mse")

    @cached_property
    def _candidates(self) -> pd.DataFrame:
        return _candidates([record for record in self.records.values() if part_of(record) == "fits"])

    def _select(self, metric: str) -> set[tuple[str, str]]:
        rows = self._candidates
        if rows.empty:
            return set()
        rows = select(rows if metric == "nll" else rows[rows["task"] == "regression"], conf.methods(), metric)
        return set(zip(rows["method"], rows["key"], strict=True)) if "method" in rows else set()

    def arrays(self, record: Record) -> dict[str, np.ndarray]:
        """The arrays beside a record; none for a cell that failed."""
        return self.store.arrays(record) if record["status"] == "done" else {}


def load(folder: str | Path, label: str = "") -> Results:
    """The results under `folder`; a folder without records is a mistake of the user's, said in a sentence."""
    if not Path(folder).is_dir():
        raise UserError(f"there is no folder '{folder}': name the one that `dlmexp run` wrote to with --results")
    store = Store(folder)
    collecting = gc.isenabled()
    gc.disable()  # millions of small objects that all stay: looking for garbage among them takes a fifth of the time
    try:
        results = Results(store, store.all(), label)
    finally:
        if collecting:
            gc.enable()
    if not results.records:
        raise UserError(f"'{folder}' holds no records yet: `dlmexp run` computes some, --results names another folder")
    return results


def load_several(folders: list[str]) -> list[Results]:
    """Several folders to set side by side, each under the shortest end of its path that tells it from the others."""
    parts = [Path(folder).resolve().parts for folder in folders]
    if len(set(parts)) < len(parts):
        raise UserError(f"--compare: a folder is named twice among {', '.join(folders)}")
    depth = 1
    while len({path[-depth:] for path in parts}) < len(parts):
        depth += 1
    return [load(folder, "/".join(path[-depth:])) for folder, path in zip(folders, parts, strict=True)]
