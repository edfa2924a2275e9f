"""The status of a results folder, from file names, manifests and failed records: its cells, the
processes that train some, and jobs on a cluster with their folders (log, `submitted.json`), states,
why one can't start, and stopping them. Loads neither torch nor pandas.

SLURM says whether a job runs. One that has ended is judged by the records of its cells alone: SLURM
reports COMPLETED for jobs that left none."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from getpass import getuser
from pathlib import Path
from typing import Any

import msgspec
from rich.table import Table

from dlmexp.common.atomic import machine, write_atomically
from dlmexp.common.console import counted, duration, wide_console
from dlmexp.common.errors import Unreadable, UserError, nearest, shortened
from dlmexp.common.literals import with_results_option
from dlmexp.common.reading.files import content, json_value
from dlmexp.experiment.plan.cell import Asked
from dlmexp.experiment.records.store import FAILED, Store, read_manifests
from dlmexp.experiment.running.leases import ActiveProcess, active_processes

COUNTS = ("done", "running", "queued", "failed", "missing")  # queued: on a cluster
PROGRESS = ("settled", "total", "failed", "seconds_left", "batches")  # of a process
SUBMITTED = "submitted.json"
# Our own names for the state of a job: it has left the queue, can't be seen from here, will never
# leave the queue.
ENDED, UNKNOWN, STUCK = "ENDED", "UNKNOWN", "CAN'T START"
# How SLURM is asked for jobs in the queue, and for jobs that have left it.
SQUEUE = ("squeue", "--noheader", "--array", "--format", "%i|%T|%N|%r")
SACCT = ("sacct", "-X", "--noheader", "--parsable2", "--format", "JobID,State,NodeList")
TIMEOUT_SECONDS = 30

# Reasons why SLURM keeps a job pending that no waiting changes (squeue's manual, JOB REASON CODES).
# All others pass: with time (Priority, Resources, ...), when a node or partition comes back, or
# when users release the jobs that they hold (JobHeldUser).
NEVER_STARTS = re.compile(
    r"Partition(Config|NodeLimit|TimeLimit)|BadConstraints|(QOS|Association)TimeLimit|(Account|QOS)NotAllowed"
    r"|Invalid(Account|QOS)|JobHoldMaxRequeue|launch failed requeued held|job requeued in held state|JobHeldAdmin"
    r"|ReservationDeleted|DependencyNeverSatisfied|(QOS|Assoc)(Max|Min)\w*(PerJob|WallDuration|PerNode)\w*|QOSMin\w+"
)


def job_states(job_ids: Iterable[str]) -> dict[str, tuple[str, str, str]]:
    """State, node and reason of each job (`Job`); `UNKNOWN` where SLURM is not installed or does
    not answer. A job that `squeue` does not list has ended; `sacct`, if available, may know how."""
    states: dict[str, tuple[str, str, str]] = dict.fromkeys(job_ids, (ENDED, "", ""))
    jobs = "--jobs", ",".join(sorted({job_id.partition("_")[0] for job_id in states}))
    try:
        for line in ask(*SQUEUE, *jobs):
            job_id, state, node, reason = line.split("|", 3)
            stuck = state in ("PENDING", "REQUEUE_HOLD") and NEVER_STARTS.fullmatch(reason)
            states[job_id] = STUCK if stuck else state, node, reason.removeprefix("None")
    except UserError as error:
        if "Invalid job id" not in str(error):
            return dict.fromkeys(states, (UNKNOWN, "", str(error)))
    if ended := [job_id for job_id, about in states.items() if about[0] == ENDED]:
        with contextlib.suppress(UserError):
            for job_id, state, node in (line.split("|") for line in ask(*SACCT, *jobs)):
                if job_id in ended and state not in (
                    "PENDING",
                    "RUNNING",
                ):  # the accounting may be late
                    how = state.partition(" ")[0]  # `CANCELLED by 1000`
                    states[job_id] = ENDED, node.removeprefix("None assigned"), how
    return states


def max_array_size() -> int:
    """The largest number of tasks in one job array of this cluster."""
    (size,) = re.findall(r"MaxArraySize\s*=\s*(\d+)", "\n".join(ask("scontrol", "show", "config")))
    return int(size)


def ask(*command: str) -> list[str]:
    """The lines a SLURM command prints; `UserError` if there are none to be had."""
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=True
        )
    except subprocess.CalledProcessError as error:
        raise UserError(
            f"SLURM says: {shortened(error.stderr, 500) or f'{command[0]} failed'}"
        ) from None
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise UserError(f"no answer from SLURM: {error}") from None
    return process.stdout.splitlines()


class Job(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A job and the block it was submitted for: what its file says, and what `unfinished_jobs`
    adds."""

    id: str
    user: str
    time: float
    overrides: str  # that select the block
    keys: frozenset[str]  # of the block's cells
    log: str = ""  # the file for its output, as submitit names it
    state: str = UNKNOWN  # in the queue: as `squeue` names it
    node: str = ""
    reason: str = ""  # why it is pending or unknown, or how it has ended
    left: frozenset[str] = (
        frozenset()
    )  # cells without a record that no other job is responsible for

    @property
    def names(self) -> set[str]:
        """Its id, and that of its array."""
        return {self.id, self.id.partition("_")[0]}

    @property
    def active(self) -> bool:
        """Whether it is in the queue or running."""
        return self.state not in (ENDED, UNKNOWN)

    @property
    def description(self) -> str:
        """`pending (Priority)`, `running`, `can't start (BadConstraints): ...`, `ended (COMPLETED):
        ValueError: x`, `unknown (...)`."""
        more = ""
        if self.state == STUCK:
            more = f": see `scontrol show job {self.id}`, cancel it, and change it with hydra.launcher.NAME="
        elif self.state == ENDED:
            with contextlib.suppress(OSError, Unreadable):
                lines = content(Path(self.log)).decode(errors="replace").splitlines()
                said = [line for line in lines if line.strip() and not line.startswith("submitit ")]
                more = f": {shortened(said[-1], 200)}" if said else ""
        return self.state.lower() + (f" ({self.reason})" if self.reason else "") + more

    @property
    def facts(self) -> dict[str, Any]:
        """What `dlmexp status --json` says of it."""
        lost = len(self.left) if self.state == ENDED else 0
        state = {"state": self.description, "active": self.active, "lost": lost, "node": self.node}
        block = {"cells": len(self.keys), "left": len(self.left), "block": self.overrides}
        return {"job": self.id, **state, **block, "user": self.user, "log": self.log}


def job_line(facts: dict[str, Any]) -> str:
    """The facts of a job for people."""
    node = f" on {facts['node']}" if facts["node"] else ""
    rest = (
        f"{facts['lost']} of them without a record" if facts["lost"] else f"{facts['left']} to do"
    )
    what = f"{facts['state']}; {counted(facts['cells'], 'cell')}, {rest}: {facts['block']}"
    return f"job {facts['job']} of {facts['user']}{node}: {what}\n  log: {facts['log']}"


def write_submission(
    folder: Path, job_id: str, overrides: Sequence[str], keys: Iterable[str]
) -> None:
    """Record in the job's folder what it was submitted for."""
    job = Job(
        id=job_id,
        user=getuser(),
        time=time.time(),
        overrides=" ".join(overrides),
        keys=frozenset(keys),
    )
    write_atomically(folder / SUBMITTED, msgspec.json.encode(job, order="deterministic"))


def read_submissions(root: Path) -> list[Job]:
    """All jobs ever submitted for this results folder, the latest last."""
    jobs = []
    for path in root.glob(f"multirun/*/jobs/*/{SUBMITTED}"):
        with contextlib.suppress(OSError, Unreadable):  # deleted just now, or not ours
            job = json_value(content(path), Job)
            jobs.append(msgspec.structs.replace(job, log=str(path.parent / f"{job.id}_0_log.out")))
    return sorted(jobs, key=lambda job: (job.time, job.id))


def unfinished_jobs(store: Store) -> list[Job]:
    """The jobs of a results folder that are active, or ended with cells without a record, the
    latest last."""
    done, failed = store.keys()
    jobs = [
        job for job in read_submissions(store.root) if job.keys - done
    ]  # SLURM is asked about no others
    states = job_states(job.id for job in jobs) if jobs else {}
    for job in jobs:
        job.state, job.node, job.reason = states[job.id]
        if (
            job.state == ENDED and not job.reason and job.user != getuser()
        ):  # some clusters hide the jobs of others
            job.state, job.reason = (
                UNKNOWN,
                f"a job of user {job.user} that can't be seen from here",
            )
    # Of jobs with the same cell one is responsible: one that is active, then the latest.
    recorded = done | failed
    for job in sorted(jobs, key=lambda job: job.active)[::-1]:
        job.left = job.keys - recorded
        recorded |= job.keys
    return [job for job in jobs if job.left or job.active]


def cancellable(root: Path, names: Sequence[str] = ()) -> tuple[list[Job], list[ActiveProcess]]:
    """What runs or waits for a results folder and can be cancelled from here: jobs of this user and
    processes of this machine; with `names`, only these (`12` stands for all tasks of an array).
    `UserError` for a name of none."""
    jobs = [job for job in unfinished_jobs(Store(root)) if job.active and job.user == getuser()]
    processes = [
        some for some in active_processes(root) if some.job is None and some.machine == machine()
    ]
    known = {name for job in jobs for name in job.names} | {
        str(process.pid) for process in processes
    }
    if unknown := [name for name in names if name not in known]:
        here = f"no job or process of {root} that can be cancelled from here"
        raise UserError(f"'{unknown[0]}' is {here}: {nearest(unknown[0], sorted(known))}")
    wanted = known.intersection(names or known)
    return [job for job in jobs if job.names & wanted], [
        some for some in processes if str(some.pid) in wanted
    ]


def cancel(jobs: Sequence[Job], processes: Sequence[ActiveProcess]) -> None:
    """Ask all of them to save their state and leave; jobs that have not started leave the queue."""
    if jobs:
        ask("scancel", "--quiet", *sorted(job.id for job in jobs))
    for process in processes:
        with contextlib.suppress(ProcessLookupError):  # it has ended just now
            os.kill(process.pid, signal.SIGTERM)


def jobs_of(root: Path, words: Sequence[str]) -> list[Job]:
    """The jobs that all words fit: the id of a job (`12` for all tasks of an array, or `12_3`), or
    overrides of its block (`dataset=pol`). `UserError` if there is none."""
    jobs = [
        job
        for job in read_submissions(root)
        if job.names.union(job.overrides.split()).issuperset(words)
    ]
    if words and not jobs:
        listing = with_results_option("dlmexp logs", root)
        raise UserError(
            f"'{' '.join(words)}' is no job of {root}: without a job, `{listing}` lists all of them"
        )
    return jobs


def read_status(root: Path, failure_reasons: bool = False) -> dict[str, Any]:
    """The cells, files and jobs of a results folder, as `dlmexp status --json` prints them; with
    `failure_reasons`, the failed records are read too."""
    store, processes = Store(root), active_processes(root)
    done, failed = store.keys()
    jobs = unfinished_jobs(store)
    states = dict.fromkeys((key for job in jobs if job.active for key in job.left), "queued")
    states |= dict.fromkeys(failed, "failed")
    states |= dict.fromkeys((key for process in processes for key in process.keys), "running")
    states |= dict.fromkeys(done, "done")
    asked, experiments = dict[str, dict[str, Asked]](), []
    for each in read_manifests(root):
        cells = asked.setdefault(each.experiment, {})
        cells |= {key: group for group in each.candidates for key in group.keys}
    for name, cells in asked.items():
        keys = {
            state: [key for key in cells if states.get(key, "missing") == state] for state in COUNTS
        }
        counts = {state: len(keys[state]) for state in COUNTS}
        failures = [_failure(store, cells[key], key) for key in keys["failed"] if failure_reasons]
        absent = [cells[key].describe(key) for key in keys["missing"]]
        experiments.append({"name": name, **counts, "failures": failures, "absent": absent})
    running = [
        {"who": process.description, "cells": len(process.keys)}
        | {name: getattr(process, name) for name in PROGRESS}
        for process in processes
    ]
    return {
        "results": str(root),
        "experiments": experiments,
        "running": running,
        "jobs": [
            job.facts for job in jobs
        ],  # on a cluster: pending, running, or ended with cells without a record
        "checkpoints": len(list((root / "checkpoints").glob("*.npz"))),
        "quarantined": len(
            [path for path in (root / "quarantine").glob("*") if path.suffix != ".why"]
        ),
        "packed": len(store.packed),
    }


def _failure(store: Store, asked: Asked, key: str) -> dict[str, str]:
    """The cell that failed, why, and where; also when, if its record is sound."""
    about = {"key": key, "cell": asked.describe(key)}
    with contextlib.suppress(Unreadable):
        if record := store.read(store.path(asked.dataset, key, FAILED)):
            made, result = record.made, record.result
            about["reason"] = f"{result.reason} (iteration {result.iterations})"
            about["where"] = f"{made.host}" + (f" job {made.job}" if made.job else "")
            return {**about, "when": made.time or ""}
    return {**about, "reason": "its record is torn; retry_failed=true runs it again", "where": "?"}


def print_tables(status: dict[str, Any], missing: bool = False) -> None:
    """The counts as a table, then processes, jobs and files, and a line for each failure whose
    reason was read; with `missing`, a line for each such cell."""
    table = Table("experiment", *COUNTS, title=f"results in {status['results']}")
    for each in status["experiments"]:
        table.add_row(each["name"], *(str(each[state]) for state in COUNTS))
    wide_console().print(table)
    for process in status["running"]:
        how_far = f"{process['settled']} of the {process['total']} of this run settled"
        how_far += f", {process['failed']} failed" if process["failed"] else ""
        how_far += (
            f", about {duration(left)} left"
            if (left := process["seconds_left"]) is not None
            else ""
        )
        print(f"running: {process['who']}, {counted(process['cells'], 'cell')}; {how_far}")
        for batch in process["batches"]:
            print(f"  {batch.what}: {batch.numbers}")
    for job in status["jobs"]:
        print(job_line(job))
    places = {
        "checkpoints": "in checkpoints/",
        "packed": "records in *.parquet",
        "quarantined": "in quarantine/",
    }
    for name, place in places.items():
        if status[name]:
            print(f"{name}: {status[name]} {place}")
    for each in status["experiments"]:
        for failure in each["failures"]:
            print(f"{each['name']}: {failure['cell']}: {failure['reason']} on {failure['where']}")
        for description in each["absent"] if missing else ():
            print(f"{each['name']}: missing {description}")
