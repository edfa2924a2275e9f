"""The state of a results folder, from names of files and the reasons in failed records; no torch, no pandas."""

import argparse
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from dlmexp.cluster.queue import Standing, queue
from dlmexp.records.manifest import merged, read_manifests
from dlmexp.records.pack import PATTERN
from dlmexp.records.store import Store
from dlmexp.running.presence import active_processes


@dataclass
class Experiment:
    """One experiment's cells by state."""

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
    """The whole folder."""

    results: str
    experiments: list[Experiment]
    running: list[dict[str, str | int]]  # processes at work
    jobs: list[dict[str, str | int]]  # of a cluster: in the queue, at work, or ended without a record
    checkpoints: int
    quarantined: int
    packed: int  # records that lie in packs


def status(root: Path, reasons: bool = False) -> Status:
    """Count; with `reasons`, read the failed records too."""
    store = Store(root)
    done, failed = store.keys()
    at_work = active_processes(root)
    busy = {key for worker in at_work for key in worker.keys}
    standings = queue(root, done | failed, at_work)
    queued = {key for standing in standings if standing.active for key in standing.open}
    experiments = []
    for asked in merged(read_manifests(root)):
        found = Experiment(asked.experiment)
        for key, words in asked.cells.items():
            if key in done:
                found.done += 1
            elif key in busy:
                found.running += 1
            elif key in failed:
                found.failed += 1
                if reasons:
                    found.failures.append({"key": key, "cell": words, **_why(store, words.split(" ")[0], key)})
            elif key in queued:
                found.queued += 1
            else:
                found.missing += 1
                found.absent.append(words)
        experiments.append(found)
    return Status(
        str(root),
        experiments,
        [{"who": worker.description, "cells": len(worker.keys)} for worker in at_work],
        [_job(standing) for standing in standings],
        len(list((root / "checkpoints").glob("*.npz"))),
        len([path for path in (root / "quarantine").glob("*") if path.suffix != ".why"]),
        len(store.packs.records),
    )


def _job(standing: Standing) -> dict[str, str | int]:
    block = standing.block
    return {
        "job": block.job,
        "state": standing.sentence,
        "lost": len(standing.open) if standing.lost else 0,
        "node": standing.node,
        "cells": len(block.keys),
        "left": standing.left,
        "block": block.words,
        "user": block.user,
        "log": str(block.log),
    }


def _why(store: Store, dataset: str, key: str) -> dict[str, str]:
    record = store.read_failure(dataset, key)
    if record is None:
        return {"reason": "its record is torn; retry_failed=true runs it again", "where": "?"}
    result, made = record.result, record.made
    return {
        "reason": f"{result.reason} (iteration {result.iterations})",
        "where": f"{made.host}" + (f" job {made.job}" if made.job else ""),
        "when": made.time or "",
    }


def show(status: Status, args: argparse.Namespace) -> None:
    """As JSON, or as tables for people."""
    if args.json:
        print(json.dumps(asdict(status), indent=1))
        return
    from rich.table import Table

    from dlmexp.console import counted, wide_console

    console = wide_console()
    table = Table("experiment", "done", "running", "queued", "failed", "missing", title=f"results in {status.results}")
    for e in status.experiments:
        table.add_row(e.name, *map(str, (e.done, e.running, e.queued, e.failed, e.missing)))
    console.print(table)
    for worker in status.running:
        console.print(f"at work: {worker['who']}, {counted(int(worker['cells']), 'cell')}", highlight=False)
    for job in status.jobs:
        node = f" on {job['node']}" if job["node"] else ""
        lost = f", {job['lost']} of them without a record" if job["lost"] else f", {job['left']} to do"
        console.print(
            f"job {job['job']} of {job['user']}{node}: {job['state']}; {counted(int(job['cells']), 'cell')}{lost}: "
            f"{job['block']}\n  log: {job['log']}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    if status.checkpoints:
        console.print(f"to go on from a checkpoint: {counted(status.checkpoints, 'batch')}", highlight=False)
    if status.packed:
        console.print(f"packed in {status.results}/{PATTERN}: {counted(status.packed, 'record')}", highlight=False)
    if status.quarantined:
        console.print(
            f"quarantined in {status.results}/quarantine: {counted(status.quarantined, 'file')}", highlight=False
        )
    for e in status.experiments:
        for failure in e.failures if args.failed else ():
            console.print(
                f"{e.name}: {failure['cell']}: {failure['reason']} on {failure['where']}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )
        for words in e.absent if args.missing else ():
            console.print(f"{e.name}: missing {words}", highlight=False, soft_wrap=True)
