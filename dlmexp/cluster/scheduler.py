"""Queries to SLURM: the states of jobs, and the name and limits of the cluster."""

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# A job in one of these states is running, will run, or will return to the queue; in any other state it has ended.
ACTIVE_STATES = {
    "PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED",
    "RESIZING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED",
}  # fmt: skip
ENDED = "ENDED"  # our own name for the state of a job that SLURM has no information about any more
DEFAULT_MAX_ARRAY_SIZE = 1001
TIMEOUT_SECONDS = 30

# Reasons why SLURM keeps a job pending that no waiting changes (squeue's manual, JOB REASON CODES), and what to do. All
# others pass: with time (Priority, Resources, JobArrayTaskLimit, ...), when a node or partition comes back, or when
# users release the jobs that they hold (JobHeldUser).
_SMALLER = "ask for less with hydra.launcher.cpus_per_task=, mem_gb=, gpus_per_node= or timeout_min="
_PARTITION = f"{_SMALLER}, or for another partition with hydra.launcher.partition="
_RIGHTS = "choose another one with hydra.launcher.account=, qos= or partition="
_HELD = "it is held: 'scontrol release JOB' lets it go"
NEVER_STARTS = {
    "PartitionConfig": f"no node of its partition has what it asks for: {_PARTITION}",
    "PartitionNodeLimit": f"its partition allows fewer nodes or CPUs for a job: {_PARTITION}",
    "PartitionTimeLimit": f"its time limit is above that of its partition: {_PARTITION}",
    "BadConstraints": f"no node has what it asks for: {_SMALLER}, or for other nodes with hydra.launcher.constraint=",
    "AccountNotAllowed": f"its account may not use this partition: {_RIGHTS}",
    "QOSNotAllowed": f"its quality of service may not be used here: {_RIGHTS}",
    "InvalidAccount": f"there is no such account: {_RIGHTS}",
    "InvalidQOS": f"there is no such quality of service: {_RIGHTS}",
    "QOSTimeLimit": f"its time limit is above that of its quality of service: {_SMALLER}",
    "AssociationTimeLimit": f"its time limit is above that of its account: {_SMALLER}",
    "ReservationDeleted": "the reservation that it asks for is gone",
    "DependencyNeverSatisfied": "the job that it depends on did not end as it must",
    "JobHeldAdmin": "it is held by an administrator, who must release it",
    "JobHoldMaxRequeue": f"it was requeued too often; {_HELD}",
    "launch failed requeued held": f"it could not be launched on its node; {_HELD}",
    "job requeued in held state": _HELD,
}
_LIMIT_OF_ONE_JOB = re.compile(r"(QOS|Assoc)(Max|Min)\w*(PerJob|WallDuration|PerNode)\w*|QOSMin\w+")


class SchedulerUnavailable(Exception):
    """SLURM is not installed here or does not answer, so the state of no job is known."""


@dataclass(frozen=True)
class SlurmState:
    """The state of one job as SLURM reports it."""

    name: str
    node: str = ""
    reason: str = ""  # why the job is pending

    @property
    def active(self) -> bool:
        return self.name in ACTIVE_STATES

    @property
    def never_starts(self) -> str:
        """Why it will not start however long it waits, and what to do; '' if it may start, or has started."""
        if self.name not in ("PENDING", "REQUEUE_HOLD"):
            return ""
        reason = self.reason.strip("() ").partition(",")[0]
        if _LIMIT_OF_ONE_JOB.fullmatch(reason):
            return f"it asks for more, or less, than its account or quality of service allows one job: {_SMALLER}"
        return NEVER_STARTS.get(reason, "")


@dataclass(frozen=True)
class ClusterInfo:
    """The name of a cluster, and the largest number of tasks in one of its job arrays."""

    name: str
    max_array_size: int


def can_submit() -> bool:
    """Whether jobs can be submitted from this machine."""
    return shutil.which("sbatch") is not None


def job_states(job_ids: Iterable[str]) -> dict[str, SlurmState]:
    """The state of each job. A job that `squeue` does not list has ended; `sacct`, if available, may know how."""
    requested = set(job_ids)
    if not requested:
        return {}
    try:
        lines = _run(
            "squeue", "--noheader", "--array", "--states=all", f"--jobs={_numbers(requested)}", "--format=%i|%T|%N|%r"
        )
    except SchedulerUnavailable as error:
        if "Invalid job id" not in str(error):
            raise
        lines = []
    found = {}
    for line in lines:
        job_id, name, node, reason = line.split("|", 3)
        found[job_id] = SlurmState(name, node, "" if reason == "None" else reason)
    if unlisted := requested - found.keys():
        found |= _accounted_states(unlisted)
    return {job_id: found.get(job_id, SlurmState(ENDED)) for job_id in requested}


def cancel_jobs(job_ids: Iterable[str]) -> None:
    """Take jobs out of the queue; those that run get a signal first and the time to save their state. One that has
    ended meanwhile is no error."""
    _run("scancel", "--quiet", *sorted(job_ids))


def rename_jobs(names: Mapping[str, str]) -> None:
    """Give each of these jobs a name; the tasks of an array have one in common, and keep it where SLURM does not allow
    another."""
    lines = [f"update JobId={job_id} JobName={name}\n" for job_id, name in names.items()]
    with contextlib.suppress(SchedulerUnavailable):
        _run("scontrol", lines="".join(lines))


def _accounted_states(job_ids: set[str]) -> dict[str, SlurmState]:
    """The final states of jobs that have left the queue, as far as the accounting database has them."""
    try:
        lines = _run("sacct", "-X", "--noheader", "--parsable2", "-o", "JobID,State,NodeList", "-j", _numbers(job_ids))
    except SchedulerUnavailable:
        return {}
    found = {}
    for job_id, state, node in (line.split("|") for line in lines):
        name = state.partition(" ")[0]  # `CANCELLED by 1000`
        if job_id in job_ids:
            found[job_id] = SlurmState(ENDED if name in ACTIVE_STATES else name, node)
    return found


def _numbers(job_ids: Iterable[str]) -> str:
    """The ids without the array indices, as SLURM's commands take them."""
    return ",".join(sorted({job_id.partition("_")[0] for job_id in job_ids}))


def cluster_info() -> ClusterInfo:
    text = "\n".join(_run("scontrol", "show", "config"))
    name, size = re.search(r"ClusterName\s*=\s*(\S+)", text), re.search(r"MaxArraySize\s*=\s*(\d+)", text)
    return ClusterInfo(name[1] if name else "", int(size[1]) if size else DEFAULT_MAX_ARRAY_SIZE)


def _run(*command: str, lines: str = "") -> list[str]:
    """The lines a SLURM command prints; `lines` are what it reads."""
    try:
        process = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    except FileNotFoundError:
        raise SchedulerUnavailable(f"there is no {command[0]} on this machine") from None
    except subprocess.TimeoutExpired:
        raise SchedulerUnavailable(f"{command[0]} gave no answer in {TIMEOUT_SECONDS} s") from None
    if process.returncode:
        said = [line.strip() for line in process.stderr.splitlines() if line.strip()]
        raise SchedulerUnavailable("; ".join(said) or f"{command[0]} failed")
    return process.stdout.splitlines()
