"""A SLURM job on its node: what it takes over from the submitting process, its outcome, and requeueing."""

import contextlib
import os
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from dlmexp.cluster import jobs, scheduler
from dlmexp.records.provenance import own_job

PREFIX = "DLMEXP_"


@dataclass(frozen=True)
class ProcessContext:
    """What the process of a job has in common with the process that submitted it.

    SLURM usually passes on the environment and the current folder, but a site can configure that it does not.
    """

    variables: dict[str, str]  # our environment variables
    folder: str  # the current folder
    search_path: tuple[str, ...]  # where modules are imported from

    @classmethod
    def current(cls) -> "ProcessContext":
        """The context of this process."""
        variables = {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}
        return cls(variables, os.getcwd(), tuple(os.path.abspath(entry) for entry in sys.path))

    def restore(self) -> None:
        """Give this process the same context."""
        os.environ.update(self.variables)
        os.chdir(self.folder)
        sys.path[:] = [*self.search_path, *(entry for entry in sys.path if entry not in self.search_path)]


def job_folder() -> Path | None:
    """The folder of the submitted job that this process runs; None if it is not part of one."""
    job_id = own_job()
    if job_id is None or os.environ.get("SUBMITIT_EXECUTOR") != "slurm":
        return None
    return Path(os.environ["SUBMITIT_FOLDER"].replace("%j", job_id))


def clear_outcome() -> None:
    if folder := job_folder():
        jobs.clear_outcome(folder)


def write_outcome(code: int, reason: str) -> None:
    """Record how this process ends, for `status`; that the disk is full must not be an error of its own here."""
    if folder := job_folder():
        with contextlib.suppress(OSError):
            jobs.write_outcome(folder, jobs.Outcome(socket.gethostname(), code, reason))


def requeue(received: int) -> None:
    """After a signal and with everything saved: return to the queue, unless SLURM has already decided otherwise.

    SIGUSR2 announces the time limit (or a preemption). SIGTERM is ambiguous: a job that was cancelled or requeued is
    not RUNNING any more, while one in the grace time before its preemption is, and is not requeued if it exits.
    submitit's handler of SIGUSR2, which is installed again by now, counts time-outs, requeues, and exits.
    """
    job_id = own_job()
    if job_folder() is None or job_id is None:
        return
    if received == signal.SIGTERM:
        try:
            if scheduler.job_states([job_id])[job_id].name != "RUNNING":
                return
        except scheduler.SchedulerUnavailable:
            return
    elif received != signal.SIGUSR2:
        return
    signal.raise_signal(signal.SIGUSR2)
