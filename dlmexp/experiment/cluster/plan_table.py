"""The plan of a multirun: a table of its jobs and of the resources that they request."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from dlmexp.common.console import counted, duration, print_table, wide_console
from dlmexp.common.errors import UserError
from dlmexp.experiment.cluster.slurm import likely_start
from dlmexp.experiment.cluster.submission import Block
from dlmexp.experiment.plan.cell import cell_count
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running.clock import Clock, TimeInterval
from dlmexp.experiment.running.process import select_target
from dlmexp.experiment.running.summary import print_plugin_changes
from dlmexp.experiment.running.sweep import Plan, make_split_preparer, plan_sweep, prepare_sweep

# Options of sbatch by the name of the setting of the launcher; {} is the value.
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
    """The resources that each job requests from a cluster."""

    cores: int
    memory: str
    minutes: int  # time limit
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
        """Cores times hours of a job that takes as long as its time limit."""
        return self.cores * self.minutes / 60


def print_jobs(
    store: Store, blocks: Sequence[Block], launcher: Mapping[str, Any], on_cluster: bool
) -> None:
    """Print a line for each job with its cells, and the totals.

    For a cluster, also print the resources that the jobs request, a sufficient time limit, which is
    estimated by timing a few steps, and when the jobs would start.
    """
    plans = [_plan(block, store) for block in blocks]
    request = Request.of(launcher) if on_cluster else None
    print_table(wide_console(), _table(blocks, plans, request))
    jobs_to_run = 0
    cells_to_run = 0
    for plan in plans:
        cells_of_job = _cells_to_run(plan)
        cells_to_run += cells_of_job
        if cells_of_job:
            jobs_to_run += 1
    print(f"{counted(jobs_to_run, 'job')} to run, with {counted(cells_to_run, 'cell')}")
    for block, plan in zip(blocks, plans, strict=True):
        print_plugin_changes(plan, block.sweep)
    if request is not None and jobs_to_run:
        _print_longest_job(_longest_time(blocks, plans, request.cores))
        _print_likely_start(launcher)


def _print_longest_job(time: TimeInterval | None) -> None:
    """Print how long the longest job takes, and the time limit that it needs."""
    if time is None:
        return
    minutes = math.ceil(time.most / 60)
    print(
        f"the longest job takes {duration(time.least)} to {duration(time.most)} on cores "
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
    """Return the plan of a block."""
    cfg = block.sweep.cfg
    return plan_sweep(block.sweep, store, select_target(cfg.device, cfg.dtype))


def _cells_to_run(plan: Plan) -> int:
    """Return the number of cells that a plan trains.

    Refits are fits to all rows, which are trained after the folds that select them.
    """
    return cell_count(plan.batches) + cell_count(plan.refits)


def _table(blocks: Sequence[Block], plans: Sequence[Plan], request: Request | None) -> Table:
    """Return the table of the jobs."""
    columns = ["job", "cells", "done", "failed", "to run"]
    if request is not None:
        columns += ["cores", "memory", "time limit", "partition", "core hours"]
    table = Table(*columns)
    counts_of_jobs: list[list[int]] = []
    jobs_to_run = 0
    for name, plan in zip(_job_names(blocks), plans, strict=True):
        cells_to_run = _cells_to_run(plan)
        is_submitted = cells_to_run > 0
        counts = [len(plan.cells), len(plan.done), len(plan.failed), cells_to_run]
        counts_of_jobs.append(counts)
        if is_submitted:
            jobs_to_run += 1
        # `Text` keeps brackets in overrides, which rich would take for markup.
        table.add_row(Text(name), *map(str, counts), *_request_entries(request, is_submitted))
    totals = map(sum, zip(*counts_of_jobs, strict=True))
    total_request: list[str] = []
    if request is not None:
        total_request = ["", "", "", "", f"{jobs_to_run * request.core_hours:.1f}"]
    table.add_row("total", *map(str, totals), *total_request)
    return table


def _job_names(blocks: Sequence[Block]) -> list[str]:
    """Return the overrides of each block without those that all blocks have, as a name."""
    common = set(blocks[0].overrides)
    for block in blocks:
        common &= set(block.overrides)
    names: list[str] = []
    for block in blocks:
        words = [word for word in block.overrides if word not in common]
        names.append(" ".join(words) or "all")
    return names


def _request_entries(request: Request | None, is_submitted: bool) -> list[str]:
    """Return the resources that a job requests, as entries of a row of the table.

    They are empty for a job without cells to run.
    """
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


def _longest_time(
    blocks: Sequence[Block], plans: Sequence[Plan], threads: int
) -> TimeInterval | None:
    """Return how long the longest job takes, from a few timed steps; None if all jobs are short."""
    clocks = _clocks_of_long_jobs(blocks, plans)
    if not clocks:
        return None
    # Steps of the job with the most cells are timed. Steps of the other jobs are assumed to have
    # the same cost.
    timed_clock, block = max(clocks, key=lambda pair: pair[0].cells)
    cfg = block.sweep.cfg
    target = select_target(cfg.device, cfg.dtype)
    # The sweep is prepared again to load its datasets, which the sweep of a block does not keep.
    prepare_split = make_split_preparer(prepare_sweep(cfg))
    timed_clock.time_steps(prepare_split, target, threads)
    intervals: list[TimeInterval] = []
    for clock, _ in clocks:
        clock.trials = timed_clock.trials
        interval = clock.expected_interval(workers=1)
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
        clock = Clock(plan.batches, target.device.type, placeholders=plan.refits)
        if not clock.is_short():
            clocks.append((clock, block))
    return clocks
