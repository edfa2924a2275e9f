"""`dlmexp run`: train the cells of a composed config that have no record yet, and print what was selected."""

import os
import shlex
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from dlmexp.atomic import within
from dlmexp.config import RunConfig
from dlmexp.console import budget_seconds, counted, duration
from dlmexp.errors import UserError
from dlmexp.plan.cell import Cell
from dlmexp.records.manifest import check_same_data, manifest, write_manifest
from dlmexp.records.results import drop_unselected
from dlmexp.records.store import Store
from dlmexp.running import checkpoint
from dlmexp.running.cleaning import remove_leftovers
from dlmexp.running.clock import Clock, bound, is_short
from dlmexp.running.device import Target, device_and_free_memory, select_target
from dlmexp.running.overview import show_plan, what_was_read
from dlmexp.running.processes import (
    THREADS_GIVEN,
    ExtraProcesses,
    check_workers,
    cores_each,
    is_extra,
    processes_that_pay,
    visible_gpus,
)
from dlmexp.running.signals import SIGPIPE, STOPPED, Stop, StopRequest
from dlmexp.running.summary import summary
from dlmexp.running.sweep import RESERVED, Sweep, plan_sweep, prepare_sweep, prepared_splits

HOUR = 3600.0  # seconds
GROUP_FOLDER = stat.S_ISGID | stat.S_IWGRP  # mode bits of a folder that `chmod g+ws` has opened to a group
SAFE = "what is finished is safe, the same command goes on from there"

Batch = tuple[Cell, ...]


def execute(cfg: RunConfig, arguments: Sequence[str] = (), choose_workers: bool = False) -> int:
    """Run a composed config and return the exit code. `arguments` are what was typed after `dlmexp run`: extra
    processes (`workers=`, or with `choose_workers` as many as pay) are started with them."""
    try:
        return _execute(cfg, arguments, choose_workers)
    except BrokenPipeError:
        from dlmexp.running.progress import nobody_reads

        nobody_reads()
        return STOPPED + SIGPIPE
    except MemoryError:
        raise UserError(f"there is not enough memory left for this run; {SAFE}") from None


def _execute(cfg: RunConfig, arguments: Sequence[str], choose_workers: bool) -> int:
    sweep = prepare_sweep(cfg)
    for line in [] if is_extra() else [*what_was_read(sweep), *sweep.notes]:
        print(line, flush=True)
    store, memory = Store(cfg.results, read_only=cfg.plan), device_and_free_memory(cfg)
    check_workers(cfg.workers or 1, memory[0])
    if cfg.plan:
        job = Job(sweep, store, *memory, arguments, choose_workers)
        show_plan(job.plan, sweep)
        with job.threads():
            print(job.announcement())
        return 0
    with results_folder(store.root):
        for message in sweep.missing:
            print(f"left out: {message}", flush=True)
        written_to: object = store.root
        try:
            remove_leftovers(store.root)
            for _, data in sweep.datasets.values():
                check_same_data(store.root, data.name, data.checksum)
            write_manifest(store.root, manifest(cfg.name, sweep.candidates, cfg.keep))
            job = Job(sweep, store, *memory, arguments, choose_workers)
            if (stopped := job.train()) is not None:
                return stopped
            written_to = "standard output"
            code = summary(sweep.candidates, store)
        except BrokenPipeError:
            raise
        except OSError as error:
            where = error.filename or written_to
            print(f"dlmexp: can't read or write '{where}': {error.strerror}; {SAFE}", file=sys.stderr)
            return 1
        return max(code, job.other_codes(code))


@contextmanager
def results_folder(root: Path) -> Iterator[None]:
    """Make the folder, and raise `UserError` if it can't be written to.

    Where the folder belongs to a group (`chmod g+ws`), the umask within the context lets the group write to new files.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            pass
        belongs_to_group = root.stat().st_mode & GROUP_FOLDER == GROUP_FOLDER
    except OSError as error:
        raise UserError(
            f"results={root}: can't write there ({os.strerror(error.errno or 0)}); choose another folder"
        ) from None
    for name in RESERVED:
        within(root, root / name)
    before = os.umask(0)
    os.umask(before & ~stat.S_IRWXG if belongs_to_group else before)
    try:
        yield
    finally:
        os.umask(before)


class Job:
    """The batches of a sweep that are to be trained, with so many processes, of which this is one."""

    def __init__(
        self,
        sweep: Sweep,
        store: Store,
        device: str,
        free: float | None,
        arguments: Sequence[str],
        choose_workers: bool,
    ):
        self.sweep, self.store, self.arguments = sweep, store, arguments
        self.plan, self.again = plan_sweep(sweep, store, device, free)
        self.workers = sweep.cfg.workers or (processes_that_pay(self.plan, device) if choose_workers else 1)
        self.is_short = not self.plan.batches or is_short(self.plan, device)
        if store.read_only:
            self.queue = [(batch, batch) for batch in self.plan.batches]
        else:
            self.queue = checkpoint.resumed_first(store, self.plan.batches)
        self.batches = [pending for _, pending in self.queue]
        self.pending = sum(map(len, self.batches))
        self.splits = prepared_splits(sweep)
        self._extra: ExtraProcesses | None = None

    @cached_property
    def target(self) -> Target:
        return select_target(self.sweep.cfg.device, self.sweep.cfg.dtype)

    def step_seconds(self, batch: Batch) -> float:
        """Seconds of a step of such a batch on this device."""
        from dlmexp.running.programs import step_seconds

        return step_seconds(batch, self.splits, self.target)

    @contextmanager
    def threads(self) -> Iterator[None]:
        """Compute with this process' share of the cores, in short runs with one of them. Whoever sets the number of
        threads has chosen."""
        if not self.batches or (self.store.read_only and self.is_short):
            yield  # without torch
            return
        import torch

        before = torch.get_num_threads()
        if self.workers > 1:
            torch.set_num_threads(cores_each(self.workers))
        elif self.is_short and self.target.device.type == "cpu" and not any(map(os.environ.get, THREADS_GIVEN)):
            torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def announcement(self) -> str:
        """Cells, batches, and the time they take at most, where that is worth measuring; where it is over an hour on a
        CPU, what takes minutes."""
        what = f"{counted(self.pending, 'cell')} in {counted(len(self.batches), 'batch')}"
        what += f", {self.workers} processes" if self.workers > 1 else ""
        most = 0.0 if self.is_short else bound(self.batches, self.step_seconds, self.workers)
        what += f": at most about {duration(most)} if no cell converges before its limit" if most else ""
        if most > HOUR and self.target.device.type == "cpu":
            less = "budget=30min" if self.sweep.cfg.preset else "preset=quick"
            typed = [word for word in self.arguments if not word.startswith("plan=")]
            command = shlex.join(["dlmexp", "run", *typed, less])
            what += f"\nover an hour on this CPU; in minutes, a smaller part of it: {command}"
        return what

    def train(self) -> int | None:
        """Train the batches. None when all that can be is trained; else the exit code, after a sentence."""
        if not self.batches:
            if self.sweep.cfg.keep != "none":  # of a run that was stopped between its last record and this
                drop_unselected(self.store)
            return None
        with self.threads():
            return self._train()

    def _train(self) -> int | None:
        from dlmexp.running.engine import Engine
        from dlmexp.running.leases import Leases
        from dlmexp.running.progress import progress_display
        from dlmexp.running.recording import Recorder, Writer

        cfg, device = self.sweep.cfg, self.target.device
        stop = StopRequest(budget_seconds(cfg.budget))
        progress = progress_display(self.pending, len(self.batches), Clock(self.batches), stop)
        if not is_extra():
            progress.say(self.announcement())
        gpus = visible_gpus() if device.type == "cuda" else []
        self._extra = ExtraProcesses(self.workers - 1, self.arguments, self.store.root, gpus)
        schemas = {data.name: data.schema for _, data in self.sweep.datasets.values()}
        own = {data.name: data.schema for spec, data in self.sweep.datasets.values() if spec.loader == "table"}
        recorder = Recorder(
            store=self.store,
            writer=Writer(beside=device.type == "cuda"),
            prepared=self.splits,
            finished=progress.finished,
            device=str(device),
            schemas=None if cfg.keep == "none" else schemas,
            own=own,
            again=self.again,
        )
        try:
            with stop, Leases(self.store.root, stop.fail) as leases, self._extra, progress:
                leases.progress = progress.so_far
                Engine(self.target, recorder, progress, stop, leases, cfg.checkpoint_seconds).run(self.queue)
        except Stop as request:
            done, failed = recorder.keys()
            left = sum(cell.key not in done and cell.key not in failed for batch in self.batches for cell in batch)
            file = sys.stderr if request.failed else sys.stdout
            print(f"\nstopped by {request}; {counted(left, 'cell')} to do", file=file)
            print(f"everything is saved, continue with: {shlex.join(['dlmexp', 'run', *self.arguments])}", file=file)
            return request.code
        except ValueError:  # from an archive that a second Ctrl-C left half written, under its temporary name
            if not stop.interrupted_twice:
                raise
            raise KeyboardInterrupt from None
        recorder.drop_models(seconds=0.0)  # also what other processes of this run left undecided
        progress.say(f"{counted(progress.settled, 'cell')} in {duration(time.monotonic() - progress.clock.began)}")
        return None

    def other_codes(self, code: int) -> int:
        """1, after a line for each, if other processes of this run ended neither well nor with the same `code`."""
        others = self._extra.ended_otherwise(code) if self._extra else {}
        for log, other in others.items():
            print(f"another process of this run ended with exit code {other}: see '{log}'", file=sys.stderr)
        return 1 if others else 0
