"""Blocks given to the cluster: one folder per job, with its log, what it was to run, and how its process ended."""

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
    """How the last process of a job ended, in its own words; a killed process leaves none."""

    host: str
    code: int
    why: str


@dataclass(frozen=True)
class Block:
    """The cells that one job was submitted for."""

    folder: Path
    job: str
    cluster: str
    user: str
    time: float
    words: str  # the overrides that make the block
    keys: frozenset[str]

    @property
    def log(self) -> Path:
        """Where the launcher lets the job write."""
        return self.folder / f"{self.job}_0_log.out"

    @cached_property
    def outcome(self) -> Outcome | None:
        try:
            return Outcome(**json.loads((self.folder / OUTCOME).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None


def remember(folder: Path, job: str, cluster: str, overrides: Sequence[str], keys: Iterable[str]) -> Block:
    """Note in the job's folder what it was submitted for."""
    block = Block(folder, job, cluster, getpass.getuser(), time.time(), " ".join(overrides), frozenset(keys))
    about = {"job": job, "cluster": cluster, "user": block.user, "time": block.time, "words": block.words}
    write_atomically(folder / SUBMITTED, json.dumps({**about, "keys": sorted(block.keys)}).encode())
    return block


def remembered(root: Path) -> list[Block]:
    """All blocks ever submitted from this results folder, the latest last."""
    found = []
    for path in root.glob(f"multirun/*/jobs/*/{SUBMITTED}"):
        try:
            about = json.loads(path.read_bytes())
            found.append(Block(path.parent, **{**about, "keys": frozenset(about["keys"])}))
        except (OSError, ValueError, TypeError, KeyError):
            continue  # taken away in this moment, or not one of ours
    return sorted(found, key=lambda block: (block.time, block.job))


def began(folder: Path) -> None:
    """Called on the node: what an earlier process of this job left does not count any more."""
    (folder / OUTCOME).unlink(missing_ok=True)


def ended(folder: Path, outcome: Outcome) -> None:
    """Called on the node, whatever happened."""
    write_atomically(folder / OUTCOME, json.dumps(asdict(outcome)).encode())
