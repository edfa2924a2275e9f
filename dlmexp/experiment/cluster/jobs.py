"""The jobs of a results folder on a cluster: their cells, and which of them have no record yet.

Each job has a folder with its log and a file `submitted.json`. SLURM knows whether a job runs. A
job that has ended is judged by the records of its cells alone, as SLURM may report COMPLETED for a
job that has written none.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Sequence
from getpass import getuser
from operator import attrgetter
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from dlmexp.common.atomic import machine, path_inside, write_atomically
from dlmexp.common.console import counted
from dlmexp.common.errors import Unreadable, UserError, nearest, shortened
from dlmexp.common.literals import with_results_option
from dlmexp.common.reading.files import MIB, json_value, last_bytes, read_content
from dlmexp.experiment.cluster.slurm import (
    ENDED,
    OUT_OF_MEMORY,
    STUCK,
    UNKNOWN,
    ask,
    job_scripts,
    job_states,
)
from dlmexp.experiment.records.refits import unneeded_refits
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running.leases import ActiveProcess, active_processes, is_run_of

SUBMITTED = "submitted.json"
JOB_ID = "^[0-9]+(_[0-9]+)?$"
FOREIGN_LINES = ("submitit ", "srun: ", "slurmstepd: ")  # how lines of other programs begin
SHOWN_LOG = 4 * MIB  # bytes at the end of a log that `dlmexp logs` prints
SHOWN_LOG_IN_STATUS = MIB // 16  # bytes at the end of a log that `dlmexp status` reads
MAX_LOG_CHARACTERS = 200  # of the line that is quoted from a log


class JobFacts(msgspec.Struct, frozen=True):
    """The description of a job in `dlmexp status`, and in its JSON."""

    job: str  # id
    state: str
    active: bool
    lost: int  # cells without a record, if the job has ended
    node: str
    cells: int
    left: int  # cells without a record that no other job is responsible for
    block: str  # the overrides
    user: str
    log: str

    @property
    def line(self) -> str:
        """The facts for people."""
        node = f" on {self.node}" if self.node else ""
        unrecorded = f"{self.lost} of them without a record" if self.lost else f"{self.left} to do"
        return (
            f"job {self.job} of {self.user}{node}: "
            f"{self.state}; {counted(self.cells, 'cell')}, {unrecorded}: {self.block}\n"
            f"  log: {self.log}"
        )


class Memory(NamedTuple):
    """The memory that a job requests.

    Attributes:
        gb: Gigabytes; None: the default of the partition.
        is_raised: Whether it was raised because the previous job was killed for lack of memory.
    """

    gb: float | None = None
    is_raised: bool = False


USUAL_MEMORY = Memory()


class Job(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A job and the block it was submitted for.

    The fields up to `more_memory` are in its file. `read_submissions` sets `log`, and
    `unfinished_jobs` the fields from `state` on.
    """

    id: Annotated[str, msgspec.Meta(pattern=JOB_ID)]
    user: str
    time: float  # of the submission
    overrides: str  # that select the block
    keys: frozenset[str]  # of the block's cells
    memory_gb: float | None = None  # None: the default of the partition
    more_memory: bool = False  # raised because the previous job was killed for lack of memory
    log: str = ""  # the file for its output, as submitit names it
    state: str = UNKNOWN  # ENDED, UNKNOWN, STUCK, or as `squeue` names it
    node: str = ""
    reason: str = ""  # why it is pending or unknown, or how it has ended
    # Cells without a record that no other job is responsible for.
    left: frozenset[str] = frozenset()

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
        """Its state with the reason, and the last line of its log or what the user can do.

        Examples are `pending (Priority)`, `running`, `can't start (BadConstraints): ...`,
        `ended (FAILED): ValueError: x` and `unknown (...)`.
        """
        text = self.state.lower()
        if self.reason:
            text += f" ({self.reason})"
        if self.state == STUCK:
            text += (
                f": see `scontrol show job {self.id}`, cancel it, "
                "and change it with hydra.launcher.NAME="
            )
        elif self.state == ENDED:
            last_line = self._last_line_of_log()
            if last_line:
                text += f": {last_line}"
        return text

    def _last_line_of_log(self) -> str:
        """Return the last line of the log that is not of another program; '' if there is none."""
        try:
            end, _ = last_bytes(Path(self.log), SHOWN_LOG_IN_STATUS)
        except (OSError, Unreadable):
            return ""
        lines = end.decode(errors="replace").splitlines()
        for line in reversed(lines):
            if line.strip() and not line.startswith(FOREIGN_LINES):
                return shortened(line, MAX_LOG_CHARACTERS)
        return ""

    @property
    def facts(self) -> JobFacts:
        """The description of the job in `dlmexp status`."""
        return JobFacts(
            job=self.id,
            state=self.description,
            active=self.active,
            lost=len(self.left) if self.state == ENDED else 0,
            node=self.node,
            cells=len(self.keys),
            left=len(self.left),
            block=self.overrides,
            user=self.user,
            log=self.log,
        )


def write_submission(
    folder: Path,
    job_id: str,
    overrides: Sequence[str],
    keys: Iterable[str],
    memory: Memory = USUAL_MEMORY,
) -> None:
    """Write the file of a job, with its block, into its folder."""
    job = Job(
        id=job_id,
        user=getuser(),
        time=time.time(),
        overrides=" ".join(overrides),
        keys=frozenset(keys),
        memory_gb=memory.gb,
        more_memory=memory.is_raised,
    )
    write_atomically(folder / SUBMITTED, msgspec.json.encode(job, order="deterministic"))


def read_submissions(root: Path) -> list[Job]:
    """Return all jobs that were ever submitted for a results folder, the latest last."""
    jobs: list[Job] = []
    for path in root.glob(f"multirun/*/jobs/*/{SUBMITTED}"):
        with contextlib.suppress(OSError, Unreadable):  # deleted just now, or not ours
            job = json_value(read_content(path), Job)
            log = path_inside(root, path.parent / f"{job.id}_0_log.out")
            jobs.append(msgspec.structs.replace(job, log=str(log)))
    return sorted(jobs, key=lambda job: (job.time, job.id))


def unfinished_jobs(store: Store) -> list[Job]:
    """Return the jobs that are active, or have ended and left cells without a record.

    The latest job comes last.
    """
    submitted = read_submissions(store.root)
    if not submitted:
        return []
    unneeded = unneeded_refits(store)
    done, failed = store.keys()
    # Do not ask SLURM about jobs whose cells are all done. Ask about those with failed cells, as
    # they may be training them again (`retry_failed=true`).
    jobs = [job for job in submitted if job.keys - done - unneeded]
    if not jobs:
        return []
    _set_states(jobs)
    _share_responsibility(jobs, done | failed | unneeded)
    return [job for job in jobs if job.left or job.active]


def _set_states(jobs: Sequence[Job]) -> None:
    """Ask SLURM for the state of each job, and set it."""
    states = job_states(map(attrgetter("id"), jobs))
    user = getuser()
    for job in jobs:
        job.state, job.node, job.reason = states[job.id]
        # Some clusters hide the jobs of other users.
        is_hidden = job.state == ENDED and not job.reason and job.user != user
        if is_hidden:
            job.state = UNKNOWN
            job.reason = f"a job of user {job.user} that can't be seen from here"


def killed_for_memory(jobs: Iterable[Job]) -> list[Job]:
    """Return the jobs that were killed for lack of memory and left cells without a record.

    Jobs whose memory had been raised before are left out.
    """
    killed: list[Job] = []
    for job in jobs:
        is_killed = job.reason == OUT_OF_MEMORY
        if is_killed and not job.more_memory and job.left:
            killed.append(job)
    return killed


def _share_responsibility(jobs: Sequence[Job], recorded: set[str]) -> None:
    """Set `left` of each job, so that one job is responsible for each cell without a record.

    If several jobs have a cell, the responsible one is an active job or, without one, the latest.
    """
    assigned = recorded
    # The sort is stable: ended jobs come before active ones, and in both the latest comes last.
    by_activity = sorted(jobs, key=lambda job: job.active)
    for job in reversed(by_activity):
        job.left = job.keys - assigned
        assigned = assigned | job.keys


def jobs_of(root: Path, words: Sequence[str]) -> list[Job]:
    """Return the jobs that match all words.

    A word is the id of a job (`12` for all tasks of an array, or `12_3`), or an override of its
    block (`dataset=pol`).

    Raises:
        UserError: no job matches.
    """
    jobs: list[Job] = []
    for job in read_submissions(root):
        known_words = job.names.union(job.overrides.split())
        if known_words.issuperset(words):
            jobs.append(job)
    if words and not jobs:
        listing = with_results_option("dlmexp logs", root)
        raise UserError(
            f"'{' '.join(words)}' is no job of {root}: without a job, `{listing}` lists all of them"
        )
    return jobs


def text_of_log(job: Job) -> str:
    """Return the end of a job's log.

    Raises:
        Unreadable: it is a link, or not a plain file.
    """
    try:
        end, left_out = last_bytes(Path(job.log), SHOWN_LOG)
    except FileNotFoundError:
        return "(no log: the job has not started, or never did)"
    text = end.decode(errors="replace").rstrip("\n")
    return f"(the first {left_out} bytes are left out)\n{text}" if left_out else text


class Cancellable(NamedTuple):
    """The jobs and processes of a results folder that can be cancelled from here."""

    jobs: list[Job]
    processes: list[ActiveProcess]
    foreign: list[str]  # descriptions of others, which files in the folder name wrongly

    def named(self, names: Sequence[str], root: Path) -> "Cancellable":
        """Return the jobs and processes that have one of the names.

        Raises:
            UserError: no job and no process has one of the names.
        """
        known: set[str] = set()
        for process in self.processes:
            known.add(str(process.pid))
        for job in self.jobs:
            known |= job.names
        for name in names:
            if name not in known:
                raise UserError(
                    f"'{name}' is no job or process of {root} that can be cancelled from here: "
                    f"{nearest(name, sorted(known))}"
                )
        wanted = set(names)
        jobs = [job for job in self.jobs if job.names & wanted]
        processes = [process for process in self.processes if str(process.pid) in wanted]
        return Cancellable(jobs, processes, self.foreign)


def cancellable(root: Path, names: Sequence[str] = ()) -> Cancellable:
    """Return the jobs of this user and the processes of this machine that work for a folder.

    The files in the folder are not trusted: SLURM and the operating system must confirm that a job
    or a process belongs to it.

    Args:
        root: The results folder.
        names: Ids of jobs (`12` for all tasks of an array, or `12_3`) and of processes; empty: all.

    Raises:
        UserError: no job and no process has one of the names.
    """
    jobs, foreign_jobs = _jobs_of_user(root)
    processes, foreign_processes = _processes_here(root)
    cancellable = Cancellable(jobs, processes, foreign_jobs + foreign_processes)
    return cancellable.named(names, root) if names else cancellable


def _jobs_of_user(root: Path) -> tuple[list[Job], list[str]]:
    """Return the active jobs of this user that were submitted from a results folder.

    The second list describes jobs that the folder's files name, but that were submitted elsewhere.
    """
    user = getuser()
    active = [job for job in unfinished_jobs(Store(root)) if job.active and job.user == user]
    submitted_here = _submitted_from(root, active)
    foreign = [f"job {job.id}" for job in active if job not in submitted_here]
    return submitted_here, foreign


def _submitted_from(root: Path, jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs whose script, according to SLURM, is in this results folder."""
    if not jobs:
        return []
    scripts = job_scripts(map(attrgetter("id"), jobs))
    folder = (root / "multirun").resolve()
    submitted_here: list[Job] = []
    for job in jobs:
        script = scripts.get(job.id)
        if script is not None and script.resolve().is_relative_to(folder):
            submitted_here.append(job)
    return submitted_here


def _processes_here(root: Path) -> tuple[list[ActiveProcess], list[str]]:
    """Return the processes of this machine, outside of jobs, that train for a results folder.

    The second list describes processes that the folder's files name, but that do something else.
    """
    runs: list[ActiveProcess] = []
    foreign: list[str] = []
    for process in active_processes(root):
        if process.machine != machine() or process.job is not None:
            continue
        if is_run_of(process, root):
            runs.append(process)
        else:
            foreign.append(f"process {process.pid}")
    return runs, foreign


def cancel(root: Path, jobs: Sequence[Job], processes: Sequence[ActiveProcess]) -> None:
    """Ask jobs and processes to save their state and stop.

    Jobs that have not started are removed from the queue.
    """
    if jobs:
        ask("scancel", "--quiet", *sorted(map(attrgetter("id"), jobs)))
    for process in processes:
        # While the user was asked for confirmation, it may have ended, and another process may have
        # got its id.
        with contextlib.suppress(ProcessLookupError):
            if is_run_of(process, root):
                os.kill(process.pid, signal.SIGTERM)
