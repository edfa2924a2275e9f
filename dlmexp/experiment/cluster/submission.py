"""Submit blocks to SLURM, and wait for their jobs."""

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from operator import attrgetter
from typing import Any, NamedTuple

from dlmexp.common.console import counted
from dlmexp.common.errors import UserError
from dlmexp.experiment.cluster.jobs import (
    Job,
    Memory,
    killed_for_memory,
    unfinished_jobs,
    write_submission,
)
from dlmexp.experiment.cluster.node import BlockOnNode
from dlmexp.experiment.cluster.slurm import ENDED, STUCK, max_array_size
from dlmexp.experiment.records.refits import unneeded_refits
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running.process import StopRequest
from dlmexp.experiment.running.sweep import Sweep

POLL_SECONDS = 10.0  # between two queries of the queue
SIGNAL_POLL_SECONDS = 0.5  # between checks for a request to stop
SETUP = "DLMEXP_SLURM_SETUP"  # the variable with shell lines for the start of every job
# Settings of the launcher that are not parameters of sbatch.
NOT_FOR_SBATCH = ("_target_", "submitit_folder", "max_num_timeout")
# Shell line: a job has as many threads as cores were granted, and srun, which does not inherit
# their number, gets it in its own variable.
THREADS = (
    "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK MKL_NUM_THREADS=$SLURM_CPUS_PER_TASK "
    "SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK"
)


class Block(NamedTuple):
    """The cells of one job and the overrides that select them."""

    sweep: Sweep
    overrides: Sequence[str]


def submit(store: Store, blocks: Sequence[Block], launcher: Mapping[str, Any]) -> None:
    """Submit the blocks with cells that are neither recorded nor in the queue.

    If the last job of a block was killed for lack of memory, the new one gets twice the memory, but
    only once.

    Args:
        store: the results folder.
        blocks: the blocks.
        launcher: the settings of the launcher.

    Raises:
        UserError: SLURM refuses, or does not answer.
    """
    jobs = unfinished_jobs(store)
    # The queue is read first, then the records. So a job that has left the queue has written its
    # records, and a job that leaves it in between still counts as queued.
    selection = _blocks_to_submit(store, blocks, jobs)
    _print_selection(selection, len(blocks))
    killed = killed_for_memory(jobs)
    by_memory: dict[Memory, list[Block]] = {}
    for block in selection.blocks:
        memory = _next_memory(launcher["mem_gb"], _last_job(block, killed))
        by_memory.setdefault(memory, []).append(block)
    for memory, blocks_with_memory in by_memory.items():
        if memory.is_raised:
            count = counted(len(blocks_with_memory), "block")
            print(f"{count} ran out of memory: now with {memory.gb:g} GB")
        _submit_arrays(blocks_with_memory, {**launcher, "mem_gb": memory.gb}, memory)


def _next_memory(requested: float | None, killed: Job | None) -> Memory:
    """Return the memory of the next job of a block.

    Args:
        requested: The setting of the launcher, in GB; None: the default of the partition.
        killed: The last job of the block if it was killed for lack of memory, else None.

    Raises:
        UserError: The killed job had the partition's default, which is not known here.
    """
    if killed is None:
        return Memory(requested)
    previous = killed.memory_gb
    # The user may have raised the setting since.
    if requested is not None and (previous is None or requested > previous):
        return Memory(requested)
    if previous is None:
        raise UserError(
            f"job {killed.id} ran out of the memory that its partition gives: "
            "hydra.launcher.mem_gb=N asks for more"
        )
    return Memory(2 * previous, is_raised=True)


def _submit_arrays(blocks: Sequence[Block], launcher: Mapping[str, Any], memory: Memory) -> None:
    """Submit blocks as job arrays that are as large as the cluster allows."""
    array_size = max_array_size()
    names: dict[str, None] = {}  # as an ordered set
    for block in blocks:
        names[block.sweep.cfg.name] = None
    executor = _executor(launcher, experiment="+".join(names))
    for start in range(0, len(blocks), array_size):
        _submit_array(executor, blocks[start : start + array_size], memory)


def _last_job(block: Block, jobs: Sequence[Job]) -> Job | None:
    """Return the last of these jobs that has cells of a block; None if no job has."""
    keys = block.sweep.by_key.keys()
    for job in reversed(jobs):
        if job.keys & keys:
            return job
    return None


class _Selection(NamedTuple):
    """The blocks that need a new job, and ids of jobs in the queue for cells without a record."""

    blocks: list[Block]
    queued_jobs: list[str]


def _blocks_to_submit(store: Store, blocks: Sequence[Block], jobs: Sequence[Job]) -> _Selection:
    """Return the blocks with cells that are neither recorded nor in the queue."""
    queued: set[str] = set()  # keys of cells in the queue
    for job in jobs:
        if job.active:
            queued |= job.keys
    done, failed = store.keys()
    selected: list[Block] = []
    to_run: set[str] = set()  # keys of cells without a record
    unneeded = unneeded_refits(store)
    for block in blocks:
        recorded = done if block.sweep.cfg.retry_failed else done | failed
        unrecorded = block.sweep.by_key.keys() - recorded - unneeded
        to_run |= unrecorded
        if unrecorded - queued:
            selected.append(block)
    queued_jobs = [job.id for job in jobs if job.active and job.keys & to_run]
    return _Selection(selected, queued_jobs)


def _print_selection(selection: _Selection, n_blocks: int) -> None:
    """Print the jobs that are in the queue already, and how many blocks need no new job."""
    if selection.queued_jobs:
        print(f"already in the queue: job {', '.join(selection.queued_jobs)}")
    without_new_job = n_blocks - len(selection.blocks)
    if without_new_job:
        print(f"no new job for {without_new_job} of {counted(n_blocks, 'block')}")


def _executor(launcher: Mapping[str, Any], experiment: str) -> Any:
    """Return submitit's executor with the settings of the launcher."""
    from submitit import AutoExecutor

    executor = AutoExecutor(
        folder=launcher["submitit_folder"],
        cluster="slurm",
        slurm_max_num_timeout=launcher["max_num_timeout"],
    )
    executor.update_parameters(**sbatch_settings(launcher, experiment))
    return executor


def _submit_array(executor: Any, blocks: Sequence[Block], memory: Memory) -> None:
    """Submit blocks as the tasks of one job array."""
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    try:
        with executor.batch():
            jobs = [executor.submit(BlockOnNode(block.overrides)) for block in blocks]
    except (FailedJobError, FailedSubmissionError) as error:
        raise UserError(
            f"SLURM refused the job: {_complaint(str(error))}; what is queued stays there"
        ) from None
    for block, job in zip(blocks, jobs, strict=True):
        folder = job.paths.folder
        write_submission(folder, job.job_id, block.overrides, block.sweep.by_key, memory)
    first = jobs[0]
    array_id, _, _ = first.job_id.partition("_")
    logs = first.paths.folder.parent
    print(f"submitted job {array_id}: {counted(len(blocks), 'block')}, logs in {logs}", flush=True)


def _complaint(text: str) -> str:
    """Return the most useful line of an error message.

    It is the first error of sbatch, else the first line of sbatch, else the last line.
    """
    lines = text.strip().splitlines() or [""]
    lines_of_sbatch = [line for line in lines if line.startswith("sbatch:")]
    errors = [line for line in lines_of_sbatch if "error" in line]
    by_importance = [*errors, *lines_of_sbatch, lines[-1]]
    return by_importance[0]


def sbatch_settings(launcher: Mapping[str, Any], experiment: str) -> dict[str, Any]:
    """Return the settings of the launcher as submitit takes them, with our additions.

    The additions are shell lines before those of the user, the experiment in the name of the job,
    and a limit on how long before the end of a job SLURM sends its signal. Additional parameters
    without a value are left out.
    """
    # The signal comes in the last quarter of the time limit, so that a short job has time to train,
    # too. SLURM may send it a minute early.
    signal_delay = min(launcher["signal_delay_s"], 60 * launcher["timeout_min"] // 4)
    setup = [THREADS]
    if os.environ.get(SETUP):
        setup.append(os.environ[SETUP])
    setup += launcher["setup"] or ()
    additional = dict(launcher["additional_parameters"])
    for name, value in launcher["additional_parameters"].items():
        if value in (None, False, ""):
            del additional[name]
    settings = {
        **launcher,
        "setup": setup,
        "name": f"{launcher['name']}-{experiment}",
        "signal_delay_s": signal_delay,
        "additional_parameters": additional,
    }
    for name in NOT_FOR_SBATCH:
        settings.pop(name, None)
    return {f"slurm_{name}": value for name, value in settings.items()}


def wait(
    store: Store, keys: Set[str], stop: StopRequest, submit_again: Callable[[], None] | None = None
) -> int:
    """Wait for the jobs with these cells, and print how many jobs are in which state.

    While SLURM does not answer, the wait goes on. Jobs that can't start are not waited for.

    Args:
        store: the results folder.
        keys: the keys of the cells.
        stop: a request to stop.
        submit_again: a function that submits blocks with unrecorded cells again. It is called when
            jobs were killed for lack of memory.

    Returns:
        0, or the exit code of a request to stop.
    """
    last_line = ""
    killed_before: set[str] = set()  # ids of jobs
    while stop.requested is None:
        needed = keys - unneeded_refits(store)
        jobs = [job for job in unfinished_jobs(store) if job.keys & needed]
        killed = set(map(attrgetter("id"), killed_for_memory(jobs)))
        if submit_again is not None and killed - killed_before:
            killed_before |= killed
            submit_again()
            continue
        not_ended = [job for job in jobs if job.state != ENDED]
        line = f"{_states(not_ended)}; {_progress(store, needed)}"
        if line != last_line:
            print(line, flush=True)
            last_line = line
        if not _some_may_run(not_ended):
            return 0
        _pause(stop)
    return stop.requested.code


def _some_may_run(jobs: Sequence[Job]) -> bool:
    """Return whether a job is running, can still start, or is in an unknown state."""
    return any(job.state != STUCK for job in jobs)


def _pause(stop: StopRequest) -> None:
    """Sleep until SLURM may be asked again; return early at a request to stop."""
    next_query = time.monotonic() + POLL_SECONDS
    while stop.requested is None and time.monotonic() < next_query:
        time.sleep(SIGNAL_POLL_SECONDS)


def _progress(store: Store, keys: Set[str]) -> str:
    """Return a text that says how many cells are done."""
    done, _ = store.keys()
    return f"{len(keys & done)} of {counted(len(keys), 'cell')} done"


def _states(jobs: Sequence[Job]) -> str:
    """Return a text that says how many jobs are in each state."""
    if not jobs:
        return "no job is left"
    counts = Counter(map(attrgetter("description"), jobs))
    parts = [f"{counted(number, 'job')} {state}" for state, number in counts.items()]
    return "; ".join(parts)
