"""The folder of a SLURM job: its log, what it was submitted for (`submitted.json`), how it ended (`outcome.json`)."""

import getpass
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import msgspec

from dlmexp.errors import Unreadable
from dlmexp.reading.files import content
from dlmexp.reading.json_text import typed_json
from dlmexp.records.files import write_atomically

SUBMITTED, OUTCOME = "submitted.json", "outcome.json"


@dataclass(frozen=True)
class Outcome:
    """How the last process of a job ended. The process writes it itself, so a killed one leaves none."""

    host: str
    code: int
    reason: str


@dataclass(frozen=True)
class Written:
    """What is written down when a job is submitted."""

    id: str
    cluster: str
    user: str
    time: float
    overrides: str  # that select the block
    keys: frozenset[str]  # of the block's cells


@dataclass(frozen=True, kw_only=True)
class SubmittedJob(Written):
    """A job and the block it was submitted for."""

    folder: Path

    @property
    def log(self) -> Path:
        """The file for the output of the job, as submitit names it."""
        return self.folder / f"{self.id}_0_log.out"

    @cached_property
    def outcome(self) -> Outcome | None:
        try:
            return typed_json(content(self.folder / OUTCOME), Outcome)
        except (OSError, Unreadable):
            return None


def write_submission(
    folder: Path, job_id: str, cluster: str, overrides: Sequence[str], keys: Iterable[str]
) -> SubmittedJob:
    """Record in the job's folder what it was submitted for."""
    about = Written(job_id, cluster, getpass.getuser(), time.time(), " ".join(overrides), frozenset(keys))
    write_atomically(folder / SUBMITTED, msgspec.json.encode(about, order="deterministic"))
    return SubmittedJob(**asdict(about), folder=folder)


def read_submissions(root: Path) -> list[SubmittedJob]:
    """All jobs ever submitted for this results folder, the latest last."""
    found = []
    for path in root.glob(f"multirun/*/jobs/*/{SUBMITTED}"):
        try:
            found.append(SubmittedJob(**asdict(typed_json(content(path), Written)), folder=path.parent))
        except (OSError, Unreadable):
            continue  # deleted just now, or not a file of ours
    return sorted(found, key=lambda job: (job.time, job.id))


def clear_outcome(folder: Path) -> None:
    """Called when a job starts: the outcome of its previous process, before a requeue, is not valid any more."""
    (folder / OUTCOME).unlink(missing_ok=True)


def write_outcome(folder: Path, outcome: Outcome) -> None:
    """Called when the process of a job ends, with or without an error."""
    write_atomically(folder / OUTCOME, json.dumps(asdict(outcome)).encode())
