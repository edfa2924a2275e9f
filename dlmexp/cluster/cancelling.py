"""Stopping what trains in a results folder: jobs on a cluster, and processes of this machine. All of it is saved."""

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path

from dlmexp.cluster.queue import JobStatus, unfinished_jobs
from dlmexp.cluster.scheduler import cancel_jobs
from dlmexp.console import counted
from dlmexp.errors import UserError, nearest
from dlmexp.records.owner import machine
from dlmexp.records.store import Store
from dlmexp.running.presence import ActiveProcess, active_processes


@dataclass(frozen=True)
class Cancellable:
    """What can be stopped from here, and a sentence on each thing that can't."""

    jobs: list[JobStatus]
    processes: list[ActiveProcess]
    others: list[str]

    def describe(self) -> list[str]:
        """A line for each job and process."""
        jobs = [
            f"job {one.job.id}: {one.description}; {counted(len(one.unrecorded), 'cell')} to do" for one in self.jobs
        ]
        return jobs + [f"process {one.pid}: {counted(len(one.keys), 'cell')} in training" for one in self.processes]

    def cancel(self) -> None:
        """Ask all of it to save its state and leave; jobs that have not started leave the queue."""
        if self.jobs:
            cancel_jobs(one.job.id for one in self.jobs)
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
    jobs = [one for one in unfinished_jobs(root, done | failed, live) if one.active or one.state is None]
    processes = [one for one in live if one.job is None]
    known = {name for one in jobs for name in (one.job.id, one.job.id.partition("_")[0])}
    known |= {str(one.pid) for one in processes}
    if unknown := [name for name in names if name not in known]:
        hint = nearest(unknown[0], sorted(known)) if known else "nothing runs or waits there"
        raise UserError(f"'{unknown[0]}' is no job or process of {root}: {hint}")
    asked = set(names) or known
    jobs = [one for one in jobs if {one.job.id, one.job.id.partition("_")[0]} & asked]
    processes = [one for one in processes if str(one.pid) in asked]
    others = [f"job {one.job.id} of {one.job.user}: {one.description}" for one in jobs if not _is_ours(one)]
    others += [f"{one.description}: stop it on its own machine" for one in processes if one.machine != machine()]
    return Cancellable(
        [one for one in jobs if _is_ours(one)], [one for one in processes if one.machine == machine()], others
    )


def _is_ours(status: JobStatus) -> bool:
    return status.state is not None and status.job.user == getuser()
