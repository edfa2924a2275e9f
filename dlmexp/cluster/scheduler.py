"""Questions to SLURM: in which state jobs are, and how large an array may be."""

import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

# From these a job comes back or goes on by itself; in any other state it has ended.
ACTIVE = {"PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED",
          "RESIZING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED"}  # fmt: skip
ENDED = "ENDED"  # the state of a job that SLURM has forgotten
SECONDS = 30


class Silent(Exception):
    """SLURM can't be asked from here, or does not answer: nothing is known about any job."""


@dataclass(frozen=True)
class State:
    """What SLURM says of one job."""

    name: str
    node: str = ""
    reason: str = ""

    @property
    def active(self) -> bool:
        return self.name in ACTIVE


def at_hand() -> bool:
    """Whether jobs can be submitted from this machine."""
    return shutil.which("sbatch") is not None


def states(jobs: Iterable[str]) -> dict[str, State]:
    """The state of each job. What the queue does not know any more has ended; the accounting, if any, may know how."""
    wanted = set(jobs)
    if not wanted:
        return {}
    numbers = ",".join(sorted({job.partition("_")[0] for job in wanted}))
    try:
        lines = _ask("squeue", "--noheader", "--array", "--states=all", f"--jobs={numbers}", "--format=%i|%T|%N|%r")
    except Silent as silence:
        if "Invalid job id" not in str(silence):
            raise
        lines = []
    found = {}
    for line in lines:
        job, name, node, reason = line.split("|", 3)
        found[job] = State(name, node, "" if reason == "None" else reason)
    if forgotten := wanted - found.keys():
        found |= _accounted(forgotten)
    return {job: found.get(job, State(ENDED)) for job in wanted}


def _accounted(jobs: set[str]) -> dict[str, State]:
    numbers = ",".join(sorted({job.partition("_")[0] for job in jobs}))
    try:
        lines = _ask("sacct", "-X", "--noheader", "--parsable2", "-o", "JobID,State,NodeList", "-j", numbers)
    except Silent:
        return {}
    found = {}
    for job, name, node in (line.split("|") for line in lines):
        word = name.partition(" ")[0]  # `CANCELLED by 1000`
        if job in jobs:
            found[job] = State(ENDED if word in ACTIVE else word, node)
    return found


def limits() -> tuple[str, int]:
    """The cluster's name, and how many tasks one of its arrays may have."""
    text = "\n".join(_ask("scontrol", "show", "config"))
    name, size = re.search(r"ClusterName\s*=\s*(\S+)", text), re.search(r"MaxArraySize\s*=\s*(\d+)", text)
    return name[1] if name else "", int(size[1]) if size else 1001


def _ask(*words: str) -> list[str]:
    try:
        answer = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
    except FileNotFoundError:
        raise Silent(f"there is no {words[0]} on this machine") from None
    except subprocess.TimeoutExpired:
        raise Silent(f"{words[0]} gave no answer in {SECONDS} s") from None
    if answer.returncode:
        raise Silent(answer.stderr.strip() or f"{words[0]} failed")
    return answer.stdout.splitlines()
