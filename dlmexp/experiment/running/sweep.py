"""A sweep: the cells that a config asks for, and the data they are trained on.

Everything is checked before anything is written.
"""

from collections import deque
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dlmexp.common.catalogue import stand_ins
from dlmexp.common.collector import paused_collector
from dlmexp.common.errors import UserError
from dlmexp.common.paths import data_root
from dlmexp.data.config import DatasetConfig
from dlmexp.data.dataset import Dataset, read_spec
from dlmexp.data.raw_files import find_files, load
from dlmexp.data.splits import Fold, Prepared, prepare
from dlmexp.experiment.config import RunConfig
from dlmexp.experiment.plan import compose
from dlmexp.experiment.plan.cell import Asked, Batch, Cell, batches
from dlmexp.experiment.plan.grid import Grid, check, split_name
from dlmexp.experiment.plan.plugin_code import plugin_versions, registered_parts
from dlmexp.experiment.records.columns import columns_with
from dlmexp.experiment.records.inducing_counts import ChosenInducingCount
from dlmexp.experiment.records.refits import Selections
from dlmexp.experiment.records.store import FAILED, Store, needs_arrays
from dlmexp.experiment.running.inducing_counts import InducingCounts
from dlmexp.experiment.running.process import Target
from dlmexp.experiment.running.programs import cells_at_once
from dlmexp.experiment.running.table_notes import table_notes

CACHED_SPLITS = 16
# Splits of a dataset whose features take more bytes are prepared again for each batch, not cached.
CACHED_BYTES = 1e8


@dataclass
class Sweep:
    """The cells of a checked config, grouped into the candidates of each selection of beta."""

    cfg: RunConfig
    candidates: list[Asked] = field(default_factory=list)
    # Every cell once, also if it is a candidate of two selections.
    by_key: dict[str, Cell] = field(default_factory=dict)
    # By the fields `dataset` and `split` of cells.
    datasets: dict[tuple[str, str], tuple[DatasetConfig, Dataset]] = field(default_factory=dict)
    # Lines about a user's own tables, about settings that are not followed exactly, and about
    # datasets that are left out.
    notes: list[str] = field(default_factory=list)
    # What M=auto has chosen and the results folder does not have yet.
    new_inducing_counts: list[ChosenInducingCount] = field(default_factory=list)

    @property
    def cells(self) -> list[Cell]:
        """All cells, each of them once.

        Where folds select, these are the fits of all candidates to all rows, too.
        """
        return list(self.by_key.values())

    @property
    def refits(self) -> set[str]:
        """The keys of fits to all rows, of which those are trained that folds select."""
        keys: set[str] = set()
        for selection in self.candidates:
            if selection.folds:
                keys.update(selection.keys)
        return keys

    @cached_property
    def folds_of(self) -> dict[str, tuple[str, ...]]:
        """The keys of the folds by the key of the fit to all rows that they may select."""
        folds: dict[str, tuple[str, ...]] = {}
        for selection in self.candidates:
            if not selection.folds:
                continue
            count = len(selection.folds) // len(selection.keys)
            for number, key in enumerate(selection.keys):
                start = number * count
                folds[key] = selection.folds[start : start + count]
        return folds


class Plan(NamedTuple):
    """The batches that have to be trained; those that others depend on come first."""

    batches: list[Batch]
    # Fits to all rows, one for each selection whose folds have to be trained before: it stands for
    # that of the selected candidate, which is not known yet.
    later: list[Batch]
    cells: list[Cell]  # all that are needed, those of `later` included
    done: Set[str]  # keys of the cells with a sound record
    failed: Set[str]
    # Cells with a record that are trained again, because others start from them.
    again: frozenset[Cell]
    # Keys of recorded cells that another version of a plugin's code has made.
    changed: frozenset[str] = frozenset()


class DatasetRequest(NamedTuple):
    """A dataset of a part of the run, under its key in the config."""

    part: RunConfig
    key: str
    dataset: DatasetConfig


class DatasetLoader:
    """Loads each dataset once, however many parts of a run use it."""

    def __init__(self) -> None:
        self._loaded: dict[str, Dataset] = {}

    def load(self, dataset: DatasetConfig, root: Path) -> Dataset:
        """Return the data of a dataset whose files are below `root`.

        Raises:
            UserError: its files are missing, or are not what they should be.
        """
        content_settings = (
            dataset.name,
            dataset.loader,
            dataset.task,
            dataset.rows,
            dataset.features,
            dataset.options,
            dataset.files,
        )
        source = repr((content_settings, root))
        if source not in self._loaded:
            self._loaded[source] = load(dataset, root)
        return self._loaded[source]


@paused_collector()
def prepare_sweep(cfg: RunConfig) -> Sweep:
    """Check a config, load its datasets, and return its cells.

    Raises:
        UserError: something in it can't be run.
    """
    parts = compose.parts(cfg)
    if not parts:
        raise UserError(
            "dataset=[]: the grid is empty; name at least one dataset, e.g. dataset=ringnorm_drawn"
        )
    for part in parts:
        check(part)
    sweep = Sweep(cfg)
    missing = _load_datasets(sweep, parts)
    if not sweep.candidates:
        raise UserError("nothing can be run: " + "; ".join(missing))
    left_out = [f"left out: {message}" for message in missing]
    notes = [*_notes_about_tables(sweep), *sweep.notes, *left_out]
    sweep.notes = list(dict.fromkeys(notes))
    return sweep


def _load_datasets(sweep: Sweep, parts: list[RunConfig]) -> list[str]:
    """Add the cells on all datasets that can be loaded. Return why the others can't."""
    loader = DatasetLoader()
    missing: dict[str, None] = {}  # as an ordered set
    requests: deque[DatasetRequest] = deque()
    for part in parts:
        for key, dataset in part.dataset.items():
            requests.append(DatasetRequest(part, key, dataset))
    while requests:
        request = requests.popleft()
        root = data_root(request.part.data_root)
        try:
            data = loader.load(request.dataset, root)
        except UserError as error:
            if request.dataset.loader == "table":  # nothing stands in for a user's own table
                raise
            available = _available_stand_ins(request.dataset, root)
            missing[_why_missing(error, available, sweep.cfg.stand_ins)] = None
            if sweep.cfg.stand_ins:
                # Real data under other names, which come after all that were requested.
                for name in available:
                    requests.append(DatasetRequest(request.part, name, read_spec(name)))
        else:
            _add_cells(sweep, request, data)
    return list(missing)


def _available_stand_ins(dataset: DatasetConfig, root: Path) -> list[str]:
    names = stand_ins(dataset.name)
    return [name for name in names if find_files(read_spec(name), root).state == "ready"]


def _why_missing(error: UserError, available: list[str], uses_stand_ins: bool) -> str:
    if not available:
        return str(error)
    verb = "stands in" if uses_stand_ins else "can stand in: stand_ins=true"
    return f"{error} ({' and '.join(available)} {verb})"


def _add_cells(sweep: Sweep, request: DatasetRequest, data: Dataset) -> None:
    """Add the cells on a dataset.

    Raises:
        UserError: the sweep has other data under the same name.
    """
    for _, other in sweep.datasets.values():
        if other.name == data.name and other.checksum != data.checksum:
            raise UserError(
                f"two parts of this run have different data under the name '{data.name}', and "
                "their results would be mixed up: give each its own name (csv.name=NAME), or run "
                "them with results=DIR of their own"
            )
    counts = InducingCounts(Path(sweep.cfg.results), data, sweep.new_inducing_counts)
    grid = Grid(request.part, request.key, request.dataset, data, counts.choose)
    split = split_name(grid.divided, data)
    sweep.datasets[data.name, split] = grid.divided, data
    for selection, cells in grid.candidates():
        sweep.candidates.append(selection)
        sweep.by_key |= {cell.key: cell for cell in cells}
    sweep.notes += grid.notes()


def _notes_about_tables(sweep: Sweep) -> list[str]:
    lines: list[str] = []
    for (dataset, split), (spec, data) in sweep.datasets.items():
        if spec.loader != "table":
            continue
        on_dataset = [cell for cell in sweep.cells if cell.dataset == dataset]
        cells = [cell for cell in on_dataset if cell.split == split]
        lines += table_notes(spec, data, cells)
    return lines


@paused_collector()
def plan_sweep(sweep: Sweep, store: Store, target: Target) -> Plan:
    """Return the batches of cells that have no sound record yet, or are trained again.

    What folds select is trained after all folds: who trains with whom does not depend on which of
    them an interrupted run had finished.
    """
    needed = _needed_keys(sweep, store)
    cells = [cell for cell in sweep.cells if cell.key in needed]
    keys_of_refits = sweep.refits
    refits = [cell for cell in cells if cell.key in keys_of_refits]
    others = [cell for cell in cells if cell.key not in keys_of_refits]
    recorded, failed = store.keys()
    failed &= needed
    own = store.own_cells(needed, warn=False)
    done = _sound_records(sweep, store, own, recorded & needed)
    settled = done if sweep.cfg.retry_failed else done | failed
    done -= _bases_to_repeat(sweep, others, store, done, settled)
    changed = changed_cells(sweep, store)
    if sweep.cfg.rerun == "changed":
        done -= changed
        failed -= changed
    skip = done if sweep.cfg.retry_failed else done | failed
    batch_size = _batch_size(sweep, target)
    pending = batches(others, skip, batch_size)
    later = batches(refits, skip, batch_size)
    if not _have_folds(pending):
        pending += later
        later = []
    again = [cell for cell in chain.from_iterable(pending) if cell.key in recorded]
    return Plan(pending, later, cells, done, failed, frozenset(again), changed)


def _have_folds(batches: Iterable[Batch]) -> bool:
    """Return whether a cell is a fold, which others wait for."""
    return any(cell.fold is not None for cell in chain.from_iterable(batches))


def _needed_keys(sweep: Sweep, store: Store) -> set[str]:
    """Return the keys of the cells that have a part in a selection, or that others start from."""
    selections = Selections.of(store, sweep.candidates)
    needed: set[str] = set()
    selected_by_folds: set[str] = set()
    for selection in sweep.candidates:
        needed.update(selections.needed(selection))
        if selection.folds:
            selected_by_folds.update(selection.keys, selection.folds)
    return needed | (sweep.by_key.keys() - selected_by_folds)


def plan_refits(sweep: Sweep, store: Store, target: Target) -> list[Batch]:
    """Return the batches of what the folds of a sweep have selected, now that they are trained."""
    selections = Selections.of(store, sweep.candidates)
    keys: set[str] = set()
    for selection in sweep.candidates:
        if selection.folds:
            keys.update(selections.refits(selection) or ())
    done, failed = store.keys()
    cells = [sweep.by_key[key] for key in keys]
    skip = done if sweep.cfg.retry_failed else done | failed
    return batches(cells, skip, _batch_size(sweep, target))


def _batch_size(sweep: Sweep, target: Target) -> Callable[[Cell], int]:
    """Return the function that says how many cells like the given one make a batch."""
    free_memory = target.free_memory

    def batch_size(cell: Cell) -> int:
        return sweep.cfg.batch_cells or cells_at_once(cell, free_memory)

    return batch_size


def changed_cells(sweep: Sweep, store: Store) -> frozenset[str]:
    """Return the keys of recorded cells that another version of a plugin's code has made."""
    by_parts: dict[tuple[str, ...], str | None] = {}
    expected: dict[str, str] = {}
    for key, cell in sweep.by_key.items():
        parts = registered_parts(cell)
        if parts not in by_parts:
            by_parts[parts] = plugin_versions(cell)
        versions = by_parts[parts]
        if versions:
            expected[key] = versions
    if not expected:
        return frozenset()
    records = store.cells(expected.keys(), columns_with(("key", "plugins")))
    keys = records["key"].to_pylist()
    recorded_versions = records["plugins"].to_pylist()
    changed: set[str] = set()
    for key, versions in zip(keys, recorded_versions, strict=True):
        if versions != expected[key]:
            changed.add(key)
    return frozenset(changed)


def set_aside(sweep: Sweep, store: Store, changed: frozenset[str]) -> None:
    """Move records of changed cells to the quarantine, so that they are trained again."""
    for key in changed:
        dataset = sweep.by_key[key].dataset
        for suffix in (".json", FAILED):
            path = store.path(dataset, key, suffix)
            if path.exists():
                store.quarantine(path, "another version of a plugin made it")


def _sound_records(sweep: Sweep, store: Store, own: pa.Table, keys: Set[str]) -> set[str]:
    """Return the keys whose record can be used; a damaged one is moved to the quarantine.

    Args:
        sweep: The cells.
        store: The records.
        own: The sound ones of the folder itself.
        keys: The keys of done cells that are needed.
    """
    sound = store.packed & keys
    for key in own.filter(pc.field("status") == "done")["key"].to_pylist():
        if not needs_arrays(sweep.by_key[key]):
            sound.add(key)
    for key in keys - sound:
        if store.find(sweep.by_key[key].dataset, key) is not None:
            sound.add(key)
    return sound


def _bases_to_repeat(
    sweep: Sweep, cells: Iterable[Cell], store: Store, done: Set[str], settled: Set[str]
) -> set[str]:
    """Return the base fits that are done, but must be trained again.

    A cell that is not settled starts from them, and there are no hyperparameters of theirs to load.
    """
    bases = {cell.base for cell in cells if cell.base and cell.key not in settled}
    to_repeat: set[str] = set()
    for base in bases & done:
        dataset = sweep.by_key[base].dataset
        if store.base(dataset, base) is None:
            to_repeat.add(base)
    return to_repeat


def prepared_splits(sweep: Sweep) -> Callable[[Cell], Prepared]:
    """Return a function from a cell to its normalised split, which caches small datasets."""

    def prepare_split(dataset: str, split: str, seed: int, n: int, fold: Fold | None) -> Prepared:
        spec, data = sweep.datasets[dataset, split]
        return prepare(data, spec, seed, n, fold)

    cached = lru_cache(maxsize=CACHED_SPLITS)(prepare_split)
    datasets = [data for _, data in sweep.datasets.values()]
    small = {data.name for data in datasets if data.X.nbytes < CACHED_BYTES}

    def split_of(cell: Cell) -> Prepared:
        prepare_or_recall = cached if cell.dataset in small else prepare_split
        fold = None
        if cell.cv is not None and cell.fold is not None:
            fold = Fold(cell.fold, cell.cv)
        return prepare_or_recall(cell.dataset, cell.split, cell.seed, cell.n, fold)

    return split_of
