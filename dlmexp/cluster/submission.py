"""Blocks as SLURM jobs, on the submitting side: what to submit, waiting for it, and saying what was lost."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dlmexp.cluster import scheduler
from dlmexp.cluster.jobs import remember
from dlmexp.cluster.queue import queue
from dlmexp.console import counted
from dlmexp.errors import UserError
from dlmexp.plan.cell import Cell
from dlmexp.records.store import Store
from dlmexp.running.presence import active_processes
from dlmexp.running.signals import StopRequest

POLL_SECONDS = (2.0, 15.0)  # at first, and at most


@dataclass(frozen=True)
class Wanted:
    """One job of a multirun: the cells that should have records when it is over."""

    root: Path
    cells: tuple[Cell, ...]
    retry_failed: bool

    def open(self) -> set[str]:
        """Keys of the cells that are still to be run."""
        done, failed = Store(self.root).keys()
        return {cell.key for cell in self.cells} - done - (set() if self.retry_failed else failed)


@dataclass
class Submission:
    """A multirun on its way through Hydra: what is wanted, in the order of Hydra's jobs, and what became of it."""

    wanted: list[Wanted]
    used: bool = False  # whether Hydra's launcher turned out to be ours
    jobs: list[str] = field(default_factory=list)  # to wait for
    error: str | None = None


current: Submission | None = None  # Hydra makes the launcher itself; this is how the two find each other


def submit(launcher: Any, job_overrides: Sequence[Sequence[str]], first: int) -> None:
    """Called by the launcher with Hydra's jobs; submits those whose cells are neither done nor in the queue."""
    assert current is not None, "the launcher is used through `dlmexp run -m`"
    current.used = True
    wanted = current.wanted[first : first + len(job_overrides)]
    try:
        if len(wanted) != len(job_overrides):
            raise UserError("a setting is swept over twice: name each key once")
        _submit(launcher, job_overrides, first, wanted, current)
    except (UserError, scheduler.Silent) as error:
        current.error = str(error)


def _submit(
    launcher: Any, job_overrides: Sequence[Sequence[str]], first: int, wanted: list[Wanted], submission: Submission
) -> None:
    import submitit
    from hydra.core.singleton import Singleton
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    chosen, waiting_for = _chosen(wanted)
    submission.jobs += waiting_for
    if waiting_for:
        print(f"already in the queue: job {', '.join(waiting_for)}")
    if left := len(wanted) - len(chosen):
        print(f"{left} of {len(wanted)} blocks need no new job")
    cluster, most = scheduler.limits()
    executor = _executor(submitit, launcher.params)
    for start in range(0, len(chosen), most):
        part = chosen[start : start + most]
        arguments = [
            (list(job_overrides[i]), "hydra.sweep.dir", first + i, f"job_id_for_{first + i}", Singleton.get_state())
            for i in part
        ]
        try:
            jobs = executor.map_array(launcher, *zip(*arguments, strict=True))
        except (FailedJobError, FailedSubmissionError) as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            rest = "; what is in the queue stays there, the same command submits the rest" if submission.jobs else ""
            raise UserError(f"SLURM refused the job: {lines[-1] if lines else error}{rest}") from None
        for i, job in zip(part, jobs, strict=True):
            keys = (cell.key for cell in wanted[i].cells)
            remember(job.paths.folder, job.job_id, cluster, job_overrides[i], keys)
            submission.jobs.append(job.job_id)
        number = jobs[0].job_id.partition("_")[0]
        print(
            f"submitted job {number}: {counted(len(part), 'block')}, logs in {jobs[0].paths.folder.parent}", flush=True
        )


def _chosen(wanted: Sequence[Wanted]) -> tuple[list[int], list[str]]:
    """Which to submit; and the jobs in the queue, submitted earlier, that run some of the wanted cells."""
    covered: set[str] = set()
    earlier: dict[str, frozenset[str]] = {}
    for root in {one.root for one in wanted}:
        done, _ = Store(root).keys()
        for standing in queue(root, done, active_processes(root)):
            if standing.active:
                earlier[standing.block.job] = standing.block.keys
                covered |= standing.block.keys
    still = [one.open() for one in wanted]
    chosen = [i for i, keys in enumerate(still) if keys - covered]
    return chosen, [job for job, keys in earlier.items() if any(keys & one for one in still)]


def _executor(submitit: Any, params: dict[str, Any]) -> Any:
    """submitit's, with the launcher's settings as Hydra's own launcher hands them over."""
    from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf

    params = dict(params)
    # The signal ahead of the time limit may come a minute early; a short limit needs a short delay to get anywhere.
    params["signal_delay_s"] = min(params["signal_delay_s"], 60 * params["timeout_min"] // 4)
    folder, timeouts = params.pop("submitit_folder"), params.pop("max_num_timeout")
    executor = submitit.AutoExecutor(folder=folder, cluster="slurm", slurm_max_num_timeout=timeouts)
    general = BaseQueueConf.__dataclass_fields__
    executor.update_parameters(**{k if k in general else f"slurm_{k}": v for k, v in params.items()})
    return executor


def wait(submission: Submission, stop: StopRequest) -> None:
    """Stay until none of the jobs is in the queue. A scheduler that does not answer is asked again."""
    jobs, pause, said = set(submission.jobs), POLL_SECONDS[0], ""
    while jobs and stop.received is None:
        try:
            states = scheduler.states(jobs)
            jobs = {job for job in jobs if states[job].active}
            pending = sum(states[job].name == "PENDING" for job in jobs)
            line = f"jobs: {pending} pending, {len(jobs) - pending} running, {len(submission.jobs) - len(jobs)} ended"
        except scheduler.Silent as silence:
            line = f"SLURM does not answer ({silence}); asking again"
        line += f"; {_settled(submission.wanted)}"
        if line != said:
            print(line, flush=True)
            said = line
        until = time.monotonic() + pause
        while jobs and stop.received is None and time.monotonic() < until:
            time.sleep(0.5)
        pause = min(1.2 * pause, POLL_SECONDS[1])


def _settled(wanted: Iterable[Wanted]) -> str:
    ours: dict[Path, set[str]] = {}
    for one in wanted:
        ours.setdefault(one.root, set()).update(cell.key for cell in one.cells)
    done = sum(len(keys & Store(root).keys()[0]) for root, keys in ours.items())
    return f"{done} of {sum(map(len, ours.values()))} cells done"


def losses(submission: Submission) -> list[str]:
    """A sentence for every job that ended without a record of cells that were wanted: cells, node, log."""
    found = []
    for root in {one.root for one in submission.wanted}:
        cells = {cell.key: cell for one in submission.wanted if one.root == root for cell in one.cells}
        done, failed = Store(root).keys()
        for standing in queue(root, done | failed, workers(root)):
            lost = [cell for key, cell in cells.items() if key in standing.open]
            if not (lost and standing.lost):
                continue
            more = f" and {len(lost) - 1} more cells" if len(lost) > 1 else ""
            where = f" on {standing.node}" if standing.node else ""
            found.append(
                f"job {standing.block.job}{where} {standing.sentence}; no record of {lost[0].describe()}{more}; "
                f"log: {standing.block.log}"
            )
    return found
