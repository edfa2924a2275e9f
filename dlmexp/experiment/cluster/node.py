"""The program of a job: it trains a block, and returns to the queue if it was interrupted."""

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from dlmexp.common.errors import UserError
from dlmexp.common.provenance import slurm_job_id
from dlmexp.experiment.cluster.slurm import job_states
from dlmexp.experiment.plan.compose import compose
from dlmexp.experiment.running.process import FAILURE, STOPPED
from dlmexp.experiment.running.run import execute

USAGE_ERROR = 2  # exit code


class BlockOnNode:
    """A function that a job calls on its node.

    The submitting process creates and pickles it. On the node it restores the variables `DLMEXP_*`,
    the current folder and the import path of that process, as SLURM may not pass them on.
    """

    def __init__(self, overrides: Sequence[str]):
        self.overrides = overrides
        self.variables = {
            name: value for name, value in os.environ.items() if name.startswith("DLMEXP_")
        }
        self.folder = os.getcwd()
        self.search_path = [os.path.abspath(entry) for entry in sys.path]

    def __call__(self) -> int:
        """Train the block and return 0.

        A job that SLURM stopped before the end of its block is requeued.

        Raises:
            SystemExit: The block failed, or was stopped for good. The exit code of the program
                becomes that of the job, so that `afterok` and mails on FAIL work.
        """
        os.environ.update(self.variables)
        os.chdir(self.folder)
        entries_of_node = [entry for entry in sys.path if entry not in self.search_path]
        sys.path[:] = self.search_path + entries_of_node
        code = run_block(self.overrides)
        if code >= STOPPED:
            job_id = slurm_job_id() or ""  # empty only outside of a SLURM job
            signal_number = code - STOPPED
            if returns_to_queue(job_id, signal_number):
                _requeue()  # does not return if SLURM requeues the job
        if code:
            sys.exit(code)
        return code

    def checkpoint(self) -> Any:
        """Return the job that submitit puts into the queue on a requeue: the same block."""
        import submitit

        return submitit.helpers.DelayedSubmission(self)


def _requeue() -> None:
    """Requeue this job and end its process. If that fails, print a message and return."""
    try:
        # submitit handles this signal: it counts time-outs, requeues the job, and exits.
        signal.raise_signal(signal.SIGUSR2)
    except (OSError, subprocess.SubprocessError) as error:  # the cluster does not allow it
        print(
            f"everything is saved, but SLURM does not requeue it ({error}): "
            "the same command submits it"
        )


def returns_to_queue(job_id: str, received: int) -> bool:
    """Return whether a job has to be requeued after a signal.

    - SIGUSR2 announces the time limit or a preemption.
    - SIGTERM may announce a preemption. Then the job is still RUNNING, and SLURM would not requeue
      it after it has exited by itself.
    - SIGTERM may also mean that the job was cancelled, or that SLURM has already requeued it. Then
      the job is no longer RUNNING.

    Args:
        job_id: The id of the job.
        received: The number of the signal.
    """
    if received == signal.SIGUSR2:
        return True
    if received != signal.SIGTERM:
        return False
    state, _, _ = job_states([job_id])[job_id]
    return state == "RUNNING"


def run_block(overrides: Sequence[str]) -> int:
    """Train a block in this process and return the exit code.

    Errors are printed and not raised: without a cluster, `multirun` runs all blocks in the same
    process, and goes on after an error.
    """
    try:
        return execute(compose(overrides), overrides)
    except UserError as error:
        print(f"dlmexp: {error}", file=sys.stderr, flush=True)
        return USAGE_ERROR
    except Exception:
        traceback.print_exc()
        return FAILURE
