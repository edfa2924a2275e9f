"""The status of a results folder on the screen: once, or again and again while something runs."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dlmexp.cluster.status import COUNTS, read_status
from dlmexp.console import counted, duration, speed, wide_console
from dlmexp.records.packed import PATTERN


def print_tables(status: dict[str, Any], failed: bool = False, missing: bool = False) -> None:
    """The counts as a table, then processes, jobs and files; with `failed` and `missing`, a line for each such cell."""
    console = wide_console()
    for part in _parts(status, failed, missing):
        console.print(part, highlight=False, markup=False, soft_wrap=isinstance(part, str))


def watch(root: Path, seconds: float, failed: bool = False, missing: bool = False) -> None:
    """Show the status every so many seconds, in place on a terminal, until nothing runs any more or Ctrl-C."""
    live = Live(console=wide_console(), auto_refresh=False) if sys.stdout.isatty() else None
    try:
        while (status := read_status(root, failed))["running"] or any(job["active"] for job in status["jobs"]):
            if live is None:
                print(time.strftime("%H:%M:%S"))
                print_tables(status, failed, missing)
                sys.stdout.flush()
            else:
                live.start()
                parts = [Text(part) if isinstance(part, str) else part for part in _parts(status, failed, missing)]
                live.update(Group(*parts), refresh=True)
            time.sleep(seconds)
    except KeyboardInterrupt:
        return
    finally:
        if live is not None:
            live.stop()
    print_tables(status, failed, missing)
    print("nothing runs")


def _parts(status: dict[str, Any], failed: bool, missing: bool) -> Iterator[Table | str]:
    table = Table("experiment", *COUNTS, title=f"results in {status['results']}")
    for each in status["experiments"]:
        table.add_row(each["name"], *(str(each[state]) for state in COUNTS))
    yield table
    for process in status["running"]:
        settled = ""
        if "total" in process:
            settled = f"; {process['settled']} of the {process['total']} of this run settled"
            settled += f", {process['failed']} failed" if process["failed"] else ""
            settled += _left(process["seconds_left"], "about")
        yield f"running: {process['who']}, {counted(process['cells'], 'cell')}{settled}"
        for batch in process["batches"]:
            objective = "" if batch["objective"] is None else f", objective {batch['objective']:.4f}"
            yield (
                f"  {batch['what']}: iteration {batch['iteration']} of {batch['limit']}, {batch['live']} live, "
                f"{speed(batch['rate'])}{objective}{_left(batch['most_seconds_left'], 'at most')}"
            )
    for job in status["jobs"]:
        node = f" on {job['node']}" if job["node"] else ""
        rest = f"{job['lost']} of them without a record" if job["lost"] else f"{job['left']} to do"
        yield (
            f"job {job['job']} of {job['user']}{node}: {job['state']}; {counted(job['cells'], 'cell')}, {rest}: "
            f"{job['block']}\n  log: {job['log']}"
        )
    if status["checkpoints"]:
        yield f"with a checkpoint to resume from: {counted(status['checkpoints'], 'batch')}"
    if status["packed"]:
        yield f"packed in {status['results']}/{PATTERN}: {counted(status['packed'], 'record')}"
    if status["quarantined"]:
        yield f"quarantined in {status['results']}/quarantine: {counted(status['quarantined'], 'file')}"
    for each in status["experiments"]:
        for failure in each["failures"] if failed else ():
            yield f"{each['name']}: {failure['cell']}: {failure['reason']} on {failure['where']}"
        for description in each["absent"] if missing else ():
            yield f"{each['name']}: missing {description}"


def _left(seconds: float | None, how: str) -> str:
    return "" if seconds is None else f", {how} {duration(seconds)} left"
