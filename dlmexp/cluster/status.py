"""The status of a results folder, from file names, manifests and failed records; without torch and pandas."""

from pathlib import Path
from typing import Any

import msgspec

from dlmexp.cluster.jobs import Job, unfinished_jobs
from dlmexp.records.manifest import merged, read_manifests
from dlmexp.records.store import FAILED, Store
from dlmexp.running.leases import active_processes


class Experiment(msgspec.Struct):
    """The cells of an experiment: counts by state, and lists of those that failed or are missing."""

    name: str
    done: int = 0
    running: int = 0
    queued: int = 0  # on a cluster
    failed: int = 0
    missing: int = 0
    failures: list[dict[str, str]] = []
    absent: list[str] = []


class Status(msgspec.Struct):
    """A results folder. The names of the fields are those of `dlmexp status --json`."""

    results: str
    experiments: list[Experiment]
    running: list[dict[str, Any]]  # live processes, with how far their batches are
    jobs: list[dict[str, Any]]  # on a cluster: pending, running, or ended with cells that have no record
    checkpoints: int
    quarantined: int
    packed: int  # records in packs

    @property
    def something_runs(self) -> bool:
        """Whether a process trains, or a job is in the queue or running."""
        return bool(self.running) or any(job["active"] for job in self.jobs)


def read_status(root: Path, failure_reasons: bool = False) -> Status:
    """Count the cells, files and jobs of a results folder; with `failure_reasons`, read the failed records too."""
    store, processes = Store(root), active_processes(root)
    done, failed = store.keys()
    jobs = unfinished_jobs(root, done | failed, processes)
    states = dict.fromkeys((key for job in jobs if job.state.active for key in job.owned), "queued")
    states |= dict.fromkeys(failed, "failed")
    states |= dict.fromkeys((key for process in processes for key in process.keys), "running")
    states |= dict.fromkeys(done, "done")
    experiments = []
    for name, asked in merged(read_manifests(root)).items():
        experiment = Experiment(name)
        for key, group in {key: each for each in asked for key in each.keys}.items():
            state = states.get(key, "missing")
            setattr(experiment, state, getattr(experiment, state) + 1)
            if state == "missing":
                experiment.absent.append(group.describe(key))
            elif state == "failed" and failure_reasons:
                failure = _failure(store, group.dataset, key)
                experiment.failures.append({"key": key, "cell": group.describe(key), **failure})
        experiments.append(experiment)
    running = []
    for process in processes:
        known = msgspec.to_builtins(process.progress) if process.progress else {"batches": []}
        running.append({"who": process.description, "cells": len(process.keys), **known})
    return Status(
        results=str(root),
        experiments=experiments,
        running=running,
        jobs=[_job(job) for job in jobs],
        checkpoints=len(list((root / "checkpoints").glob("*.npz"))),
        quarantined=len([path for path in (root / "quarantine").glob("*") if path.suffix != ".why"]),
        packed=len(store.packed),
    )


def _job(job: Job) -> dict[str, Any]:
    return {
        "job": job.id,
        "state": job.description,
        "active": job.state.active,
        "lost": len(job.owned) if job.lost else 0,
        "node": job.node,
        "cells": len(job.keys),
        "left": len(job.unrecorded),
        "block": job.overrides,
        "user": job.user,
        "log": str(job.log),
    }


def _failure(store: Store, dataset: str, key: str) -> dict[str, str]:
    record = store.read(store.path(dataset, key, FAILED))
    if record is None:
        return {"reason": "its record is torn; retry_failed=true runs it again", "where": "?"}
    result, made = record.result, record.made
    where = f"{made.host}" + (f" job {made.job}" if made.job else "")
    return {"reason": f"{result.reason} (iteration {result.iterations})", "where": where, "when": made.time or ""}
