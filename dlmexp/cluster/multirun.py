"""`dlmexp run -m`: jobs on this machine, one after another, or on a cluster. Hydra composes, we launch."""

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import which
from typing import Any

from dlmexp.cluster.jobs import unfinished_jobs
from dlmexp.cluster.submission import Block, run_block, submit, wait
from dlmexp.config import RunConfig
from dlmexp.console import counted
from dlmexp.errors import UserError
from dlmexp.paths import in_folder
from dlmexp.records.record import COMMAND, portable
from dlmexp.records.results import drop_unselected
from dlmexp.records.store import Store
from dlmexp.running.device import device_and_free_memory
from dlmexp.running.run import environment, results_folder, say_once, write_what_is_asked
from dlmexp.running.signals import STOPPED, StopRequest
from dlmexp.running.sweep import Sweep, plan_sweep, prepare_sweep
from dlmexp.running.tables import show_plan, summary, what_was_read

BASIC, SLURM = "BasicLauncher", "SlurmLauncher"  # how launchers' classes end
DEVICE = re.compile(r"\+*device=")
Jobs = Sequence[Sequence[str]]  # the overrides of each job


def multirun(configs: Sequence[RunConfig], jobs: Jobs, launcher: Mapping[str, Any]) -> int:
    """Run jobs, of which all are checked, with their data, before the first one starts.

    `configs` and `jobs` are the configs of the jobs and their overrides, `launcher` the settings of `hydra.launcher`.
    The exit code depends on the records at the end.
    """
    kind = launcher["_target_"].rpartition(".")[2]
    if kind not in (BASIC, SLURM):
        raise UserError(f"hydra/launcher={kind} can't be used here: choose slurm or slurm_gpu")
    if not configs[0].wait and kind != SLURM:
        raise UserError("wait=false leaves jobs to a cluster: add hydra/launcher=slurm")
    if len({cfg.results for cfg in configs}) > 1:
        raise UserError("results= is one folder for all jobs of a multirun")
    jobs = [[word for word in job if not word.lstrip("+~").startswith(("hydra.", "hydra/"))] for job in jobs]
    if kind == SLURM and (launcher.get("gpus_per_node") or "gpu" in str(launcher.get("gres"))):
        jobs = [job if any(map(DEVICE.match, job)) else [*job, "device=cuda"] for job in jobs]
    checked, checksums, said = list[Sweep](), dict[str, str](), list[str]()
    for cfg in configs:
        sweep = prepare_sweep(cfg)
        said += [*what_was_read(sweep), *sweep.notes]
        checksums |= {data.name: data.checksum for _, data in sweep.datasets.values()}
        checked.append(replace(sweep, datasets={}))  # the jobs load the data themselves
    say_once(said)
    root = Path(configs[0].results)
    if configs[0].plan:
        for sweep in checked:
            store = Store(root, read_only=True)
            show_plan(plan_sweep(sweep, store, *device_and_free_memory(sweep.cfg))[0], sweep)
        return 0
    if kind == SLURM and which("sbatch") is None:
        raise UserError("there is no SLURM here (no sbatch): submit from a login node, or leave hydra/launcher= out")
    say_once(f"left out: {message}" for sweep in checked for message in sweep.missing)
    # Processes of jobs know what was typed, and import nothing from the current folder that was not asked for.
    variables = {COMMAND: portable(["dlmexp", *sys.argv[1:]]), "PYTHONSAFEPATH": "1"}
    with results_folder(root), environment(**variables):
        write_what_is_asked(root, checked, checksums)
        if kind == SLURM:
            return _run_on_cluster(root, checked, jobs, launcher)
        return _run_here(root, checked, jobs)


def _run_here(root: Path, checked: Sequence[Sweep], jobs: Jobs) -> int:
    """Run the jobs on this machine, one after another. A job that is stopped is the last one."""
    code = 0
    with StopRequest() as stop:
        for overrides in jobs:
            code = max(code, run_block(overrides)[0])
            if stop.stop is not None or code >= STOPPED:
                break
    if stop.stop is not None or code >= STOPPED:
        print(f"\neverything is saved, continue with: {_typed()}")
        return stop.stop.code if stop.stop is not None else code
    return max(code, _summary(root, checked))


def _typed() -> str:
    return shlex.join(["dlmexp", *sys.argv[1:]])


def _run_on_cluster(root: Path, checked: Sequence[Sweep], jobs: Jobs, launcher: Mapping[str, Any]) -> int:
    """Submit the jobs, which do not depend on this process, and wait for them."""
    blocks = [
        Block(overrides, sweep.cfg.name, frozenset(cell.key for cell in sweep.cells), sweep.cfg.retry_failed)
        for sweep, overrides in zip(checked, jobs, strict=True)
    ]
    with StopRequest() as stop:
        submit(root, blocks, launcher)
        if not checked[0].cfg.wait:
            status = in_folder("dlmexp status", root)
            print(f"`{status}` shows their progress; the same command without wait=false waits for them")
            return 0
        wait(root, frozenset[str]().union(*(block.keys for block in blocks)), stop)
    if stop.stop is not None:
        print(f"\nthe jobs stay in the queue, continue with: {_typed()}")
        return stop.stop.code
    cells, code = {cell.key: cell.describe() for sweep in checked for cell in sweep.cells}, 0
    for job in unfinished_jobs(root):
        lost = [cells[key] for key in sorted(job.owned & cells.keys())]
        if lost and job.lost:
            more = f" and {counted(len(lost) - 1, 'more cell')}" if len(lost) > 1 else ""
            node = f" on {job.node}" if job.node else ""
            print(f"job {job.id}{node} {job.description}; no record of {lost[0]}{more}; log: {job.log}")
            code = 1
    return max(code, _summary(root, checked))


def _summary(root: Path, checked: Sequence[Sweep]) -> int:
    """Print the summary of all jobs; 0 if all cells have a record of success."""
    drop_unselected(Store(root))
    return summary([some for sweep in checked for some in sweep.candidates], Store(root))
