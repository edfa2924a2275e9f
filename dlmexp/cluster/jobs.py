"""The folder of a SLURM job: its log, what it was submitted for (`submitted.json`), how it ended (`outcome.json`)."""

import getpass
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from dlmexp.records.files import write_atomically

SUBMITTED, OUTCOME = "submitted.json", "outcome.json"


@dataclass(frozen=True)
class Outcome:
    """How the last process of a job ended. The process writes it itself, so a killed one leaves none."""

    host: str
    code: int
    reason: str


@dataclass(frozen=True)
class SubmittedJob:
    """A job and the block it was submitted for."""

    folder: Path
    id: str
    cluster: str
    user: str
    time: float
    overrides: str  # that select the block
    keys: frozenset[str]  # of the block's cells

    @property
    def log(self) -> Path:
        """The file for the output of the job, as submitit names it."""
        return self.folder / f"{self.id}_0_log.out"

    @cached_property
    def outcome(self) -> Outcome | None:
        try:
            return Outcome(**json.loads((self.folder / OUTCOME).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None


def write_submission(
    folder: Path, job_id: str, cluster: str, overrides: Sequence[str], keys: Iterable[str]
) -> SubmittedJob:
    """Record in the job's folder what it was submitted for."""
    job = SubmittedJob(folder, job_id, cluster, getpass.getuser(), time.time(), " ".join(overrides), frozenset(keys))
    content = {"id": job.id, "cluster": cluster, "user": job.user, "time": job.time, "overrides": job.overrides}
    write_atomically(folder / SUBMITTED, json.dumps({**content, "keys": sorted(job.keys)}).encode())
    return job


def read_submissions(root: Path) -> list[SubmittedJob]:
    """All jobs ever submitted for this results folder, the latest last."""
    found = []
    for path in root.glob(f"multirun/*/jobs/*/{SUBMITTED}"):
        try:
            content = json.loads(path.read_bytes())
            found.append(SubmittedJob(path.parent, **{**content, "keys": frozenset(content["keys"])}))
        except (OSError, ValueError, TypeError, KeyError):
            continue  # deleted just now, or not a file of ours
    return sorted(found, key=lambda job: (job.time, job.id))


def clear_outcome(folder: Path) -> None:
    """Called when a job starts: the outcome of its previous process, before a requeue, is not valid any more."""
    (folder / OUTCOME).unlink(missing_ok=True)


def write_outcome(folder: Path, outcome: Outcome) -> None:
    """Called when the process of a job ends, with or without an error."""
    write_atomically(folder / OUTCOME, json.dumps(asdict(outcome)).encode())
