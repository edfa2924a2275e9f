"""Submitted jobs: their folders (log, `submitted.json`), their states, why one can't start, and stopping them.

A live process shows that its job runs, whatever SLURM reports. A job that has ended is judged by the records of its
cells alone: SLURM reports COMPLETED for jobs that left none.
"""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path

import msgspec

from dlmexp.atomic import write_atomically
from dlmexp.errors import Unreadable, UserError, nearest, shortened
from dlmexp.paths import in_folder
from dlmexp.reading.files import content, json_value
from dlmexp.records.store import Store
from dlmexp.running.leases import ActiveProcess, active_processes

SUBMITTED = "submitted.json"
# A job in one of these states is running, will run, or will return to the queue; in any other state it has ended.
ACTIVE_STATES = {
    "PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED",
    "RESIZING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED",
}  # fmt: skip
# Our own names for the state of a job that SLURM does not know any more, and of one that can't be seen from here.
ENDED, UNKNOWN = "ENDED", "UNKNOWN"
DEFAULT_MAX_ARRAY_SIZE = 1001
TIMEOUT_SECONDS = 30

# Reasons why SLURM keeps a job pending that no waiting changes (squeue's manual, JOB REASON CODES). All others pass:
# with time (Priority, Resources, ...), when a node or partition comes back, or when users release the jobs that they
# hold (JobHeldUser).
NEVER_STARTS = re.compile(
    r"Partition(Config|NodeLimit|TimeLimit)|BadConstraints|(QOS|Association)TimeLimit|(Account|QOS)NotAllowed"
    r"|Invalid(Account|QOS)|JobHoldMaxRequeue|launch failed requeued held|job requeued in held state|JobHeldAdmin"
    r"|ReservationDeleted|DependencyNeverSatisfied|(QOS|Assoc)(Max|Min)\w*(PerJob|WallDuration|PerNode)\w*|QOSMin\w+"
)


@dataclass(frozen=True)
class SlurmState:
    """The state of a job as SLURM reports it."""

    name: str
    node: str = ""
    reason: str = ""  # why the job is pending, or unknown

    @property
    def active(self) -> bool:
        """Whether it is in the queue or running."""
        return self.name in ACTIVE_STATES

    @property
    def never_starts(self) -> bool:
        """Whether it will not start however long it waits."""
        reason = self.reason.strip("() ").partition(",")[0]
        return self.name in ("PENDING", "REQUEUE_HOLD") and NEVER_STARTS.fullmatch(reason) is not None


def job_states(job_ids: Iterable[str]) -> dict[str, SlurmState]:
    """The state of each job; `UNKNOWN` where SLURM is not installed or does not answer. A job that `squeue` does not
    list has ended; `sacct`, if available, may know how."""
    requested = set(job_ids)
    if not requested:
        return {}
    numbers = ",".join(sorted({job_id.partition("_")[0] for job_id in requested}))
    try:
        listed = ask("squeue", "--noheader", "--array", "--states=all", f"--jobs={numbers}", "--format=%i|%T|%N|%r")
    except UserError as error:
        if "Invalid job id" not in str(error):
            return {job_id: SlurmState(UNKNOWN, reason=str(error)) for job_id in requested}
        listed = []
    states = {}
    for line in listed:
        job_id, name, node, reason = line.split("|", 3)
        states[job_id] = SlurmState(name, node, "" if reason == "None" else reason)
    if requested - states.keys():
        try:
            ended = ask("sacct", "-X", "--noheader", "--parsable2", "-o", "JobID,State,NodeList", "-j", numbers)
        except UserError:
            ended = []
        for job_id, state, node in (line.split("|") for line in ended):
            name = state.partition(" ")[0]  # `CANCELLED by 1000`
            states.setdefault(job_id, SlurmState(ENDED if name in ACTIVE_STATES else name, node))
    return {job_id: states.get(job_id, SlurmState(ENDED)) for job_id in requested}


def max_array_size() -> int:
    """The largest number of tasks in one job array of this cluster."""
    size = re.search(r"MaxArraySize\s*=\s*(\d+)", "\n".join(ask("scontrol", "show", "config")))
    return int(size[1]) if size else DEFAULT_MAX_ARRAY_SIZE


def ask(*command: str) -> list[str]:
    """The lines a SLURM command prints; `UserError` if there are none to be had."""
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    except FileNotFoundError:
        raise UserError(f"there is no SLURM here (no {command[0]})") from None
    except subprocess.TimeoutExpired:
        raise UserError(f"SLURM gave no answer to {command[0]} in {TIMEOUT_SECONDS} s") from None
    if process.returncode:
        said = [line.strip() for line in process.stderr.splitlines() if line.strip()]
        raise UserError(f"SLURM says: {'; '.join(said) or command[0] + ' failed'}")
    return process.stdout.splitlines()


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job and the block it was submitted for: what its file says, and what `unfinished_jobs` adds."""

    id: str
    user: str
    time: float
    overrides: str  # that select the block
    keys: frozenset[str]  # of the block's cells
    folder: str = ""
    state: SlurmState = SlurmState(UNKNOWN)
    left: frozenset[str] = frozenset()  # cells without a record that no other job is responsible for

    @property
    def log(self) -> Path:
        """The file for the output of the job, as submitit names it."""
        return Path(self.folder) / f"{self.id}_0_log.out"

    @property
    def names(self) -> set[str]:
        """Its id, and that of its array."""
        return {self.id, self.id.partition("_")[0]}

    @property
    def may_run(self) -> bool:
        """Whether it is in the queue or running, as far as that can be seen from here."""
        return self.state.active or self.state.name == UNKNOWN

    @property
    def ours(self) -> bool:
        """Whether it can be cancelled from here."""
        return self.state.active and self.user == getuser()

    @property
    def lost(self) -> int:
        """Number of cells without a record of a job that has ended."""
        return 0 if self.may_run else len(self.left)

    @property
    def description(self) -> str:
        """`pending (Priority)`, `running`, `can't start (BadConstraints): ...`, `ended (COMPLETED): ValueError: x`,
        `unknown: ...`."""
        name, reason = self.state.name, self.state.reason
        if name == UNKNOWN:
            return f"unknown: {reason}"
        if self.state.never_starts:
            advice = f"change it with hydra.launcher.NAME=, or see `scontrol show job {self.id}`"
            return f"can't start ({reason}): {advice}"
        if self.state.active:
            return name.lower() + (f" ({reason})" if name == "PENDING" and reason else "")
        try:
            lines = content(self.log).decode(errors="replace").splitlines()
        except (OSError, Unreadable):
            lines = []
        last = next((line for line in reversed(lines) if line.strip() and not line.startswith("submitit ")), "")
        return f"ended ({name})" + (f": {shortened(last, 200)}" if last else "")


def write_submission(folder: Path, job_id: str, overrides: Sequence[str], keys: Iterable[str]) -> None:
    """Record in the job's folder what it was submitted for."""
    block = {"overrides": " ".join(overrides), "keys": frozenset(keys)}
    job = Job(id=job_id, user=getuser(), time=time.time(), **block)
    write_atomically(folder / SUBMITTED, msgspec.json.encode(job, order="deterministic"))


def read_submissions(root: Path) -> list[Job]:
    """All jobs ever submitted for this results folder, the latest last."""
    jobs = []
    for path in root.glob(f"multirun/*/jobs/*/{SUBMITTED}"):
        try:
            jobs.append(msgspec.structs.replace(json_value(content(path), Job), folder=str(path.parent)))
        except (OSError, Unreadable):  # deleted just now, or not ours
            continue
    return sorted(jobs, key=lambda job: (job.time, job.id))


def unfinished_jobs(
    root: Path, recorded: set[str] | None = None, processes: Iterable[ActiveProcess] | None = None
) -> list[Job]:
    """The jobs that are active, or ended with cells that are not `recorded`, the latest last; `processes` are the live
    ones of the results folder. Both are looked up where they are not given."""
    recorded = set.union(*Store(root, read_only=True).keys()) if recorded is None else recorded
    processes = active_processes(root) if processes is None else processes
    hosts = {process.job: process.host for process in processes if process.job}
    # SLURM is asked only about jobs with cells that have no record, or with a live process.
    jobs = [job for job in read_submissions(root) if job.keys - recorded or job.id in hosts]
    states = job_states(job.id for job in jobs)
    for job in jobs:
        if job.id in hosts:
            states[job.id] = SlurmState("RUNNING", hosts[job.id])
        elif states[job.id].name == ENDED and job.user != getuser():  # some clusters hide the jobs of other users
            states[job.id] = SlurmState(UNKNOWN, reason=f"a job of user {job.user} that can't be seen from here")
    # Of jobs with the same cell the last one in this order is responsible: active jobs come after those that ended.
    by_precedence = sorted(jobs, key=lambda job: states[job.id].active)
    owner = {key: job.id for job in by_precedence for key in job.keys - recorded}
    for i, job in enumerate(jobs):
        left = frozenset(key for key in job.keys if owner.get(key) == job.id)
        jobs[i] = msgspec.structs.replace(job, state=states[job.id], left=left)
    return [job for job in jobs if job.left or job.state.active]


def cancellable(root: Path, names: Sequence[str] = ()) -> tuple[list[Job], list[ActiveProcess]]:
    """Everything that runs or waits for a results folder; with `names`, only these jobs (`12` stands for all tasks of
    an array) and processes. `UserError` for a name that is neither."""
    live = active_processes(root)
    jobs = [job for job in unfinished_jobs(root, None, live) if job.may_run]
    processes = [process for process in live if process.job is None]
    known = {name for job in jobs for name in job.names} | {str(process.pid) for process in processes}
    if unknown := [name for name in names if name not in known]:
        raise UserError(f"'{unknown[0]}' is no job or process of {root}: {nearest(unknown[0], sorted(known))}")
    wanted = known.intersection(names or known)
    return [job for job in jobs if job.names & wanted], [some for some in processes if str(some.pid) in wanted]


def cancel(jobs: Sequence[Job], processes: Sequence[ActiveProcess]) -> None:
    """Ask all of them to save their state and leave; jobs that have not started leave the queue."""
    if jobs:
        ask("scancel", "--quiet", *sorted(job.id for job in jobs))
    for process in processes:
        with contextlib.suppress(ProcessLookupError):  # it has ended just now
            os.kill(process.pid, signal.SIGTERM)


def jobs_of(root: Path, words: Sequence[str]) -> list[Job]:
    """The jobs that all words fit: the id of a job (`12` for all tasks of an array, or `12_3`), or overrides of its
    block (`dataset=pol`). `UserError` if there is none."""
    jobs = [job for job in read_submissions(root) if job.names.union(job.overrides.split()).issuperset(words)]
    if words and not jobs:
        listing = in_folder("dlmexp logs", root)
        raise UserError(f"'{' '.join(words)}' is no job of {root}: without a job, `{listing}` lists all of them")
    return jobs
