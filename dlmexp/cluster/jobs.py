"""Submitted jobs: their folders (log, `submitted.json`, `outcome.json`), their states, and stopping them.

A live process shows that its job runs, whatever SLURM reports. A job that has ended is judged by the records of its
cells alone: SLURM reports COMPLETED for jobs that left none.
"""

import os
import signal
import time
from collections.abc import Iterable, Sequence
from functools import cached_property
from getpass import getuser
from pathlib import Path

import msgspec

from dlmexp.atomic import machine, write_atomically
from dlmexp.cluster.slurm import ENDED, SchedulerUnavailable, SlurmState, ask, cluster_info, job_states
from dlmexp.errors import Unreadable, UserError, nearest
from dlmexp.reading.files import content
from dlmexp.reading.json_text import typed_json
from dlmexp.records.manifest import read_manifests
from dlmexp.records.store import Store
from dlmexp.running.leases import ActiveProcess, active_processes

SUBMITTED, OUTCOME = "submitted.json", "outcome.json"


class Outcome(msgspec.Struct, frozen=True):
    """How the last process of a job ended. The process writes it itself, so a killed one leaves none."""

    host: str
    code: int
    reason: str


class SubmittedJob(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A job and the block it was submitted for."""

    id: str
    cluster: str
    user: str
    time: float
    overrides: str  # that select the block
    keys: frozenset[str]  # of the block's cells
    folder: str = ""

    @property
    def log(self) -> Path:
        """The file for the output of the job, as submitit names it."""
        return Path(self.folder) / f"{self.id}_0_log.out"

    @cached_property
    def outcome(self) -> Outcome | None:
        try:
            return typed_json(content(Path(self.folder) / OUTCOME), Outcome)
        except (OSError, Unreadable):
            return None

    @property
    def names(self) -> set[str]:
        """Its id, and that of its array."""
        return {self.id, self.id.partition("_")[0]}


def write_submission(folder: Path, job_id: str, cluster: str, overrides: Sequence[str], keys: Iterable[str]) -> None:
    """Record in the job's folder what it was submitted for."""
    about = SubmittedJob(
        id=job_id,
        cluster=cluster,
        user=getuser(),
        time=time.time(),
        overrides=" ".join(overrides),
        keys=frozenset(keys),
    )
    write_atomically(folder / SUBMITTED, msgspec.json.encode(about, order="deterministic"))


def read_submissions(root: Path) -> list[SubmittedJob]:
    """All jobs ever submitted for this results folder, the latest last."""
    jobs = []
    for path in root.glob(f"multirun/*/jobs/*/{SUBMITTED}"):
        try:
            job = typed_json(content(path), SubmittedJob)
            jobs.append(msgspec.structs.replace(job, folder=str(path.parent)))
        except (OSError, Unreadable):
            continue  # deleted just now, or not a file of ours
    return sorted(jobs, key=lambda job: (job.time, job.id))


class JobStatus(msgspec.Struct, frozen=True):
    """A job that is in the queue or running, or that has ended and left cells without a record."""

    job: SubmittedJob
    state: SlurmState | None  # None: it can't be determined from here, for the reason in `unknown`
    unknown: str
    node: str
    unrecorded: frozenset[str]  # its cells without a record
    owned: frozenset[str]  # those of them that no other job is responsible for (an active one, or a later one)

    @property
    def active(self) -> bool:
        """Whether it is in the queue or running."""
        return self.state is not None and self.state.active

    @property
    def lost(self) -> bool:
        """Whether it has ended and left cells without a record."""
        return self.state is not None and not self.state.active and bool(self.owned)

    @property
    def description(self) -> str:
        """`pending (Priority)`, `running`, `can't start (BadConstraints): ...`, `ended (COMPLETED): ValueError: x`,
        `unknown: ...`."""
        if self.state is None:
            return f"unknown: {self.unknown}"
        if self.state.never_starts:
            advice = f"change it with hydra.launcher.NAME=, or see `scontrol show job {self.job.id}`"
            return f"can't start ({self.state.reason}): {advice}"
        if self.state.active:
            pending = self.state.name == "PENDING" and self.state.reason
            return self.state.name.lower() + (f" ({self.state.reason})" if pending else "")
        reason = self.job.outcome.reason if self.job.outcome else ""
        return f"ended ({self.state.name})" + (f": {reason}" if reason else "")


def unfinished_jobs(root: Path, recorded: set[str], processes: Iterable[ActiveProcess]) -> list[JobStatus]:
    """The jobs that are active, or ended with cells that are not `recorded`, the latest last; `processes` are the live
    ones of the results folder."""
    hosts = {process.job: process.host for process in processes if process.job}
    # SLURM is asked only about jobs with cells that have no record, or with a live process.
    jobs = [job for job in read_submissions(root) if job.keys - recorded or job.id in hosts]
    states, unknown = _states(jobs)
    states |= {job.id: SlurmState("RUNNING", hosts[job.id]) for job in jobs if job.id in hosts}
    # Of jobs with the same cell the last one in this order owns it: active jobs come after those that ended.
    by_precedence = sorted(jobs, key=lambda job: job.id in states and states[job.id].active)
    owner = {key: job.id for job in by_precedence for key in job.keys - recorded}
    statuses = []
    for job in jobs:
        state = states.get(job.id)
        node = (state.node if state else "") or (job.outcome.host if job.outcome else "")
        owned = frozenset(key for key in job.keys if owner.get(key) == job.id)
        statuses.append(JobStatus(job, state, unknown.get(job.id, ""), node, job.keys - recorded, owned))
    return [status for status in statuses if status.owned or status.active]


def _states(jobs: list[SubmittedJob]) -> tuple[dict[str, SlurmState], dict[str, str]]:
    """The states of jobs by id; and for jobs whose state can't be determined, the reason."""
    if not jobs:
        return {}, {}
    try:
        cluster, _ = cluster_info()
        states = job_states(job.id for job in jobs if job.cluster == cluster)
    except SchedulerUnavailable as error:
        return {}, {job.id: str(error) for job in jobs}
    unknown = {job.id: f"a job of cluster {job.cluster}" for job in jobs if job.cluster != cluster}
    for job in jobs:
        # Some clusters hide the jobs of other users, so that such a job is not listed need not mean that it has ended.
        hidden = job.id in states and states[job.id].name == ENDED and job.user != getuser()
        if hidden and not job.outcome:
            unknown[job.id] = f"a job of user {job.user} that can't be seen from here"
            del states[job.id]
    return states, unknown


class Cancellable(msgspec.Struct, frozen=True):
    """What can be stopped from here, and what can't."""

    jobs: list[JobStatus]
    processes: list[ActiveProcess]
    other_jobs: list[JobStatus]  # of other users, or of clusters that do not answer here
    other_processes: list[ActiveProcess]  # of other machines

    def cancel(self) -> None:
        """Ask all of it to save its state and leave; jobs that have not started leave the queue."""
        if self.jobs:
            ask("scancel", "--quiet", *sorted(status.job.id for status in self.jobs))
        for process in self.processes:
            try:
                os.kill(process.pid, signal.SIGTERM)
            except ProcessLookupError:
                continue  # it has ended just now
            except PermissionError:
                raise UserError(f"process {process.pid} is another user's: only that user can stop it") from None


def cancellable(root: Path, names: Sequence[str] = ()) -> Cancellable:
    """Everything that runs or waits for a results folder; with `names`, only these jobs (`12` stands for all tasks of
    an array) and processes. `UserError` for a name that is neither."""
    live = active_processes(root)
    done, failed = Store(root, read_only=True).keys()
    jobs = [status for status in unfinished_jobs(root, done | failed, live) if status.active or status.state is None]
    processes = [process for process in live if process.job is None]
    known = {name for status in jobs for name in status.job.names} | {str(process.pid) for process in processes}
    if unknown := [name for name in names if name not in known]:
        hint = nearest(unknown[0], sorted(known)) if known else "nothing runs or waits there"
        raise UserError(f"'{unknown[0]}' is no job or process of {root}: {hint}")
    jobs = [status for status in jobs if not names or status.job.names.intersection(names)]
    processes = [process for process in processes if not names or str(process.pid) in names]
    ours = [status for status in jobs if status.state is not None and status.job.user == getuser()]
    here = [process for process in processes if process.machine == machine()]
    others = [status for status in jobs if status not in ours]
    return Cancellable(ours, here, others, [process for process in processes if process not in here])


def jobs_of(root: Path, words: Sequence[str]) -> list[SubmittedJob]:
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
