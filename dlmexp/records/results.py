"""A results folder in memory: the tidy table, its candidates, and arrays on demand."""

import logging
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from dlmexp.errors import UserError
from dlmexp.paths import in_folder
from dlmexp.records.manifest import Asked, read_manifests
from dlmexp.records.store import Store
from dlmexp.records.table import Frames

log = logging.getLogger(__name__)


class Results:
    """The results of one folder. `label` tells them from others that they are compared with."""

    def __init__(self, folder: str | Path, label: str = ""):
        self.store, self.label = Store(folder), label
        self.root = self.store.root

    @cached_property
    def asked(self) -> list[Asked]:
        """What was asked for in this folder, by its own manifests and in its packed records."""
        manifests = [asked for each in read_manifests(self.root) for asked in each.candidates]
        packed = [asked for pack in self.store.packs for asked in pack.asked]
        unique = {asked.identity: asked for asked in [*packed, *manifests]}
        return list(unique.values())

    @cached_property
    def _frames(self) -> Frames:
        cells = self.store.cells()
        unknown = set(cells["key"].to_pylist()) - {key for asked in self.asked for key in asked.keys}
        if unknown:
            log.warning(
                "%d records in %s belong to no run that is written down there, so they are left out; give the command "
                "of that run again, which trains nothing twice",
                len(unknown),
                self.root,
            )
        return Frames(cells, self.asked)

    @property
    def table(self) -> pd.DataFrame:
        """One row per selected result (`dlmexp.records.table`)."""
        return self._frames.table

    @property
    def candidates(self) -> pd.DataFrame:
        """One row per cell that was asked for and has a record."""
        return self._frames.candidates

    @cached_property
    def _files(self) -> dict[str, tuple[str, str]]:
        """Key -> dataset and checksum, of the cells that have arrays in a file of their own."""
        rows = self.candidates
        rows = rows[rows["arrays"].notna()] if "arrays" in rows else rows[:0].assign(arrays="")
        return dict(zip(rows["key"], zip(rows["dataset"], rows["arrays"], strict=True), strict=True))

    def arrays(self, key: str) -> dict[str, np.ndarray]:
        """The arrays of a cell by name: its learning curve, reliability diagram or draws of gradients; none for a cell
        that failed."""
        dataset, checksum = self._files.get(key, ("", None))
        return self.store.arrays(dataset, key, checksum)

    def command(self, command: str) -> str:
        """A command of ours, so that it goes on with this folder."""
        return in_folder(command, self.root)


def load(folder: str | Path, label: str = "") -> Results:
    """The results under `folder`; a folder without records is a mistake of the user's, said in a sentence."""
    computes = in_folder("dlmexp run", folder)
    if not Path(folder).is_dir():
        raise UserError(f"there is no folder '{folder}': `{computes}` makes it, --results names another")
    results = Results(folder, label)
    if results.table.empty and results.candidates.empty:
        raise UserError(f"'{folder}' holds no records yet: `{computes}` computes some, --results names another folder")
    return results


def load_several(folders: list[str]) -> list[Results]:
    """Several folders to compare, each under the shortest end of its path that tells it from the others."""
    parts = [Path(folder).resolve().parts for folder in folders]
    if len(set(parts)) < len(parts):
        raise UserError(f"--compare: a folder is named twice among {', '.join(folders)}")
    depth = 1
    while len({path[-depth:] for path in parts}) < len(parts):
        depth += 1
    return [load(folder, "/".join(path[-depth:])) for folder, path in zip(folders, parts, strict=True)]
