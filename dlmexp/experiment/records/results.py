"""A results folder as its users see it: tidy table, candidates and arrays.

Here stands, too, which trained models stay in a folder, and what `dlmexp collect` writes.
"""

import io
import logging
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import pandas as pd

from dlmexp.common.atomic import within, write_atomically
from dlmexp.common.collector import paused_collector
from dlmexp.common.errors import UserError
from dlmexp.common.literals import with_results_option
from dlmexp.common.reading.files import reading
from dlmexp.common.reading.tables import read_table
from dlmexp.experiment.plan.cell import Asked, Changes
from dlmexp.experiment.records.baselines import read_baselines
from dlmexp.experiment.records.columns import ColumnFilter, every_column
from dlmexp.experiment.records.manifests import Manifest, distinct, read_manifests
from dlmexp.experiment.records.packed import NO_PACKS, TABLE, write_pack
from dlmexp.experiment.records.plugin_versions import mixed_versions
from dlmexp.experiment.records.refits import Selections
from dlmexp.experiment.records.store import DRAWN_ARRAYS, Store, check_has_packs
from dlmexp.experiment.records.table import (
    as_text,
    candidate_cells,
    selected_or_undecided,
    tidy,
    without_internal_columns,
)

log = logging.getLogger(__name__)


class TidyResults(Protocol):
    """What figures, claims and the report read of a results folder."""

    @property
    def root(self) -> Path:
        """The folder."""
        ...

    @property
    def candidates(self) -> pd.DataFrame:
        """One row per cell that was asked for and has a record (`table.candidate_cells`)."""
        ...

    @property
    def table(self) -> pd.DataFrame:
        """One row per selected result (`table.tidy`)."""
        ...

    @property
    def changes(self) -> Mapping[str, Changes]:
        """The changed values of every setting, by their text in the column `changes`."""
        ...

    @property
    def baselines(self) -> pd.DataFrame:
        """One row per split of a method that others trained (`baselines.COLUMNS`)."""
        ...

    def arrays(self, key: str) -> dict[str, np.ndarray]:
        """Return the arrays of a done cell by name (`Store.arrays`)."""
        ...

    def command(self, command: str) -> str:
        """Return a command of dlmexp with the option that names this folder."""
        ...


class ResultsFolder:
    """A folder with the candidates and the tidy table of its records (`TidyResults`).

    Args:
        folder: The folder.
        columns: The columns of records to read.
        others: Folders whose packed records and baselines are read as well.
        only: The groups of candidates to show; None: all that runs have asked for.

    Raises:
        UserError: The folder has no records, or another one has no packs.
    """

    def __init__(
        self,
        folder: str | Path,
        columns: ColumnFilter = every_column,
        others: Iterable[str | Path] = (),
        only: Iterable[Asked] | None = None,
    ):
        self._only = None if only is None else list(only)
        self.store = Store(folder, others=others)
        self.root = self.store.root
        for other in self.store.others:
            check_has_packs(other)
        cells = self.store.cells(columns=columns)
        self.candidates = candidate_cells(cells, self.asked)
        if unknown := len({*cells["key"].to_pylist()} - self._asked_keys):
            why = (
                "belong to no run that is written down there; "
                "give its command again, which trains nothing twice"
            )
            log.warning("%d records in %s are left out: they %s", unknown, self.root, why)
        for sentence in mixed_versions(self.candidates):
            log.warning("%s", sentence)
        if self.candidates.empty:
            computes = (
                f"`{self.command('dlmexp run')}` computes some, --results names another folder"
            )
            raise UserError(f"there are no records in '{folder}': {computes}")

    @cached_property
    def asked(self) -> list[Asked]:
        """What was asked for in this folder, by its packs and its own manifests.

        Complete selections by folds have the selected fits alone (`Selections.shown`).
        """
        groups = self._groups if self._only is None else self._only
        selections = Selections.of(self.store, groups)
        return distinct(selections.shown(group) for group in groups)

    @cached_property
    def _groups(self) -> list[Asked]:
        """The groups of candidates as runs have asked for them."""
        groups: list[Asked] = []
        for pack in self.store.packs:
            groups += pack.asked
        for manifest in read_manifests(self.root):
            groups += manifest.candidates
        return groups

    @property
    def _asked_keys(self) -> set[str]:
        """The keys of all cells that were asked for."""
        return _keys(self._groups)

    @cached_property
    def changes(self) -> dict[str, Changes]:
        """The changed values of every setting, by their text in the column `changes`."""
        return {asked.setting.text: asked.setting.changes for asked in self.asked}

    @cached_property
    def baselines(self) -> pd.DataFrame:
        """One row per split of a method that others trained (`baselines.COLUMNS`)."""
        return read_baselines([self.root, *self.store.others])

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per selected result (`table.tidy`).

        `predict_seconds.csv` in the folder, which `python -m scripts.benchmark models inducing
        --out FILE` writes, adds the seconds to predict 10 000 rows.
        """
        table = tidy(self.candidates)
        path = self.root / "predict_seconds.csv"
        if not path.exists():
            return table
        with reading(path, "is not a table of dataset, M and predict_seconds"):
            seconds = read_table(path).to_pandas().set_index(["dataset", "M"])
            return table.join(seconds, ["dataset", "M"])

    def arrays(self, key: str) -> dict[str, np.ndarray]:
        """Return the arrays of a done cell by name (`Store.arrays`)."""
        return self.store.arrays(key)

    def command(self, command: str) -> str:
        """Return a command of dlmexp with the option that names this folder."""
        return with_results_option(command, self.root, self.store.others)


def drop_unselected(store: Store) -> int:
    """Delete the models that no run in the folder keeps; return how many cells had one.

    Every fit writes its model, since nobody knows yet whether it will be selected. What is deleted
    follows from manifests and records alone, so any process may do it, at any time and more than
    once.
    """
    files = store.keys_with_models()
    if not files:
        return 0
    of_runs: set[str] = set()
    kept: set[str] = set()
    for manifest in read_manifests(store.root):
        with_models = [group for group in manifest.candidates if files.keys() & set(group.keys)]
        if manifest.keep == "none" or not with_models:
            continue
        of_runs |= _keys(with_models)
        kept |= _kept_keys(store, manifest, with_models)
    unwanted = (of_runs & files.keys()) - kept
    for key in unwanted:
        for path in files[key]:
            within(store.root, path).unlink(missing_ok=True)
    return len(unwanted)


def _keys(groups: list[Asked]) -> set[str]:
    """Return the keys of the cells in groups of candidates, those of folds included."""
    keys: set[str] = set()
    for group in groups:
        keys.update(group.keys, group.folds)
    return keys


def _kept_keys(store: Store, manifest: Manifest, groups: list[Asked]) -> set[str]:
    """Return the keys of the cells whose models a run keeps, out of these groups."""
    selections = Selections.of(store, groups)
    shown = [selections.shown(group) for group in groups]
    candidates = candidate_cells(store.cells(_keys(shown)), shown)
    if manifest.keep != "all":
        candidates = selected_or_undecided(candidates)
    kept = set(candidates["key"])
    for group in shown:
        if group.folds:  # some of them are trained again: it is not known yet what they select
            kept.update(group.keys)
    return kept


@paused_collector()
def collect_table(
    results: str, csv: bool = False, others: Iterable[str | Path] = ()
) -> tuple[Path, int]:
    """Write the tidy table of a folder into it; return the file and its number of rows."""
    folder = ResultsFolder(results, others=others)
    table = without_internal_columns(as_text(folder.table))
    path = Path(results, TABLE)
    buffer = io.BytesIO()
    if csv:
        path = path.with_suffix(".csv")
        table.to_csv(buffer, index=False, float_format="%.8g")
    else:
        table.to_parquet(buffer, index=False, compression="zstd")
    write_atomically(path, buffer.getvalue())
    return path, len(table)


@paused_collector()
def collect_packed(
    results: str, path: str, protocol: str | None = None, others: Iterable[str | Path] = ()
) -> int:
    """Write all records of a folder, those in packs included, as one pack; return their number.

    Reliability diagrams are kept for the cells that a selection may show.

    Args:
        results: The folder.
        path: The Parquet file to write.
        protocol: Only what was asked for under it, without changes of its values.
        others: Folders whose packed records are packed as well.

    Raises:
        UserError: `path` does not name a Parquet file, or nothing was asked for under the protocol.
    """
    if not path.endswith(".parquet") or Path(path).name in NO_PACKS or Path(path).is_dir():
        names = " or ".join(NO_PACKS)
        raise UserError(f"--pack '{path}': name a file that ends in .parquet, other than {names}")
    folder = ResultsFolder(results, others=others)
    asked = folder.asked if protocol is None else _under_protocol(folder.asked, protocol)
    cells = folder.store.cells(_keys(asked))
    shown = set(selected_or_undecided(folder.candidates)["key"])
    arrays: dict[str, dict[str, np.ndarray]] = {}
    for row in cells.select(["key", "dataset", "arrays"]).to_pylist():
        key = row["key"]
        wanted = _is_drawn if key in shown else _is_drawn_unselected
        arrays[key] = folder.store.chosen_arrays(row["dataset"], key, row["arrays"], wanted)
    write_pack(Path(path), cells, arrays, asked)
    return len(cells)


def _under_protocol(asked: list[Asked], protocol: str) -> list[Asked]:
    """Return what was asked for under a protocol, fits and curves only without changed values."""
    groups = []
    for group in asked:
        if group.setting.protocol != protocol:
            continue
        if not group.setting.changes or group.role not in ("fit", "curve"):
            groups.append(group)
    if not groups:
        known = ", ".join(dict.fromkeys(group.setting.protocol for group in asked))
        raise UserError(
            f"--protocol {protocol}: no record was made under it as it stands; there are {known}"
        )
    return groups


def _is_drawn(name: str) -> bool:
    """Return whether some figure draws the array of this name."""
    return name.startswith(DRAWN_ARRAYS)


def _is_drawn_unselected(name: str) -> bool:
    """Return whether some figure draws this array of a cell that no selection shows."""
    return _is_drawn(name) and not name.startswith("reliability_")
