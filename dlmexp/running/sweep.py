"""A sweep: the cells that a config asks for and the data they are trained on, checked before anything is written."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from dlmexp.catalogue import stand_ins
from dlmexp.config import DatasetConfig, RunConfig
from dlmexp.data.dataset import Dataset, load
from dlmexp.data.parsers.registry import loader_of
from dlmexp.data.places import locate
from dlmexp.data.spec import read_spec
from dlmexp.data.splits import Prepared, prepare
from dlmexp.errors import UserError
from dlmexp.paths import conf_dir, data_root
from dlmexp.plan import compose, grid
from dlmexp.plan.batches import Plan, plan
from dlmexp.plan.batching import cells_at_once
from dlmexp.plan.cell import Candidates, Cell
from dlmexp.plan.checks import check
from dlmexp.records.store import Store

RESERVED = ("records", "data", "running", "checkpoints", "quarantine", "multirun", "figures")  # folders of results
CACHED_SPLITS = 16
CACHED_BYTES = 1e8  # splits of a dataset with more bytes of features are prepared again for each batch, not cached


@dataclass
class Sweep:
    """The cells of a checked config, grouped into the candidates of each selection of beta, with their datasets."""

    cfg: RunConfig
    candidates: list[Candidates]
    datasets: dict[str, tuple[DatasetConfig, Dataset]]
    missing: list[str]  # one message for each dataset whose files are not there

    @cached_property
    def cells(self) -> list[Cell]:
        """Every cell once, also those that are candidates of two selections."""
        return list({cell.key: cell for some in self.candidates for cell in some.cells}.values())


def prepare_sweep(cfg: RunConfig, config_dirs: Sequence[str] = ()) -> Sweep:
    """Check the config, load its datasets and list its cells. Raises `UserError` for whatever can't be run."""
    if cfg.name in RESERVED or not cfg.name.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise UserError(f"name={cfg.name}: choose letters, digits, '-', '_' and '.', and none of {', '.join(RESERVED)}")
    parts = compose.parts(cfg, config_dirs)
    if not parts:
        raise UserError("dataset=[]: the grid is empty; name at least one dataset, e.g. dataset=ringnorm_drawn")
    for part in parts:
        check(part)
    sweep = Sweep(cfg, [], {}, [])
    for part in parts:
        for dataset in part.dataset.values():
            if dataset.name not in sweep.datasets:
                try:
                    sweep.datasets[dataset.name] = dataset, load(dataset, data_root(part.data_root))
                except UserError as error:
                    sweep.missing.append(str(error) + stand_in(dataset.name, cfg.name, data_root(part.data_root)))
                    continue
            sweep.candidates += grid.candidates(part, dataset, sweep.datasets[dataset.name][1])
    sweep.missing = list(dict.fromkeys(sweep.missing))
    if not sweep.candidates:
        raise UserError("nothing can be run: " + "; ".join(sweep.missing))
    return sweep


def stand_in(dataset: str, experiment: str, root: Path) -> str:
    """A clause that names an available dataset to use instead of a missing one; '' if there is none."""
    for name in stand_ins(dataset):
        spec = read_spec(name)
        if loader_of(spec).drawn or locate(spec, root).state == "ready":
            own = (conf_dir() / "experiment" / f"{experiment}-{name}.yaml").exists()
            return f" ({name} can stand in: {f'experiment={experiment}-{name}' if own else f'dataset={name}'})"
    return ""


def plan_sweep(sweep: Sweep, store: Store, device: str, free: float | None) -> Plan:
    """The batches of cells that have no sound record yet. `device` is cpu or cuda, `free` the GPU's free bytes."""
    done, failed = store.keys()
    cells = {cell.key: cell for cell in sweep.cells}
    done = {key for key in done & cells.keys() if store.find(cells[key].dataset, key) is not None}
    # An ELBO fit whose hyperparameters are not stored is trained again where a pending cell starts from them.
    for base in {cell.base for cell in sweep.cells if cell.base and cell.key not in done} & done:
        if store.base(cells[base].dataset, base) is None:
            done.discard(base)

    def size(cell: Cell) -> int:
        return sweep.cfg.batch_cells or cells_at_once(cell, device, free)

    return plan(sweep.cells, done, failed & cells.keys(), size, sweep.cfg.retry_failed)


def prepared_splits(sweep: Sweep) -> Callable[[Cell], Prepared]:
    """A function that gives the normalised split of a cell; splits of small datasets are cached."""
    largest = max(data.X.nbytes for _, data in sweep.datasets.values())

    @lru_cache(maxsize=CACHED_SPLITS if largest < CACHED_BYTES else 0)
    def split(dataset: str, seed: int, n: int) -> Prepared:
        spec, data = sweep.datasets[dataset]
        return prepare(data, spec, seed, n)

    return lambda cell: split(cell.dataset, cell.seed, cell.n)
