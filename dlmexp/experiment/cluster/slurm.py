"""Queries to SLURM: the states of jobs, and the limits of a cluster."""

import contextlib
import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from dlmexp.common.errors import UserError, shortened

# The names of this package for states of a job, in addition to those of `squeue`.
ENDED = "ENDED"  # it has left the queue
UNKNOWN = "UNKNOWN"  # it can't be seen from here
STUCK = "CAN'T START"  # it will never leave the queue
OUT_OF_MEMORY = "OUT_OF_MEMORY"  # how `sacct` says that a job was killed for lack of memory
# Commands without the option that selects jobs. They print, for jobs in the queue: id, state, node
# and reason; id, folder and script; and for jobs that have ended: id, state and node.
QUEUED_JOBS = ("squeue", "--noheader", "--array", "--format", "%i|%T|%N|%r")
QUEUED_SCRIPTS = ("squeue", "--noheader", "--array", "--format", "%i|%Z|%o")
ENDED_JOBS = ("sacct", "-X", "--noheader", "--parsable2", "--format", "JobID,State,NodeList")
TIMEOUT_SECONDS = 30
MAX_ERROR_CHARACTERS = 500

# Reasons for which SLURM keeps a job pending for ever (squeue's manual, JOB REASON CODES). All
# other reasons disappear: with time (Priority, Resources, ...), when a node or a partition comes
# back, or when users release the jobs that they hold (JobHeldUser).
NEVER_STARTS = re.compile(
    r"Partition(Config|NodeLimit|TimeLimit)"
    r"|BadConstraints"
    r"|(QOS|Association)TimeLimit"
    r"|(Account|QOS)NotAllowed"
    r"|Invalid(Account|QOS)"
    r"|JobHoldMaxRequeue|launch failed requeued held|job requeued in held state|JobHeldAdmin"
    r"|ReservationDeleted"
    r"|DependencyNeverSatisfied"
    r"|(QOS|Assoc)(Max|Min)\w*(PerJob|WallDuration|PerNode)\w*"
    r"|QOSMin\w+"
)


class JobState(NamedTuple):
    """The state of a job."""

    state: str  # ENDED, UNKNOWN, STUCK, or as `squeue` names it
    node: str = ""
    reason: str = ""  # why it is pending or unknown, or how it has ended


def job_states(job_ids: Iterable[str]) -> dict[str, JobState]:
    """Return the state of each job.

    A job that `squeue` does not list has ended; `sacct`, if available, may know how. The states of
    all jobs are `UNKNOWN` if SLURM is not installed or does not answer.
    """
    ended = JobState(ENDED)  # until SLURM says something else
    states: dict[str, JobState] = dict.fromkeys(job_ids, ended)
    selection = _selection(states)
    try:
        states |= _states_in_queue(selection)
    except UserError as error:
        # "Invalid job id" means that the job ended a while ago, and SLURM has forgotten it.
        if "Invalid job id" not in str(error):
            return dict.fromkeys(states, JobState(UNKNOWN, reason=str(error)))
    if ended in states.values():
        with contextlib.suppress(UserError):  # a cluster without accounting
            for job_id, state in _states_of_ended_jobs(selection).items():
                if states.get(job_id) == ended:
                    states[job_id] = state
    return states


def _selection(job_ids: Iterable[str]) -> tuple[str, str]:
    """Return the option of SLURM's commands that selects jobs and all tasks of their arrays."""
    array_ids: set[str] = set()
    for job_id in job_ids:
        array_id, _, _ = job_id.partition("_")
        array_ids.add(array_id)
    return "--jobs", ",".join(sorted(array_ids))


def _states_in_queue(selection: tuple[str, str]) -> dict[str, JobState]:
    """Return the states of the selected jobs in the queue."""
    states: dict[str, JobState] = {}
    for line in ask(*QUEUED_JOBS, *selection):
        job_id, state, node, reason = line.split("|", 3)
        if state in ("PENDING", "REQUEUE_HOLD") and NEVER_STARTS.fullmatch(reason):
            state = STUCK
        # squeue prints "None" for no reason.
        states[job_id] = JobState(state, node, reason.removeprefix("None"))
    return states


def job_scripts(job_ids: Iterable[str]) -> dict[str, Path]:
    """Return the scripts of those of the jobs that are in the queue, by id.

    Raises:
        UserError: SLURM does not answer.
    """
    wanted = set(job_ids)
    scripts: dict[str, Path] = {}
    for line in ask(*QUEUED_SCRIPTS, *_selection(wanted)):
        job_id, folder, script = line.split("|", 2)
        if job_id in wanted:
            scripts[job_id] = Path(folder, script)
    return scripts


def _states_of_ended_jobs(selection: tuple[str, str]) -> dict[str, JobState]:
    """Return how the selected jobs have ended."""
    states: dict[str, JobState] = {}
    for line in ask(*ENDED_JOBS, *selection):
        job_id, state, node = line.split("|")
        if state in ("PENDING", "RUNNING"):  # the accounting does not know of the end yet
            continue
        outcome, _, _ = state.partition(" ")  # `CANCELLED by 1000` becomes `CANCELLED`
        states[job_id] = JobState(ENDED, node.removeprefix("None assigned"), outcome)
    return states


def max_array_size() -> int:
    """Return the largest number of tasks in one job array of this cluster."""
    config = "\n".join(ask("scontrol", "show", "config"))
    (size,) = re.findall(r"MaxArraySize\s*=\s*(\d+)", config)
    return int(size)


def likely_start(options: Sequence[str]) -> str:
    """Return when and where a job would start, in the words of `sbatch --test-only`.

    Args:
        options: The options of sbatch.

    Raises:
        UserError: SLURM refuses the job, does not answer, or is not installed.
    """
    command = ("sbatch", "--test-only", *options, "--wrap=true")
    # sbatch prints the answer as an error message.
    lines = _answer(command).stderr.strip().splitlines() or ["it does not say"]
    return lines[0].removeprefix("sbatch: ")


def ask(*command: str) -> list[str]:
    """Return the lines that a SLURM command prints.

    Raises:
        UserError: SLURM reports an error, does not answer, or is not installed.
    """
    return _answer(command).stdout.splitlines()


def _answer(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Return the output of a SLURM command; raise as `ask` does."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=True
        )
    except subprocess.CalledProcessError as error:
        complaint = shortened(error.stderr, MAX_ERROR_CHARACTERS) or f"{command[0]} failed"
        raise UserError(f"SLURM says: {complaint}") from None
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise UserError(f"no answer from SLURM: {error}") from None
