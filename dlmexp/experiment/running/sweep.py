"""A sweep: the cells that a config asks for and the data they are trained on, checked before
anything is written. And what is shown of it: what was read from a user's own tables, with
`plan=true` its cells, and at the end of a run what was selected, what failed and what is
missing."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import pandas as pd
from rich.box import SIMPLE
from rich.table import Table

from dlmexp.common.catalogue import stand_ins
from dlmexp.common.console import counted, print_table, wide_console
from dlmexp.common.errors import UserError
from dlmexp.common.literals import with_results_option
from dlmexp.common.paths import data_root
from dlmexp.data.config import DatasetConfig
from dlmexp.data.dataset import Dataset, read_spec
from dlmexp.data.raw_files import find_files, load
from dlmexp.data.splits import Prepared, prepare, split
from dlmexp.experiment.config import RunConfig
from dlmexp.experiment.plan import compose
from dlmexp.experiment.plan.cell import FIRST_OPTIONS, SHARED, Asked, Batch, Cell, batches
from dlmexp.experiment.plan.grid import Grid, check, split_name
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.records.table import (
    OWN_UNITS,
    TEST,
    as_text,
    candidate_cells,
    rows_for,
    tidy,
)
from dlmexp.experiment.running.process import Target
from dlmexp.experiment.running.programs import cells_at_once

CACHED_SPLITS = 16
# splits of a dataset with more bytes of features are prepared again for each batch, not cached
CACHED_BYTES = 1e8
MOST_COLUMNS = 12  # that are named one by one
MOST_LINES = 60  # of the closing table
UNITS = "mean±standard deviation over seeds at the betas with the lowest validation metric; nll: nats per test row"


@dataclass
class Sweep:
    """The cells of a checked config, grouped into the candidates of each selection of beta, with
    their datasets."""

    cfg: RunConfig
    candidates: list[Asked]
    by_key: dict[str, Cell]  # every cell once, also those that are candidates of two selections
    datasets: dict[
        tuple[str, str], tuple[DatasetConfig, Dataset]
    ]  # by the fields `dataset` and `split` of cells
    notes: list[
        str
    ]  # what was read from a user's own tables, what is not done quite as it was typed, or left out

    @property
    def cells(self) -> list[Cell]:
        return list(self.by_key.values())


class Plan(NamedTuple):
    """The batches that are to be trained, the ones others depend on first."""

    batches: list[Batch]
    done: Set[str]  # the keys of cells with a sound record
    failed: Set[str]
    again: frozenset[
        Cell
    ]  # those that have a record, and are trained again for others to start from


def prepare_sweep(cfg: RunConfig) -> Sweep:
    """Check the config, load its datasets, and list its cells. Raises `UserError` for whatever
    can't be run."""
    parts = compose.parts(cfg)
    if not parts:
        raise UserError(
            "dataset=[]: the grid is empty; name at least one dataset, e.g. dataset=ringnorm_drawn"
        )
    for part in parts:
        check(part)
    sweep, loaded, missing = Sweep(cfg, [], {}, {}, []), dict[str, Dataset](), dict[str, None]()
    asked = [(part, key, dataset) for part in parts for key, dataset in part.dataset.items()]
    for part, key, dataset in asked:  # to which stand-ins are added: real data under other names
        root = data_root(part.data_root)
        source = [
            getattr(dataset, name)
            for name in ("name", "loader", "task", "rows", "features", "options", "files")
        ]
        try:
            if (name := repr((source, root))) not in loaded:
                loaded[name] = load(dataset, root)
        except UserError as error:
            if dataset.loader == "table":  # nothing stands in for a user's own
                raise
            others = [
                name
                for name in stand_ins(dataset.name)
                if find_files(read_spec(name), root).state == "ready"
            ]
            asked += [(part, name, read_spec(name)) for name in others if cfg.stand_ins]
            how = "stands in" if cfg.stand_ins else "can stand in: stand_ins=true"
            missing[f"{error} ({' and '.join(others)} {how})" if others else str(error)] = None
        else:
            _add(sweep, part, key, dataset, loaded[name])
    if not sweep.candidates:
        raise UserError("nothing can be run: " + "; ".join(missing))
    left_out = [f"left out: {message}" for message in missing]
    sweep.notes = list(dict.fromkeys([*_what_was_read(sweep), *sweep.notes, *left_out]))
    return sweep


def _add(sweep: Sweep, part: RunConfig, key: str, dataset: DatasetConfig, data: Dataset) -> None:
    """Add the cells on a dataset. Two contents under one name are refused."""
    if any(
        other.checksum != data.checksum
        for _, other in sweep.datasets.values()
        if other.name == data.name
    ):
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


def plan_sweep(sweep: Sweep, store: Store, target: Target) -> Plan:
    """Which cells have no sound record yet, or are trained again."""
    (recorded, failed), cells, free = store.keys(), sweep.by_key, target.free_memory
    done = recorded & cells.keys()
    done = {
        key
        for key in done
        if key in store.packed or store.find(cells[key].dataset, key) is not None
    }
    # A base fit whose hyperparameters are not stored is trained again where a pending cell starts
    # from them.
    for base in {cell.base for cell in sweep.cells if cell.base and cell.key not in done} & done:
        if store.base(cells[base].dataset, base) is None:
            done.discard(base)
    failed &= cells.keys()
    skip = done if sweep.cfg.retry_failed else done | failed
    pending = batches(
        sweep.cells, skip, lambda cell: sweep.cfg.batch_cells or cells_at_once(cell, free)
    )
    again = frozenset(cell for batch in pending for cell in batch if cell.key in recorded)
    return Plan(pending, done, failed, again)


def prepared_splits(sweep: Sweep) -> Callable[[Cell], Prepared]:
    """A function that gives the normalised split of a cell; splits of small datasets are cached."""

    def prepared(dataset: str, split: str, seed: int, n: int) -> Prepared:
        spec, data = sweep.datasets[dataset, split]
        return prepare(data, spec, seed, n)

    cached = lru_cache(maxsize=CACHED_SPLITS)(prepared)
    small = {data.name for _, data in sweep.datasets.values() if data.X.nbytes < CACHED_BYTES}
    return lambda cell: (cached if cell.dataset in small else prepared)(
        cell.dataset, cell.split, cell.seed, cell.n
    )


def _what_was_read(sweep: Sweep) -> list[str]:
    """Lines about each dataset that is a user's own table: rows, features, target, how the rows are
    divided, what was left out, and what looks wrong."""
    lines = []
    for which, (spec, data) in sweep.datasets.items():
        if spec.loader != "table":
            continue
        facts, columns = data.facts, data.schema.columns
        cells = [cell for cell in sweep.cells if (cell.dataset, cell.split) == which]
        n, M = (
            ", ".join(map(str, sorted({getattr(cell, name) for cell in cells})))
            for name in ("n", "M")
        )
        named = [
            f"{repr(each.name) if ',' in each.name else each.name} ({each.words})"
            for each in columns
        ]
        more = [f"{len(columns) - MOST_COLUMNS} more"] if len(columns) > MOST_COLUMNS else []
        lines += [
            f"{data.name}: {counted(len(data.y), 'row')} of {facts['file']}, {counted(data.X.shape[1], 'feature')} "
            f"from {counted(len(columns), 'column')}: {', '.join(named[:MOST_COLUMNS] + more)}",
            f"  target {f'log({data.schema.target})' if data.schema.log else data.schema.target}: {_target(data)}",
            f"  {_division(spec, data)}; n = {n}; M = {M}",
        ]
        if filled := int(pd.isna(data.X).any(axis=1).sum()):
            lines.append(
                f"  {counted(filled, 'row')} with missing values, which get the mean of the training rows"
            )
        if facts["left_out"]:
            lines.append(f"  left out: {', '.join(facts['left_out'])}")
        lines += [f"  warning: {text}" for text in facts["warnings"]]
    return lines


def _target(data: Dataset) -> str:
    if data.task == "binary":
        zero, one = data.schema.labels or (0, 1)
        ones = int(data.y.sum())
        return f"class 1 is '{one}' ({ones} rows), class 0 is '{zero}' ({len(data.y) - ones} rows)"
    return f"{data.y.min():g} to {data.y.max():g}, mean {data.y.mean():.4g}"


def _division(spec: DatasetConfig, data: Dataset) -> str:
    parts, how = split(len(data.y), spec.split, 0, None, data.arrangement), "at random"
    if data.arrangement.by is not None:
        how = f"by {data.arrangement.kind} ({data.arrangement.column})"
    counts = f"{len(parts.train)} rows for training, {len(parts.validation)} for validation"
    return f"divided {how}: {counts}, {len(parts.test[: spec.test_cap])} for testing"


def show_plan(plan: Plan, sweep: Sweep) -> None:
    """Print one line per dataset, size, method and estimator with its cells, how many are done, and
    in how many batches the rest run; then the totals."""
    table = Table(
        "dataset",
        "n",
        "method",
        "estimator",
        "q",
        "seeds",
        "betas",
        "cells",
        "done",
        "failed",
        "batches",
    )
    pending = Counter(batch[0].group for batch in plan.batches)
    methods, groups = (
        defaultdict[tuple, dict[str, None]](dict),
        defaultdict[tuple, list[Cell]](list),
    )
    for some in sweep.candidates:
        methods[sweep.by_key[some.keys[0]].group][some.method] = None
    for cell in sorted(
        sweep.cells, key=lambda cell: (cell.n, cell.M, cell.dataset, cell.base is not None)
    ):
        groups[cell.group].append(cell)
    for group, cells in groups.items():
        first = cells[0]
        done, failed = (
            sum(cell.key in keys for cell in cells) for keys in (plan.done, plan.failed)
        )
        seeds, betas = len({cell.seed for cell in cells}), len({cell.beta for cell in cells})
        q = first.parameterisation if first.form == "explicit" else "collapsed"
        counts = map(str, (seeds, betas, len(cells), done, failed, pending[group]))
        table.add_row(
            first.dataset, str(first.n), ", ".join(methods[group]), first.model_label, q, *counts
        )
    print_table(wide_console(), table)
    total = f"{counted(len(sweep.cells), 'cell')}: {len(plan.done)} done, {len(plan.failed)} failed"
    print(f"{total}, {sum(map(len, plan.batches))} to run in {counted(len(plan.batches), 'batch')}")


def summary(asked: Sequence[Asked], store: Store) -> int:
    """Print one line per dataset, size and method (mean over seeds at the selected betas) with its
    units, then how many fits reached their limit, what failed and what is missing. Returns the exit
    code: 0, or 1 if cells failed or have no record."""
    keys = {key for each in asked for key in each.keys}
    candidates = as_text(candidate_cells(store.cells(keys), asked))
    cells, table = candidates.drop_duplicates("key"), tidy(candidates)
    collect, status = (
        with_results_option("dlmexp collect", store.root),
        with_results_option("dlmexp status", store.root),
    )
    if not (chosen := rows_for(table[table["status"] == "done"], "nll")).empty:
        own = (
            "test_rmse" in chosen and chosen["test_rmse"].notna().all()
        )  # MSE of scaled targets would say less
        lines = _lines(chosen, [*OWN_UNITS, "test_nll"] if own else TEST)
        if lines.row_count <= MOST_LINES:
            print_table(wide_console(), lines)
            scaled = (
                " of targets scaled to variance 1" if (chosen["task"] == "regression").any() else ""
            )
            units = (
                "; rmse, mae: in the units of the target"
                if own
                else f"; `{collect}` writes their y_std"
            )
            print(f"{UNITS}{scaled}{units if scaled or own else ''}")
        else:
            print(f"{counted(lines.row_count, 'result')}: `{collect}` writes them as a table")
    rule = cells[
        (cells["status"] == "done") & cells["window"].notna() & cells["max_iterations"].notna()
    ]
    if at_limit := int(rule["converged"].eq(False).sum()):
        what = f"{at_limit} of {counted(len(rule), 'fit')} stopped at the limit of iterations and had not converged"
        print(f"{what}; training.max_iterations=N trains longer, as other cells")
    done = int((cells["status"] == "done").sum())
    failed, missing = len(cells) - done, len(keys) - len(cells)
    without = f", {missing} without a record" if missing else ""
    print(
        f"{done} of {counted(len(keys), 'cell')} done, {failed} failed{without}; records in {store.records}"
    )
    if failed:
        print(f"`{status} --failed` lists them, retry_failed=true runs them again")
    if missing:
        print(f"`{status} --missing` lists what has no record, the same command runs it")
    return 1 if failed or missing else 0


def _lines(chosen: pd.DataFrame, metrics: Sequence[str]) -> Table:
    """A table with mean and standard deviation over seeds of those metrics that some row has. A
    column for each setting in which rows of one dataset, size and method differ: the estimator,
    say."""
    order = ["dataset", "n", "M", "method", "estimator", "samples", "parameterisation"]
    rows = chosen.sort_values(order, kind="stable")
    shown = [name for name in metrics if name in rows and rows[name].notna().any()]
    by, alike = order[:4], rows.groupby(["dataset", "n", "method"], dropna=False)
    settings = [
        name for name in (*SHARED, *FIRST_OPTIONS, "changes") if name in rows and name not in by
    ]
    by += [name for name in settings if (alike[name].nunique(dropna=False) > 1).any()]
    lines = Table(
        *by,
        "seeds",
        "beta",
        *(name.removeprefix("test_") for name in shown),
        box=SIMPLE,
        pad_edge=False,
    )
    for _, seeds in rows.groupby(by, dropna=False, sort=False):
        betas = [
            f"{beta:.3g}" for beta in seeds.sort_values("seed")["beta"].dropna()
        ]  # of each seed, if they differ
        beta = ", ".join(betas if len(set(betas)) > 1 else betas[:1])
        facts = ("" if pd.isna(value) else str(value) for value in seeds.iloc[0][by])
        lines.add_row(*facts, str(len(seeds)), beta, *(_mean(seeds[name]) for name in shown))
    return lines


def _mean(values: pd.Series) -> str:
    """Mean and standard deviation as text: `0.6000±0.0012`, `31240±320`."""
    if values.isna().all():
        return ""
    digits = max(0, 4 - len(f"{abs(values.mean()):.0f}")) if abs(values.mean()) >= 10 else 4
    return f"{values.mean():.{digits}f}" + (
        f"±{values.std():.{digits}f}" if len(values) > 1 else ""
    )
