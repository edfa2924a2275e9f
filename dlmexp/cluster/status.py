"""The status of a results folder, from file names, manifests and failed records; without torch and pandas."""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from dlmexp.cluster.jobs import Job, unfinished_jobs
from dlmexp.errors import Unreadable
from dlmexp.plan.setting import Asked
from dlmexp.records.manifest import merged, read_manifests
from dlmexp.records.store import FAILED, Store
from dlmexp.running.leases import active_processes

COUNTS = ("done", "running", "queued", "failed", "missing")  # queued: on a cluster


def read_status(root: Path, failure_reasons: bool = False) -> dict[str, Any]:
    """The cells, files and jobs of a results folder, as `dlmexp status --json` prints them; with `failure_reasons`, the
    failed records are read too."""
    store, processes = Store(root), active_processes(root)
    done, failed = store.keys()
    jobs = unfinished_jobs(root, done | failed, processes)
    states = dict.fromkeys((key for job in jobs if job.state.active for key in job.owned), "queued")
    states |= dict.fromkeys(failed, "failed")
    states |= dict.fromkeys((key for process in processes for key in process.keys), "running")
    states |= dict.fromkeys(done, "done")
    experiments = []
    for name, asked in merged(read_manifests(root)).items():
        cells = {key: each for each in asked for key in each.keys}
        of = {key: states.get(key, "missing") for key in cells}
        counts = Counter(of.values())
        failures = [key for key in cells if of[key] == "failed" and failure_reasons]
        experiments.append(
            {"name": name}
            | {state: counts[state] for state in COUNTS}
            | {"failures": [_failure(store, cells[key], key) for key in failures]}
            | {"absent": [cells[key].describe(key) for key in cells if of[key] == "missing"]}
        )
    running = []  # with how far their batches are
    for process in processes:
        known = msgspec.to_builtins(process.progress) if process.progress else {"batches": []}
        running.append({"who": process.description, "cells": len(process.keys), **known})
    return {
        "results": str(root),
        "experiments": experiments,
        "running": running,
        "jobs": list(map(_job, jobs)),  # on a cluster: pending, running, or ended with cells that have no record
        "checkpoints": len(list((root / "checkpoints").glob("*.npz"))),
        "quarantined": len([path for path in (root / "quarantine").glob("*") if path.suffix != ".why"]),
        "packed": len(store.packed),
    }


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


def _failure(store: Store, asked: Asked, key: str) -> dict[str, str]:
    about = {"key": key, "cell": asked.describe(key)}
    try:
        record = store.read(store.path(asked.dataset, key, FAILED))
    except Unreadable:
        record = None
    if record is None:
        return about | {"reason": "its record is torn; retry_failed=true runs it again", "where": "?"}
    result, made = record.result, record.made
    where = f"{made.host}" + (f" job {made.job}" if made.job else "")
    about |= {"reason": f"{result.reason} (iteration {result.iterations})", "where": where}
    return about | {"when": made.time or ""}
