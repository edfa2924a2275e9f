"""`dlmexp run`: train the cells of a composed config that have no record yet, and print what was
selected."""

import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from subprocess import Popen

import torch

from dlmexp.common.atomic import within
from dlmexp.common.console import budget_seconds, counted, duration, wide_console
from dlmexp.common.errors import UserError
from dlmexp.common.limits import RESERVED
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.experiment.config import RunConfig
from dlmexp.experiment.records.results import drop_unselected
from dlmexp.experiment.records.store import Manifest, Store, check_same_data, write_manifest
from dlmexp.experiment.running import process
from dlmexp.experiment.running.clock import Clock, step_seconds
from dlmexp.experiment.running.engine import Engine
from dlmexp.experiment.running.leases import Leases, remove_leftovers
from dlmexp.experiment.running.progress import Progress
from dlmexp.experiment.running.recording import Recorder, resumed_first
from dlmexp.experiment.running.sweep import (
    Sweep,
    plan_sweep,
    prepare_sweep,
    prepared_splits,
    show_plan,
    summary,
)

HOUR = 3600.0  # seconds


def execute(cfg: RunConfig, arguments: Sequence[str] = (), choose_workers: bool = False) -> int:
    """Run a composed config and return the exit code. `arguments` are what was typed after `dlmexp
    run`: extra processes (`workers=`, or with `choose_workers` as many as pay) are started with
    them."""
    sweep = prepare_sweep(cfg)
    if not process.is_extra():
        for note in sweep.notes:
            print(note, flush=True)
    target = process.select_target(cfg.device, cfg.dtype)
    process.gpus_for(cfg.workers or 1, target.device.type)
    _try_plugins(sweep, target)
    if cfg.plan:
        run = PlannedRun(sweep, target, arguments, choose_workers)
        show_plan(run.plan, sweep)
        print(run.announcement())
        return 0
    root, written_to = Path(cfg.results), cfg.results
    make_folder(root)
    try:
        remove_leftovers(root)
        write_what_is_asked(root, [sweep])
        run = PlannedRun(sweep, target, arguments, choose_workers)
        if (stopped := run.train()) is not None:
            return stopped
        drop_unselected(run.store)  # also what other processes of this run left undecided
        written_to = "standard output"
        code = summary(sweep.candidates, run.store)
    except BrokenPipeError:
        raise
    except OSError as error:
        where = error.filename or written_to
        safe = "what is finished is safe, the same command goes on from there"
        print(f"dlmexp: can't read or write '{where}': {error.strerror}; {safe}", file=sys.stderr)
        return process.FAILURE
    others = {
        log: each.returncode for log, each in run.extra.items() if each.returncode not in (0, code)
    }
    for log, other in others.items():
        print(
            f"another process of this run ended with exit code {other}: see '{log}'",
            file=sys.stderr,
        )
    return max(code, process.FAILURE if others else 0)


def _try_plugins(sweep: Sweep, target: process.Target) -> None:
    """Make a step with each objective that is not ours, so that a mistake in it is seen before
    anything is written."""
    for name, cell in {cell.objective: cell for cell in sweep.cells}.items():
        if not getattr(OBJECTIVES[name].row_loss, "__module__", "dlmexp.").startswith("dlmexp."):
            step_seconds((cell,), prepared_splits(sweep), target, seconds=0.0)


def write_what_is_asked(root: Path, sweeps: Sequence[Sweep]) -> None:
    """Write the manifests of sweeps; `UserError` where the folder has results of other data under
    the same names."""
    for name, checksum in sorted(
        {(cell.dataset, cell.data) for sweep in sweeps for cell in sweep.cells}
    ):
        check_same_data(root, name, checksum)
    for sweep in sweeps:
        write_manifest(root, Manifest(sweep.cfg.name, sweep.candidates, sweep.cfg.keep))


def make_folder(root: Path) -> None:
    """Make a results folder; `UserError` if it can't be written to."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as error:
        raise UserError(
            f"results={root}: can't write there ({error.strerror}); choose another folder"
        ) from None
    for name in RESERVED:
        within(root, root / name)


class PlannedRun:
    """The batches of a sweep that are to be trained, by so many processes, of which this is one."""

    def __init__(
        self, sweep: Sweep, target: process.Target, arguments: Sequence[str], choose_workers: bool
    ):
        self.cfg, self.sweep, self.target, self.arguments = sweep.cfg, sweep, target, arguments
        self.store, device = Store(self.cfg.results, read_only=self.cfg.plan), target.device.type
        self.plan = plan_sweep(sweep, self.store, target)
        self.queue = resumed_first(self.store, self.plan.batches)
        self.batches = [pending for _, pending in self.queue]
        self.clock = Clock(self.batches)
        self.is_short = self.clock.is_short(device)
        few = self.is_short or not choose_workers
        self.workers = self.cfg.workers or (
            1 if few else process.processes_that_pay(len(self.plan.batches), device)
        )
        self.extra: dict[Path, Popen[bytes]] = {}  # the other processes, by their logs
        self.threads = process.threads_each(self.workers, self.is_short and device == "cpu")

    def announcement(self) -> str:
        """Cells, batches, and the time they take at most, where that is worth measuring; where it
        is over an hour on a CPU, what takes minutes."""
        what = f"{counted(self.clock.cells, 'cell')} in {counted(self.clock.batches, 'batch')}"
        what += f", {self.workers} processes" if self.workers > 1 else ""
        if self.is_short:
            return what
        most = self.clock.bound(
            prepared_splits(self.sweep), self.target, self.workers, self.threads
        )
        what += (
            f": at most about {duration(most)} if no cell converges before its limit"
            if most
            else ""
        )
        if most > HOUR and self.target.device.type == "cpu":
            typed = [word for word in self.arguments if not word.startswith("plan=")]
            command = [
                "dlmexp",
                "run",
                *typed,
                "budget=30min" if self.cfg.preset else "preset=quick",
            ]
            what += f"\nover an hour on this CPU; in minutes, a smaller part of it: {shlex.join(command)}"
        return what

    def train(self) -> int | None:
        """Train the batches. None when all that can be is trained; else the exit code, after a
        sentence."""
        if not self.batches:
            return None
        root, device = self.store.root, self.target.device
        stop = process.StopRequest(budget_seconds(self.cfg.budget))
        progress = Progress(self.clock, stop, wide_console())
        if not process.is_extra():
            progress.say(self.announcement())
        extra = process.extra_processes(self.workers - 1, self.arguments, root, device.type)
        # On GPUs there is a process for each.
        alone = device.type == "cuda" or (self.workers == 1 and not process.is_extra())
        recorder = Recorder(
            self.sweep, self.store, progress.finished, str(device), self.plan.again, alone
        )
        threads_before = torch.get_num_threads()
        try:
            torch.set_num_threads(self.threads)
            with (
                stop,
                Leases(root, stop.fail, progress.so_far) as leases,
                extra as self.extra,
                progress,
            ):
                Engine(
                    self.target, recorder, progress, stop, leases, self.cfg.checkpoint_seconds
                ).run(self.queue)
        except process.Stop as request:
            recorded = set[str]().union(*recorder.keys())
            left = sum(cell.key not in recorded for batch in self.batches for cell in batch)
            file = sys.stderr if request.code == process.FAILURE else sys.stdout
            print(f"\nstopped by {request}; {counted(left, 'cell')} to do", file=file)
            command = shlex.join(["dlmexp", "run", *self.arguments])
            print(f"everything is saved, continue with: {command}", file=file)
            return request.code
        except (
            ValueError
        ):  # from an archive that a second Ctrl-C left half written, under its temporary name
            if not stop.interrupted_twice:
                raise
            raise KeyboardInterrupt from None
        finally:
            torch.set_num_threads(threads_before)
        progress.say(
            f"{counted(progress.settled, 'cell')} in {duration(time.monotonic() - progress.began)}"
        )
        return None
