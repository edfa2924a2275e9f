"""A block as a SLURM job, on the node: noting how it ends, and going back into the queue."""

import contextlib
import os
import signal
import socket
from pathlib import Path

from dlmexp.cluster import jobs as blocks
from dlmexp.cluster import scheduler
from dlmexp.records.provenance import own_job


def folder() -> Path | None:
    """The folder of the submitted job that this process runs; None elsewhere."""
    job = own_job()
    if job is None or os.environ.get("SUBMITIT_EXECUTOR") != "slurm":
        return None
    return Path(os.environ["SUBMITIT_FOLDER"].replace("%j", job))


def began() -> None:
    if where := folder():
        blocks.began(where)


def ended(code: int, why: str) -> None:
    """Leave a note for `status`; a full disk is no reason to fail once more."""
    if where := folder():
        with contextlib.suppress(OSError):
            blocks.ended(where, blocks.Outcome(socket.gethostname(), code, why))


def requeue(received: int) -> None:
    """After a stop with everything saved: go back into the queue unless SLURM itself has decided what follows.

    SIGUSR2 announces the time limit (or a preemption). SIGTERM is ambiguous: a job that was cancelled or requeued is no
    longer `RUNNING` for SLURM, one in its grace time before preemption is, and would be lost if it simply left.
    submitit's handler of SIGUSR2, in place again, counts time-outs, requeues, and leaves.
    """
    job = own_job()
    if folder() is None or job is None:
        return
    if received == signal.SIGTERM:
        try:
            if scheduler.states([job])[job].name != "RUNNING":
                return
        except scheduler.Silent:
            return
    elif received != signal.SIGUSR2:
        return
    signal.raise_signal(signal.SIGUSR2)
