"""`dlmexp run`: from a composed config to finished records."""

import os
import stat
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from rich.table import Table

from dlmexp.catalogue import stand_ins
from dlmexp.config import DatasetConfig, RunConfig
from dlmexp.console import counted, wide_console
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
from dlmexp.records.manifest import check_same_data, manifest, write_manifest
from dlmexp.records.store import Store
from dlmexp.running.duration import foretold
from dlmexp.running.summary import summary

RESERVED = ("records", "data", "running", "checkpoints", "quarantine", "multirun", "figures")
KEPT_BYTES = 1e8  # of features: repetitions of larger data are prepared again for each batch, not kept
SHARED = stat.S_ISGID | stat.S_IWGRP  # `chmod g+ws`: how a folder is made a group's


@dataclass
class Work:
    """A validated job: its cells and the data behind them."""

    cfg: RunConfig
    candidates: list[Candidates]
    datasets: dict[str, tuple[DatasetConfig, Dataset]]
    missing: list[str]  # a sentence for every dataset that is not at hand

    @cached_property
    def cells(self) -> list[Cell]:
        """Every cell once."""
        return list({cell.key: cell for some in self.candidates for cell in some.cells}.values())


def work(cfg: RunConfig, config_dirs: Sequence[str] = ()) -> Work:
    """Everything that can be refused is refused here, before anything is written."""
    if cfg.name in RESERVED or not cfg.name.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise UserError(f"name={cfg.name}: choose letters, digits, '-', '_' and '.', and none of {', '.join(RESERVED)}")
    parts = compose.parts(cfg, config_dirs)
    if not parts:
        raise UserError("dataset=[]: the grid is empty; name at least one dataset, e.g. dataset=ringnorm_drawn")
    for part in parts:
        check(part)
    found = Work(cfg, [], {}, [])
    for part in parts:
        for dataset in part.dataset.values():
            if dataset.name not in found.datasets:
                try:
                    found.datasets[dataset.name] = dataset, load(dataset, data_root(part.data_root))
                except UserError as error:
                    found.missing.append(str(error) + stand_in(dataset.name, cfg.name, data_root(part.data_root)))
                    continue
            found.candidates += grid.candidates(part, dataset, found.datasets[dataset.name][1])
    found.missing = list(dict.fromkeys(found.missing))
    if not found.candidates:
        raise UserError("nothing can be run: " + "; ".join(found.missing))
    return found


def stand_in(dataset: str, experiment: str, root: Path) -> str:
    """A clause about the datasets at hand that stand in for a missing one, with the experiment made for them."""
    for name in stand_ins(dataset):
        spec = read_spec(name)
        if loader_of(spec).drawn or locate(spec, root).state == "ready":
            made = (conf_dir() / "experiment" / f"{experiment}-{name}.yaml").exists()
            return f" ({name} can stand in: {f'experiment={experiment}-{name}' if made else f'dataset={name}'})"
    return ""


def planned(work: Work, store: Store, device: str, free: float | None) -> Plan:
    """The plan against what is in the store; records of these cells are verified, unsound ones count as missing."""
    cfg = work.cfg
    done, failed = store.keys()
    ours = {cell.key: cell for cell in work.cells}
    done = {key for key in done & ours.keys() if store.find(ours[key].dataset, key) is not None}
    for base in {cell.base for cell in work.cells if cell.base and cell.key not in done} & done:
        if store.base(ours[base].dataset, base) is None:
            done.discard(base)

    def size(cell: Cell) -> int:
        return cfg.batch_cells or cells_at_once(cell, device, free)

    return plan(work.cells, done, failed & ours.keys(), size, cfg.retry_failed)


def device_of(cfg: RunConfig) -> tuple[str, float | None]:
    """The kind of device and its free memory, without loading torch where the answer is known."""
    if cfg.device == "cpu":
        return "cpu", None
    from dlmexp.running.programs import place

    device = place(cfg.device, cfg.dtype).device
    if device.type == "cpu":
        return "cpu", None
    import torch

    return "cuda", float(torch.cuda.mem_get_info(device)[0])


def show_plan(plan: Plan, missing: Sequence[str]) -> None:
    """The table of cells and batches, nothing else."""
    table = Table("dataset", "n", "method", "estimator", "q", "seeds", "betas", "cells", "done", "failed", "batches")
    batches = Counter(batch[0].group for batch in plan.batches)
    groups: dict[tuple, list[Cell]] = {}
    for cell in plan.cells:
        groups.setdefault(cell.group, []).append(cell)
    for group, cells in groups.items():
        first = cells[0]
        table.add_row(
            first.dataset,
            str(first.n),
            first.method,
            first.estimator_label,
            first.parameterisation if first.form == "explicit" else "collapsed",
            str(len({cell.seed for cell in cells})),
            str(len({cell.beta for cell in cells})),
            str(len(cells)),
            str(sum(cell.key in plan.done for cell in cells)),
            str(sum(cell.key in plan.failed for cell in cells)),
            str(batches[group]),
        )
    console = wide_console()
    console.print(table)
    console.print(
        f"{counted(len(plan.cells), 'cell')}: {len(plan.done)} done, {len(plan.failed)} failed, "
        f"{plan.pending} to run in {counted(len(plan.batches), 'batch')}",
        highlight=False,
    )
    for sentence in missing:
        console.print(f"left out: {sentence}", highlight=False)


def writable(root: Path) -> None:
    """Refuse a results folder that can't be written to before any time is spent.

    In a folder that is shared with a group, what we make is the group's too, whatever the user's umask.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            pass
        if root.stat().st_mode & SHARED == SHARED:
            os.umask(os.umask(0) & ~stat.S_IRWXG)
    except OSError as error:
        raise UserError(
            f"results={root}: can't write there ({os.strerror(error.errno or 0)}); choose another folder"
        ) from None


def execute(cfg: RunConfig, config_dirs: Sequence[str] = (), again: Sequence[str] = ()) -> int:
    """Run a composed config; the exit code says how it went. `again` are the words that start this very run again."""
    found = work(cfg, config_dirs)
    device, free = device_of(cfg)
    store = Store(cfg.results, read_only=cfg.plan)
    if cfg.plan:
        chosen = planned(found, store, device, free)
        show_plan(chosen, found.missing)
        if sentence := foretold(chosen, device, cfg.workers):
            print(sentence)
        return 0
    writable(store.root)
    for sentence in found.missing:
        print(f"left out: {sentence}", flush=True)
    try:
        for name, (_, data) in found.datasets.items():
            check_same_data(store.root, name, data.checksum)
        write_manifest(store.root, manifest(cfg.name, found.candidates))
        chosen = planned(found, store, device, free)
        return train(found, chosen, store, again) if chosen.batches else summary(found.candidates, store)
    except OSError as error:
        print(f"\ncan't write to {store.root}: {error.strerror}; what is finished is safe, the same command goes on")
        return 1


def train(work: Work, plan: Plan, store: Store, again: Sequence[str]) -> int:
    """Train the plan's batches, with colleagues if the config asks for them; then say what there is and what is not."""
    import torch

    from dlmexp.running.engine import Engine
    from dlmexp.running.presence import Presence
    from dlmexp.running.processes import Colleagues, cores_each
    from dlmexp.running.programs import place
    from dlmexp.running.progress import view
    from dlmexp.running.signals import Stop, StopRequest, seconds

    cfg = work.cfg

    largest = max(data.X.nbytes for _, data in work.datasets.values())

    @lru_cache(maxsize=16 if largest < KEPT_BYTES else 0)
    def split(dataset: str, seed: int, n: int) -> Prepared:
        spec, data = work.datasets[dataset]
        return prepare(data, spec, seed, n)

    where = place(cfg.device, cfg.dtype)
    if sentence := foretold(plan, where.device.type, cfg.workers):
        print(sentence, flush=True)
    if cfg.workers > 1:
        torch.set_num_threads(cores_each(cfg.workers))
    shown, stop = view(plan.pending, len(plan.batches)), StopRequest(seconds(cfg.budget))
    try:
        with (
            stop,
            Presence(store.root) as presence,
            Colleagues(cfg.workers - 1, again, store.root),
            shown,
        ):
            engine = Engine(
                store, where, lambda cell: split(cell.dataset, cell.seed, cell.n), shown, stop, presence, cfg.name,
                cfg.checkpoint_seconds,
            )  # fmt: skip
            engine.run(plan.batches)
    except Stop as asked:
        left = counted(plan.pending - shown.settled, "cell")
        print(f"\nstopped by {asked}: everything is saved, {left} to do; the same command goes on from here")
        return asked.code
    except ValueError:  # from an archive that a second Ctrl-C left half written, under its temporary name
        if not stop.insisted:
            raise
        raise KeyboardInterrupt from None
    return summary(work.candidates, store)
