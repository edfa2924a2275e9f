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
from dlmexp.cluster.submission import run_block, submit, wait
from dlmexp.config import RunConfig
from dlmexp.console import counted
from dlmexp.errors import UserError
from dlmexp.paths import in_folder
from dlmexp.plan.cell import Cell
from dlmexp.records.record import COMMAND, portable
from dlmexp.records.results import drop_unselected
from dlmexp.records.store import Store
from dlmexp.running.device import select_target
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
    sweeps, said = list[Sweep](), list[str]()
    for cfg in configs:
        sweep = prepare_sweep(cfg)
        said += [*what_was_read(sweep), *sweep.notes]
        sweeps.append(replace(sweep, datasets={}))  # the jobs load the data themselves
    say_once(said)
    root = Path(configs[0].results)
    if configs[0].plan:
        for sweep in sweeps:
            target = select_target(sweep.cfg.device, sweep.cfg.dtype)
            show_plan(plan_sweep(sweep, Store(root, read_only=True), target)[0], sweep)
        return 0
    if kind == SLURM and which("sbatch") is None:
        raise UserError("there is no SLURM here (no sbatch): submit from a login node, or leave hydra/launcher= out")
    say_once(f"left out: {message}" for sweep in sweeps for message in sweep.missing)
    # Processes of jobs know what was typed, and import nothing from the current folder that was not asked for.
    variables = {COMMAND: portable(["dlmexp", *sys.argv[1:]]), "PYTHONSAFEPATH": "1"}
    with results_folder(root), environment(**variables):
        write_what_is_asked(root, sweeps)
        cells, code = {key: cell for sweep in sweeps for key, cell in sweep.by_key.items()}, 0
        with StopRequest() as stop:
            if kind == SLURM:
                submit(root, list(zip(sweeps, jobs, strict=True)), launcher)
                if not configs[0].wait:
                    status = in_folder("dlmexp status", root)
                    print(f"`{status}` shows their progress; the same command without wait=false waits for them")
                    return 0
                wait(root, cells.keys(), stop)
            for overrides in jobs if kind == BASIC else ():
                code = max(code, run_block(overrides)[0])
                if stop.stop is not None or code >= STOPPED:  # a job that is stopped is the last one
                    break
        if stop.stop is not None or code >= STOPPED:
            state = "everything is saved" if kind == BASIC else "the jobs stay in the queue"
            print(f"\n{state}, continue with: {shlex.join(['dlmexp', *sys.argv[1:]])}")
            return stop.stop.code if stop.stop is not None else code
        if kind == SLURM:
            code = _lost_cells(root, cells)
        drop_unselected(Store(root))
        return max(code, summary([some for sweep in sweeps for some in sweep.candidates], Store(root)))


def _lost_cells(root: Path, cells: Mapping[str, Cell]) -> int:
    """Print which jobs ended without a record of some of these cells; 1 if there are any."""
    code = 0
    for job in unfinished_jobs(root):
        lost = [cells[key].describe() for key in sorted(job.owned & cells.keys())]
        if lost and job.lost:
            more = f" and {counted(len(lost) - 1, 'more cell')}" if len(lost) > 1 else ""
            node = f" on {job.node}" if job.node else ""
            print(f"job {job.id}{node} {job.description}; no record of {lost[0]}{more}; log: {job.log}")
            code = 1
    return code
