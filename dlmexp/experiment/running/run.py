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

from dlmexp.common.atomic import path_inside
from dlmexp.common.console import budget_seconds, counted, duration, wide_console
from dlmexp.common.errors import UserError
from dlmexp.common.limits import RESERVED
from dlmexp.experiment.config import RunConfig
from dlmexp.experiment.plan.cell import cell_count, without_keys
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
from dlmexp.experiment.running.checkpoints import QueuedBatch, training_queue
from dlmexp.experiment.running.clock import Clock
from dlmexp.experiment.running.disk_errors import REMOVED, advice_after
from dlmexp.experiment.running.engine import Engine
from dlmexp.experiment.running.leases import FolderRemovedError, Leases, remove_leftovers
from dlmexp.experiment.running.plugin_trials import try_plugins
from dlmexp.experiment.running.progress import Progress
from dlmexp.experiment.running.recording import Recorder
from dlmexp.experiment.running.summary import (
    print_plan,
    print_plugin_changes,
    print_summary,
    summarize,
)
from dlmexp.experiment.running.sweep import (
    Sweep,
    changed_cells,
    make_split_preparer,
    plan_refits,
    plan_sweep,
    prepare_sweep,
    set_aside,
)
from dlmexp.experiment.running.table_baselines import table_baselines

HOUR = 3600.0  # in seconds


def execute(cfg: RunConfig, arguments: Sequence[str] = (), choose_workers: bool = False) -> int:
    """Run a composed config and return the exit code.

    Args:
        cfg: the composed config.
        arguments: the words of the command after `dlmexp run`, for extra processes and for
            messages.
        choose_workers: whether to choose the number of processes if `workers=` is not set;
            otherwise it is 1.
    """
    return execute_sweep(prepare_sweep(cfg), arguments, choose_workers)


def execute_sweep(sweep: Sweep, arguments: Sequence[str] = (), choose_workers: bool = False) -> int:
    """Run a sweep and return the exit code; the arguments are those of `execute`."""
    cfg = sweep.cfg
    if not process.is_extra():
        for note in sweep.notes:
            print(note, flush=True)
    target = process.select_target(cfg.device, cfg.dtype)
    # Called for the error if there are too few GPUs.
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
    """Raise UserError if results of other data would make the run fail."""
    for name, checksum in _datasets(sweep):
        if not _is_replaced([sweep], name):
            check_same_data(Path(sweep.cfg.results), name, checksum, read_only=True)


def _train_and_summarize(
    sweep: Sweep, target: process.Target, arguments: Sequence[str], choose_workers: bool
) -> int:
    """Train the cells without a record, print the results, and return the exit code."""
    root = Path(sweep.cfg.results)
    make_folder(root)
    destination = sweep.cfg.results  # for error messages, if an error does not name a file
    try:
        _prepare_folder(root, sweep)
        run = PlannedRun(sweep, target, arguments, choose_workers)
        if not process.is_extra():
            print_plugin_changes(run.plan, sweep)
        exit_code_of_stop = run.train()
        if exit_code_of_stop is not None:
            return exit_code_of_stop
        # Every fit has written its model. Only now, when all cells are trained, is it known which
        # fits are selected.
        drop_unselected(run.store)
        destination = "standard output"
        summary = summarize(sweep.candidates, run.store)
        baselines = None if process.is_extra() else table_baselines(sweep, root)
        print_summary(summary, run.store, baselines)
    except BrokenPipeError:  # nobody reads the output any more, as after `| head`: `cli` handles it
        raise
    except OSError as error:
        file = error.filename or destination
        print(
            f"dlmexp: can't read or write '{file}': {error.strerror}; {advice_after(error, file)}",
            file=sys.stderr,
        )
        return process.FAILURE
    code_of_extra_processes = _report_extra_processes(run.extra_processes, summary.exit_code)
    return max(summary.exit_code, code_of_extra_processes)


def _prepare_folder(root: Path, sweep: Sweep) -> None:
    """Remove files of dead processes, write the manifest, and set changed records aside."""
    remove_leftovers(root)
    write_manifests(root, [sweep])
    if sweep.cfg.rerun == "changed":
        store = Store(root)
        set_aside(sweep, store, changed_cells(sweep, store))


def _report_extra_processes(extra_processes: dict[Path, Popen[bytes]], own_code: int) -> int:
    """Print which extra processes failed, and return `FAILURE` if one did, else 0.

    Args:
        extra_processes: The processes by their logs.
        own_code: The exit code of this process. An extra process may have the same, as it has seen
            the same results.
    """
    exit_code = 0
    for log, extra_process in extra_processes.items():
        code = extra_process.returncode
        if code not in (0, own_code):
            exit_code = process.FAILURE
            print(
                f"another process of this run ended with exit code {code}: see '{log}'",
                file=sys.stderr,
            )
    return exit_code


def write_manifests(root: Path, sweeps: Sequence[Sweep]) -> None:
    """Write the manifests of sweeps, and the choices of M=auto for them.

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
    """Return the name and the checksum of each dataset of a sweep."""
    return {(cell.dataset, cell.data) for cell in sweep.cells}


def _is_replaced(sweeps: Sequence[Sweep], name: str) -> bool:
    """Return whether a dataset is a user's table with `csv.replace`.

    Results of earlier data under the same name are then deleted.
    """
    for sweep in sweeps:
        table = sweep.cfg.csv
        if table.replace and table.name == name:
            return True
    return False


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
        path_inside(root, root / name)  # raises if a link leads out of the results folder


class PlannedRun:
    """The batches of a sweep that have to be trained, by `workers` processes including this one.

    Attributes:
        plan: Which cells are done and which have to be trained.
        queue: The batches to train, in order.
        batches: The cells of each batch of the queue that need a record.
        clock: The expected durations.
        is_short: Whether the run is too short for timed steps and extra processes to pay off.
        workers: The number of processes.
        extra_processes: The extra processes by their logs.
        threads: The number of threads of each process.
    """

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
        self.queue = training_queue(self.store, self.plan.batches)
        self.batches = [queued.pending for queued in self.queue]
        self.clock = Clock(self.batches, device, self.plan.refits)
        self.is_short = self.clock.is_short()
        self.workers = self.cfg.workers or 1
        if self.cfg.workers is None and choose_workers and not self.is_short:
            self.workers = process.default_worker_count(len(self.plan.batches), device)
        self.extra_processes: dict[Path, Popen[bytes]] = {}
        is_short_on_cpu = self.is_short and device == "cpu"
        self.threads = process.threads_per_process(self.workers, is_short_on_cpu)

    def announcement(self) -> str:
        """Return the numbers of cells and batches, and the expected time unless the run is short.

        If a run may take over an hour on a CPU, a second line has the command of a shorter run.
        """
        text = f"{counted(self.clock.cells, 'cell')} in {counted(self.clock.batches, 'batch')}"
        if self.workers > 1:
            text += f", {self.workers} processes"
        if self.is_short:
            return text
        self.clock.time_steps(make_split_preparer(self.sweep), self.target, self.threads)
        interval = self.clock.expected_interval(self.workers)
        if interval is None:
            return text
        text += f": {duration(interval.least)} to {duration(interval.most)}"
        if interval.most > HOUR and self.target.device.type == "cpu":
            over = "over" if interval.least > HOUR else "perhaps over"
            text += (
                f"\n{over} an hour on this CPU; in minutes, a smaller part of it: "
                f"{self._shorter_command()}"
            )
        return text

    def _shorter_command(self) -> str:
        """Return a command that trains a part of the cells in minutes."""
        words = [word for word in self.arguments if not word.startswith("plan=")]
        # `preset=quick` would replace the preset of the command.
        limit = "budget=30min" if self.cfg.preset else "preset=quick"
        return shlex.join(["dlmexp", "run", *words, limit])

    def train(self) -> int | None:
        """Train the batches.

        Returns:
            None on completion; the exit code if the run was asked to stop. In that case a message
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
            # A second Ctrl-C may interrupt NumPy while it writes an archive (a temporary file, so
            # nothing is lost). Closing the archive then raises this error.
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
        # On GPUs every process has its own device.
        is_only_process = self.workers == 1 and not process.is_extra()
        has_device_alone = device.type == "cuda" or is_only_process
        return Recorder(
            self.sweep,
            self.store,
            on_record=progress.note_record,
            device=str(device),
            retrained=self.plan.retrained,
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
            Leases(root, stop.fail, progress.process_fields) as leases,
            extra_processes as self.extra_processes,
            progress,
        ):
            engine = Engine(
                self.target, recorder, progress, stop, leases, self.cfg.checkpoint_seconds
            )
            follow_up = partial(self._queue_of_refits, progress) if self.plan.refits else None
            engine.run(self.queue, follow_up)

    def _queue_of_refits(self, progress: Progress) -> list[QueuedBatch]:
        """Return the batches of the fits to all rows that folds have selected.

        All folds must have a record.
        """
        queue = training_queue(self.store, plan_refits(self.sweep, self.store, self.target))
        refits = [queued.pending for queued in queue]
        self.batches += refits
        progress.note_selection(refits)
        return queue

    def _print_how_to_continue(self, request: process.Stop, recorder: Recorder) -> None:
        done, failed = recorder.keys()
        recorded = done | failed
        unfinished = without_keys(chain.from_iterable(self.batches), recorded)
        left = len(unfinished) + cell_count(self.clock.placeholders)
        file = sys.stderr if request.code == process.FAILURE else sys.stdout
        print(f"\nstopped by {request}; {counted(left, 'cell')} to do", file=file)
        command = shlex.join(["dlmexp", "run", *self.arguments])
        consequence = "everything is saved"
        if isinstance(request.__cause__, FolderRemovedError):
            consequence = REMOVED
        print(f"{consequence}, continue with: {command}", file=file)
