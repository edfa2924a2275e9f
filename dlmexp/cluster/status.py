"""The status of a results folder, from file names, manifests and failed records; without torch and pandas."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from dlmexp.cluster.queue import JobStatus, unfinished_jobs
from dlmexp.records.manifest import merged, read_manifests
from dlmexp.records.store import FAILED, Store
from dlmexp.running.presence import ActiveProcess, active_processes


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
    running: list[dict[str, Any]]  # live processes, with how far their batches are
    jobs: list[dict[str, str | int]]  # on a cluster: pending, running, or ended with cells that have no record
    checkpoints: int
    quarantined: int
    packed: int  # records in packs

    @property
    def something_runs(self) -> bool:
        """Whether a process trains, or a job is in the queue or running."""
        return bool(self.running) or any(job["active"] for job in self.jobs)


def read_status(root: Path, failure_reasons: bool = False) -> Status:
    """Count the cells, files and jobs of a results folder; with `failure_reasons`, read the failed records too."""
    store = Store(root)
    done, failed = store.keys()
    processes = active_processes(root)
    running = {key for process in processes for key in process.keys}
    jobs = unfinished_jobs(root, done | failed, processes)
    queued = {key for job in jobs if job.active for key in job.owned}
    experiments = []
    for name, asked in merged(read_manifests(root)).items():
        experiment = Experiment(name)
        for key, group in {key: each for each in asked for key in each.keys}.items():
            if key in done:
                experiment.done += 1
            elif key in running:
                experiment.running += 1
            elif key in failed:
                experiment.failed += 1
                if failure_reasons:
                    failure = _failure(store, group.dataset, key)
                    experiment.failures.append({"key": key, "cell": group.describe(key), **failure})
            elif key in queued:
                experiment.queued += 1
            else:
                experiment.missing += 1
                experiment.absent.append(group.describe(key))
        experiments.append(experiment)
    return Status(
        str(root),
        experiments,
        [_process(process) for process in processes],
        [_job(job) for job in jobs],
        len(list((root / "checkpoints").glob("*.npz"))),
        len([path for path in (root / "quarantine").glob("*") if path.suffix != ".why"]),
        len(store.packed),
    )


def _process(process: ActiveProcess) -> dict[str, Any]:
    known = msgspec.to_builtins(process.progress) if process.progress else {"batches": []}
    for batch, progress in zip(known["batches"], process.progress.batches if process.progress else (), strict=True):
        batch["most_seconds_left"] = progress.most_seconds_left
    return {"who": process.description, "cells": len(process.keys), **known}


def _job(status: JobStatus) -> dict[str, str | int]:
    return {
        "job": status.job.id,
        "state": status.description,
        "active": status.active,
        "lost": len(status.owned) if status.lost else 0,
        "node": status.node,
        "cells": len(status.job.keys),
        "left": len(status.unrecorded),
        "block": status.job.overrides,
        "user": status.job.user,
        "log": str(status.job.log),
    }


def _failure(store: Store, dataset: str, key: str) -> dict[str, str]:
    record = store.read(store.path(dataset, key, FAILED))
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
