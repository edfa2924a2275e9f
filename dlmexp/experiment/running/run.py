"""`dlmexp run`: train the cells of a config that have no record yet, and print the results."""

import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from subprocess import Popen

import torch

from dlmexp.common.atomic import within
from dlmexp.common.console import budget_seconds, counted, duration, wide_console
from dlmexp.common.errors import UserError
from dlmexp.common.limits import RESERVED
from dlmexp.experiment.config import RunConfig
from dlmexp.experiment.plan.cell import Batch
from dlmexp.experiment.records.inducing_counts import write_inducing_count
from dlmexp.experiment.records.manifests import (
    Manifest,
    check_same_data,
    forget_other_data,
    write_manifest,
)
from dlmexp.experiment.records.results import drop_unselected
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running import process
from dlmexp.experiment.running.checkpoints import resumed_first
from dlmexp.experiment.running.clock import Clock
from dlmexp.experiment.running.disk_errors import REMOVED, what_remains
from dlmexp.experiment.running.engine import Engine
from dlmexp.experiment.running.leases import FolderRemovedError, Leases, remove_leftovers
from dlmexp.experiment.running.plugin_trials import try_plugins
from dlmexp.experiment.running.progress import Progress
from dlmexp.experiment.running.recording import Recorder
from dlmexp.experiment.running.summary import (
    print_changed,
    print_plan,
    print_summary,
    summarize,
)
from dlmexp.experiment.running.sweep import (
    Sweep,
    changed_cells,
    plan_refits,
    plan_sweep,
    prepare_sweep,
    prepared_splits,
    set_aside,
)
from dlmexp.experiment.running.table_baselines import table_baselines

HOUR = 3600.0  # seconds


def execute(cfg: RunConfig, arguments: Sequence[str] = (), choose_workers: bool = False) -> int:
    """Run a composed config and return the exit code.

    Args:
        cfg: the composed config.
        arguments: what was typed after `dlmexp run`; extra processes are started with them.
        choose_workers: whether to start as many processes as are useful if the config does not say
            how many (`workers=`).
    """
    return execute_sweep(prepare_sweep(cfg), arguments, choose_workers)


def execute_sweep(sweep: Sweep, arguments: Sequence[str] = (), choose_workers: bool = False) -> int:
    """Run a sweep and return the exit code; the arguments are those of `execute`."""
    cfg = sweep.cfg
    if not process.is_extra():
        for note in sweep.notes:
            print(note, flush=True)
    target = process.select_target(cfg.device, cfg.dtype)
    process.gpus_for(cfg.workers or 1, target.device.type)
    try_plugins(sweep, target)
    if cfg.plan:
        _check_data_of_plan(sweep)
        run = PlannedRun(sweep, target, arguments, choose_workers)
        print_plan(run.plan, sweep)
        print(run.announcement())
        return 0
    return _train_and_summarize(sweep, target, arguments, choose_workers)


def _check_data_of_plan(sweep: Sweep) -> None:
    """Raise UserError if the run would be refused because data have changed."""
    for name, checksum in _datasets(sweep):
        if not _is_replaced([sweep], name):
            check_same_data(Path(sweep.cfg.results), name, checksum, read_only=True)


def _train_and_summarize(
    sweep: Sweep, target: process.Target, arguments: Sequence[str], choose_workers: bool
) -> int:
    """Train what has no record, print the results, and return the exit code."""
    root = Path(sweep.cfg.results)
    make_folder(root)
    written_to = sweep.cfg.results  # for errors that do not name a file
    try:
        _prepare_folder(root, sweep)
        run = PlannedRun(sweep, target, arguments, choose_workers)
        if not process.is_extra():
            print_changed(run.plan, sweep)
        stopped = run.train()
        if stopped is not None:
            return stopped
        # Also models that other processes of this run left undecided.
        drop_unselected(run.store)
        written_to = "standard output"
        summary = summarize(sweep.candidates, run.store)
        baselines = None if process.is_extra() else table_baselines(sweep, root)
        print_summary(summary, run.store, baselines)
    except BrokenPipeError:
        raise
    except OSError as error:
        file = error.filename or written_to
        print(
            f"dlmexp: can't read or write '{file}': {error.strerror}; {what_remains(error, file)}",
            file=sys.stderr,
        )
        return process.FAILURE
    return max(summary.exit_code, _report_extra_processes(run.extra, summary.exit_code))


def _prepare_folder(root: Path, sweep: Sweep) -> None:
    """Remove what dead processes left, write the manifest, and set changed records aside."""
    remove_leftovers(root)
    write_manifests(root, [sweep])
    if sweep.cfg.rerun == "changed":
        store = Store(root)
        set_aside(sweep, store, changed_cells(sweep, store))


def _report_extra_processes(extra: dict[Path, Popen[bytes]], expected: int) -> int:
    """Print which extra processes ended otherwise than expected; return an exit code."""
    code = 0
    for log, other in extra.items():
        if other.returncode not in (0, expected):
            code = process.FAILURE
            print(
                f"another process of this run ended with exit code {other.returncode}: see '{log}'",
                file=sys.stderr,
            )
    return code


def write_manifests(root: Path, sweeps: Sequence[Sweep]) -> None:
    """Write the manifests of sweeps, and what M=auto has chosen for them.

    Raises:
        UserError: the folder has results of other data under the same names.
    """
    datasets: set[tuple[str, str]] = set()
    for sweep in sweeps:
        datasets |= _datasets(sweep)
    for name, checksum in sorted(datasets):
        if _is_replaced(sweeps, name):
            forget_other_data(root, name, checksum)
        check_same_data(root, name, checksum)
    for sweep in sweeps:
        for count in sweep.new_inducing_counts:
            write_inducing_count(root, count)
        write_manifest(root, Manifest(sweep.cfg.name, sweep.candidates, sweep.cfg.keep))


def _datasets(sweep: Sweep) -> set[tuple[str, str]]:
    """Return name and checksum of the datasets of a sweep."""
    return {(cell.dataset, cell.data) for cell in sweep.cells}


def _is_replaced(sweeps: Sequence[Sweep], name: str) -> bool:
    """Return whether a dataset is a user's table whose earlier results are to be forgotten."""
    tables = [sweep.cfg.csv for sweep in sweeps]
    return any(table.replace and table.name == name for table in tables)


def make_folder(root: Path) -> None:
    """Make a results folder.

    Raises:
        UserError: it can't be written to.
    """
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
    """The batches of a sweep that have to be trained, by `workers` processes including this one."""

    def __init__(
        self, sweep: Sweep, target: process.Target, arguments: Sequence[str], choose_workers: bool
    ):
        device = target.device.type
        self.cfg = sweep.cfg
        self.sweep = sweep
        self.target = target
        self.arguments = arguments
        self.store = Store(self.cfg.results, read_only=self.cfg.plan)
        self.plan = plan_sweep(sweep, self.store, target)
        self.queue = resumed_first(self.store, self.plan.batches)
        self.batches = [pending for _, pending in self.queue]
        self.clock = Clock(self.batches, device, self.plan.later)
        self.is_short = self.clock.is_short()
        self.workers = self.cfg.workers or 1
        if self.cfg.workers is None and choose_workers and not self.is_short:
            self.workers = process.default_worker_count(len(self.plan.batches), device)
        self.extra: dict[Path, Popen[bytes]] = {}  # the other processes, by their logs
        self.threads = process.threads_each(self.workers, self.is_short and device == "cpu")

    def announcement(self) -> str:
        """Return the numbers of cells and batches, and their expected time if that is useful.

        If it may be over an hour on a CPU, a second line says what takes minutes.
        """
        text = f"{counted(self.clock.cells, 'cell')} in {counted(self.clock.batches, 'batch')}"
        if self.workers > 1:
            text += f", {self.workers} processes"
        if self.is_short:
            return text
        self.clock.time_steps(prepared_splits(self.sweep), self.target, self.threads)
        expected = self.clock.announced(self.workers)
        if expected is None:
            return text
        text += f": {duration(expected.least)} to {duration(expected.most)}"
        if expected.most > HOUR and self.target.device.type == "cpu":
            over = "over" if expected.least > HOUR else "perhaps over"
            text += (
                f"\n{over} an hour on this CPU; in minutes, a smaller part of it: "
                f"{self._shorter_command()}"
            )
        return text

    def _shorter_command(self) -> str:
        typed = [word for word in self.arguments if not word.startswith("plan=")]
        shorter = "budget=30min" if self.cfg.preset else "preset=quick"
        return shlex.join(["dlmexp", "run", *typed, shorter])

    def train(self) -> int | None:
        """Train the batches.

        Returns:
            None on completion. If the run was asked to stop, the exit code, after a message that
            says how to continue.
        """
        if not self.batches:
            return None
        stop = process.StopRequest(budget_seconds(self.cfg.budget))
        progress = Progress(self.clock, stop, wide_console())
        if not process.is_extra():
            progress.say(self.announcement())
        recorder = self._recorder(progress)
        threads_before = torch.get_num_threads()
        try:
            torch.set_num_threads(self.threads)
            self._run_engine(recorder, progress, stop)
        except process.Stop as request:
            self._print_how_to_continue(request, recorder)
            return request.code
        except ValueError:
            # A second Ctrl-C may leave an archive half written, under its temporary name: closing
            # it then raises this error.
            if not stop.interrupted_twice:
                raise
            raise KeyboardInterrupt from None
        finally:
            torch.set_num_threads(threads_before)
        elapsed = time.monotonic() - progress.began
        progress.say(f"{counted(progress.settled, 'cell')} in {duration(elapsed)}")
        return None

    def _recorder(self, progress: Progress) -> Recorder:
        device = self.target.device
        # On GPUs every process has a device of its own.
        has_device_alone = device.type == "cuda" or (self.workers == 1 and not process.is_extra())
        return Recorder(
            self.sweep,
            self.store,
            progress.finished,
            str(device),
            self.plan.again,
            alone=has_device_alone,
        )

    def _run_engine(
        self, recorder: Recorder, progress: Progress, stop: process.StopRequest
    ) -> None:
        root = self.store.root
        extra_processes = process.extra_processes(
            self.workers - 1, self.arguments, root, self.target.device.type
        )
        with (
            stop,
            Leases(root, stop.fail, progress.so_far) as leases,
            extra_processes as self.extra,
            progress,
        ):
            engine = Engine(
                self.target, recorder, progress, stop, leases, self.cfg.checkpoint_seconds
            )
            follow_up = partial(self._selected_by_folds, progress) if self.plan.later else None
            engine.run(self.queue, follow_up)

    def _selected_by_folds(self, progress: Progress) -> list[tuple[Batch, Batch]]:
        """Return what is trained on all rows, now that all folds have a record."""
        queue = resumed_first(self.store, plan_refits(self.sweep, self.store, self.target))
        selected = [pending for _, pending in queue]
        self.batches += selected
        progress.known(selected)
        return queue

    def _print_how_to_continue(self, request: process.Stop, recorder: Recorder) -> None:
        done, failed = recorder.keys()
        recorded = done | failed
        left = sum(cell.key not in recorded for cell in chain.from_iterable(self.batches))
        left += sum(len(batch) for batch in self.clock.later)
        file = sys.stderr if request.code == process.FAILURE else sys.stdout
        print(f"\nstopped by {request}; {counted(left, 'cell')} to do", file=file)
        command = shlex.join(["dlmexp", "run", *self.arguments])
        saved = "everything is saved"
        if isinstance(request.__cause__, FolderRemovedError):
            saved = REMOVED
        print(f"{saved}, continue with: {command}", file=file)
