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
from dlmexp.experiment.plan.cell import Asked
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
    blocks = _blocks(configs, _job_overrides(configs, jobs, on_gpus))
    sweeps = [block.sweep for block in blocks]
    _print_notes(sweeps)
    store = Store(cfg.results, read_only=cfg.plan)
    if cfg.plan:
        print_jobs(store, blocks, launcher, on_cluster)
        return 0
    if on_cluster:
        _check_sbatch()
    _prepare_folder(store, sweeps)
    code = _run_blocks(store, blocks, launcher, on_cluster)
    if code is None:  # the jobs are left to the cluster
        return 0
    if code >= STOPPED:
        state = "the jobs stay in the queue" if on_cluster else "everything is saved"
        print(f"\n{state}, continue with: {shlex.join(['dlmexp', *sys.argv[1:]])}")
        return code
    if on_cluster:
        _print_lost_jobs(store, _keys(sweeps))
    return max(code, _print_summary(store, sweeps))


def _check(configs: Sequence[RunConfig], launcher: str) -> None:
    """Check the settings that only a multirun has.

    Raises:
        UserError: they can't be used.
    """
    if not configs[0].wait and launcher != ON_CLUSTER:
        raise UserError("wait=false leaves jobs to a cluster: add hydra/launcher=slurm")
    if len({cfg.results for cfg in configs}) > 1:
        raise UserError("results= is one folder for all jobs of a multirun")


def _check_sbatch() -> None:
    """Raise UserError if jobs can't be submitted from this machine."""
    if which("sbatch") is None:
        raise UserError(
            "there is no SLURM here (no sbatch): submit from a login node, "
            "or leave hydra/launcher= out"
        )


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
        of_block = [word for word in words if not _is_for_hydra(word)]
        if on_gpus and cfg.device == "auto":
            of_block.append("device=cuda")
        overrides.append(of_block)
    return overrides


def _is_for_hydra(override: str) -> bool:
    return override.lstrip("+~").startswith(("hydra.", "hydra/"))


def _blocks(configs: Sequence[RunConfig], overrides: Sequence[Sequence[str]]) -> list[Block]:
    """Return the block of each job. The data are loaded as a check, and dropped again.

    Each job loads its own data.
    """
    blocks: list[Block] = []
    for cfg, words in zip(configs, overrides, strict=True):
        sweep = replace(prepare_sweep(cfg), datasets={})
        blocks.append(Block(sweep, words))
    return blocks


def _print_notes(sweeps: Sequence[Sweep]) -> None:
    """Print each note of the sweeps once."""
    notes: dict[str, None] = {}
    for sweep in sweeps:
        notes |= dict.fromkeys(sweep.notes)
    for note in notes:
        print(note, flush=True)


def _prepare_folder(store: Store, sweeps: Sequence[Sweep]) -> None:
    """Write the manifests, and set aside the records that are made again."""
    make_folder(store.root)
    write_manifests(store.root, sweeps)
    if sweeps[0].cfg.rerun == "changed":
        for sweep in sweeps:
            set_aside(sweep, store, changed_cells(sweep, store))


def _print_summary(store: Store, sweeps: Sequence[Sweep]) -> int:
    """Print what the records say after all jobs, and return the exit code."""
    drop_unselected(store)
    candidates: list[Asked] = []
    for sweep in sweeps:
        candidates += sweep.candidates
    summary = summarize(candidates, store)
    print_summary(summary, store)
    return summary.exit_code


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
    return frozenset[str]().union(*(sweep.by_key for sweep in sweeps))


def _print_lost_jobs(store: Store, keys: frozenset[str]) -> None:
    """Print the jobs that have ended and left some of these cells without a record."""
    for job in unfinished_jobs(store):
        if job.state == ENDED and job.left & keys:
            print(job.facts.line)
