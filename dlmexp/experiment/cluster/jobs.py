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
PREFIXES_OF_OTHER_PROGRAMS = ("submitit ", "srun: ", "slurmstepd: ")  # of lines in a log
MAX_PRINTED_LOG_BYTES = 4 * MIB  # `dlmexp logs` prints at most these last bytes of a log
# `dlmexp status` looks for the last line of a log in these last bytes.
MAX_SEARCHED_LOG_BYTES = MIB // 16
MAX_LINE_CHARACTERS = 200  # of the line that `dlmexp status` quotes from a log


class JobFacts(msgspec.Struct, frozen=True):
    """The description of a job in `dlmexp status`, and in its JSON."""

    job: str  # id
    state: str
    active: bool  # in the queue or running
    lost: int  # if the job has ended: `left`, else 0
    node: str
    cells: int  # number of cells of its block
    left: int  # number of cells without a record that no other job is responsible for
    block: str  # the overrides that select the block
    user: str
    log: str

    @property
    def line(self) -> str:
        """The facts as two lines of text."""
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
        gb: The gigabytes; None: the default of the partition.
        is_raised: Whether it was raised because the previous job was killed for lack of memory.
    """

    gb: float | None = None
    is_raised: bool = False


MEMORY_OF_PARTITION = Memory()


class Job(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A job and the block it was submitted for.

    The fields up to `more_memory` are in its file. `read_submissions` sets `log`, and
    `unfinished_jobs` the fields from `state` on.
    """

    id: Annotated[str, msgspec.Meta(pattern=JOB_ID)]
    user: str
    time: float  # of the submission
    overrides: str  # they select the block
    keys: frozenset[str]  # of all cells of the block
    memory_gb: float | None = None  # None: the default of the partition
    more_memory: bool = False  # whether memory was raised after a job was killed for lack of it
    log: str = ""  # the path of its output, as submitit names it
    state: str = UNKNOWN  # ENDED, UNKNOWN, STUCK, or as `squeue` names it
    node: str = ""
    reason: str = ""  # why it is pending or unknown, or how it has ended
    # Keys of the cells without a record that no other job is responsible for.
    unrecorded_keys: frozenset[str] = frozenset()

    @property
    def names(self) -> set[str]:
        """The id of the job, and that of its array."""
        return {self.id, self.id.partition("_")[0]}

    @property
    def active(self) -> bool:
        """Whether the job is in the queue or running."""
        return self.state not in (ENDED, UNKNOWN)

    @property
    def description(self) -> str:
        """The state of the job with its reason.

        If the job has ended, the last line of its log follows; if it can't start, what the user can
        do. Examples are `pending (Priority)`, `running`, `can't start (BadConstraints): ...`,
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
        """Return the last line of the log, ignoring submitit and SLURM; '' if there is none."""
        try:
            end, _ = last_bytes(Path(self.log), MAX_SEARCHED_LOG_BYTES)
        except (OSError, Unreadable):
            return ""
        lines = end.decode(errors="replace").splitlines()
        for line in reversed(lines):
            if line.strip() and not line.startswith(PREFIXES_OF_OTHER_PROGRAMS):
                return shortened(line, MAX_LINE_CHARACTERS)
        return ""

    @property
    def facts(self) -> JobFacts:
        """The description of the job in `dlmexp status`."""
        return JobFacts(
            job=self.id,
            state=self.description,
            active=self.active,
            lost=len(self.unrecorded_keys) if self.state == ENDED else 0,
            node=self.node,
            cells=len(self.keys),
            left=len(self.unrecorded_keys),
            block=self.overrides,
            user=self.user,
            log=self.log,
        )


def write_submission(
    folder: Path,
    job_id: str,
    overrides: Sequence[str],
    keys: Iterable[str],
    memory: Memory = MEMORY_OF_PARTITION,
) -> None:
    """Write the file that describes a job and its block into its folder."""
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
    """Return all jobs that were ever submitted for a results folder, by time."""
    jobs: list[Job] = []
    for path in root.glob(f"multirun/*/jobs/*/{SUBMITTED}"):
        with contextlib.suppress(OSError, Unreadable):  # deleted just now, or of another program
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
    return [job for job in jobs if job.unrecorded_keys or job.active]


def _set_states(jobs: Sequence[Job]) -> None:
    """Ask SLURM for the state of each job, and set it."""
    states = job_states(map(attrgetter("id"), jobs))
    user = getuser()
    for job in jobs:
        job.state, job.node, job.reason = states[job.id]
        # Some clusters hide the jobs of other users, so that they seem to have ended.
        is_hidden = job.state == ENDED and not job.reason and job.user != user
        if is_hidden:
            job.state = UNKNOWN
            job.reason = f"a job of user {job.user} that can't be seen from here"


def killed_for_memory(jobs: Iterable[Job]) -> list[Job]:
    """Return the jobs that were killed for lack of memory and left cells without a record.

    Jobs whose memory had already been raised are left out.
    """
    killed: list[Job] = []
    for job in jobs:
        is_killed = job.reason == OUT_OF_MEMORY
        if is_killed and not job.more_memory and job.unrecorded_keys:
            killed.append(job)
    return killed


def _share_responsibility(jobs: Sequence[Job], recorded: set[str]) -> None:
    """Set `unrecorded_keys` of each job, so that one job is responsible for each of the cells.

    If several jobs have a cell, the latest active one is responsible; without an active one, the
    latest.

    Args:
        jobs: The jobs, by time.
        recorded: The keys of cells that need no job.
    """
    assigned = recorded
    # The sort is stable: ended jobs come before active ones, and in each group the latest is last.
    by_priority = sorted(jobs, key=lambda job: job.active)
    for job in reversed(by_priority):
        job.unrecorded_keys = job.keys - assigned
        assigned = assigned | job.keys


def jobs_of(root: Path, words: Sequence[str]) -> list[Job]:
    """Return the jobs that match all words.

    A word is the id of a job (`12_3`, or `12` for all tasks of an array), or an override of its
    block (`dataset=pol`).

    Raises:
        UserError: no job matches.
    """
    jobs: list[Job] = []
    for job in read_submissions(root):
        words_of_job = job.names.union(job.overrides.split())
        if words_of_job.issuperset(words):
            jobs.append(job)
    if words and not jobs:
        listing = with_results_option("dlmexp logs", root)
        raise UserError(
            f"'{' '.join(words)}' is no job of {root}: without a job, `{listing}` lists all of them"
        )
    return jobs


def text_of_log(job: Job) -> str:
    """Return the end of the log of a job, or a note that there is none.

    Raises:
        Unreadable: it is a link, or not a plain file.
    """
    try:
        end, left_out = last_bytes(Path(job.log), MAX_PRINTED_LOG_BYTES)
    except FileNotFoundError:
        return "(no log: the job has not started, or never did)"
    text = end.decode(errors="replace").rstrip("\n")
    return f"(the first {left_out} bytes are left out)\n{text}" if left_out else text


class Cancellable(NamedTuple):
    """The jobs and processes of a results folder that can be cancelled from here."""

    jobs: list[Job]
    processes: list[ActiveProcess]
    # Descriptions of jobs and processes that files in the folder name, but that do not belong to
    # it.
    foreign: list[str]

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
        names: Ids of jobs (`12_3`, or `12` for all tasks of an array) and of processes; empty: all.

    Raises:
        UserError: no job and no process has one of the names.
    """
    jobs, foreign_jobs = _jobs_of_user(root)
    processes, foreign_processes = _processes_here(root)
    everything = Cancellable(jobs, processes, foreign_jobs + foreign_processes)
    return everything.named(names, root) if names else everything


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
        # While the user was asked for confirmation, the process may have ended, and its id may now
        # be that of another one.
        with contextlib.suppress(ProcessLookupError):
            if is_run_of(process, root):
                os.kill(process.pid, signal.SIGTERM)
