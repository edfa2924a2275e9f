"""`dlmexp run -m`: several jobs, launched by Hydra on this machine or on a cluster."""

import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

from dlmexp.cluster import scheduler
from dlmexp.cluster.submission import Block, Submission, lost_cells, wait
from dlmexp.cluster.task import LocalTask, SlurmTask, Task
from dlmexp.config import RunConfig
from dlmexp.cores import cores
from dlmexp.errors import UserError
from dlmexp.paths import in_folder
from dlmexp.plan.setting import Candidates
from dlmexp.records.keeping import drop_unselected
from dlmexp.records.manifest import check_same_data, manifest, write_manifest
from dlmexp.records.provenance import COMMAND, portable
from dlmexp.records.store import Store
from dlmexp.running.device import device_and_free_memory
from dlmexp.running.keeping import to_refit
from dlmexp.running.own_tables import what_was_read
from dlmexp.running.plan_table import show_plan
from dlmexp.running.run import prepare_results_folder
from dlmexp.running.signals import STOP_SIGNALS, STOPPED, StopRequest
from dlmexp.running.summary import summary
from dlmexp.running.sweep import Sweep, plan_sweep, prepare_sweep

SLURM_LAUNCHER = ".SlurmBlocks"  # how the class of our launcher ends
PARALLEL = "DLMEXP_PARALLEL"  # how many jobs at once, for conf/hydra/launcher/local_parallel.yaml


def multirun(configs: Sequence[RunConfig], launcher: str, launch: Callable[[Task], int]) -> int:
    """Run jobs through Hydra. All of them are checked, with their data, before the first one starts.

    `configs` are those of the jobs in Hydra's order, `launcher` is the class that will launch them; `launch` passes a
    task function to Hydra and returns the exit code. Ours depends on the records at the end, not on what Hydra reports.
    """
    on_cluster = launcher.endswith(SLURM_LAUNCHER)
    if not configs[0].wait and not on_cluster:
        raise UserError("wait=false leaves jobs to a cluster: add hydra/launcher=slurm")
    checked, checksums, said = [], set(), dict[str, None]()
    for cfg in configs:
        found = prepare_sweep(cfg)
        said |= dict.fromkeys([*what_was_read(found), *found.notes])
        checked.append(replace(found, datasets={}, loaded={}))  # the jobs load the data themselves
        for spec, data in found.datasets.values():
            checksums.add((cfg.results, data.name, data.checksum, spec.loader == "table"))
    for line in said:
        print(line, flush=True)
    if configs[0].plan:
        for found in checked:
            store = Store(found.cfg.results, read_only=True)
            again = to_refit(found, store)
            show_plan(plan_sweep(found, store, *device_and_free_memory(found.cfg), again), found)
        return 0
    if on_cluster and not scheduler.can_submit():
        raise UserError("there is no SLURM here (no sbatch): submit from a login node, or use local_parallel")
    for sentence in dict.fromkeys(sentence for found in checked for sentence in found.missing):
        print(f"left out: {sentence}", flush=True)
    for root in {cfg.results for cfg in configs}:
        prepare_results_folder(Path(root))
    for root, name, checksum, own in sorted(checksums):
        check_same_data(Path(root), name, checksum, own)
    for found in checked:
        write_manifest(Path(found.cfg.results), manifest(found.cfg.name, found.candidates, found.cfg.keep))
    with _environment(_variables_for_jobs(len(configs))):
        return _launch_on_cluster(checked, launch) if on_cluster else _launch_here(checked, launch)


def _launch_here(checked: Sequence[Sweep], launch: Callable[[Task], int]) -> int:
    """The launcher runs the jobs on this machine, and returns when they have ended."""
    with tempfile.TemporaryDirectory(prefix="dlmexp-") as folder:
        stop_file = Path(folder) / "stop"
        with _stop_requests(stop_file) as stop:
            code = launch(LocalTask(stop_file))
    if stop.received is not None:
        print("\nstopped: everything is saved; the same command goes on from here")
        return STOPPED + stop.received
    return code if code >= STOPPED else max(code, _summaries(checked))


def _launch_on_cluster(checked: Sequence[Sweep], launch: Callable[[Task], int]) -> int:
    """The launcher submits jobs, which do not depend on this process."""
    blocks = []
    for found in checked:
        root, again = Path(found.cfg.results), to_refit(found, Store(found.cfg.results))
        blocks.append(Block(root, found.cfg.name, tuple(found.cells), found.cfg.retry_failed, frozenset(again)))
    submission = Submission(blocks)
    with StopRequest() as stop:
        code = launch(SlurmTask(submission))
        if submission.error:
            raise UserError(submission.error)
        if not checked[0].cfg.wait:
            if not code:
                status = in_folder("dlmexp status", checked[0].cfg.results)
                print(f"`{status}` shows their progress; the same command without wait=false waits for them")
            return code
        wait(submission, stop)
    if stop.received is not None:
        print("\nstopped: its jobs stay in the queue; the same command goes on from here")
        return STOPPED + stop.received
    messages = lost_cells(blocks)
    for message in messages:
        print(message)
    return max(code, _summaries(checked), 1 if messages else 0)


def _summaries(checked: Sequence[Sweep]) -> int:
    """Print the summary of each results folder; 0 if all cells have a record of success."""
    candidates: dict[str, list[Candidates]] = {}
    for found in checked:
        candidates.setdefault(found.cfg.results, []).extend(found.candidates)
    for root in candidates:
        drop_unselected(Store(root))
    return max(summary(some, Store(root)) for root, some in candidates.items())


def _variables_for_jobs(jobs: int) -> dict[str, str]:
    return {
        COMMAND: portable(["dlmexp", *sys.argv[1:]]),
        PARALLEL: os.environ.get(PARALLEL, str(min(jobs, cores()))),
    }


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Environment variables for the processes of jobs; restored on exit."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _stop_requests(stop_file: Path) -> Iterator[StopRequest]:
    """A `StopRequest` that also creates the stop file and asks the child processes to save their work and exit."""
    with StopRequest() as stop:
        handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}

        def forward(number: int, frame: FrameType | None) -> None:
            handler = handlers[number]
            if callable(handler):
                handler(number, frame)
            stop_file.touch()
            for child in multiprocessing.active_children():
                if child.pid is not None:
                    os.kill(child.pid, signal.SIGTERM)  # after a second SIGINT they would not save their work

        for number in STOP_SIGNALS:
            signal.signal(number, forward)
        yield stop  # which restores the handlers of before
