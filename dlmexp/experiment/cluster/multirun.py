"""`dlmexp run -m`: blocks of cells as jobs on this machine, one after another, or on a cluster.

Hydra composes them, submitit submits them.
"""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from shutil import which
from typing import Any

from dlmexp.common.environment import environment
from dlmexp.common.errors import UserError
from dlmexp.common.literals import with_results_option
from dlmexp.common.provenance import COMMAND, portable
from dlmexp.experiment.cluster.jobs import unfinished_jobs
from dlmexp.experiment.cluster.node import run_block
from dlmexp.experiment.cluster.plan_table import print_jobs
from dlmexp.experiment.cluster.slurm import ENDED
from dlmexp.experiment.cluster.submission import Block, submit, wait
from dlmexp.experiment.config import RunConfig
from dlmexp.experiment.records.results import drop_unselected
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running.process import STOPPED, StopRequest
from dlmexp.experiment.running.run import make_folder, write_manifests
from dlmexp.experiment.running.summary import print_summary, summarize
from dlmexp.experiment.running.sweep import Sweep, changed_cells, prepare_sweep, set_aside

ON_CLUSTER = "SlurmLauncher"


def multirun(
    configs: Sequence[RunConfig], jobs: Sequence[Sequence[str]], launcher: Mapping[str, Any]
) -> int:
    """Run jobs. All of them are checked, with their data, before the first one starts.

    Args:
        configs: the config of each job.
        jobs: the overrides of each job.
        launcher: the settings of `hydra.launcher`.

    Returns:
        The exit code, which depends on the records at the end.
    """
    kind = launcher["_target_"].rpartition(".")[2]
    _check(configs, kind)
    cfg = configs[0]  # settings that are not about cells are the same in all of them
    on_cluster = kind == ON_CLUSTER
    on_gpus = on_cluster and _asks_for_gpus(launcher)
    overrides_by_job = _job_overrides(configs, jobs, on_gpus)
    # The data were loaded as a check, and are dropped: each job loads its own.
    sweeps = [replace(prepare_sweep(config), datasets={}) for config in configs]
    for note in dict.fromkeys(note for sweep in sweeps for note in sweep.notes):
        print(note, flush=True)
    store = Store(cfg.results, read_only=cfg.plan)
    blocks = [
        Block(sweep, overrides) for sweep, overrides in zip(sweeps, overrides_by_job, strict=True)
    ]
    if cfg.plan:
        print_jobs(store, blocks, launcher, on_cluster)
        return 0
    if on_cluster and which("sbatch") is None:
        raise UserError(
            "there is no SLURM here (no sbatch): submit from a login node, "
            "or leave hydra/launcher= out"
        )
    make_folder(store.root)
    write_manifests(store.root, sweeps)
    if cfg.rerun == "changed":
        for sweep in sweeps:
            set_aside(sweep, store, changed_cells(sweep, store))
    code = _run_blocks(store, blocks, launcher, on_cluster)
    if code is None:  # the jobs are left to the cluster
        return 0
    if code >= STOPPED:
        state = "the jobs stay in the queue" if on_cluster else "everything is saved"
        print(f"\n{state}, continue with: {shlex.join(['dlmexp', *sys.argv[1:]])}")
        return code
    if on_cluster:
        _print_lost_jobs(store, _keys(sweeps))
    drop_unselected(store)
    summary = summarize([asked for sweep in sweeps for asked in sweep.candidates], store)
    print_summary(summary, store)
    return max(code, summary.exit_code)


def _check(configs: Sequence[RunConfig], launcher: str) -> None:
    """Check the settings that only a multirun has.

    Raises:
        UserError: they can't be used.
    """
    if not configs[0].wait and launcher != ON_CLUSTER:
        raise UserError("wait=false leaves jobs to a cluster: add hydra/launcher=slurm")
    if len({cfg.results for cfg in configs}) > 1:
        raise UserError("results= is one folder for all jobs of a multirun")


def _asks_for_gpus(launcher: Mapping[str, Any]) -> bool:
    return bool(launcher.get("gpus_per_node")) or "gpu" in str(launcher.get("gres"))


def _job_overrides(
    configs: Sequence[RunConfig], jobs: Sequence[Sequence[str]], on_gpus: bool
) -> list[list[str]]:
    """Return the overrides of each job without those of Hydra itself.

    A job that gets a GPU trains on it, unless its device was chosen.
    """
    overrides: list[list[str]] = []
    for cfg, words in zip(configs, jobs, strict=True):
        own = [word for word in words if not word.lstrip("+~").startswith(("hydra.", "hydra/"))]
        if on_gpus and cfg.device == "auto":
            own.append("device=cuda")
        overrides.append(own)
    return overrides


def _run_blocks(
    store: Store, blocks: Sequence[Block], launcher: Mapping[str, Any], on_cluster: bool
) -> int | None:
    """Run the blocks, here or on a cluster.

    Returns:
        The exit code, or None if the jobs are left to the cluster.
    """
    # Processes of jobs know what was typed, and do not import modules from the current folder by
    # accident.
    variables = {COMMAND: portable(["dlmexp", *sys.argv[1:]]), "PYTHONSAFEPATH": "1"}
    with environment(**variables), StopRequest() as stop:
        if not on_cluster:
            return _run_here(blocks, stop)
        submit(store, blocks, launcher)
        if blocks[0].sweep.cfg.wait:
            submit_again = partial(submit, store, blocks, launcher)
            return wait(store, _keys([block.sweep for block in blocks]), stop, submit_again)
    status = with_results_option("dlmexp status", store.root)
    print(f"`{status}` shows their progress; the same command without wait=false waits for them")
    return None


def _run_here(blocks: Sequence[Block], stop: StopRequest) -> int:
    """Run the blocks one after another, and return the largest of their exit codes.

    After a block that is stopped, no other is started.
    """
    code = 0
    for block in blocks:
        code = max(code, run_block(block.overrides))
        if stop.requested:
            code = max(code, stop.requested.code)
        if code >= STOPPED:
            break
    return code


def _keys(sweeps: Sequence[Sweep]) -> frozenset[str]:
    return frozenset(key for sweep in sweeps for key in sweep.by_key)


def _print_lost_jobs(store: Store, keys: frozenset[str]) -> None:
    """Print the jobs that have ended and left some of these cells without a record."""
    for job in unfinished_jobs(store):
        if job.state == ENDED and job.left & keys:
            print(job.facts.line)
