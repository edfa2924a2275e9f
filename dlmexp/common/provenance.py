"""The provenance of a result: versions, machine, the command that was typed, a cluster's job."""

import os
import platform
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import msgspec

from dlmexp import __version__

# The environment variable with the command that was typed; it tells the jobs of a multirun.
COMMAND_VARIABLE = "DLMEXP_COMMAND"
# The environment variable with the commit, for copies of the code that have no git history.
COMMIT_VARIABLE = "DLMEXP_COMMIT"
COMMIT_DIGITS = 12
# Settings that decide where and how fast a command runs, but not its results.
MACHINE_ONLY = (
    "results",
    "data_root",
    "device",
    "budget",
    "workers",
    "batch_cells",
    "checkpoint_seconds",
    "wait",
    "hydra/launcher",
)


class Provenance(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How a record came about: versions, machine, command."""

    version: str | None = None
    commit: str | None = None
    python: str | None = None
    torch: str | None = None
    gpytorch: str | None = None
    numpy: str | None = None
    device: str | None = None
    host: str | None = None
    command: str | None = None
    job: str | None = None  # of a cluster's scheduler
    # `package=version` of each plugin that the result depends on; a version is a hash of the code.
    plugins: str | None = None
    time: str | None = None  # UTC, as 2020-12-31T23:59:59Z


def provenance_here(device: str) -> Provenance:
    """Return what all records of this process share: all fields but `plugins` and `time`."""
    command = os.environ.get(COMMAND_VARIABLE) or portable_command(["dlmexp", *sys.argv[1:]])
    return Provenance(
        version=__version__,
        commit=commit(),
        python=platform.python_version(),
        torch=version("torch"),
        gpytorch=version("gpytorch"),
        numpy=version("numpy"),
        device=device,
        host=socket.gethostname(),
        command=command,
        job=slurm_job_id(),
    )


def with_timestamp(provenance: Provenance) -> Provenance:
    """Return the provenance with the current time."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return msgspec.structs.replace(provenance, time=now)


def slurm_job_id() -> str | None:
    """Return the id of this process's SLURM job as squeue writes it: `12`, or `12_3` in an array.

    None outside of a job.
    """
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    task = os.environ.get("SLURM_ARRAY_TASK_ID")
    if array and task:
        return f"{array}_{task}"
    return os.environ.get("SLURM_JOB_ID")


def portable_command(words: Sequence[str]) -> str:
    """Return a command without the settings that matter only on the machine where it runs."""
    return shlex.join(word for word in words if not _concerns_machine(word))


def _concerns_machine(word: str) -> bool:
    key = word.lstrip("+").partition("=")[0]
    return key in MACHINE_ONLY or key.startswith("hydra.launcher.")


def commit() -> str | None:
    """Return the commit of the checkout that the package lies in, with `+` if files were changed.

    Without a checkout, as in an installed wheel, it is the value of `DLMEXP_COMMIT`, or None. This
    variable takes precedence over a checkout, too.
    """
    commit_of_copy = os.environ.get(COMMIT_VARIABLE)
    if commit_of_copy:
        return commit_of_copy
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / ".git").exists():
        return None
    # All tags are excluded, so that `git describe` returns the hash of the commit.
    command = ["git", "-C", str(checkout), "describe", "--always", "--exclude=*"]
    command += [f"--abbrev={COMMIT_DIGITS}", "--dirty=+"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
