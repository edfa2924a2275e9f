"""`dlmexp run`: train the cells of a composed config that have no record yet, and print what was selected."""

import os
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from dlmexp.atomic import within
from dlmexp.config import RunConfig
from dlmexp.console import budget_seconds, counted, duration
from dlmexp.errors import UserError
from dlmexp.models.file import encoded_size
from dlmexp.plan.batches import Plan
from dlmexp.plan.cell import Cell
from dlmexp.records.manifest import check_same_data, manifest, write_manifest
from dlmexp.records.results import drop_unselected, without_model
from dlmexp.records.store import Store
from dlmexp.running import checkpoint
from dlmexp.running.cleaning import remove_leftovers
from dlmexp.running.clock import Clock, batch_work, bound, fastest_threads, is_short
from dlmexp.running.device import Target, device_and_free_memory, select_target
from dlmexp.running.own_tables import what_was_read
from dlmexp.running.plan_table import show_plan
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
from dlmexp.running.summary import print_incomplete, summary
from dlmexp.running.sweep import RESERVED, Sweep, plan_sweep, prepare_sweep, prepared_splits

if TYPE_CHECKING:
    from dlmexp.running.progress import Progress

GROUP_FOLDER = stat.S_ISGID | stat.S_IWGRP  # mode bits of a folder that `chmod g+ws` has opened to a group
MUCH = 1e9  # bytes of models from which on a run says what it will write
TIMED_AT_ONCE = 2  # batches, to find out how long a step takes on a GPU beside others
SAFE = "what is finished is safe, the same command goes on from there"

Batch = tuple[Cell, ...]


def execute(cfg: RunConfig, restart_arguments: Sequence[str] = (), choose_workers: bool = False) -> int:
    """Run a composed config and return the exit code. Extra processes (`workers=`, or with `choose_workers` as many as
    pay) are started as `dlmexp run *restart_arguments`."""
    try:
        return _execute(cfg, restart_arguments, choose_workers)
    except BrokenPipeError:
        from dlmexp.running.progress import nobody_reads

        nobody_reads()
        return STOPPED + SIGPIPE
    except MemoryError:
        raise UserError(f"there is not enough memory left for this run; {SAFE}") from None


def _execute(cfg: RunConfig, restart_arguments: Sequence[str], choose_workers: bool) -> int:
    sweep = prepare_sweep(cfg)
    for line in [] if is_extra() else [*what_was_read(sweep), *sweep.notes]:
        print(line, flush=True)
    device, free = device_and_free_memory(cfg)
    check_workers(cfg.workers or 1, device)
    store = Store(cfg.results, read_only=cfg.plan)

    def job() -> Job:
        again = to_refit(sweep, store)
        plan = plan_sweep(sweep, store, device, free, again)
        workers = cfg.workers or (processes_that_pay(plan, device) if choose_workers else 1)
        return Job(sweep, plan, store, device, workers, again)

    if cfg.plan:
        planned = job()
        show_plan(planned.plan, sweep)
        with planned.threads():
            for line in planned.announcements():
                print(line)
        return 0
    with results_folder(store.root):
        for message in sweep.missing:
            print(f"left out: {message}", flush=True)
        written_to: object = store.root
        try:
            remove_leftovers(store.root)
            for spec, data in sweep.datasets.values():
                check_same_data(store.root, data.name, data.checksum, own=spec.loader == "table")
            write_manifest(store.root, manifest(cfg.name, sweep.candidates, cfg.keep))
            training = job()
            if (stopped := training.train(restart_arguments)) is not None:
                return stopped
            written_to = "standard output"
            code = summary(sweep.candidates, store)
        except BrokenPipeError:
            raise
        except OSError as error:
            where = error.filename or written_to
            print(f"dlmexp: can't read or write '{where}': {error.strerror}; {SAFE}", file=sys.stderr)
            return 1
        return max(code, training.other_codes(code))


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
    if not belongs_to_group:
        yield
        return
    before = os.umask(0)
    os.umask(before & ~stat.S_IRWXG)
    try:
        yield
    finally:
        os.umask(before)


def to_refit(sweep: Sweep, store: Store) -> frozenset[str]:
    """The done cells that `refit=true` trains again: those that should have a model and have none."""
    if not sweep.cfg.refit:
        return frozenset()
    return frozenset(without_model(store, manifest("", sweep.candidates).candidates, sweep.cfg.keep))


class Job:
    """The batches of a plan, to be trained with so many processes, of which this is one."""

    def __init__(self, sweep: Sweep, plan: Plan, store: Store, device: str, workers: int, again: frozenset[str]):
        self.sweep, self.store, self.workers, self.again = sweep, store, workers, again
        self.is_short = not plan.batches or is_short(plan, device)
        self.plan = plan if store.read_only else checkpoint.with_resumed(plan, store)
        self.splits = prepared_splits(sweep)
        self._extra: ExtraProcesses | None = None

    @cached_property
    def target(self) -> Target:
        return select_target(self.sweep.cfg.device, self.sweep.cfg.dtype)

    def step_seconds(self, batch: Batch) -> float:
        """Seconds of a step of such a batch on this device, beside others where it has room for them."""
        from dlmexp.running.engine import Capacity
        from dlmexp.running.programs import step_seconds

        at_once = min(TIMED_AT_ONCE, Capacity.of(self.target.device).alike(batch))
        return step_seconds(batch, self.splits, self.target, at_once)

    @contextmanager
    def threads(self) -> Iterator[None]:
        """Compute with this process' share of the cores; alone, with as many threads as a trial recommends. Whoever
        sets their number has chosen."""
        if not self.plan.batches or (self.store.read_only and self.is_short):
            yield  # without torch
            return
        import torch

        before = torch.get_num_threads()
        if self.workers > 1:
            torch.set_num_threads(cores_each(self.workers))
        elif self.target.device.type == "cpu" and not any(os.environ.get(name) for name in THREADS_GIVEN):
            torch.set_num_threads(1 if self.is_short else fastest_threads(before, self._seconds_with_threads))
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def _seconds_with_threads(self, number: int) -> float:
        import torch

        torch.set_num_threads(number)
        return self.step_seconds(max(self.plan.batches, key=batch_work))

    def announcements(self) -> Iterator[str]:
        """Cells, batches, and the time they take at most, where that is worth measuring; models, where they are
        large."""
        if is_extra():
            return
        what = f"{counted(self.plan.pending, 'cell')} in {counted(len(self.plan.batches), 'batch')}"
        what += f", {self.workers} processes" if self.workers > 1 else ""
        if not self.is_short:
            most = bound(self.plan.batches, self.step_seconds, self.workers).seconds
            what += f": at most about {duration(most)} if no cell converges before its limit"
        yield what
        features = {data.name: data.X.shape[1] for _, data in self.sweep.datasets.values()}
        fits = [cell for batch in self.plan.batches for cell in batch if cell.kind == "fit"]
        size = sum(encoded_size(cell.M, features[cell.dataset]) for cell in fits)
        if size > MUCH and (keep := self.sweep.cfg.keep) != "none":
            stay = ", most of which go once beta is selected" if keep == "selected" else ""
            yield f"keep={keep}: {len(fits)} models of {size / 1e9:.1f} GB are written{stay} (keep=none: no models)"

    def train(self, restart_arguments: Sequence[str]) -> int | None:
        """Train the batches. None when all that can be is trained; else the exit code, after a sentence."""
        if not self.plan.batches:
            checkpoint.discard_finished(self.store, self.store.keys()[0])
            if self.sweep.cfg.keep != "none":  # of a run that was stopped between its last record and this
                drop_unselected(self.store)
            return None
        with self.threads():
            return self._train(restart_arguments)

    def _train(self, restart_arguments: Sequence[str]) -> int | None:
        from dlmexp.running.engine import Engine
        from dlmexp.running.leases import Leases
        from dlmexp.running.progress import progress_display
        from dlmexp.running.recording import Recorder, Writer

        cfg, device = self.sweep.cfg, self.target.device
        gpus = visible_gpus() if device.type == "cuda" else []
        stop = StopRequest(budget_seconds(cfg.budget))
        progress = progress_display(self.plan.pending, len(self.plan.batches), Clock(self.plan.batches), stop)
        for line in self.announcements():
            progress.say(line)
        self._extra = ExtraProcesses(self.workers - 1, restart_arguments, self.store.root, gpus)
        writer = Writer(beside=device.type == "cuda")
        schemas = {data.name: data.schema for _, data in self.sweep.datasets.values()}
        recorder = Recorder(
            self.store, writer, self.splits, progress.finished, str(device),
            None if cfg.keep == "none" else schemas, self.again,
        )  # fmt: skip
        try:
            with stop, Leases(self.store.root, stop.fail) as leases, self._extra, progress:
                leases.progress = progress.so_far
                Engine(self.target, recorder, progress, stop, leases, cfg.checkpoint_seconds).run(self.plan.batches)
        except Stop as request:
            return self._stopped(request, progress)
        except ValueError:  # from an archive that a second Ctrl-C left half written, under its temporary name
            if not stop.interrupted_twice:
                raise
            raise KeyboardInterrupt from None
        recorder.drop_models(finally_=True)  # also what other processes of this run left undecided
        progress.say(f"{counted(progress.settled, 'cell')} in {duration(time.monotonic() - progress.clock.began)}")
        return None

    def other_codes(self, code: int) -> int:
        """1, after a line for each, if other processes of this run ended neither well nor with the same `code`."""
        found = self._extra.ended_otherwise(code) if self._extra else {}
        for log, other in found.items():
            print(f"another process of this run ended with exit code {other}: see '{log}'", file=sys.stderr)
        return 1 if found else 0

    def _stopped(self, request: Stop, progress: "Progress") -> int:
        """Say what is left, and give the exit code."""
        pending = [cell for batch in self.plan.batches for cell in batch if cell.key not in self.again]
        recorded = sum(self.store.has(cell.dataset, cell.key) for cell in pending)
        by_others = max(0, recorded - progress.done - progress.skipped_cells)
        left = counted(self.plan.pending - progress.settled - by_others, "cell")
        print(
            f"\nstopped by {request}: everything is saved, {left} to do; the same command goes on from here",
            file=sys.stderr if request.failed else sys.stdout,
        )
        print_incomplete(self.sweep.candidates, self.store)
        return request.code
