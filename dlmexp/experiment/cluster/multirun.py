"""`dlmexp run -m`: blocks of cells as jobs on this machine, one after another, or on a cluster.
Hydra composes them, submitit submits them."""

import os
import shlex
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from shutil import which
from typing import Any

from dlmexp.common.console import counted
from dlmexp.common.environment import environment
from dlmexp.common.errors import UserError
from dlmexp.common.literals import with_results_option
from dlmexp.common.provenance import COMMAND, own_job, portable
from dlmexp.experiment.cluster.status import (
    ENDED,
    STUCK,
    job_line,
    job_states,
    max_array_size,
    unfinished_jobs,
    write_submission,
)
from dlmexp.experiment.config import RunConfig
from dlmexp.experiment.plan.compose import compose
from dlmexp.experiment.records.results import drop_unselected
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running.process import FAILURE, STOPPED, StopRequest, select_target
from dlmexp.experiment.running.run import execute, make_folder, write_manifests
from dlmexp.experiment.running.summary import print_plan, print_summary, summarize
from dlmexp.experiment.running.sweep import Sweep, plan_sweep, prepare_sweep

POLL_SECONDS = 10.0  # between two queries of the queue
SETUP = "DLMEXP_SLURM_SETUP"  # shell lines at the start of every job
NOT_FOR_SBATCH = (
    "_target_",
    "submitit_folder",
    "max_num_timeout",
)  # settings of the launcher for ourselves
THREADS = (  # as many as cores were granted; srun needs a variable of its own
    "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK MKL_NUM_THREADS=$SLURM_CPUS_PER_TASK "
    "SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK"
)


def multirun(
    configs: Sequence[RunConfig], jobs: Sequence[Sequence[str]], launcher: Mapping[str, Any]
) -> int:
    """Run jobs, of which all are checked, with their data, before the first one starts.

    `configs` and `jobs` are the configs of the jobs and their overrides, `launcher` the settings of
    `hydra.launcher`. The exit code depends on the records at the end."""
    cfg, kind = configs[0], launcher["_target_"].rpartition(".")[2]
    on_cluster, store = kind == "SlurmLauncher", Store(cfg.results, read_only=cfg.plan)
    if kind not in ("BasicLauncher", "SlurmLauncher"):
        raise UserError(f"hydra/launcher={kind} can't be used here: choose slurm or slurm_gpu")
    if not cfg.wait and not on_cluster:
        raise UserError("wait=false leaves jobs to a cluster: add hydra/launcher=slurm")
    if len({cfg.results for cfg in configs}) > 1:
        raise UserError("results= is one folder for all jobs of a multirun")
    jobs = [
        [word for word in job if not word.lstrip("+~").startswith(("hydra.", "hydra/"))]
        for job in jobs
    ]
    if on_cluster and (launcher.get("gpus_per_node") or "gpu" in str(launcher.get("gres"))):
        jobs = [
            [*job, "device=cuda"] if cfg.device == "auto" else job
            for cfg, job in zip(configs, jobs, strict=True)
        ]
    sweeps = [
        replace(prepare_sweep(cfg), datasets={}) for cfg in configs
    ]  # the jobs load the data themselves
    for note in dict.fromkeys(note for sweep in sweeps for note in sweep.notes):
        print(note, flush=True)
    if cfg.plan:
        for sweep in sweeps:
            target = select_target(sweep.cfg.device, sweep.cfg.dtype)
            print_plan(plan_sweep(sweep, store, target), sweep)
        return 0
    if on_cluster and which("sbatch") is None:
        raise UserError(
            "there is no SLURM here (no sbatch): submit from a login node, or leave hydra/launcher= out"
        )
    make_folder(store.root)
    write_manifests(store.root, sweeps)
    # Processes of jobs know what was typed, and import nothing from the current folder that was not
    # asked for.
    with (
        environment(**{COMMAND: portable(["dlmexp", *sys.argv[1:]]), "PYTHONSAFEPATH": "1"}),
        StopRequest() as stop,
    ):
        keys = frozenset(key for sweep in sweeps for key in sweep.by_key)
        if on_cluster:
            submit(store, list(zip(sweeps, jobs, strict=True)), launcher)
            if not cfg.wait:
                status = with_results_option("dlmexp status", store.root)
                print(
                    f"`{status}` shows their progress; the same command without wait=false waits for them"
                )
                return 0
        code = wait(store, keys, stop) if on_cluster else _run_here(jobs, stop)
    if code >= STOPPED:
        state = "the jobs stay in the queue" if on_cluster else "everything is saved"
        print(f"\n{state}, continue with: {shlex.join(['dlmexp', *sys.argv[1:]])}")
        return code
    for job in unfinished_jobs(store) if on_cluster else ():
        if job.state == ENDED and job.left & keys:
            print(job_line(job.facts))
    drop_unselected(store)
    summary = summarize([asked for sweep in sweeps for asked in sweep.candidates], store)
    print_summary(summary, store)
    return max(code, summary.exit_code)


def _run_here(jobs: Sequence[Sequence[str]], stop: StopRequest) -> int:
    """Run the jobs one after another; the largest of their exit codes. A job that is stopped is the
    last one."""
    code = 0
    for overrides in jobs:
        code = max(code, run_block(overrides), stop.requested.code if stop.requested else 0)
        if code >= STOPPED:
            break
    return code


class BlockOnNode:
    """What a job calls on its node. It gives its process what the submitting one had: our
    environment variables, the current folder, and where modules are imported from. A site can
    configure that SLURM does not pass these on."""

    def __init__(self, overrides: Sequence[str]):
        self.overrides = overrides
        self.variables = {
            name: value for name, value in os.environ.items() if name.startswith("DLMEXP_")
        }
        self.folder, self.search_path = os.getcwd(), [os.path.abspath(entry) for entry in sys.path]

    def __call__(self) -> int:
        """Train the block, and requeue the job where it was stopped before its end."""
        os.environ.update(self.variables)
        os.chdir(self.folder)
        sys.path[:] = [
            *self.search_path,
            *(entry for entry in sys.path if entry not in self.search_path),
        ]
        code = run_block(self.overrides)
        if code >= STOPPED and returns_to_queue(own_job() or "", code - STOPPED):
            try:
                signal.raise_signal(
                    signal.SIGUSR2
                )  # submitit's handler counts time-outs, requeues, and exits
            except (OSError, subprocess.SubprocessError) as error:  # this cluster forbids it
                print(
                    f"everything is saved, but SLURM does not requeue it ({error}): the same command submits it"
                )
        return code

    def checkpoint(self) -> Any:
        """What submitit puts into the queue again: the same block."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)


def run_block(overrides: Sequence[str]) -> int:
    """Train a block in this process; its exit code. What it raises is printed, so that other blocks
    can go on."""
    try:
        return execute(compose(overrides), overrides)
    except UserError as error:
        print(f"dlmexp: {error}", file=sys.stderr, flush=True)
        return 2
    except Exception:
        traceback.print_exc()
        return FAILURE


def returns_to_queue(job_id: str, received: int) -> bool:
    """Whether a job is to be requeued after a signal. SIGUSR2 announces the time limit (or a
    preemption). SIGTERM is ambiguous: a job that was cancelled or requeued is not RUNNING any more,
    while one in the grace time before its preemption is, and is not requeued if it exits."""
    asked = received == signal.SIGTERM and job_states([job_id])[job_id][0] == "RUNNING"
    return asked or received == signal.SIGUSR2


def submit(
    store: Store, blocks: Sequence[tuple[Sweep, Sequence[str]]], params: Mapping[str, Any]
) -> None:
    """Submit the blocks, sweeps with their overrides, that have cells neither recorded nor in the
    queue, with the settings of the launcher. `UserError` if SLURM refuses, or does not answer."""
    from submitit import AutoExecutor
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    active = [job for job in unfinished_jobs(store) if job.active]
    in_queue = frozenset[str]().union(*(job.keys for job in active))
    done, failed = (
        store.keys()
    )  # read after the queue, so a job that has just left it has its records here
    to_run = [
        sweep.by_key.keys() - (done if sweep.cfg.retry_failed else done | failed)
        for sweep, _ in blocks
    ]
    if queued := [job.id for job in active if any(job.keys & keys for keys in to_run)]:
        print(f"already in the queue: job {', '.join(queued)}")
    selected = [block for block, keys in zip(blocks, to_run, strict=True) if keys - in_queue]
    if others := len(blocks) - len(selected):
        print(f"no new job for {others} of {counted(len(blocks), 'block')}")
    most = max_array_size()
    timeouts = params["max_num_timeout"]
    executor = AutoExecutor(
        folder=params["submitit_folder"], cluster="slurm", slurm_max_num_timeout=timeouts
    )
    executor.update_parameters(
        **settings(params, "+".join(dict.fromkeys(sweep.cfg.name for sweep, _ in blocks)))
    )
    for array in (selected[start : start + most] for start in range(0, len(selected), most)):
        try:
            with executor.batch():
                jobs = [executor.submit(BlockOnNode(overrides)) for _, overrides in array]
        except (FailedJobError, FailedSubmissionError) as error:
            said = str(error).strip().rpartition("\n")[2]
            raise UserError(f"SLURM refused the job: {said}; what is queued stays there") from None
        for (sweep, overrides), job in zip(array, jobs, strict=True):
            write_submission(job.paths.folder, job.job_id, overrides, sweep.by_key)
        number, folder = jobs[0].job_id.partition("_")[0], jobs[0].paths.folder.parent
        print(
            f"submitted job {number}: {counted(len(array), 'block')}, logs in {folder}", flush=True
        )


def settings(params: Mapping[str, Any], experiment: str) -> dict[str, Any]:
    """The launcher's settings with what we add: our shell lines before the user's, the experiment
    in the job's name, a signal that leaves time to train, and of the additional parameters those
    that are set."""
    delay = min(
        params["signal_delay_s"], 60 * params["timeout_min"] // 4
    )  # SLURM may send it a minute early
    lines = [THREADS, *filter(None, [os.environ.get(SETUP)]), *(params["setup"] or ())]
    more = {
        key: value
        for key, value in params["additional_parameters"].items()
        if value not in (None, False, "")
    }
    own = {"setup": lines, "name": f"{params['name']}-{experiment}", "signal_delay_s": delay}
    every = {**params, **own, "additional_parameters": more}
    return {f"slurm_{key}": value for key, value in every.items() if key not in NOT_FOR_SBATCH}


def wait(store: Store, keys: Set[str], stop: StopRequest) -> int:
    """Print how many jobs with these cells are in which state until all have ended: 0, or the exit
    code of a request to stop. SLURM may be unavailable for a while. Once only jobs are left that
    can't start, nothing is waited for."""
    printed = ""
    while stop.requested is None:
        jobs = [job for job in unfinished_jobs(store) if job.keys & keys and job.state != ENDED]
        counts = Counter(job.description for job in jobs)
        states = (
            "; ".join(f"{counted(number, 'job')} {what}" for what, number in counts.items())
            or "no job is left"
        )
        line = f"{states}; {len(keys & store.keys()[0])} of {counted(len(keys), 'cell')} done"
        if line != printed:
            print(line, flush=True)
            printed = line
        if all(job.state == STUCK for job in jobs):
            return 0
        until = time.monotonic() + POLL_SECONDS
        while stop.requested is None and time.monotonic() < until:
            time.sleep(0.5)
    return stop.requested.code
