"""`dlmexp run -m`: several jobs, launched by Hydra here or on a cluster."""

import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from dlmexp.cluster import node, scheduler
from dlmexp.cluster import submission as cluster
from dlmexp.config import RunConfig
from dlmexp.errors import UserError
from dlmexp.plan.compose import compose
from dlmexp.records.manifest import check_same_data, manifest, write_manifest
from dlmexp.records.provenance import COMMAND, portable
from dlmexp.records.store import Store
from dlmexp.running.device import device_and_free_memory
from dlmexp.running.plan_table import show_plan
from dlmexp.running.run import execute, prepare_results_folder
from dlmexp.running.signals import BUDGET_SPENT, StopRequest
from dlmexp.running.summary import summary
from dlmexp.running.sweep import Sweep, plan_sweep, prepare_sweep

STOPPED = 128  # exit codes from here on mean that a signal asked to stop
CONFIG_DIRS = "DLMEXP_CONFIG_DIRS"  # tells jobs in other processes of a user's own conf folders
WORKERS = "DLMEXP_WORKERS"  # how many jobs at once, for conf/hydra/launcher/local_parallel.yaml

_stopped = 0  # of this process, which may be given one job after another


class _Parent(StopRequest):
    """The process that launches: passes on what it is told to its workers, who save their work and leave."""

    def _note(self, number: int, frame: FrameType | None) -> None:
        global _stopped
        super()._note(number, frame)
        _stopped = STOPPED + number
        for child in multiprocessing.active_children():
            if child.pid is not None:
                os.kill(child.pid, signal.SIGTERM)  # a second Ctrl-C would not let them finish


def multirun(jobs: Sequence[RunConfig], config_dirs: Sequence[str], launched_by: str, launch: Callable[[], int]) -> int:
    """Check every job (configuration and data) before the first one starts; judge them by their records at the end."""
    global _stopped
    on_cluster = launched_by.endswith(".SlurmBlocks")
    if not jobs[0].wait and not on_cluster:
        raise UserError("wait=false leaves jobs to a cluster: add hydra/launcher=slurm")
    checked, sums = [], set()
    for cfg in jobs:
        found = prepare_sweep(cfg, config_dirs)
        checked.append(Sweep(cfg, found.candidates, {}, found.missing))  # without the data: others will load it
        sums |= {(cfg.results, name, data.checksum) for name, (_, data) in found.datasets.items()}
    if jobs[0].plan:
        for found in checked:
            store = Store(found.cfg.results, read_only=True)
            show_plan(plan_sweep(found, store, *device_and_free_memory(found.cfg)), found.missing)
        return 0
    if on_cluster and not scheduler.at_hand():
        raise UserError("there is no SLURM here (no sbatch): submit from a login node, or use local_parallel")
    for sentence in dict.fromkeys(sentence for found in checked for sentence in found.missing):
        print(f"left out: {sentence}", flush=True)
    for root in {cfg.results for cfg in jobs}:
        prepare_results_folder(Path(root))
    for root, name, checksum in sorted(sums):
        check_same_data(Path(root), name, checksum)
    for found in checked:
        write_manifest(Path(found.cfg.results), manifest(found.cfg.name, found.candidates))
    _stopped = 0
    told = {
        CONFIG_DIRS: os.pathsep.join(os.path.abspath(folder) for folder in config_dirs),
        COMMAND: portable(["dlmexp", *sys.argv[1:]]),
        WORKERS: os.environ.get(WORKERS, str(min(len(jobs), os.cpu_count() or 1))),
    }
    with _environment(told), _Parent() as stop:
        return _launched(checked, launch, stop)


def _launched(checked: Sequence[Sweep], launch: Callable[[], int], stop: StopRequest) -> int:
    """Let Hydra launch, wait for what was submitted, and judge."""
    wanted = [cluster.Wanted(Path(w.cfg.results), tuple(w.cells), w.cfg.retry_failed) for w in checked]
    cluster.current = submission = cluster.Submission(wanted)
    code = launch()
    if submission.error:
        raise UserError(submission.error)
    if submission.used and not checked[0].cfg.wait:
        print("'dlmexp status' shows how they fare; the same command without wait=false waits for them")
        return code
    if submission.used:
        cluster.wait(submission, stop)
    if stop.received is not None:
        rest = "its jobs stay in the queue" if submission.used else "everything is saved"
        print(f"\nstopped: {rest}; the same command goes on from here")
        return STOPPED + stop.received
    return code if code >= STOPPED else max(code, *_judged(checked, submission))


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """For jobs in other processes, wherever they are started."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _judged(checked: Sequence[Sweep], submission: cluster.Submission) -> list[int]:
    """Say what there is and what is not, for each results folder; what a launcher or SLURM thinks does not count."""
    lost = cluster.losses(submission) if submission.used else []
    for sentence in lost:
        print(sentence)
    codes = [1] if lost else [0]
    folders: dict[str, Sweep] = {}
    for found in checked:
        folders.setdefault(found.cfg.results, Sweep(found.cfg, [], {}, [])).candidates += found.candidates
    for root, together in folders.items():
        codes.append(summary(together.candidates, Store(root)))
    return codes


def job(cfg: DictConfig) -> int:
    """What Hydra calls for each job, in this process or on a node: the overrides it was given are composed as ours."""
    global _stopped
    if _stopped:
        return _stopped
    folders = [folder for folder in os.environ.get(CONFIG_DIRS, "").split(os.pathsep) if folder]
    node.began()
    why = ""
    try:
        overrides = list(HydraConfig.get().overrides.task)
        GlobalHydra.instance().clear()  # which refuses to compose while a job runs; this job has been composed
        again = [*overrides, *(word for folder in folders for word in ("--config-dir", folder))]
        code = execute(compose(overrides, folders), folders, again)
        if code >= STOPPED:
            node.requeue(code - STOPPED)  # does not return where the job goes back into the queue
            why = "stopped by a signal"
        elif code == BUDGET_SPENT:
            why = "its budget is spent"
    except Exception as error:  # Hydra would keep it to itself on a node, and give up the other jobs elsewhere
        code, why = (2, str(error)) if isinstance(error, UserError) else (1, f"{type(error).__name__}: {error}")
        print(f"dlmexp: {error}" if code == 2 else traceback.format_exc(), file=sys.stderr, flush=True)
    node.ended(code, why)
    if code >= STOPPED:
        _stopped = code
        if multiprocessing.current_process().name == "MainProcess":
            raise SystemExit(code)  # else Hydra would begin the next job
    return code
