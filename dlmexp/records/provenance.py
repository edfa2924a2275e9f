"""What a record says of how it came about: versions, commit, machine."""

import os
import platform
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from msgspec.structs import replace

from dlmexp import __version__
from dlmexp.records.record import Made

MACHINE_ONLY = (
    "results", "data_root", "device", "budget", "workers", "batch_cells", "checkpoint_seconds",
    "wait", "hydra/launcher",
)  # fmt: skip
COMMAND = "DLMEXP_COMMAND"  # tells the jobs of a multirun, wherever they run, what was typed


@lru_cache(maxsize=1)
def _constant(device: str, command: str) -> Made:
    """What stays the same for a process."""
    return Made(
        version=__version__,
        commit=commit(),
        python=platform.python_version(),
        torch=_version("torch"),
        gpytorch=_version("gpytorch"),
        numpy=_version("numpy"),
        device=device,
        host=socket.gethostname(),
        command=command,
        job=own_job(),
    )


def provenance(device: str) -> Made:
    """How a record that is written now came about."""
    command = os.environ.get(COMMAND) or portable(["dlmexp", *sys.argv[1:]])
    return replace(_constant(device, command), time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))


def own_job() -> str | None:
    """The SLURM job that this process belongs to, as squeue writes it (`12`, or `12_3` in an array)."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID")


def portable_command(command: str | None) -> str:
    """What `portable` makes of a command that is written down; one that no shell would take stays as it is."""
    try:
        return portable(shlex.split(command or ""))
    except ValueError:
        return command or ""


def portable(words: Sequence[str]) -> str:
    """A command without what only concerns the machine it ran on, so that it means the same elsewhere."""
    keys = [word.lstrip("+").partition("=")[0] for word in words]
    elsewhere = [key not in MACHINE_ONLY and not key.startswith("hydra.launcher.") for key in keys]
    return shlex.join(word for word, kept in zip(words, elsewhere, strict=True) if kept)


def commit() -> str | None:
    """The commit of the checkout the package runs from, with `+` if files were changed; None for an installed wheel.

    Where the code travels without its history, `DLMEXP_COMMIT` names it.
    """
    if given := os.environ.get("DLMEXP_COMMIT"):
        return given
    top = Path(__file__).resolve().parents[2]
    if not (top / ".git").exists():
        return None
    try:
        head = _git(top, "rev-parse", "--short=12", "HEAD")
        return head + ("+" if _git(top, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(top: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(top), *words], capture_output=True, text=True, check=True).stdout.strip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
