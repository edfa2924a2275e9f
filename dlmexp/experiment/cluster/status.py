"""The status of a results folder: its cells, the processes that train them, and its jobs.

It is read from manifests, from failed records and from the names of files. This module imports
neither torch nor pandas, so that `dlmexp status` is fast.
"""

import contextlib
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.table import Table

from dlmexp.common.console import counted, duration, wide_console
from dlmexp.common.errors import Unreadable
from dlmexp.experiment.cluster.jobs import JobFacts, unfinished_jobs
from dlmexp.experiment.plan.cell import CandidateGroup
from dlmexp.experiment.records.gaps import EvidenceGap, largest_gaps
from dlmexp.experiment.records.manifests import read_manifests
from dlmexp.experiment.records.refits import Selections
from dlmexp.experiment.records.store import FAILED, Store
from dlmexp.experiment.running.leases import ActiveProcess, BatchProgress, active_processes

# The states of cells. The jobs of queued cells are in the queue of a cluster.
STATES = ("done", "running", "queued", "failed", "missing")
# Counts of files in `FolderStatus`, and the words that are printed after each of them.
FILE_COUNTS = {
    "checkpoints": "in checkpoints/",
    "packed": "records in *.parquet",
    "quarantined": "in quarantine/",
}


class Failure(msgspec.Struct, frozen=True):
    """Which cell failed, and why, where and when."""

    key: str
    cell: str
    reason: str
    where: str
    when: str | msgspec.UnsetType = msgspec.UNSET  # unset if the record is damaged
    traceback: str | msgspec.UnsetType = msgspec.UNSET  # of an exception in a plugin


class ExperimentStatus(msgspec.Struct, frozen=True):
    """The number of cells of an experiment in each state."""

    name: str
    done: int
    running: int
    queued: int
    failed: int
    missing: int
    failures: list[Failure]  # only if failure reasons were requested
    absent: list[str]  # descriptions of the missing cells


class ProcessStatus(msgspec.Struct, frozen=True):
    """A process that trains, and how far its run is."""

    who: str  # host, process id and SLURM job
    cells: int  # number of cells that this process trains
    settled: int  # cells of the run with a record
    total: int  # cells of the run
    failed: int  # cells of the run that failed
    seconds_left: float | None
    batches: tuple[BatchProgress, ...]

    @classmethod
    def of(cls, process: ActiveProcess) -> "ProcessStatus":
        """Return the status of a process."""
        return cls(
            who=process.description,
            cells=len(process.keys),
            settled=process.settled,
            total=process.total,
            failed=process.failed,
            seconds_left=process.seconds_left,
            batches=process.batches,
        )


class FolderStatus(msgspec.Struct, frozen=True):
    """The status of a results folder, which `dlmexp status --json` prints."""

    results: str
    experiments: list[ExperimentStatus]
    running: list[ProcessStatus]
    jobs: list[JobFacts]  # pending, running, or ended with cells without a record
    checkpoints: int
    quarantined: int
    packed: int
    gaps: list[EvidenceGap] = []  # bounds on what a larger M could gain, by dataset and method


@dataclass(frozen=True)
class CellStates:
    """The states of the cells of a results folder, by key. Cells that are left out are missing."""

    by_key: Mapping[str, str]

    @classmethod
    def of(
        cls,
        done: Iterable[str],
        failed: Iterable[str],
        running: Iterable[str],
        queued: Iterable[str],
    ) -> "CellStates":
        """Return the states of cells from the keys of the cells in each state.

        A key may be in several of the arguments. The cell then has the first of these states: done,
        running, failed, queued.
        """
        # A later line replaces the states that an earlier one has set.
        states = dict.fromkeys(queued, "queued")
        states |= dict.fromkeys(failed, "failed")
        states |= dict.fromkeys(running, "running")
        states |= dict.fromkeys(done, "done")
        return cls(states)

    def grouped(self, keys: Iterable[str]) -> dict[str, list[str]]:
        """Return the keys that have each state."""
        groups: dict[str, list[str]] = {state: [] for state in STATES}
        for key in keys:
            state = self.by_key.get(key, "missing")
            groups[state].append(key)
        return groups


def read_status(root: Path, failure_reasons: bool = False) -> FolderStatus:
    """Return the status of a results folder.

    Args:
        root: the folder.
        failure_reasons: whether to read why cells failed.
    """
    store = Store(root)
    processes = active_processes(root)
    done, failed = store.keys()
    jobs = unfinished_jobs(store)
    running: set[str] = set()
    for process in processes:
        running |= process.keys
    queued: set[str] = set()
    for job in jobs:
        if job.active:
            queued |= job.unrecorded_keys
    states = CellStates.of(done=done, failed=failed, running=running, queued=queued)
    experiments: list[ExperimentStatus] = []
    for name, cells in _cells_by_experiment(store).items():
        experiments.append(_experiment_status(store, name, cells, states, failure_reasons))
    return FolderStatus(
        results=str(root),
        experiments=experiments,
        running=list(map(ProcessStatus.of, processes)),
        jobs=[job.facts for job in jobs],
        checkpoints=len(list((root / "checkpoints").glob("*.npz"))),
        quarantined=_count_quarantined(root),
        packed=len(store.packed),
        gaps=_gaps(store),
    )


def _count_quarantined(root: Path) -> int:
    """Return the number of files in quarantine, without the notes (`.why`) beside them."""
    files = (root / "quarantine").glob("*")
    return len([path for path in files if path.suffix != ".why"])


def _gaps(store: Store) -> list[EvidenceGap]:
    """Return the gaps of all experiments, by dataset and method (`EvidenceGap`)."""
    groups: list[CandidateGroup] = []
    for manifest in read_manifests(store.root):
        groups += manifest.candidates
    return largest_gaps(store, groups)


def _cells_by_experiment(store: Store) -> dict[str, dict[str, CandidateGroup]]:
    """Return the cells of each experiment: the group of candidates of each needed cell, by key."""
    experiments: dict[str, dict[str, CandidateGroup]] = {}
    for manifest in read_manifests(store.root):
        selections = Selections.of(store, manifest.candidates)
        cells = experiments.setdefault(manifest.experiment, {})
        for group in manifest.candidates:
            for key in selections.needed(group):
                cells[key] = group
    return experiments


def _experiment_status(
    store: Store,
    name: str,
    cells: dict[str, CandidateGroup],
    states: CellStates,
    failure_reasons: bool,
) -> ExperimentStatus:
    """Return the status of an experiment.

    Args:
        store: The records.
        name: The name of the experiment.
        cells: The groups of candidates of its cells, by the keys of the cells.
        states: The states of cells.
        failure_reasons: Whether to read the failed records.
    """
    keys_by_state = states.grouped(cells)
    failures: list[Failure] = []
    if failure_reasons:
        failures = [_failure(store, cells[key], key) for key in keys_by_state["failed"]]
    counts = {state: len(keys_by_state[state]) for state in STATES}
    absent = [cells[key].describe(key) for key in keys_by_state["missing"]]
    return ExperimentStatus(name=name, **counts, failures=failures, absent=absent)


def _failure(store: Store, group: CandidateGroup, key: str) -> Failure:
    """Return the failure of a cell."""
    cell = group.describe(key)
    record = None
    with contextlib.suppress(Unreadable):
        record = store.read(store.path(group.dataset, key, FAILED))
    if record is None:
        reason = "its record is damaged; retry_failed=true runs it again"
        return Failure(key=key, cell=cell, reason=reason, where="?")
    where = str(record.made.host)
    if record.made.job:
        where += f" job {record.made.job}"
    return Failure(
        key=key,
        cell=cell,
        reason=f"{record.result.reason} (iteration {record.result.iterations})",
        where=where,
        when=record.made.time or "",
        traceback=record.result.traceback or msgspec.UNSET,
    )


def print_status(status: FolderStatus, missing: bool = False) -> None:
    """Print the counts as a table, then processes, jobs, gaps, files and failures.

    Args:
        status: The status.
        missing: Whether to print a line for each missing cell.
    """
    table = Table("experiment", *STATES, title=f"results in {status.results}")
    for experiment in status.experiments:
        counts = [str(getattr(experiment, state)) for state in STATES]
        table.add_row(experiment.name, *counts)
    wide_console().print(table)
    for process in status.running:
        _print_process(process)
    for job_or_gap in (*status.jobs, *status.gaps):
        print(job_or_gap.line)
    for name, description in FILE_COUNTS.items():
        count = getattr(status, name)
        if count:
            print(f"{name}: {count} {description}")
    for experiment in status.experiments:
        _print_failures(experiment)
        if missing:
            _print_missing(experiment)


def _print_failures(experiment: ExperimentStatus) -> None:
    """Print the failures of an experiment with their reason, and then tracebacks."""
    for failure in experiment.failures:
        print(f"{experiment.name}: {failure.cell}: {failure.reason} on {failure.where}")
    _print_tracebacks(experiment.failures)


def _print_missing(experiment: ExperimentStatus) -> None:
    for cell in experiment.absent:
        print(f"{experiment.name}: missing {cell}")


def _print_tracebacks(failures: Iterable[Failure]) -> None:
    """Print every distinct traceback once, as the cells of a batch have the same."""
    printed: set[str] = set()
    for failure in failures:
        traceback = failure.traceback
        if isinstance(traceback, str) and traceback not in printed:
            printed.add(traceback)
            print(textwrap.indent(traceback.rstrip(), "  "))


def _print_process(process: ProcessStatus) -> None:
    progress = f"{process.settled} of {counted(process.total, 'cell')} of its run have a record"
    if process.failed:
        progress += f", {process.failed} failed"
    if process.seconds_left is not None:
        progress += f", about {duration(process.seconds_left)} left"
    print(f"running: {process.who}, {counted(process.cells, 'cell')}; {progress}")
    for batch in process.batches:
        print(f"  {batch.what}: {batch.description}")
