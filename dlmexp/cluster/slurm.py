"""Queries to SLURM: the states of jobs, why one can't start, and the name and limits of the cluster."""

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

# A job in one of these states is running, will run, or will return to the queue; in any other state it has ended.
ACTIVE_STATES = {
    "PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED",
    "RESIZING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED",
}  # fmt: skip
# Our own names for the state of a job that SLURM does not know any more, and of one that can't be seen from here.
ENDED, UNKNOWN = "ENDED", "UNKNOWN"
DEFAULT_MAX_ARRAY_SIZE = 1001
TIMEOUT_SECONDS = 30

# Reasons why SLURM keeps a job pending that no waiting changes (squeue's manual, JOB REASON CODES). All others pass:
# with time (Priority, Resources, ...), when a node or partition comes back, or when users release the jobs that they
# hold (JobHeldUser).
NEVER_STARTS = re.compile(
    r"Partition(Config|NodeLimit|TimeLimit)|BadConstraints|(QOS|Association)TimeLimit|(Account|QOS)NotAllowed"
    r"|Invalid(Account|QOS)|JobHoldMaxRequeue|launch failed requeued held|job requeued in held state|JobHeldAdmin"
    r"|ReservationDeleted|DependencyNeverSatisfied|(QOS|Assoc)(Max|Min)\w*(PerJob|WallDuration|PerNode)\w*|QOSMin\w+"
)


class SchedulerUnavailable(Exception):
    """SLURM is not installed here or does not answer, so the state of no job is known."""


@dataclass(frozen=True)
class SlurmState:
    """The state of a job as SLURM reports it."""

    name: str
    node: str = ""
    reason: str = ""  # why the job is pending, or unknown

    @property
    def active(self) -> bool:
        """Whether it is in the queue or running."""
        return self.name in ACTIVE_STATES

    @property
    def never_starts(self) -> bool:
        """Whether it will not start however long it waits."""
        reason = self.reason.strip("() ").partition(",")[0]
        return self.name in ("PENDING", "REQUEUE_HOLD") and NEVER_STARTS.fullmatch(reason) is not None


def job_states(job_ids: Iterable[str]) -> dict[str, SlurmState]:
    """The state of each job. A job that `squeue` does not list has ended; `sacct`, if available, may know how."""
    requested = set(job_ids)
    if not requested:
        return {}
    numbers = ",".join(sorted({job_id.partition("_")[0] for job_id in requested}))
    try:
        listed = ask("squeue", "--noheader", "--array", "--states=all", f"--jobs={numbers}", "--format=%i|%T|%N|%r")
    except SchedulerUnavailable as error:
        if "Invalid job id" not in str(error):
            raise
        listed = []
    states = {}
    for line in listed:
        job_id, name, node, reason = line.split("|", 3)
        states[job_id] = SlurmState(name, node, "" if reason == "None" else reason)
    if requested - states.keys():
        try:
            ended = ask("sacct", "-X", "--noheader", "--parsable2", "-o", "JobID,State,NodeList", "-j", numbers)
        except SchedulerUnavailable:
            ended = []
        for job_id, state, node in (line.split("|") for line in ended):
            name = state.partition(" ")[0]  # `CANCELLED by 1000`
            states.setdefault(job_id, SlurmState(ENDED if name in ACTIVE_STATES else name, node))
    return {job_id: states.get(job_id, SlurmState(ENDED)) for job_id in requested}


def cluster_info() -> tuple[str, int]:
    """The name of the cluster, and the largest number of tasks in one of its job arrays."""
    text = "\n".join(ask("scontrol", "show", "config"))
    name, size = re.search(r"ClusterName\s*=\s*(\S+)", text), re.search(r"MaxArraySize\s*=\s*(\d+)", text)
    return name[1] if name else "", int(size[1]) if size else DEFAULT_MAX_ARRAY_SIZE


def ask(*command: str) -> list[str]:
    """The lines a SLURM command prints."""
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    except FileNotFoundError:
        raise SchedulerUnavailable(f"there is no {command[0]} on this machine") from None
    except subprocess.TimeoutExpired:
        raise SchedulerUnavailable(f"{command[0]} gave no answer in {TIMEOUT_SECONDS} s") from None
    if process.returncode:
        said = [line.strip() for line in process.stderr.splitlines() if line.strip()]
        raise SchedulerUnavailable("; ".join(said) or f"{command[0]} failed")
    return process.stdout.splitlines()
