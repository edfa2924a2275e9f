"""The task functions that Hydra's launchers call for each job of a multirun: in this process, in another, on a node.

They are objects, because Hydra passes the task function to the launcher: it carries what the two have to share.
"""

import contextlib
import multiprocessing
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from dlmexp.cluster import node
from dlmexp.cluster.submission import Submission
from dlmexp.errors import UserError
from dlmexp.plan.compose import compose
from dlmexp.running.run import execute
from dlmexp.running.signals import BUDGET_SPENT, STOPPED


@dataclass(frozen=True)
class LocalTask:
    """Runs blocks on this machine until the multirun is asked to stop; from then on, jobs end as soon as they start.

    Whichever process of the multirun is asked creates the stop file.
    """

    stop_file: Path

    def __call__(self, cfg: DictConfig) -> int:
        if self.stop_file.exists():
            return STOPPED
        code = run_block(cfg)
        if code >= STOPPED:
            with contextlib.suppress(OSError):
                self.stop_file.touch()
        return code


@dataclass(frozen=True)
class SlurmTask:
    """Runs blocks as SLURM jobs, which are stopped and requeued one by one; our launcher fills in the submission."""

    submission: Submission

    def __call__(self, cfg: DictConfig) -> int:
        return run_block(cfg)


Task = LocalTask | SlurmTask


def run_block(cfg: DictConfig) -> int:
    """Train the block that this job's overrides select; the exit code. They are composed again, in our own way."""
    reason = ""
    node.clear_outcome()
    try:
        overrides = list(HydraConfig.get().overrides.task)
        GlobalHydra.instance().clear()  # Hydra refuses to compose while a job runs, though it has composed this one
        code = execute(compose(overrides), overrides)
        if code >= STOPPED:
            node.requeue(code - STOPPED)  # does not return if the job is requeued
            reason = "stopped by a signal"
        elif code == BUDGET_SPENT:
            reason = "its budget is spent"
    except Exception as error:  # Hydra would not show it on a node, and elsewhere would not run the other jobs
        code, reason = (2, str(error)) if isinstance(error, UserError) else (1, f"{type(error).__name__}: {error}")
        print(f"dlmexp: {error}" if code == 2 else traceback.format_exc(), file=sys.stderr, flush=True)
    node.write_outcome(code, reason)
    if code >= STOPPED and multiprocessing.current_process().name == "MainProcess":
        raise SystemExit(code)  # otherwise Hydra would start the next job
    return code
