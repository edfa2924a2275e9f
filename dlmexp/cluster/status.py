"""The status of a results folder, from file names, manifests and failed records; without torch and pandas."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from dlmexp.cluster.queue import JobStatus, unfinished_jobs
from dlmexp.records.manifest import merged, read_manifests
from dlmexp.records.pack import PATTERN
from dlmexp.records.store import Store
from dlmexp.running.presence import active_processes


@dataclass
class Experiment:
    """The cells of one experiment: counts by state, and lists of those that failed or are missing."""

    name: str
    done: int = 0
    running: int = 0
    queued: int = 0  # on a cluster
    failed: int = 0
    missing: int = 0
    failures: list[dict[str, str]] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)


@dataclass
class Status:
    """A results folder. The names of the fields are those of `dlmexp status --json`."""

    results: str
    experiments: list[Experiment]
    running: list[dict[str, str | int]]  # live processes
    jobs: list[dict[str, str | int]]  # on a cluster: pending, running, or ended with cells that have no record
    checkpoints: int
    quarantined: int
    packed: int  # records in packs


def read_status(root: Path, failure_reasons: bool = False) -> Status:
    """Count the cells, files and jobs of a results folder; with `failure_reasons`, read the failed records too."""
    store = Store(root)
    done, failed = store.keys()
    processes = active_processes(root)
    running = {key for process in processes for key in process.keys}
    jobs = unfinished_jobs(root, done | failed, processes)
    queued = {key for job in jobs if job.active for key in job.owned}
    experiments = []
    for manifest in merged(read_manifests(root)):
        experiment = Experiment(manifest.experiment)
        for key, description in manifest.cells.items():
            if key in done:
                experiment.done += 1
            elif key in running:
                experiment.running += 1
            elif key in failed:
                experiment.failed += 1
                if failure_reasons:
                    failure = _failure(store, description.split(" ")[0], key)
                    experiment.failures.append({"key": key, "cell": description, **failure})
            elif key in queued:
                experiment.queued += 1
            else:
                experiment.missing += 1
                experiment.absent.append(description)
        experiments.append(experiment)
    return Status(
        str(root),
        experiments,
        [{"who": process.description, "cells": len(process.keys)} for process in processes],
        [_job(job) for job in jobs],
        len(list((root / "checkpoints").glob("*.npz"))),
        len([path for path in (root / "quarantine").glob("*") if path.suffix != ".why"]),
        len(store.packs.records),
    )


def _job(status: JobStatus) -> dict[str, str | int]:
    return {
        "job": status.job.id,
        "state": status.description,
        "lost": len(status.owned) if status.lost else 0,
        "node": status.node,
        "cells": len(status.job.keys),
        "left": len(status.unrecorded),
        "block": status.job.overrides,
        "user": status.job.user,
        "log": str(status.job.log),
    }


def _failure(store: Store, dataset: str, key: str) -> dict[str, str]:
    record = store.read_failure(dataset, key)
    if record is None:
        return {"reason": "its record is torn; retry_failed=true runs it again", "where": "?"}
    result, made = record.result, record.made
    return {
        "reason": f"{result.reason} (iteration {result.iterations})",
        "where": f"{made.host}" + (f" job {made.job}" if made.job else ""),
        "when": made.time or "",
    }


def print_json(status: Status) -> None:
    print(json.dumps(asdict(status), indent=1))


def print_tables(status: Status, failed: bool = False, missing: bool = False) -> None:
    """The counts as a table, then processes, jobs and files; with `failed` and `missing`, a line for each such cell."""
    from rich.table import Table

    from dlmexp.console import counted, wide_console

    console = wide_console()

    def line(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    table = Table("experiment", "done", "running", "queued", "failed", "missing", title=f"results in {status.results}")
    for e in status.experiments:
        table.add_row(e.name, *map(str, (e.done, e.running, e.queued, e.failed, e.missing)))
    console.print(table)
    for process in status.running:
        line(f"running: {process['who']}, {counted(int(process['cells']), 'cell')}")
    for job in status.jobs:
        node = f" on {job['node']}" if job["node"] else ""
        rest = f"{job['lost']} of them without a record" if job["lost"] else f"{job['left']} to do"
        line(
            f"job {job['job']} of {job['user']}{node}: {job['state']}; {counted(int(job['cells']), 'cell')}, {rest}: "
            f"{job['block']}\n  log: {job['log']}"
        )
    if status.checkpoints:
        line(f"with a checkpoint to resume from: {counted(status.checkpoints, 'batch')}")
    if status.packed:
        line(f"packed in {status.results}/{PATTERN}: {counted(status.packed, 'record')}")
    if status.quarantined:
        line(f"quarantined in {status.results}/quarantine: {counted(status.quarantined, 'file')}")
    for e in status.experiments:
        for failure in e.failures if failed else ():
            line(f"{e.name}: {failure['cell']}: {failure['reason']} on {failure['where']}")
        for description in e.absent if missing else ():
            line(f"{e.name}: missing {description}")
