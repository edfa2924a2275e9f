"""Submitting the blocks of a multirun to SLURM, waiting for the jobs, and reporting cells without a record."""

import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlmexp.cluster import scheduler
from dlmexp.cluster.jobs import write_submission
from dlmexp.cluster.queue import unfinished_jobs
from dlmexp.console import counted
from dlmexp.errors import UserError
from dlmexp.paths import in_folder
from dlmexp.plan.cell import Cell
from dlmexp.records.store import Store
from dlmexp.running.presence import active_processes
from dlmexp.running.signals import StopRequest

POLL_SECONDS = (2.0, 15.0)  # between two queries of the queue: at first, and at most
SETUP = "DLMEXP_SLURM_SETUP"  # shell lines at the start of every job
THREADS = (  # as many as cores were granted; srun needs a variable of its own
    "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK MKL_NUM_THREADS=$SLURM_CPUS_PER_TASK "
    "SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK"
)
MOST_LETTERS = 100  # of a job's name
PATIENCE = 3  # queries in a row in which no job is left that can start, until nobody waits any more


@dataclass(frozen=True)
class Block:
    """The cells of one job of a multirun, and the results folder for their records."""

    root: Path
    experiment: str
    cells: tuple[Cell, ...]
    retry_failed: bool
    again: frozenset[str] = frozenset()  # done cells that are trained once more, to keep their models

    def cells_to_run(self) -> set[str]:
        """Keys of the cells that still have to be trained."""
        done, failed = Store(self.root).keys()
        return {cell.key for cell in self.cells} - (done - self.again) - (set() if self.retry_failed else failed)


@dataclass
class Submission:
    """The blocks of a multirun in the order of Hydra's jobs, and what the launcher did with them."""

    blocks: list[Block]
    job_ids: list[str] = field(default_factory=list)  # submitted now, or found in the queue
    error: str | None = None

    @property
    def experiment(self) -> str:
        """The name of the experiment, or of several with + between them."""
        return "+".join(dict.fromkeys(block.experiment for block in self.blocks))


def submit(submission: Submission, launcher: Any, job_overrides: Sequence[Sequence[str]], first: int) -> None:
    """Submit those of Hydra's jobs whose cells are neither recorded nor in the queue.

    `launcher` is pickled and called on the node; `first` is the index of the first of these jobs in the multirun.
    Errors are kept in the submission, since Hydra would print them with a stack trace.
    """
    blocks = submission.blocks[first : first + len(job_overrides)]
    try:
        if len(blocks) != len(job_overrides):
            raise UserError("a setting is swept over twice: name each key once")
        _submit(submission, blocks, launcher, job_overrides, first)
    except (UserError, scheduler.SchedulerUnavailable) as error:
        submission.error = str(error)


def _submit(
    submission: Submission, blocks: list[Block], launcher: Any, job_overrides: Sequence[Sequence[str]], first: int
) -> None:
    import submitit
    from hydra.core.singleton import Singleton
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    selected, queued = _blocks_to_submit(blocks)
    submission.job_ids += queued
    if queued:
        print(f"already in the queue: job {', '.join(queued)}")
    if others := len(blocks) - len(selected):
        print(f"no new job for {others} of {counted(len(blocks), 'block')}")
    cluster = scheduler.cluster_info()
    params = settings(launcher.params, submission.experiment)
    executor, names = _executor(submitit, params), job_names(launcher.params["name"], blocks, job_overrides)
    for start in range(0, len(selected), cluster.max_array_size):
        array = selected[start : start + cluster.max_array_size]
        arguments = [
            (list(job_overrides[i]), "hydra.sweep.dir", first + i, f"job_id_for_{first + i}", Singleton.get_state())
            for i in array
        ]
        try:
            jobs = executor.map_array(launcher, *zip(*arguments, strict=True))
        except (FailedJobError, FailedSubmissionError) as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            rest = "; what is in the queue stays there, the same command submits the rest" if submission.job_ids else ""
            raise UserError(f"SLURM refused the job: {lines[-1] if lines else error}{rest}") from None
        for i, job in zip(array, jobs, strict=True):
            keys = (cell.key for cell in blocks[i].cells)
            write_submission(job.paths.folder, job.job_id, cluster.name, job_overrides[i], keys)
            submission.job_ids.append(job.job_id)
        scheduler.rename_jobs({job.job_id: names[i] for i, job in zip(array, jobs, strict=True)})
        number = jobs[0].job_id.partition("_")[0]
        folder = jobs[0].paths.folder.parent
        print(f"submitted job {number}: {counted(len(array), 'block')}, logs in {folder}", flush=True)


def _blocks_to_submit(blocks: Sequence[Block]) -> tuple[list[int], list[str]]:
    """Indices of the blocks that need a job; and ids of jobs in the queue that run some of the cells."""
    active: dict[str, frozenset[str]] = {}
    for root in {block.root for block in blocks}:
        done, _ = Store(root).keys()
        active |= {s.job.id: s.job.keys for s in unfinished_jobs(root, done, active_processes(root)) if s.active}
    in_queue = frozenset[str]().union(*active.values())
    to_run = [block.cells_to_run() for block in blocks]
    selected = [i for i, keys in enumerate(to_run) if keys - in_queue]
    return selected, [job_id for job_id, keys in active.items() if any(keys & some for some in to_run)]


def job_names(prefix: str, blocks: Sequence[Block], job_overrides: Sequence[Sequence[str]]) -> list[str]:
    """`PREFIX-EXPERIMENT-BLOCK` for each block, named after the values in which it differs from the others."""
    shared = set(job_overrides[0]).intersection(*job_overrides)
    names = []
    for block, overrides in zip(blocks, job_overrides, strict=True):
        differing = [one.partition("=") for one in overrides if one not in shared]
        words = [re.sub(r"[^\w.+-]+", "+", value, flags=re.ASCII) for key, _, value in differing if key != "experiment"]
        words = [word.strip("+") for word in words]
        names.append("-".join([prefix, block.experiment, *filter(None, words)])[:MOST_LETTERS])
    return names


def settings(params: Mapping[str, Any], experiment: str) -> dict[str, Any]:
    """The launcher's settings with what we add: our shell lines before the user's, the experiment in the job's name,
    and a signal that leaves time to train."""
    delay = min(params["signal_delay_s"], 60 * params["timeout_min"] // 4)  # SLURM may send it a minute early
    lines = [THREADS, *filter(None, [os.environ.get(SETUP)]), *(params["setup"] or ())]
    return {**params, "setup": lines, "name": f"{params['name']}-{experiment}", "signal_delay_s": delay}


def _executor(submitit: Any, params: dict[str, Any]) -> Any:
    """submitit's executor with the launcher's settings, passed on in the way of Hydra's own launcher."""
    from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf

    params = dict(params)
    folder, timeouts = params.pop("submitit_folder"), params.pop("max_num_timeout")
    executor = submitit.AutoExecutor(folder=folder, cluster="slurm", slurm_max_num_timeout=timeouts)
    general = BaseQueueConf.__dataclass_fields__
    executor.update_parameters(**{k if k in general else f"slurm_{k}": v for k, v in params.items()})
    return executor


def wait(submission: Submission, stop: StopRequest) -> None:
    """Print progress until all jobs have ended, or until a request to stop. SLURM may be unavailable for a while.

    Jobs that can't start are named with the reason; once no others are left, nothing is waited for.
    """
    active, pause, printed = set(submission.job_ids), POLL_SECONDS[0], ""
    hopeless, queries = dict[str, str](), 0  # jobs that can't start; queries in which there were only such
    while active and stop.received is None and queries < PATIENCE:
        try:
            states = scheduler.job_states(active)
            active = {job_id for job_id in active if states[job_id].active}
            line, stuck = _counts(submission, states)
            for why in dict.fromkeys(stuck.values()):
                new = [job_id for job_id in stuck if stuck[job_id] == why != hopeless.get(job_id)]
                if new:
                    more = f" (and {counted(len(new) - 1, 'other job')})" if len(new) > 1 else ""
                    print(f"job {new[0]}{more} can't start ({states[new[0]].reason}): {why}", flush=True)
            hopeless, queries = stuck, queries + 1 if active and active <= stuck.keys() else 0
        except scheduler.SchedulerUnavailable as error:
            line = f"SLURM does not answer ({error}); asking again"
        line += f"; {_progress(submission.blocks)}"
        if line != printed:
            print(line, flush=True)
            printed = line
        until = time.monotonic() + pause
        while active and stop.received is None and time.monotonic() < until and queries < PATIENCE:
            time.sleep(min(0.5, pause))
        pause = min(1.2 * pause, POLL_SECONDS[1])
    if queries >= PATIENCE:
        cancel = in_folder("dlmexp cancel", submission.blocks[0].root)
        print(f"not waiting for {counted(len(active), 'job')} that can't start: `{cancel}` takes them back")


def _counts(submission: Submission, states: Mapping[str, scheduler.SlurmState]) -> tuple[str, dict[str, str]]:
    """How many jobs are in which state, as a line; and those that can't start, with the reason of each."""
    active = [state for state in states.values() if state.active]
    stuck = {job_id: state.never_starts for job_id, state in sorted(states.items()) if state.never_starts}
    pending = sum(state.name == "PENDING" for state in active)
    held = f" ({len(stuck)} can't start)" if stuck else ""
    ended = len(submission.job_ids) - len(active)
    return f"jobs: {pending} pending{held}, {len(active) - pending} running, {ended} ended", stuck


def _progress(blocks: Iterable[Block]) -> str:
    keys_by_root: dict[Path, set[str]] = {}
    for block in blocks:
        keys_by_root.setdefault(block.root, set()).update(cell.key for cell in block.cells)
    done = sum(len(keys & Store(root).keys()[0]) for root, keys in keys_by_root.items())
    return f"{done} of {counted(sum(map(len, keys_by_root.values())), 'cell')} done"


def lost_cells(blocks: Sequence[Block]) -> list[str]:
    """A message for every job that ended and left some of these cells without a record: cells, node, log."""
    messages = []
    for root in {block.root for block in blocks}:
        cells = {cell.key: cell for block in blocks if block.root == root for cell in block.cells}
        done, failed = Store(root).keys()
        for status in unfinished_jobs(root, done | failed, active_processes(root)):
            lost = [cell for key, cell in cells.items() if key in status.owned]
            if not (lost and status.lost):
                continue
            more = f" and {counted(len(lost) - 1, 'more cell')}" if len(lost) > 1 else ""
            node = f" on {status.node}" if status.node else ""
            messages.append(
                f"job {status.job.id}{node} {status.description}; no record of {lost[0].describe()}{more}; "
                f"log: {status.job.log}"
            )
    return messages
