"""`dlmexp run -m`: run each block of cells as a job.

Jobs run on this machine, one after another, or on a cluster. Hydra composes their overrides, and
submitit submits them.
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
from dlmexp.common.provenance import COMMAND_VARIABLE, portable_command
from dlmexp.experiment.cluster.jobs import unfinished_jobs
from dlmexp.experiment.cluster.node import run_block
from dlmexp.experiment.cluster.plan_table import print_jobs
from dlmexp.experiment.cluster.slurm import ENDED
from dlmexp.experiment.cluster.submission import Block, submit, wait
from dlmexp.experiment.config import RunConfig
from dlmexp.experiment.plan.cell import CandidateGroup
from dlmexp.experiment.records.results import drop_unselected
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running.process import STOPPED, StopRequest
from dlmexp.experiment.running.run import make_folder, write_manifests
from dlmexp.experiment.running.summary import print_summary, summarize
from dlmexp.experiment.running.sweep import Sweep, changed_cells, prepare_sweep, set_aside

SLURM_LAUNCHER = "SlurmLauncher"  # the class of `hydra/launcher=slurm`


def multirun(
    configs: Sequence[RunConfig], jobs: Sequence[Sequence[str]], launcher: Mapping[str, Any]
) -> int:
    """Run jobs, after a check of the settings and the data of all of them.

    Args:
        configs: the config of each job.
        jobs: the overrides of each job.
        launcher: the settings of `hydra.launcher`.

    Returns:
        The exit code. After all jobs, it says whether cells failed or have no record.
    """
    _, _, launcher_class = launcher["_target_"].rpartition(".")
    _check(configs, launcher_class)
    # Only settings that do not concern cells are read from it, and all configs agree in these.
    cfg = configs[0]
    on_cluster = launcher_class == SLURM_LAUNCHER
    on_gpus = on_cluster and _requests_gpus(launcher)
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
    if code is None:  # with wait=false, the jobs may still wait or run
        return 0
    if code >= STOPPED:
        state = "the jobs stay in the queue" if on_cluster else "everything is saved"
        print(f"\n{state}, continue with: {shlex.join(['dlmexp', *sys.argv[1:]])}")
        return code
    if on_cluster:
        _print_lost_jobs(store, _keys(sweeps))
    return max(code, _print_summary(store, sweeps))


def _check(configs: Sequence[RunConfig], launcher_class: str) -> None:
    """Raise UserError if `wait` does not fit the launcher, or jobs have different `results`."""
    if not configs[0].wait and launcher_class != SLURM_LAUNCHER:
        raise UserError("wait=false leaves jobs to a cluster: add hydra/launcher=slurm")
    for cfg in configs:
        if cfg.results != configs[0].results:
            raise UserError("results= is one folder for all jobs of a multirun")


def _check_sbatch() -> None:
    """Raise UserError if jobs can't be submitted from this machine."""
    if which("sbatch") is None:
        raise UserError(
            "there is no SLURM here (no sbatch): submit from a login node, "
            "or leave hydra/launcher= out"
        )


def _requests_gpus(launcher: Mapping[str, Any]) -> bool:
    """Return whether the settings of a launcher request GPUs for jobs."""
    return bool(launcher.get("gpus_per_node")) or "gpu" in str(launcher.get("gres"))


def _job_overrides(
    configs: Sequence[RunConfig], jobs: Sequence[Sequence[str]], on_gpus: bool
) -> list[list[str]]:
    """Return the overrides of each job without those of Hydra itself.

    A job that gets a GPU trains on it, unless its overrides choose a device.
    """
    overrides: list[list[str]] = []
    for cfg, words in zip(configs, jobs, strict=True):
        overrides_of_job = [word for word in words if not _is_for_hydra(word)]
        if on_gpus and cfg.device == "auto":
            overrides_of_job.append("device=cuda")
        overrides.append(overrides_of_job)
    return overrides


def _is_for_hydra(override: str) -> bool:
    return override.lstrip("+~").startswith(("hydra.", "hydra/"))


def _blocks(configs: Sequence[RunConfig], overrides: Sequence[Sequence[str]]) -> list[Block]:
    """Return the block of each job.

    The data are loaded for checks only, and not kept in memory: each job loads its own data.
    """
    blocks: list[Block] = []
    for cfg, words in zip(configs, overrides, strict=True):
        sweep = replace(prepare_sweep(cfg), datasets={})
        blocks.append(Block(sweep, words))
    return blocks


def _print_notes(sweeps: Sequence[Sweep]) -> None:
    """Print each note of the sweeps once."""
    notes: dict[str, None] = {}  # as an ordered set
    for sweep in sweeps:
        notes |= dict.fromkeys(sweep.notes)
    for note in notes:
        print(note, flush=True)


def _prepare_folder(store: Store, sweeps: Sequence[Sweep]) -> None:
    """Write the manifests, and set aside records of cells that are trained again."""
    make_folder(store.root)
    write_manifests(store.root, sweeps)
    if sweeps[0].cfg.rerun == "changed":
        for sweep in sweeps:
            set_aside(sweep, store, changed_cells(sweep, store))


def _print_summary(store: Store, sweeps: Sequence[Sweep]) -> int:
    """Print the results of all jobs, and return the exit code."""
    drop_unselected(store)
    groups: list[CandidateGroup] = []
    for sweep in sweeps:
        groups += sweep.candidates
    summary = summarize(groups, store)
    print_summary(summary, store)
    return summary.exit_code


def _run_blocks(
    store: Store, blocks: Sequence[Block], launcher: Mapping[str, Any], on_cluster: bool
) -> int | None:
    """Run the blocks, here or on a cluster.

    Returns:
        The exit code; None if jobs were submitted that are not waited for.
    """
    # Jobs inherit two variables: the command of the user, for their records, and one that keeps
    # Python from importing modules from the current folder.
    variables = {
        COMMAND_VARIABLE: portable_command(["dlmexp", *sys.argv[1:]]),
        "PYTHONSAFEPATH": "1",
    }
    with environment(**variables), StopRequest() as stop:
        if not on_cluster:
            return _run_here(blocks, stop)
        submit(store, blocks, launcher)
        if blocks[0].sweep.cfg.wait:
            submit_again = partial(submit, store, blocks, launcher)
            keys = _keys([block.sweep for block in blocks])
            return wait(store, keys, stop, submit_again)
    status_command = with_results_option("dlmexp status", store.root)
    print(
        f"`{status_command}` shows their progress; "
        "the same command without wait=false waits for them"
    )
    return None


def _run_here(blocks: Sequence[Block], stop: StopRequest) -> int:
    """Run the blocks one after another, and return the largest of their exit codes.

    If a block is stopped, the blocks after it are not started.
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
    """Return the keys of all cells of sweeps."""
    keys: set[str] = set()
    for sweep in sweeps:
        keys.update(sweep.by_key)
    return frozenset(keys)


def _print_lost_jobs(store: Store, keys: frozenset[str]) -> None:
    """Print the jobs that have ended and left some of these cells without a record."""
    for job in unfinished_jobs(store):
        if job.state == ENDED and job.unrecorded_keys & keys:
            print(job.facts.line)
