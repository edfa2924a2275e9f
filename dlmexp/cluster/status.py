"""The status of a results folder, from file names, manifests and failed records, and how it is shown. Loads neither
torch nor pandas."""

import contextlib
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table

from dlmexp.cluster.jobs import Job, unfinished_jobs
from dlmexp.console import counted, duration, wide_console
from dlmexp.errors import Unreadable
from dlmexp.plan.cell import Asked
from dlmexp.records.packed import PATTERN
from dlmexp.records.store import FAILED, Store, read_manifests
from dlmexp.running.leases import active_processes

COUNTS = ("done", "running", "queued", "failed", "missing")  # queued: on a cluster
PROGRESS = ("settled", "total", "failed", "seconds_left", "batches")  # of a process


def read_status(root: Path, failure_reasons: bool = False) -> dict[str, Any]:
    """The cells, files and jobs of a results folder, as `dlmexp status --json` prints them; with `failure_reasons`, the
    failed records are read too."""
    store, processes = Store(root), active_processes(root)
    done, failed = store.keys()
    jobs = unfinished_jobs(root, done | failed, processes)
    states = dict.fromkeys((key for job in jobs if job.state.active for key in job.left), "queued")
    states |= dict.fromkeys(failed, "failed")
    states |= dict.fromkeys((key for process in processes for key in process.keys), "running")
    states |= dict.fromkeys(done, "done")
    asked, experiments = dict[str, dict[str, Asked]](), []
    for each in read_manifests(root):
        cells = asked.setdefault(each.experiment, {})
        cells |= {key: group for group in each.candidates for key in group.keys}
    for name, cells in asked.items():
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
        known = {name: getattr(process, name) for name in PROGRESS}
        running.append({"who": process.description, "cells": len(process.keys), **known})
    return {
        "results": str(root),
        "experiments": experiments,
        "running": running,
        "jobs": list(map(job_facts, jobs)),  # on a cluster: pending, running, or ended with cells that have no record
        "checkpoints": len(list((root / "checkpoints").glob("*.npz"))),
        "quarantined": len([path for path in (root / "quarantine").glob("*") if path.suffix != ".why"]),
        "packed": len(store.packed),
    }


def job_facts(job: Job) -> dict[str, Any]:
    """A job as `dlmexp status --json` prints it."""
    return {
        "job": job.id,
        "state": job.description,
        "active": job.state.active,
        "lost": job.lost,
        "node": job.state.node,
        "cells": len(job.keys),
        "left": len(job.left),
        "block": job.overrides,
        "user": job.user,
        "log": str(job.log),
    }


def job_line(facts: dict[str, Any]) -> str:
    """The facts of a job for people."""
    node = f" on {facts['node']}" if facts["node"] else ""
    rest = f"{facts['lost']} of them without a record" if facts["lost"] else f"{facts['left']} to do"
    what = f"{facts['state']}; {counted(facts['cells'], 'cell')}, {rest}: {facts['block']}"
    return f"job {facts['job']} of {facts['user']}{node}: {what}\n  log: {facts['log']}"


def _failure(store: Store, asked: Asked, key: str) -> dict[str, str]:
    about = {"key": key, "cell": asked.describe(key)}
    with contextlib.suppress(Unreadable):
        if record := store.read(store.path(asked.dataset, key, FAILED)):
            where = f"{record.made.host}" + (f" job {record.made.job}" if record.made.job else "")
            about |= {"reason": f"{record.result.reason} (iteration {record.result.iterations})", "where": where}
            return about | {"when": record.made.time or ""}
    return about | {"reason": "its record is torn; retry_failed=true runs it again", "where": "?"}


def print_tables(status: dict[str, Any], failed: bool = False, missing: bool = False) -> None:
    """The counts as a table, then processes, jobs and files; with `failed` and `missing`, a line for each such cell."""
    console = wide_console()
    say = partial(console.print, highlight=False, soft_wrap=True)
    table = Table("experiment", *COUNTS, title=f"results in {status['results']}")
    for each in status["experiments"]:
        table.add_row(each["name"], *(str(each[state]) for state in COUNTS))
    console.print(table)
    for process in status["running"]:
        settled = ""
        if process["total"]:
            settled = f"; {process['settled']} of the {process['total']} of this run settled"
            settled += f", {process['failed']} failed" if process["failed"] else ""
            if process["seconds_left"] is not None:
                settled += f", about {duration(process['seconds_left'])} left"
        say(f"running: {process['who']}, {counted(process['cells'], 'cell')}{settled}")
        for batch in process["batches"]:
            say(f"  {batch.what}: {batch.numbers}")
    for job in status["jobs"]:
        say(job_line(job))
    if status["checkpoints"]:
        say(f"with a checkpoint to resume from: {counted(status['checkpoints'], 'batch')}")
    if status["packed"]:
        say(f"packed in {status['results']}/{PATTERN}: {counted(status['packed'], 'record')}")
    if status["quarantined"]:
        say(f"quarantined in {status['results']}/quarantine: {counted(status['quarantined'], 'file')}")
    for each in status["experiments"]:
        for failure in each["failures"] if failed else ():
            say(f"{each['name']}: {failure['cell']}: {failure['reason']} on {failure['where']}")
        for description in each["absent"] if missing else ():
            say(f"{each['name']}: missing {description}")
