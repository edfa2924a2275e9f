"""A sweep: the cells that a config requests, and the data that they are trained on.

Everything is checked before anything is written.
"""

from collections import deque
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

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
from dlmexp.experiment.plan.cell import (
    Batch,
    CandidateGroup,
    Cell,
    base_keys,
    batches,
    without_keys,
)
from dlmexp.experiment.plan.grid import Grid, check, split_label
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
# Splits of a dataset with more bytes of features are not cached: each batch prepares them again.
MAX_CACHED_BYTES = 1e8


@dataclass
class Sweep:
    """The cells of a checked config, in groups of candidates."""

    cfg: RunConfig
    candidates: list[CandidateGroup] = field(default_factory=list)
    # The cells by key. A cell may be a candidate of several groups.
    by_key: dict[str, Cell] = field(default_factory=dict)
    # Settings and rows of datasets, by the values of the fields `dataset` and `split` of cells.
    datasets: dict[tuple[str, str], tuple[DatasetConfig, Dataset]] = field(default_factory=dict)
    # Lines about a user's own tables, about settings that are not followed exactly, and about
    # datasets that are left out.
    notes: list[str] = field(default_factory=list)
    # Choices of M=auto that the results folder does not have yet.
    new_inducing_counts: list[ChosenInducingCount] = field(default_factory=list)

    @property
    def cells(self) -> list[Cell]:
        """All cells, each of them once.

        If folds select, the fits of all candidates to all rows are among them, though only the
        selected ones will be trained.
        """
        return list(self.by_key.values())

    @property
    def refit_keys(self) -> set[str]:
        """The keys of refits: fits to all rows that are trained only if folds select them."""
        keys: set[str] = set()
        for group in self.candidates:
            if group.folds:
                keys.update(group.keys)
        return keys

    @cached_property
    def folds_of(self) -> dict[str, tuple[str, ...]]:
        """The keys of the folds of each candidate, by the key of its fit to all rows."""
        folds: dict[str, tuple[str, ...]] = {}
        for group in self.candidates:
            if not group.folds:
                continue
            # `group.folds` has the folds of all candidates, one candidate after the other.
            count = group.folds_per_candidate
            for index, key in enumerate(group.keys):
                start = index * count
                folds[key] = group.folds[start : start + count]
        return folds


class Plan(NamedTuple):
    """The batches that have to be trained.

    Attributes:
        batches: Batches that can be trained now, in order: base fits come before the cells that
            start from them.
        refits: Batches of fits to all rows, which are trained after the folds that select them. The
            selected candidates are not known yet, so one candidate of each group stands for the
            selected one.
        cells: All cells that are needed, those of `refits` included.
        done: Keys of the needed cells with a sound record.
        failed: Keys of the needed cells that have failed.
        retrained: Cells with a record that are trained again, because others start from them.
        changed: Keys of cells whose record was made by another version of a plugin's code.
    """

    batches: list[Batch]
    refits: list[Batch]
    cells: list[Cell]
    done: Set[str]
    failed: Set[str]
    retrained: frozenset[Cell]
    changed: frozenset[str] = frozenset()


class DatasetRequest(NamedTuple):
    """A dataset that one part of a run uses.

    Attributes:
        part: The config of the part.
        key: The name of the file of the dataset in `conf/dataset`.
        dataset: The settings of the dataset.
    """

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
            UserError: its files are missing, or have other contents than expected.
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
        source = repr((content_settings, root))  # some settings are lists, which have no hash
        if source not in self._loaded:
            self._loaded[source] = load(dataset, root)
        return self._loaded[source]


@paused_collector()
def prepare_sweep(cfg: RunConfig) -> Sweep:
    """Check a config, load its datasets, and return its cells.

    Raises:
        UserError: the config, or its data, can't be used.
    """
    parts = compose.experiment_configs(cfg)
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
    sweep.notes = list(dict.fromkeys(notes))  # without repeats
    return sweep


def _load_datasets(sweep: Sweep, parts: list[RunConfig]) -> list[str]:
    """Add the cells on all datasets that can be loaded.

    Returns:
        A message for each dataset that can't be loaded.
    """
    loader = DatasetLoader()
    missing: dict[str, None] = {}  # messages, as an ordered set
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
                # A stand-in keeps its own name. It is loaded after all requested datasets.
                for name in available:
                    requests.append(DatasetRequest(request.part, name, read_spec(name)))
        else:
            _add_cells(sweep, request, data)
    return list(missing)


def _available_stand_ins(dataset: DatasetConfig, root: Path) -> list[str]:
    """Return the names of datasets that can stand in for a missing one and have their files."""
    names = stand_ins(dataset.name)
    return [name for name in names if find_files(read_spec(name), root).state == "ready"]


def _why_missing(error: UserError, available: list[str], uses_stand_ins: bool) -> str:
    """Return why a dataset can't be loaded, and which stand-ins are available."""
    if not available:
        return str(error)
    verb = "stands in" if uses_stand_ins else "can stand in: stand_ins=true"
    return f"{error} ({' and '.join(available)} {verb})"


def _add_cells(sweep: Sweep, request: DatasetRequest, data: Dataset) -> None:
    """Add the cells on a dataset.

    Raises:
        UserError: the sweep has other data under the same name.
    """
    for _, loaded in sweep.datasets.values():
        if loaded.name == data.name and loaded.checksum != data.checksum:
            raise UserError(
                f"two parts of this run have different data under the name '{data.name}', and "
                "their results would be mixed up: give each its own name (csv.name=NAME), or run "
                "them with results=DIR of their own"
            )
    counts = InducingCounts(Path(sweep.cfg.results), data, sweep.new_inducing_counts)
    grid = Grid(request.part, request.key, request.dataset, data, counts.choose)
    split = split_label(grid.divided_dataset, data)
    sweep.datasets[data.name, split] = grid.divided_dataset, data
    for group, cells in grid.candidates():
        sweep.candidates.append(group)
        for cell in cells:
            sweep.by_key[cell.key] = cell
    sweep.notes += grid.notes()


def _notes_about_tables(sweep: Sweep) -> list[str]:
    """Return the notes about users' own tables."""
    lines: list[str] = []
    for (dataset, split), (spec, data) in sweep.datasets.items():
        if spec.loader == "table":
            cells = [cell for cell in sweep.cells if (cell.dataset, cell.split) == (dataset, split)]
            lines += table_notes(spec, data, cells)
    return lines


@paused_collector()
def plan_sweep(sweep: Sweep, store: Store, target: Target) -> Plan:
    """Return the plan of a sweep: batches of the cells without a sound record, or to train again.

    All refits (fits to all rows that folds select) are trained after all folds. So the batches do
    not depend on which folds an interrupted run had finished.
    """
    needed = _needed_keys(sweep, store)
    cells = [cell for cell in sweep.cells if cell.key in needed]
    refit_keys = sweep.refit_keys
    cells_to_refit = [cell for cell in cells if cell.key in refit_keys]
    cells_before_refits = without_keys(cells, refit_keys)
    recorded, failed = store.keys()
    failed &= needed
    done = _sound_records(sweep, store, recorded & needed, needed)
    to_train = without_keys(cells_before_refits, _settled(sweep, done, failed))
    done -= _bases_to_repeat(sweep, store, to_train, done)
    changed = changed_cells(sweep, store)
    if sweep.cfg.rerun == "changed":
        done -= changed
        failed -= changed
    skip = _settled(sweep, done, failed)
    batch_size = _make_batch_size(sweep, target)
    pending = batches(cells_before_refits, skip, batch_size)
    refits = batches(cells_to_refit, skip, batch_size)
    if not _have_folds(pending):  # then refits need not wait
        pending += refits
        refits = []
    retrained = [cell for cell in chain.from_iterable(pending) if cell.key in recorded]
    return Plan(
        batches=pending,
        refits=refits,
        cells=cells,
        done=done,
        failed=failed,
        retrained=frozenset(retrained),
        changed=changed,
    )


def _settled(sweep: Sweep, done: set[str], failed: set[str]) -> set[str]:
    """Return the keys of the cells that are not trained.

    These are the done cells, and unless `retry_failed=true` the failed ones.
    """
    return done if sweep.cfg.retry_failed else done | failed


def _have_folds(batches: Iterable[Batch]) -> bool:
    """Return whether batches contain a fit that leaves out a fold."""
    return any(cell.fold is not None for cell in chain.from_iterable(batches))


def _needed_keys(sweep: Sweep, store: Store) -> set[str]:
    """Return the keys of all cells but the refits of candidates that are not selected."""
    selections = Selections.of(store, sweep.candidates)
    needed: set[str] = set()
    in_groups_with_folds: set[str] = set()
    for group in sweep.candidates:
        needed.update(selections.needed(group))
        if group.folds:
            in_groups_with_folds.update(group.keys, group.folds)
    return needed | (sweep.by_key.keys() - in_groups_with_folds)


def plan_refits(sweep: Sweep, store: Store, target: Target) -> list[Batch]:
    """Return the batches of the refits of a sweep; all of its folds must have a record."""
    selections = Selections.of(store, sweep.candidates)
    keys: set[str] = set()
    for group in sweep.candidates:
        if group.folds:
            keys.update(selections.refits(group) or ())
    done, failed = store.keys()
    cells = [sweep.by_key[key] for key in keys]
    return batches(cells, _settled(sweep, done, failed), _make_batch_size(sweep, target))


def _make_batch_size(sweep: Sweep, target: Target) -> Callable[[Cell], int]:
    """Return a function from a cell to the number of cells like it in one batch."""
    # Read once, as free memory changes during a run, and its batches must not.
    free_memory = target.free_memory

    def batch_size(cell: Cell) -> int:
        return sweep.cfg.batch_cells or cells_at_once(cell, free_memory)

    return batch_size


def changed_cells(sweep: Sweep, store: Store) -> frozenset[str]:
    """Return the keys of recorded cells that another version of a plugin's code has made."""
    expected = _expected_plugin_versions(sweep)
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


def _expected_plugin_versions(sweep: Sweep) -> dict[str, str]:
    """Return the present versions of the plugins of each cell that has plugins, by its key."""
    # Cells with the same registered parts (objective, likelihood, ...) have the same plugins.
    versions_by_parts: dict[tuple[str, ...], str | None] = {}
    expected: dict[str, str] = {}
    for key, cell in sweep.by_key.items():
        parts = registered_parts(cell)
        if parts not in versions_by_parts:
            versions_by_parts[parts] = plugin_versions(cell)
        versions = versions_by_parts[parts]
        if versions:
            expected[key] = versions
    return expected


def set_aside(sweep: Sweep, store: Store, changed: frozenset[str]) -> None:
    """Move records of changed cells to the quarantine, so that they are trained again."""
    for key in changed:
        dataset = sweep.by_key[key].dataset
        for suffix in (".json", FAILED):
            path = store.path(dataset, key, suffix)
            if path.exists():
                store.quarantine(path, "another version of a plugin made it")


def _sound_records(sweep: Sweep, store: Store, keys: Set[str], needed: Set[str]) -> set[str]:
    """Return the keys of the done cells with a sound record.

    A damaged record is moved to the quarantine.

    Args:
        sweep: The cells.
        store: The results folder.
        keys: The keys of the cells that are done, judged by the names of files.
        needed: The keys of all needed cells. The store reads their records together and keeps them
            in memory.
    """
    # 1. Packs are checked as a whole.
    sound = store.packed & keys
    # 2. Records that are not in packs are read together, without their arrays.
    own_records = store.own_cells(needed, warn=False)
    for key in own_records.filter(pc.field("status") == "done")["key"].to_pylist():
        if not needs_arrays(sweep.by_key[key]):
            sound.add(key)
    # 3. Records that are damaged, or whose arrays must be sound too, are read again one by one.
    for key in keys - sound:
        if store.verified_arrays(sweep.by_key[key].dataset, key) is not None:
            sound.add(key)
    return sound


def _bases_to_repeat(
    sweep: Sweep, store: Store, to_train: Iterable[Cell], done: Set[str]
) -> set[str]:
    """Return the keys of base fits that are done, but must be trained again.

    Cells to train start from their hyperparameters, but these are not stored.
    """
    to_repeat: set[str] = set()
    for base in base_keys(to_train) & done:
        dataset = sweep.by_key[base].dataset
        if store.base_hyperparameters(dataset, base) is None:
            to_repeat.add(base)
    return to_repeat


def make_split_preparer(sweep: Sweep) -> Callable[[Cell], Prepared]:
    """Return a function from a cell to its normalised data; it caches those of small datasets."""

    def prepare_uncached(
        dataset: str, split: str, seed: int, n: int, fold: Fold | None
    ) -> Prepared:
        spec, data = sweep.datasets[dataset, split]
        return prepare(data, spec, seed, n, fold)

    prepare_cached = lru_cache(maxsize=CACHED_SPLITS)(prepare_uncached)

    def prepare_split(cell: Cell) -> Prepared:
        _, data = sweep.datasets[cell.dataset, cell.split]
        is_small = data.X.nbytes < MAX_CACHED_BYTES
        prepare_values = prepare_cached if is_small else prepare_uncached
        fold = None
        if cell.cv is not None and cell.fold is not None:
            fold = Fold(cell.fold, cell.cv)
        return prepare_values(cell.dataset, cell.split, cell.seed, cell.n, fold)

    return prepare_split
