"""A results folder as figures, claims and Python users read it: tidy table, candidates, arrays.

This module also deletes trained models that no run keeps (`drop_unselected`), and writes the tidy
table and packs for `dlmexp collect` (`collect_table`, `collect_packed`).
"""

import io
import logging
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import pandas as pd

from dlmexp.common.atomic import path_inside, write_atomically
from dlmexp.common.collector import paused_collector
from dlmexp.common.errors import UserError
from dlmexp.common.literals import with_results_option
from dlmexp.common.reading.files import reading
from dlmexp.common.reading.tables import read_table
from dlmexp.experiment.plan.cell import CandidateGroup, Changes
from dlmexp.experiment.records.baselines import read_baselines
from dlmexp.experiment.records.columns import ColumnFilter, every_column
from dlmexp.experiment.records.manifests import Manifest, distinct, read_manifests
from dlmexp.experiment.records.packed import NOT_PACKS, PROFILE, TABLE, write_pack
from dlmexp.experiment.records.plugin_versions import mixed_versions
from dlmexp.experiment.records.refits import Selections
from dlmexp.experiment.records.store import DRAWN_ARRAY_PREFIXES, Store, check_has_packs
from dlmexp.experiment.records.table import (
    as_text,
    candidate_cells,
    selected_or_undecided,
    tidy,
    without_internal_columns,
)

log = logging.getLogger(__name__)


class TidyResults(Protocol):
    """The interface by which figures, claims and the report read a results folder."""

    @property
    def root(self) -> Path:
        """The folder."""
        ...

    @property
    def candidates(self) -> pd.DataFrame:
        """One row per requested cell that has a record (`table.candidate_cells`)."""
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
        """One row per split of a method that pack_folders trained (`baselines.COLUMNS`)."""
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
        pack_folders: Folders whose packed records and baselines are read as well.
        shown_groups: The groups of candidates to show; None: all that runs have requested.

    Raises:
        UserError: The folder has no records, or one of `pack_folders` has no packs.
    """

    def __init__(
        self,
        folder: str | Path,
        columns: ColumnFilter = every_column,
        pack_folders: Iterable[str | Path] = (),
        shown_groups: Iterable[CandidateGroup] | None = None,
    ):
        self._shown_groups = None if shown_groups is None else list(shown_groups)
        self.store = Store(folder, pack_folders=pack_folders)
        self.root = self.store.root
        for pack_folder in self.store.pack_folders:
            check_has_packs(pack_folder)
        cells = self.store.cells(columns=columns)
        self.candidates = candidate_cells(cells, self.groups)
        self._warn_of_unknown_records(set(cells["key"].to_pylist()))
        for warning in mixed_versions(self.candidates):
            log.warning("%s", warning)
        if self.candidates.empty:
            run = self.command("dlmexp run")
            advice = f"`{run}` computes some, --results names another folder"
            raise UserError(f"there are no records in '{folder}': {advice}")

    def _warn_of_unknown_records(self, recorded: set[str]) -> None:
        """Warn of records that no manifest and no pack lists, which therefore are in no table."""
        unknown = recorded - _keys(self._requested_groups)
        if unknown:
            log.warning(
                "%d records in %s are left out: no manifest in this folder lists them; repeat the "
                "command of their run, which writes the manifest and trains nothing twice",
                len(unknown),
                self.root,
            )

    @cached_property
    def groups(self) -> list[CandidateGroup]:
        """The groups of candidates that runs have requested, as tables show them.

        A group whose candidates are selected by folds has the selected fits in place of the
        candidates (`Selections.shown`).
        """
        groups = self._requested_groups if self._shown_groups is None else self._shown_groups
        selections = Selections.of(self.store, groups)
        return distinct(map(selections.shown, groups))

    @cached_property
    def _requested_groups(self) -> list[CandidateGroup]:
        """The groups of candidates in packs and manifests."""
        groups: list[CandidateGroup] = []
        for pack in self.store.packs:
            groups += pack.groups
        for manifest in read_manifests(self.root):
            groups += manifest.candidates
        return groups

    @cached_property
    def changes(self) -> dict[str, Changes]:
        """The changed values of every setting, by their text in the column `changes`."""
        return {group.setting.text: group.setting.changes for group in self.groups}

    @cached_property
    def baselines(self) -> pd.DataFrame:
        """One row per split of a method that pack_folders trained (`baselines.COLUMNS`)."""
        return read_baselines([self.root, *self.store.pack_folders])

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
        return with_results_option(command, self.root, self.store.pack_folders)


def drop_unselected(store: Store) -> int:
    """Delete the models that no run in the folder keeps; return how many cells lost their model.

    Every fit writes its model, since it is not known yet whether the fit will be selected. Which
    models are deleted follows from manifests and records alone, so any process may do it, at any
    time and more than once.
    """
    files = store.model_files()
    if not files:
        return 0
    candidates: set[str] = set()
    kept: set[str] = set()
    for manifest in read_manifests(store.root):
        # Runs that keep no models write none, so they do not decide on the models of other runs.
        if manifest.keep == "none":
            continue
        with_models = [group for group in manifest.candidates if files.keys() & set(group.keys)]
        if with_models:
            candidates |= _keys(with_models)
            kept |= _kept_keys(store, manifest, with_models)
    # Models of cells that none of these manifests lists stay: nothing is known about them.
    unwanted = (candidates & files.keys()) - kept
    for key in unwanted:
        for path in files[key]:
            path_inside(store.root, path).unlink(missing_ok=True)
    return len(unwanted)


def _keys(groups: list[CandidateGroup]) -> set[str]:
    """Return the keys of the cells in groups of candidates, those of folds included."""
    keys: set[str] = set()
    for group in groups:
        keys.update(group.keys, group.folds)
    return keys


def _kept_keys(store: Store, manifest: Manifest, groups: list[CandidateGroup]) -> set[str]:
    """Return the keys of the cells of these groups whose models a run keeps."""
    selections = Selections.of(store, groups)
    shown = list(map(selections.shown, groups))
    candidates = candidate_cells(store.cells(_keys(shown)), shown)
    if manifest.keep != "all":
        candidates = selected_or_undecided(candidates)
    kept = set(candidates["key"])
    for group in shown:
        # A group still shown with folds has no selection yet, for instance because some folds are
        # trained again. Any of its fits to all rows may be selected.
        if group.folds:
            kept.update(group.keys)
    return kept


@paused_collector()
def collect_table(
    results: str, csv: bool = False, pack_folders: Iterable[str | Path] = ()
) -> tuple[Path, int]:
    """Write the tidy table of a folder into this folder; return the file and its number of rows."""
    folder = ResultsFolder(results, pack_folders=pack_folders)
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
    results: str, path: str, protocol: str | None = None, pack_folders: Iterable[str | Path] = ()
) -> int:
    """Write all records of a folder, those in packs included, as one pack; return their number.

    Reliability diagrams are packed for cells that are selected, or may still be selected. Profiles
    are packed for the folds of incomplete selections, whose fits to all rows will need them.

    Args:
        results: The folder.
        path: The Parquet file to write.
        protocol: The protocol whose cells are packed. Fits and learning curves with changed values
            are left out. None: all cells.
        pack_folders: Folders whose packed records are packed as well.

    Raises:
        UserError: `path` does not name a Parquet file, or nothing was requested under the protocol.
    """
    if not path.endswith(".parquet") or Path(path).name in NOT_PACKS or Path(path).is_dir():
        names = " or ".join(NOT_PACKS)
        raise UserError(f"--pack '{path}': name a file that ends in .parquet, other than {names}")
    folder = ResultsFolder(results, pack_folders=pack_folders)
    groups = folder.groups
    if protocol is not None:
        groups = _under_protocol(groups, protocol)
    cells = folder.store.cells(_keys(groups))
    shown = set(selected_or_undecided(folder.candidates)["key"])
    arrays: dict[str, dict[str, np.ndarray]] = {}
    for row in cells.select(["key", "dataset", "arrays", "fold"]).to_pylist():
        key = row["key"]
        dataset = row["dataset"]
        if row["fold"] is not None:
            result = folder.store.fold_result(dataset, key)
            arrays[key] = {PROFILE: np.array(result.profile)} if result and result.profile else {}
        else:
            is_packed = _is_drawn if key in shown else _is_drawn_unselected
            arrays[key] = folder.store.chosen_arrays(dataset, key, row["arrays"], is_packed)
    write_pack(Path(path), cells, arrays, groups)
    return len(cells)


def _under_protocol(groups: list[CandidateGroup], protocol: str) -> list[CandidateGroup]:
    """Return the groups under a protocol, without fits and learning curves with changed values.

    Roles that experiments name, such as `anatomy`, may have changed values.

    Raises:
        UserError: There is no such group.
    """
    under_protocol: list[CandidateGroup] = []
    protocols: dict[str, None] = {}  # of all groups, as an ordered set
    for group in groups:
        setting = group.setting
        protocols[setting.protocol] = None
        may_have_changes = group.role not in ("fit", "curve")
        if setting.protocol == protocol and (may_have_changes or not setting.changes):
            under_protocol.append(group)
    if not under_protocol:
        raise UserError(
            f"--protocol {protocol}: there are no records under it without changed values; "
            f"the records are under {', '.join(protocols)}"
        )
    return under_protocol


def _is_drawn(name: str) -> bool:
    """Return whether figures draw the array with this name."""
    return name.startswith(DRAWN_ARRAY_PREFIXES)


def _is_drawn_unselected(name: str) -> bool:
    """Return whether figures draw the array with this name even for cells that are not selected."""
    return _is_drawn(name) and not name.startswith("reliability_")
