"""A sweep: the cells that a config asks for and the data they are trained on, checked before anything is written."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

from dlmexp.catalogue import stand_ins
from dlmexp.config import DatasetConfig, RunConfig
from dlmexp.data.dataset import Dataset, read_spec
from dlmexp.data.raw_files import find_files, load
from dlmexp.data.splits import Prepared, prepare
from dlmexp.errors import UserError
from dlmexp.paths import data_root
from dlmexp.plan import compose
from dlmexp.plan.batches import Plan, cells_at_once, plan
from dlmexp.plan.cell import Cell
from dlmexp.plan.checks import PLAIN_NAME, check
from dlmexp.plan.compose import dataset_config
from dlmexp.plan.grid import Grid, split_name
from dlmexp.plan.setting import Asked
from dlmexp.records.store import Store
from dlmexp.running.device import Target

# Folders of results.
RESERVED = ("records", "data", "tables", "running", "checkpoints", "quarantine", "multirun", "figures")
READERS = 4  # datasets that are read at once
CACHED_SPLITS = 16
CACHED_BYTES = 1e8  # splits of a dataset with more bytes of features are prepared again for each batch, not cached


@dataclass
class Sweep:
    """The cells of a checked config, grouped into the candidates of each selection of beta, with their datasets."""

    cfg: RunConfig
    candidates: list[Asked]
    by_key: dict[str, Cell]  # every cell once, also those that are candidates of two selections
    datasets: dict[tuple[str, str], tuple[DatasetConfig, Dataset]]  # by the fields `dataset` and `split` of cells
    missing: list[str]  # one message for each dataset whose files are not there
    notes: list[str]  # what is not done quite as it was typed

    @property
    def cells(self) -> list[Cell]:
        return list(self.by_key.values())


def prepare_sweep(cfg: RunConfig) -> Sweep:
    """Check the config, load its datasets, and list its cells. Raises `UserError` for whatever can't be run."""
    if cfg.name in RESERVED or not PLAIN_NAME.fullmatch(cfg.name):
        what = "csv.name" if cfg.name == cfg.csv.name else "name"  # an own table's experiment is named after it
        words = f"at most 100 letters, digits, '-', '_' and '.', and none of {', '.join(RESERVED)}"
        raise UserError(f"{what}={cfg.name[:80]}: choose {words}")
    parts = compose.parts(cfg)
    if not parts:
        raise UserError("dataset=[]: the grid is empty; name at least one dataset, e.g. dataset=ringnorm_drawn")
    for part in parts:
        check(part)
    sweep, grids, loading = Sweep(cfg, [], {}, {}, [], []), list[tuple](), dict[str, Future[Dataset]]()
    with ThreadPoolExecutor(READERS) as readers:  # which wait for other processes and the disk

        def start(part: RunConfig, key: str, dataset: DatasetConfig) -> tuple:
            """Read a dataset, unless the sweep does so already. `key` is the name of its file."""
            root = data_root(part.data_root)
            source = [getattr(dataset, name) for name in ("name", "loader", "task", "rows", "features", "options")]
            if (name := repr((source, dataset.files, root))) not in loading:
                loading[name] = readers.submit(load, dataset, root)
            return part, key, dataset, loading[name]

        asked = [start(part, *item) for part in parts for item in part.dataset.items()]
        for part, key, dataset, data in asked:
            try:
                data.result()
                grids.append((part, key, dataset, data))
            except UserError as error:
                if dataset.loader == "table":  # the user's own: nothing can stand in for it
                    raise
                root, known = data_root(part.data_root), stand_ins(dataset.name)  # real data under other names
                others = [name for name in known if find_files(read_spec(name), root).state == "ready"]
                grids += [start(part, name, dataset_config(name)) for name in others if cfg.stand_ins]
                how = "stands in" if cfg.stand_ins else "can stand in: stand_ins=true"
                sweep.missing.append(f"{error} ({' and '.join(others)} {how})" if others else str(error))
        for part, key, dataset, data in grids:
            _add(sweep, part, key, dataset, data.result())
    sweep.missing, sweep.notes = list(dict.fromkeys(sweep.missing)), list(dict.fromkeys(sweep.notes))
    if not sweep.candidates:
        raise UserError("nothing can be run: " + "; ".join(sweep.missing))
    return sweep


def _add(sweep: Sweep, part: RunConfig, key: str, dataset: DatasetConfig, data: Dataset) -> None:
    """Add the cells on a dataset. Two contents under one name are refused."""
    if any(other.checksum != data.checksum for _, other in sweep.datasets.values() if other.name == data.name):
        raise UserError(
            f"two parts of this run have different data under the name '{data.name}', and their results would be mixed "
            "up: give each its own name (csv.name=NAME), or run them with results=DIR of their own"
        )
    sweep.datasets[data.name, split_name(dataset, data)] = dataset, data
    grid = Grid(part, key, dataset, data)
    for asked, cells in grid.candidates():
        sweep.candidates.append(asked)
        sweep.by_key |= {cell.key: cell for cell in cells}
    sweep.notes += grid.notes()


def plan_sweep(sweep: Sweep, store: Store, target: Target) -> tuple[Plan, frozenset[Cell]]:
    """The batches of cells that have no sound record yet, or are trained again; and the latter."""
    (recorded, failed), cells, free = store.keys(), sweep.by_key, target.free_memory
    done = recorded & cells.keys()
    done = {key for key in done if store.has(cells[key].dataset, key)}
    # A base fit whose hyperparameters are not stored is trained again where a pending cell starts from them.
    for base in {cell.base for cell in sweep.cells if cell.base and cell.key not in done} & done:
        if store.base(cells[base].dataset, base) is None:
            done.discard(base)

    def size(cell: Cell) -> int:
        return sweep.cfg.batch_cells or cells_at_once(cell, target.device.type, free)

    planned = plan(sweep.cells, done, failed & cells.keys(), size, sweep.cfg.retry_failed)
    return planned, frozenset(cell for batch in planned.batches for cell in batch if cell.key in recorded)


def prepared_splits(sweep: Sweep) -> Callable[[Cell], Prepared]:
    """A function that gives the normalised split of a cell; splits of small datasets are cached."""

    def prepared(dataset: str, split: str, seed: int, n: int) -> Prepared:
        spec, data = sweep.datasets[dataset, split]
        return prepare(data, spec, seed, n)

    cached = lru_cache(maxsize=CACHED_SPLITS)(prepared)
    small = {data.name for _, data in sweep.datasets.values() if data.X.nbytes < CACHED_BYTES}
    return lambda cell: (cached if cell.dataset in small else prepared)(cell.dataset, cell.split, cell.seed, cell.n)
