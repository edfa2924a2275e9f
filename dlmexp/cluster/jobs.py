"""Submitted jobs: their folders (log, `submitted.json`, `outcome.json`), their states, and stopping them.

A live process shows that its job runs, whatever SLURM reports. A job that has ended is judged by the records of its
cells alone: SLURM reports COMPLETED for jobs that left none.
"""

import os
import signal
import time
from collections.abc import Iterable, Sequence
from getpass import getuser
from pathlib import Path
from typing import TypeVar

import msgspec

from dlmexp.atomic import write_atomically
from dlmexp.cluster.slurm import ENDED, UNKNOWN, SchedulerUnavailable, SlurmState, ask, cluster_info, job_states
from dlmexp.errors import Unreadable, UserError, nearest
from dlmexp.reading.files import content, typed_json
from dlmexp.records.manifest import read_manifests
from dlmexp.records.store import Store
from dlmexp.running.leases import ActiveProcess, active_processes

SUBMITTED, OUTCOME = "submitted.json", "outcome.json"
T = TypeVar("T")


class Outcome(msgspec.Struct, frozen=True):
    """How the last process of a job ended. The process writes it itself, so a killed one leaves none."""

    host: str
    code: int
    reason: str


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job and the block it was submitted for: what its file says, and what `unfinished_jobs` adds."""

    id: str
    cluster: str
    user: str
    time: float
    overrides: str  # that select the block
    keys: frozenset[str]  # of the block's cells
    folder: str = ""
    outcome: Outcome | None = None
    state: SlurmState = SlurmState(UNKNOWN)
    unrecorded: frozenset[str] = frozenset()  # its cells without a record
    owned: frozenset[str] = frozenset()  # those of them that no other job is responsible for

    @property
    def log(self) -> Path:
        """The file for the output of the job, as submitit names it."""
        return Path(self.folder) / f"{self.id}_0_log.out"

    @property
    def names(self) -> set[str]:
        """Its id, and that of its array."""
        return {self.id, self.id.partition("_")[0]}

    @property
    def node(self) -> str:
        return self.state.node or (self.outcome.host if self.outcome else "")

    @property
    def may_run(self) -> bool:
        """Whether it is in the queue or running, as far as that can be seen from here."""
        return self.state.active or self.state.name == UNKNOWN

    @property
    def ours(self) -> bool:
        """Whether it can be cancelled from here."""
        return self.state.active and self.user == getuser()

    @property
    def lost(self) -> bool:
        """Whether it has ended and left cells without a record."""
        return not self.may_run and bool(self.owned)

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
        return f"ended ({name})" + (f": {self.outcome.reason}" if self.outcome and self.outcome.reason else "")


def write_submission(folder: Path, job_id: str, cluster: str, overrides: Sequence[str], keys: Iterable[str]) -> None:
    """Record in the job's folder what it was submitted for."""
    block = {"overrides": " ".join(overrides), "keys": frozenset(keys)}
    job = Job(id=job_id, cluster=cluster, user=getuser(), time=time.time(), **block)
    write_atomically(folder / SUBMITTED, msgspec.json.encode(job, order="deterministic"))


def read_submissions(root: Path) -> list[Job]:
    """All jobs ever submitted for this results folder, the latest last."""
    jobs = []
    for path in root.glob(f"multirun/*/jobs/*/{SUBMITTED}"):
        if job := _read(path, Job):
            outcome = _read(path.with_name(OUTCOME), Outcome)
            jobs.append(msgspec.structs.replace(job, folder=str(path.parent), outcome=outcome))
    return sorted(jobs, key=lambda job: (job.time, job.id))


def _read(path: Path, kind: type[T]) -> T | None:
    """None for a file that is not there, was deleted just now, or is not ours."""
    try:
        return typed_json(content(path), kind)
    except (OSError, Unreadable):
        return None


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
    states = _states(jobs) | {job.id: SlurmState("RUNNING", hosts[job.id]) for job in jobs if job.id in hosts}
    # Of jobs with the same cell the last one in this order owns it: active jobs come after those that ended.
    by_precedence = sorted(jobs, key=lambda job: states[job.id].active)
    owner = {key: job.id for job in by_precedence for key in job.keys - recorded}
    for i, job in enumerate(jobs):
        owned = frozenset(key for key in job.keys if owner.get(key) == job.id)
        about = {"state": states[job.id], "unrecorded": job.keys - recorded, "owned": owned}
        jobs[i] = msgspec.structs.replace(job, **about)
    return [job for job in jobs if job.owned or job.state.active]


def _states(jobs: list[Job]) -> dict[str, SlurmState]:
    """The states of jobs by id; of those that can't be seen from here, the reason."""
    if not jobs:
        return {}
    try:
        cluster, _ = cluster_info()
        states = job_states(job.id for job in jobs if job.cluster == cluster)
    except SchedulerUnavailable as error:
        return {job.id: SlurmState(UNKNOWN, reason=str(error)) for job in jobs}
    for job in jobs:
        if job.cluster != cluster:
            states[job.id] = SlurmState(UNKNOWN, reason=f"a job of cluster {job.cluster}")
        # Some clusters hide the jobs of other users, so that such a job is not listed need not mean that it has ended.
        elif states[job.id].name == ENDED and job.user != getuser() and not job.outcome:
            states[job.id] = SlurmState(UNKNOWN, reason=f"a job of user {job.user} that can't be seen from here")
    return states


def cancellable(root: Path, names: Sequence[str] = ()) -> tuple[list[Job], list[ActiveProcess]]:
    """Everything that runs or waits for a results folder; with `names`, only these jobs (`12` stands for all tasks of
    an array) and processes. `UserError` for a name that is neither."""
    live = active_processes(root)
    jobs = [job for job in unfinished_jobs(root, None, live) if job.may_run]
    processes = [process for process in live if process.job is None]
    known = {name for job in jobs for name in job.names} | {str(process.pid) for process in processes}
    if unknown := [name for name in names if name not in known]:
        hint = nearest(unknown[0], sorted(known)) if known else "nothing runs or waits there"
        raise UserError(f"'{unknown[0]}' is no job or process of {root}: {hint}")
    wanted = known.intersection(names or known)
    return [job for job in jobs if job.names & wanted], [some for some in processes if str(some.pid) in wanted]


def cancel(jobs: Sequence[Job], processes: Sequence[ActiveProcess]) -> None:
    """Ask all of them to save their state and leave; jobs that have not started leave the queue."""
    if jobs:
        ask("scancel", "--quiet", *sorted(job.id for job in jobs))
    for process in processes:
        try:
            os.kill(process.pid, signal.SIGTERM)
        except ProcessLookupError:
            continue  # it has ended just now
        except PermissionError:
            raise UserError(f"process {process.pid} is another user's: only that user can stop it") from None


def jobs_of(root: Path, words: Sequence[str]) -> list[Job]:
    """The jobs that words ask for: by the id of a job (`12` for all tasks of an array, or `12_3`), the key of a cell or
    its beginning, or words of a cell's description (`banana seed=2 beta=1`). `UserError` if no job or cell is meant."""
    jobs = read_submissions(root)
    if len(words) == 1 and (chosen := [job for job in jobs if words[0] in job.names]):
        return chosen
    asked = {key: group for asked_for in read_manifests(root) for group in asked_for.candidates for key in group.keys}
    start = words[0] if len(words) == 1 and len(words[0]) >= 6 else "no key"
    cells = {key: group.describe(key).split(" ") for key, group in asked.items()}
    keys = {key for key, text in cells.items() if key.startswith(start) or set(words) <= set(text)}
    if not keys:
        known = [*(job.id for job in jobs), *sorted({group.dataset for group in asked.values()})]
        typed = " ".join(words)
        raise UserError(f"'{typed}' is neither a job nor a cell of {root}: {nearest(typed, known)}")
    return [job for job in jobs if job.keys & keys]
