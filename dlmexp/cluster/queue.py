"""The status of submitted jobs, from four sources: their own folders, SLURM, the live processes and the records.

A live process shows that its job runs, whatever SLURM reports. A job that has ended is judged by the records of its
cells alone: SLURM reports COMPLETED for jobs that left none.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path

from dlmexp.cluster.jobs import SubmittedJob, read_submissions
from dlmexp.cluster.scheduler import ENDED, SchedulerUnavailable, SlurmState, cluster_info, job_states
from dlmexp.running.presence import ActiveProcess


@dataclass(frozen=True)
class JobStatus:
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
        if why := self.state.never_starts:
            return f"can't start ({self.state.reason}): {why}"
        if self.state.active:
            pending = self.state.name == "PENDING" and self.state.reason
            return self.state.name.lower() + (f" ({self.state.reason})" if pending else "")
        reason = self.job.outcome.reason if self.job.outcome else ""
        return f"ended ({self.state.name})" + (f": {reason}" if reason else "")


def unfinished_jobs(root: Path, recorded: set[str], processes: Iterable[ActiveProcess]) -> list[JobStatus]:
    """The jobs that are active, or ended with cells that are not `recorded`, the latest last.

    `processes` are the live processes of the results folder.
    """
    hosts = {process.job: process.host for process in processes if process.job}
    # SLURM is asked only about jobs with cells that have no record, or with a live process.
    jobs = [job for job in read_submissions(root) if job.keys - recorded or job.id in hosts]
    states, unknown = _states(jobs)
    states |= {job.id: SlurmState("RUNNING", hosts[job.id]) for job in jobs if job.id in hosts}
    # Of several jobs with the same cell the last one in this order owns it: active jobs come after those that ended.
    by_precedence = sorted(jobs, key=lambda job: job.id in states and states[job.id].active)
    owner = {key: job.id for job in by_precedence for key in job.keys - recorded}
    found = []
    for job in jobs:
        state = states.get(job.id)
        node = (state.node if state else "") or (job.outcome.host if job.outcome else "")
        owned = frozenset(key for key in job.keys if owner.get(key) == job.id)
        found.append(JobStatus(job, state, unknown.get(job.id, ""), node, job.keys - recorded, owned))
    return [status for status in found if status.owned or status.active]


def _states(jobs: list[SubmittedJob]) -> tuple[dict[str, SlurmState], dict[str, str]]:
    """The states of jobs by id; and for jobs whose state can't be determined, the reason."""
    if not jobs:
        return {}, {}
    try:
        cluster = cluster_info().name
        here = [job for job in jobs if job.cluster == cluster]
        states = job_states(job.id for job in here)
    except SchedulerUnavailable as error:
        return {}, {job.id: str(error) for job in jobs}
    unknown = {job.id: f"a job of cluster {job.cluster}" for job in jobs if job.cluster != cluster}
    for job in here:
        # Some clusters hide the jobs of other users, so that such a job is not listed need not mean that it has ended.
        if states[job.id].name == ENDED and job.user != getuser() and not job.outcome:
            unknown[job.id] = f"a job of user {job.user} that can't be seen from here"
            del states[job.id]
    return states, unknown
