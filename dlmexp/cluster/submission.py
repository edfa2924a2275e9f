"""Blocks of a multirun as SLURM jobs: submitted by submitit, run on a node, and waited for."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from dlmexp.atomic import write_atomically
from dlmexp.cluster import slurm
from dlmexp.cluster.jobs import OUTCOME, Outcome, unfinished_jobs, write_submission
from dlmexp.console import counted
from dlmexp.errors import UserError
from dlmexp.paths import in_folder
from dlmexp.plan.compose import compose
from dlmexp.records.record import own_job
from dlmexp.records.store import Store
from dlmexp.running.run import execute
from dlmexp.running.signals import BUDGET_SPENT, STOPPED, StopRequest
from dlmexp.running.sweep import Sweep

POLL_SECONDS = (2.0, 15.0)  # between two queries of the queue: at first, and at most
SETUP = "DLMEXP_SLURM_SETUP"  # shell lines at the start of every job
THREADS = (  # as many as cores were granted; srun needs a variable of its own
    "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK MKL_NUM_THREADS=$SLURM_CPUS_PER_TASK "
    "SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK"
)
PATIENCE = 3  # queries in a row in which no job is left that can start, until nobody waits any more


@dataclass(frozen=True)
class BlockOnNode:
    """What a job calls on its node. It gives its process what the submitting one had: our environment variables, the
    current folder, and where modules are imported from. A site can configure that SLURM does not pass these on."""

    overrides: list[str]
    variables: dict[str, str]
    folder: str
    search_path: list[str]

    @classmethod
    def of(cls, overrides: Sequence[str]) -> "BlockOnNode":
        """A block, with the context of this process."""
        variables = {name: value for name, value in os.environ.items() if name.startswith("DLMEXP_")}
        return cls(list(overrides), variables, os.getcwd(), [os.path.abspath(entry) for entry in sys.path])

    def __call__(self) -> int:
        """Train the block, and write how that ended for `status`."""
        os.environ.update(self.variables)
        os.chdir(self.folder)
        sys.path[:] = [*self.search_path, *(entry for entry in sys.path if entry not in self.search_path)]
        job_id = own_job() or ""
        path = Path(os.environ["SUBMITIT_FOLDER"].replace("%j", job_id)) / OUTCOME
        path.unlink(missing_ok=True)  # that of its process before a requeue
        code, reason = run_block(self.overrides)
        if code >= STOPPED and returns_to_queue(job_id, code - STOPPED):
            try:
                signal.raise_signal(signal.SIGUSR2)  # submitit's handler counts time-outs, requeues, and exits
            except (OSError, subprocess.SubprocessError) as error:  # this cluster forbids it
                reason = f"everything is saved, but SLURM does not requeue it ({error}): the same command submits it"
                print(f"dlmexp: {reason}", file=sys.stderr, flush=True)
        with contextlib.suppress(OSError):  # that the disk is full must not be an error of its own here
            write_atomically(path, msgspec.json.encode(Outcome(socket.gethostname(), code, reason)))
        return code

    def checkpoint(self) -> Any:
        """What submitit puts into the queue again: the same block."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)


def run_block(overrides: Sequence[str]) -> tuple[int, str]:
    """Train a block in this process: the exit code, and the reason of one that is not 0 or 1."""
    try:
        code = execute(compose(overrides), overrides)
        return code, "stopped by a signal" if code >= STOPPED else "its budget is spent" if code == BUDGET_SPENT else ""
    except UserError as error:
        print(f"dlmexp: {error}", file=sys.stderr, flush=True)
        return 2, str(error)
    except Exception as error:  # the other blocks go on
        traceback.print_exc()
        return 1, f"{type(error).__name__}: {error}"


def returns_to_queue(job_id: str, received: int) -> bool:
    """Whether a job is to be requeued after a signal. SIGUSR2 announces the time limit (or a preemption). SIGTERM is
    ambiguous: a job that was cancelled or requeued is not RUNNING any more, while one in the grace time before its
    preemption is, and is not requeued if it exits."""
    if received != signal.SIGTERM:
        return received == signal.SIGUSR2
    try:
        return slurm.job_states([job_id])[job_id].name == "RUNNING"
    except slurm.SchedulerUnavailable:
        return False


def submit(root: Path, blocks: Sequence[tuple[Sweep, Sequence[str]]], params: Mapping[str, Any]) -> None:
    """Submit the blocks, sweeps with their overrides, that have cells neither recorded nor in the queue, with the
    settings of the launcher. `UserError` if SLURM refuses, or does not answer."""
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    active = [job for job in unfinished_jobs(root) if job.state.active]
    in_queue = frozenset[str]().union(*(job.keys for job in active))
    done, failed = Store(root).keys()  # read after the queue, so a job that has just left it has its records here
    to_run = [sweep.by_key.keys() - (done if sweep.cfg.retry_failed else done | failed) for sweep, _ in blocks]
    if queued := [job.id for job in active if any(job.keys & keys for keys in to_run)]:
        print(f"already in the queue: job {', '.join(queued)}")
    selected = [block for block, keys in zip(blocks, to_run, strict=True) if keys - in_queue]
    if others := len(blocks) - len(selected):
        print(f"no new job for {others} of {counted(len(blocks), 'block')}")
    try:
        cluster, most = slurm.cluster_info()
    except slurm.SchedulerUnavailable as error:
        raise UserError(f"SLURM takes no job: {error}") from None
    executor = _executor(settings(params, "+".join(dict.fromkeys(sweep.cfg.name for sweep, _ in blocks))))
    for array in (selected[start : start + most] for start in range(0, len(selected), most)):
        try:
            with executor.batch():
                jobs = [executor.submit(BlockOnNode.of(overrides)) for _, overrides in array]
        except (FailedJobError, FailedSubmissionError) as error:
            said = [line for line in str(error).splitlines() if line.strip()] or [str(error)]
            raise UserError(f"SLURM refused the job: {said[-1]}; what is queued stays there") from None
        for (sweep, overrides), job in zip(array, jobs, strict=True):
            write_submission(job.paths.folder, job.job_id, cluster, overrides, sweep.by_key)
        number, folder = jobs[0].job_id.partition("_")[0], jobs[0].paths.folder.parent
        print(f"submitted job {number}: {counted(len(array), 'block')}, logs in {folder}", flush=True)


def settings(params: Mapping[str, Any], experiment: str) -> dict[str, Any]:
    """The launcher's settings with what we add: our shell lines before the user's, the experiment in the job's name,
    a signal that leaves time to train, and of the additional parameters those that are set."""
    delay = min(params["signal_delay_s"], 60 * params["timeout_min"] // 4)  # SLURM may send it a minute early
    lines = [THREADS, *filter(None, [os.environ.get(SETUP)]), *(params["setup"] or ())]
    more = {key: value for key, value in params["additional_parameters"].items() if value not in (None, False, "")}
    own = {"setup": lines, "name": f"{params['name']}-{experiment}", "signal_delay_s": delay}
    return {**params, **own, "additional_parameters": more}


def _executor(params: dict[str, Any]) -> Any:
    """submitit's executor with the launcher's settings, passed on in the way of Hydra's own launcher."""
    import submitit
    from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf

    folder, timeouts, _ = (params.pop(name) for name in ("submitit_folder", "max_num_timeout", "_target_"))
    executor = submitit.AutoExecutor(folder=folder, cluster="slurm", slurm_max_num_timeout=timeouts)
    general = BaseQueueConf.__dataclass_fields__
    executor.update_parameters(**{k if k in general else f"slurm_{k}": v for k, v in params.items()})
    return executor


def wait(root: Path, keys: Set[str], stop: StopRequest) -> None:
    """Print how many jobs with these cells are in which state until all have ended, or a request to stop. SLURM may be
    unavailable for a while. Once only jobs are left that can't start, nothing is waited for."""
    pause, printed, queries = POLL_SECONDS[0], "", 0
    while stop.stop is None:
        jobs = [job for job in unfinished_jobs(root) if job.keys & keys and job.may_run]
        counts = Counter(job.description for job in jobs)
        states = "; ".join(f"{counted(number, 'job')} {what}" for what, number in counts.items()) or "no job is left"
        line = f"{states}; {len(keys & Store(root).keys()[0])} of {counted(len(keys), 'cell')} done"
        if line != printed:
            print(line, flush=True)
            printed = line
        if not jobs:
            return
        queries = queries + 1 if all(job.state.never_starts for job in jobs) else 0
        if queries >= PATIENCE:
            cancel = in_folder("dlmexp cancel", root)
            print(f"not waiting for {counted(len(jobs), 'job')} that can't start: `{cancel}` takes them back")
            return
        until = time.monotonic() + pause
        while stop.stop is None and time.monotonic() < until:
            time.sleep(min(0.5, pause))
        pause = min(1.2 * pause, POLL_SECONDS[1])
