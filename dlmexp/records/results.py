"""One results folder in memory: every sound record, what was asked for, and the arrays on demand."""

import gc
import logging
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from msgspec.structs import replace

from dlmexp.errors import UserError
from dlmexp.paths import in_folder
from dlmexp.records.comparison import Settings
from dlmexp.records.manifest import Asked, read_manifests
from dlmexp.records.schema import Record
from dlmexp.records.selection import Choice, choices
from dlmexp.records.settings import Setting
from dlmexp.records.store import Store
from dlmexp.records.table import table
from dlmexp.records.wanted import settle, usual_protocol

log = logging.getLogger(__name__)


class Results:
    """Records that are looked at together. `label` tells them from others they are compared with."""

    def __init__(
        self,
        store: Store,
        records: Iterable[Record],
        asked: Iterable[Asked],
        label: str = "",
        origin: "Results | None" = None,
    ):
        self.store = store
        self.label = label
        self.origin = origin or self  # the folder that these are some of the results of
        self.records: dict[str, Record] = {record.key: record for record in records}
        self.asked = list(asked)

    def restricted(self, keep: Iterable[Record], whole: Iterable[Asked] = ()) -> "Results":
        """The same results with only some of the records left, and those of the candidates that stay `whole`.

        Candidates of which some are left out (those at other betas) are cut down to the rest, a choice of its own; of
        all others, those that have no record yet are still missing.
        """
        kept, untouched = {record.key: record for record in keep}, set(whole)
        left_out = self.records.keys() - kept.keys()
        asked = [
            one
            if one in untouched or left_out.isdisjoint(one.keys)
            else replace(one, keys=tuple(filter(kept.get, one.keys)))
            for one in self.asked
        ]
        kept |= {key: self.records[key] for one in untouched for key in one.keys if key in self.records}
        return Results(self.store, kept.values(), asked, self.label, self.origin)

    def keeping(self, several: Iterable[Choice]) -> "Results":
        """The same results with only some of the choices left, and their records."""
        kept = {(one.method, one.betas, one.keys, one.protocol, one.selection) for one in several}
        asked = [one for one in self.asked if (one.method, one.betas, one.keys, one.protocol, one.selection) in kept]
        keys = {key for one in asked for key in one.keys}
        records = (record for key, record in self.records.items() if key in keys)
        return Results(self.store, records, asked, self.label, self.origin)

    def of_methods(self, names: Iterable[str]) -> "Results":
        """The same results with only what was asked for under these methods."""
        asked = [one for one in self.asked if one.method in set(names)]
        keys = {key for one in asked for key in one.keys}
        records = (record for key, record in self.records.items() if key in keys)
        return Results(self.store, records, asked, self.label, self.origin)

    def command(self, command: str) -> str:
        """A command of ours, so that it goes on with this folder."""
        return in_folder(command, self.store.root)

    @cached_property
    def settings(self) -> Settings:
        """What tells records of different settings apart, in the light of the whole folder."""
        return Settings(self.origin.records) if self.origin is self else self.origin.settings

    @cached_property
    def _by_part(self) -> dict[tuple[str, str], list[Choice]]:
        parts: dict[tuple[str, str], list[Choice]] = defaultdict(list)
        for one in self.choices:
            parts[one.records[0].part, one.cell.dataset].append(one)
        return parts

    @cached_property
    def at_hand(self) -> dict[tuple[str, str], dict[Setting, list[Choice]]]:
        """(part, dataset) -> the settings that there are records of, with their choices."""
        found = {}
        for key, several in self._by_part.items():
            plain = [Setting(name) for name in dict.fromkeys(one.protocol for one in several)]
            found[key] = self.settings.at_hand(several, plain)
        return found

    def of_one_setting(self, several: Iterable[Choice]) -> list[Choice]:
        """Of these choices, those of the one setting that is taken on their part and dataset: a protocol as it stands
        (the paper's first) if there is one. It is the same for all methods."""
        found = []
        for one in several:
            key = (one.records[0].part, one.cell.dataset)
            if key not in self._settled:
                at_hand = self._by_part[key]
                self._settled[key] = settle(self.settings, at_hand, Setting(usual_protocol(at_hand))).setting
            setting = self._settled[key]
            if setting is not None and self.settings.fits(one, setting):
                found.append(one)
        return found

    @cached_property
    def _settled(self) -> dict[tuple[str, str], Setting | None]:
        return {}

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Every record, one row each (`dlmexp.records.table.table`)."""
        return table(self.records.values())

    @cached_property
    def tasks(self) -> dict[str, str]:
        """Every dataset with records, and its task."""
        return {record.cell.dataset: record.cell.task for record in self.records.values()}

    @cached_property
    def choices(self) -> list[Choice]:
        """All candidates that were asked for, as far as they have records."""
        return choices(self.asked, self.records)

    @cached_property
    def unasked(self) -> int:
        """Records that no manifest names: nobody knows which betas belong together, so none is selected."""
        return len(self.records.keys() - {key for one in self.asked for key in one.keys})

    @cached_property
    def _by_line(self) -> dict[tuple[Any, ...], list[Choice]]:
        lines: dict[tuple[Any, ...], list[Choice]] = defaultdict(list)
        for one in self.choices:
            cell = one.cell
            lines[one.records[0].part, cell.dataset, one.method, cell.estimator, cell.samples].append(one)
        return lines

    def line(
        self, part: str, dataset: str, method: str, estimator: str = "exact", samples: int | None = None
    ) -> list[Choice]:
        """The candidates of one method on one dataset, at every size and seed."""
        return self._by_line.get((part, dataset, method, estimator, samples), [])

    def arrays(self, record: Record) -> dict[str, np.ndarray]:
        """The arrays beside a record; none for a cell that failed."""
        return self.store.arrays(record) if record.done else {}


def records_of(several: Iterable[Choice]) -> list[Record]:
    """All candidates, each once, in an order that does not depend on how they were asked for."""
    found = {record.key: record for one in several for record in one.records}
    return [found[key] for key in sorted(found)]


def load(folder: str | Path, label: str = "") -> Results:
    """The results under `folder`; a folder without records is a mistake of the user's, said in a sentence."""
    computes = in_folder("dlmexp run", folder)
    if not Path(folder).is_dir():
        raise UserError(f"there is no folder '{folder}': `{computes}` makes it, --results names another")
    results = read_results(folder, label)
    if not results.records:
        raise UserError(f"'{folder}' holds no records yet: `{computes}` computes some, --results names another folder")
    return results


def read_results(folder: str | Path, label: str = "") -> Results:
    """The results under `folder`, which may hold none. Records that no manifest names are counted in a warning."""
    store = Store(folder)
    collecting = gc.isenabled()
    gc.disable()  # millions of small objects that all stay: looking for garbage among them takes a fifth of the time
    try:
        manifests = [*read_manifests(store.root), *store.packs.manifests]
        results = Results(store, store.all(), (one for each in manifests for one in each.candidates), label)
    finally:
        if collecting:
            gc.enable()
    if results.unasked:
        log.warning(
            "%d records in %s belong to no run that is written down there, so no beta of theirs is selected; give the "
            "command of that run again, which trains nothing twice",
            results.unasked,
            folder,
        )
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
