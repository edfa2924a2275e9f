"""A results folder: its tidy table with candidates and arrays, which trained models stay in it, and
what `dlmexp collect` writes."""

import io
import logging
from functools import cached_property
from pathlib import Path

import pandas as pd

from dlmexp.common.atomic import within, write_atomically
from dlmexp.common.errors import UserError
from dlmexp.common.literals import with_results_option
from dlmexp.common.reading.files import reading
from dlmexp.common.reading.tables import read_table
from dlmexp.experiment.plan.cell import Asked, Changes
from dlmexp.experiment.records.packed import TABLE, write_packed
from dlmexp.experiment.records.store import FIGURES, Store, distinct, read_manifests
from dlmexp.experiment.records.table import as_text, candidate_cells, selected_or_undecided, tidy

log = logging.getLogger(__name__)


class ResultsFolder(Store):
    """A folder with the candidates and the tidy table of its records (those of their columns whose
    names begin like one of `columns`); `UserError` for a folder without records."""

    def __init__(self, folder: str | Path, columns: tuple[str, ...] = ("",)):
        super().__init__(folder)
        cells = self.cells(columns=columns)
        self.candidates = candidate_cells(cells, self.asked)
        if unknown := len(cells) - self.candidates["key"].nunique():
            why = "belong to no run that is written down there; give its command again, which trains nothing twice"
            log.warning("%d records in %s are left out: they %s", unknown, self.root, why)
        if self.candidates.empty:
            computes = (
                f"`{self.command('dlmexp run')}` computes some, --results names another folder"
            )
            raise UserError(f"there are no records in '{folder}': {computes}")

    @cached_property
    def asked(self) -> list[Asked]:
        """What was asked for in this folder, by its own manifests and in its packed records."""
        manifests = [asked for each in read_manifests(self.root) for asked in each.candidates]
        return distinct([*(asked for pack in self.packs for asked in pack.asked), *manifests])

    @cached_property
    def changes(self) -> dict[str, Changes]:
        """The changed values of every setting, by their text in the column `changes`."""
        return {asked.setting.text: asked.setting.changes for asked in self.asked}

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per selected result (`table.tidy`). `predict_seconds.csv` in the folder, which
        `python -m scripts.benchmark models inducing --out FILE` writes, adds the seconds to predict
        10 000 rows."""
        table, times = tidy(self.candidates), self.root / "predict_seconds.csv"
        if not times.exists():
            return table
        with reading(times, "is not a table of dataset, M and predict_seconds"):
            return table.join(
                read_table(times).to_pandas().set_index(["dataset", "M"]), ["dataset", "M"]
            )

    def command(self, command: str) -> str:
        """A command of ours, so that it goes on with this folder."""
        return with_results_option(command, self.root)


def drop_unselected(store: Store) -> int:
    """Delete the models that no run in the folder keeps; returns how many cells had one.

    Every fit writes its model, for nobody knows yet whether it will be selected. What is deleted
    follows from manifests and records alone, so any process may do it, at any time and more than
    once."""
    files = store.keys_with_models()
    unwanted, kept = set[str](), set[str]()
    for manifest in read_manifests(store.root) if files else ():
        asked = [group for group in manifest.candidates if not files.keys().isdisjoint(group.keys)]
        if manifest.keep != "none" and asked:
            unwanted |= {key for group in asked for key in group.keys if key in files}
            candidates = candidate_cells(
                store.cells({key for group in asked for key in group.keys}), asked
            )
            kept |= {
                *(candidates if manifest.keep == "all" else selected_or_undecided(candidates))[
                    "key"
                ]
            }
    for key in unwanted - kept:
        for path in files[key]:
            within(store.root, path).unlink(missing_ok=True)
    return len(unwanted - kept)


def collect_table(results: str, csv: bool = False) -> tuple[Path, int]:
    """Write the tidy table of a folder into it; returns the file and its number of rows."""
    table = as_text(ResultsFolder(results).table).drop(
        columns=["group", "model", "arrays"], errors="ignore"
    )
    path, buffer = Path(results, TABLE), io.BytesIO()
    if csv:
        path = path.with_suffix(".csv")
        table.to_csv(buffer, index=False, float_format="%.8g")
    else:
        table.to_parquet(buffer, index=False, compression="zstd")
    write_atomically(path, buffer.getvalue())
    return path, len(table)


def collect_packed(results: str, path: str, protocol: str | None = None) -> int:
    """All records of a folder, packed ones included, as one Parquet file; returns their number.
    `protocol`: only what was asked for under it, without changes of its values. Reliability
    diagrams are kept for the cells that a selection may show."""
    if not path.endswith(".parquet") or Path(path).name == TABLE or Path(path).is_dir():
        raise UserError(f"--pack '{path}': name a file that ends in .parquet, other than {TABLE}")
    read = ResultsFolder(results)
    asked = read.asked
    if protocol is not None:
        of_it = [group for group in asked if group.setting.protocol == protocol]
        asked = [
            group
            for group in of_it
            if not group.setting.changes or group.role not in ("fit", "curve")
        ]
    if not asked:
        known = ", ".join(dict.fromkeys(group.setting.protocol for group in read.asked))
        raise UserError(
            f"--protocol {protocol}: no record was made under it as it stands; there are {known}"
        )
    cells = read.cells({key for group in asked for key in group.keys})
    shown, arrays = {*selected_or_undecided(read.candidates)["key"]}, {}
    for key in map(str, cells["key"].to_pylist()):
        arrays[key] = {
            name: values
            for name, values in read.arrays(key).items()
            if name.startswith(FIGURES) and (key in shown or not name.startswith("reliability_"))
        }
    write_packed(Path(path), cells, arrays, asked)
    return len(cells)
