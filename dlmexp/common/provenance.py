"""How a result is made: versions, machine, the command that was typed, the job of a cluster."""

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

COMMAND = "DLMEXP_COMMAND"  # tells the jobs of a multirun, wherever they run, what was typed
MACHINE_ONLY = (
    "results", "data_root", "device", "budget", "workers", "batch_cells", "checkpoint_seconds",
    "wait", "hydra/launcher",
)  # fmt: skip


class Made(msgspec.Struct, kw_only=True, omit_defaults=True):
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
    time: str | None = None  # UTC, as 2020-12-31T23:59:59Z


def made_here(device: str) -> Made:
    """How records of this process come about, whenever they are written."""
    versions = {package: version(package) for package in ("torch", "gpytorch", "numpy")}
    command = os.environ.get(COMMAND) or portable(["dlmexp", *sys.argv[1:]])
    return Made(
        version=__version__, commit=commit(), python=platform.python_version(), **versions, device=device,
        host=socket.gethostname(), command=command, job=own_job(),
    )  # fmt: skip


def made_now(made: Made) -> Made:
    """The same, at this time."""
    return msgspec.structs.replace(made, time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))


def own_job() -> str | None:
    """The SLURM job that this process belongs to, as squeue writes it (`12`, or `12_3` in an
    array)."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID")


def portable(words: Sequence[str]) -> str:
    """A command without what only concerns the machine it ran on, so that it means the same
    elsewhere."""
    keys = [word.lstrip("+").partition("=")[0] for word in words]
    elsewhere = [key not in MACHINE_ONLY and not key.startswith("hydra.launcher.") for key in keys]
    return shlex.join(word for word, kept in zip(words, elsewhere, strict=True) if kept)


def commit() -> str | None:
    """The commit of the checkout the package runs from, with `+` if files were changed; None for an
    installed wheel. Where the code travels without its history, `DLMEXP_COMMIT` names it."""
    if given := os.environ.get("DLMEXP_COMMIT"):
        return given
    top = Path(__file__).resolve().parents[2]
    if not (top / ".git").exists():
        return None
    words = [
        "git",
        "-C",
        str(top),
        "describe",
        "--always",
        "--exclude=*",
        "--abbrev=12",
        "--dirty=+",
    ]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
