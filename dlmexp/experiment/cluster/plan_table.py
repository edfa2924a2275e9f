"""The plan of a multirun: one table of its jobs, with what they ask of a cluster."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from dlmexp.common.console import counted, duration, print_table, wide_console
from dlmexp.common.errors import UserError
from dlmexp.experiment.cluster.slurm import likely_start
from dlmexp.experiment.cluster.submission import Block
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running.clock import Clock, TimeInterval
from dlmexp.experiment.running.process import select_target
from dlmexp.experiment.running.summary import print_changed
from dlmexp.experiment.running.sweep import Plan, plan_sweep, prepare_sweep, prepared_splits

# Options of sbatch by the names of the launcher's settings.
SBATCH_OPTIONS = {
    "partition": "--partition={}",
    "account": "--account={}",
    "qos": "--qos={}",
    "constraint": "--constraint={}",
    "cpus_per_task": "--cpus-per-task={}",
    "gpus_per_node": "--gpus-per-node={}",
    "gres": "--gres={}",
    "mem_gb": "--mem={}G",
    "timeout_min": "--time={}",
}


class Request(NamedTuple):
    """What each job asks of a cluster."""

    cores: int
    memory: str
    minutes: int
    partition: str

    @classmethod
    def of(cls, launcher: Mapping[str, Any]) -> "Request":
        """Return the request in the settings of a launcher."""
        memory = launcher["mem_gb"]
        return cls(
            cores=launcher["cpus_per_task"] or 1,
            memory="of the partition" if memory is None else f"{memory:g} GB",
            minutes=launcher["timeout_min"],
            partition=launcher["partition"] or "default",
        )

    @property
    def core_hours(self) -> float:
        """What a job takes at most."""
        return self.cores * self.minutes / 60


def print_jobs(
    store: Store, blocks: Sequence[Block], launcher: Mapping[str, Any], on_cluster: bool
) -> None:
    """Print a line for each job with its cells, and the totals.

    On a cluster also what the jobs ask for, the time limit that timed steps suggest, and when they
    would start.
    """
    plans = [_plan(block, store) for block in blocks]
    request = Request.of(launcher) if on_cluster else None
    print_table(wide_console(), _table(blocks, plans, request))
    cells_to_run = [_to_run(plan) for plan in plans]
    jobs = sum(count > 0 for count in cells_to_run)
    print(f"{counted(jobs, 'job')} to run, with {counted(sum(cells_to_run), 'cell')}")
    for block, plan in zip(blocks, plans, strict=True):
        print_changed(plan, block.sweep)
    if request is not None and jobs:
        _print_longest_job(_longest(blocks, plans, request.cores))
        _print_likely_start(launcher)


def _print_longest_job(longest: TimeInterval | None) -> None:
    """Print how long the longest job takes, and the time limit that follows."""
    if longest is None:
        return
    minutes = math.ceil(longest.most / 60)
    print(
        f"the longest job takes {duration(longest.least)} to {duration(longest.most)} on cores "
        f"like those here: hydra.launcher.timeout_min={minutes}"
    )


def _print_likely_start(launcher: Mapping[str, Any]) -> None:
    """Print when SLURM would start a job with the settings of the launcher."""
    options: list[str] = []
    for name, option in SBATCH_OPTIONS.items():
        if launcher.get(name) is not None:
            options.append(option.format(launcher[name]))
    try:
        print(f"a job would start: {likely_start(options)}")
    except UserError as error:
        print(f"no likely start: {error}")


def _plan(block: Block, store: Store) -> Plan:
    cfg = block.sweep.cfg
    return plan_sweep(block.sweep, store, select_target(cfg.device, cfg.dtype))


def _to_run(plan: Plan) -> int:
    return sum(len(batch) for batch in (*plan.batches, *plan.later))


def _table(blocks: Sequence[Block], plans: Sequence[Plan], request: Request | None) -> Table:
    """Return the table of the jobs."""
    columns = ["job", "cells", "done", "failed", "to run"]
    if request is not None:
        columns += ["cores", "memory", "time limit", "partition", "core hours"]
    table = Table(*columns)
    counts_of_jobs: list[list[int]] = []
    jobs = 0
    for name, plan in zip(_job_names(blocks), plans, strict=True):
        to_run = _to_run(plan)
        counts = [len(plan.cells), len(plan.done), len(plan.failed), to_run]
        counts_of_jobs.append(counts)
        jobs += to_run > 0
        table.add_row(Text(name), *map(str, counts), *_request_cells(request, to_run > 0))
    totals = map(sum, zip(*counts_of_jobs, strict=True))
    total_request: list[str] = []
    if request is not None:
        total_request = ["", "", "", "", f"{jobs * request.core_hours:.1f}"]
    table.add_row("total", *map(str, totals), *total_request)
    return table


def _job_names(blocks: Sequence[Block]) -> list[str]:
    """Return for each block those of its overrides that not all blocks share."""
    overrides = [set(block.overrides) for block in blocks]
    common = set.intersection(*overrides)
    names: list[str] = []
    for block in blocks:
        words = [word for word in block.overrides if word not in common]
        names.append(" ".join(words) or "all")
    return names


def _request_cells(request: Request | None, is_submitted: bool) -> list[str]:
    """Return what a job asks for, as cells of the table; nothing where nothing is left to run."""
    if request is None:
        return []
    if not is_submitted:
        return [""] * 5
    return [
        str(request.cores),
        request.memory,
        f"{request.minutes} min",
        request.partition,
        f"{request.core_hours:.1f}",
    ]


def _longest(blocks: Sequence[Block], plans: Sequence[Plan], threads: int) -> TimeInterval | None:
    """Return how long the longest job takes, from a few timed steps; None if all are short."""
    clocks = _clocks_of_long_jobs(blocks, plans)
    if not clocks:
        return None
    # Steps of the job with the most cells are timed; the others are assumed to be as fast.
    timed, block = max(clocks, key=lambda pair: pair[0].cells)
    cfg = block.sweep.cfg
    target = select_target(cfg.device, cfg.dtype)
    splits = prepared_splits(prepare_sweep(cfg))  # the sweeps of a multirun have dropped their data
    timed.time_steps(splits, target, threads)
    intervals: list[TimeInterval] = []
    for clock, _ in clocks:
        clock.trials = timed.trials
        interval = clock.announced(workers=1)
        if interval is not None:
            intervals.append(interval)
    return max(intervals, key=lambda interval: interval.most, default=None)


def _clocks_of_long_jobs(
    blocks: Sequence[Block], plans: Sequence[Plan]
) -> list[tuple[Clock, Block]]:
    """Return the blocks that take long enough to be timed, each with its clock."""
    clocks: list[tuple[Clock, Block]] = []
    for block, plan in zip(blocks, plans, strict=True):
        cfg = block.sweep.cfg
        target = select_target(cfg.device, cfg.dtype)
        clock = Clock(plan.batches, target.device.type, plan.later)
        if not clock.is_short():
            clocks.append((clock, block))
    return clocks
