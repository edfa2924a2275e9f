"""`dlmexp run`: train the cells of a composed config that have no record yet, and print what was selected."""

import os
import stat
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from dlmexp.atomic import within
from dlmexp.config import RunConfig
from dlmexp.console import budget_seconds, counted
from dlmexp.errors import UserError
from dlmexp.plan.batches import Plan
from dlmexp.records.manifest import check_same_data, manifest, write_manifest
from dlmexp.records.results import Results
from dlmexp.records.store import Store
from dlmexp.running import checkpoint
from dlmexp.running.cost import is_short
from dlmexp.running.device import check_workers, device_and_free_memory, select_target
from dlmexp.running.duration import predicted
from dlmexp.running.keeping import announced_size, keeper, to_refit
from dlmexp.running.leftovers import remove_leftovers
from dlmexp.running.own_tables import what_was_read
from dlmexp.running.plan_table import planned_under_others, show_plan
from dlmexp.running.processes import EXTRA_PROCESS, cores_each, processes_that_pay
from dlmexp.running.summary import print_incomplete, summary
from dlmexp.running.sweep import RESERVED, Sweep, plan_sweep, prepare_sweep, prepared_splits

NO_MEMORY = "there is not enough memory left for this run; what is finished is safe, the same command goes on"
GROUP_FOLDER = stat.S_ISGID | stat.S_IWGRP  # mode bits of a folder that `chmod g+ws` has opened to a group


def execute(
    cfg: RunConfig,
    restart_arguments: Sequence[str] = (),
    choose_workers: bool = False,
    under: Callable[[str], RunConfig] | None = None,
) -> int:
    """Run a composed config and return the exit code. Extra processes (`workers=`, or with `choose_workers` as many as
    pay) are started as `dlmexp run *restart_arguments`. `under`: the same config under a protocol, of which a plan says
    what they share."""
    sweep = prepare_sweep(cfg)
    if not os.environ.get(EXTRA_PROCESS):
        for line in [*what_was_read(sweep), *sweep.notes]:
            print(line, flush=True)
    device, free = device_and_free_memory(cfg)
    check_workers(cfg.workers or 1, device)

    def workers(plan: Plan) -> int:
        return cfg.workers or (processes_that_pay(plan, device) if choose_workers else 1)

    store = Store(cfg.results, read_only=cfg.plan)
    if cfg.plan:
        plan = plan_sweep(sweep, store, device, free, to_refit(sweep, store))
        asked = Results(store.root).asked
        show_plan(plan, sweep, asked, planned_under_others(sweep, under) if under else ())
        number = workers(plan)
        with _threads(plan, device, number) if not is_short(plan) else nullcontext():  # no torch for a short plan
            prediction = predicted(plan, sweep, store, device, number)
        if prediction is not None:
            prediction.show()
            print(f"{prediction.sentence}\n  {prediction.basis}")
        if size := announced_size(sweep, plan):
            print(size)
        return 0
    prepare_results_folder(store.root)
    for message in sweep.missing:
        print(f"left out: {message}", flush=True)
    try:
        remove_leftovers(store.root)
        for spec, data in sweep.datasets.values():
            check_same_data(store.root, data.name, data.checksum, own=spec.loader == "table")
        write_manifest(store.root, manifest(cfg.name, sweep.candidates, cfg.keep))
        again = frozenset(to_refit(sweep, store))
        plan = plan_sweep(sweep, store, device, free, again)
        if plan.batches:
            with _threads(plan, device, number := workers(plan)):
                return _train(sweep, plan, store, number, restart_arguments, again)
        checkpoint.discard_finished(store, store.keys()[0])
        if kept := keeper(sweep, store):  # of a run that was stopped between its last record and this
            kept.drop_unselected()
        return summary(sweep.candidates, store)
    except MemoryError:
        raise UserError(NO_MEMORY) from None
    except OSError as error:
        print(
            f"\ncan't read or write in {store.root}: {error.strerror}; what is finished is safe, "
            "the same command goes on from there"
        )
        return 1


def _threads(plan: Plan, device: str, workers: int) -> AbstractContextManager[object]:
    """The number of threads to compute with: the share of each of several processes, or what a trial recommends."""
    from dlmexp.running.threads import measured_threads, some_threads

    return some_threads(cores_each(workers)) if workers > 1 else measured_threads(plan, device)


def prepare_results_folder(root: Path) -> None:
    """Make the folder, and raise `UserError` if it can't be written to.

    Where the folder belongs to a group (`chmod g+ws`), the umask of this process is changed so that the group may
    write to new files as well.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            pass
        if root.stat().st_mode & GROUP_FOLDER == GROUP_FOLDER:
            os.umask(os.umask(0) & ~stat.S_IRWXG)
    except OSError as error:
        raise UserError(
            f"results={root}: can't write there ({os.strerror(error.errno or 0)}); choose another folder"
        ) from None
    for name in RESERVED:
        within(root, root / name)


def _train(
    sweep: Sweep, plan: Plan, store: Store, workers: int, restart_arguments: Sequence[str], again: frozenset[str]
) -> int:
    """Train the batches of a plan with so many processes, of which this is one; print the summary."""
    import torch

    from dlmexp.running.engine import Engine
    from dlmexp.running.presence import Presence
    from dlmexp.running.processes import ExtraProcesses, visible_gpus
    from dlmexp.running.progress import progress_display
    from dlmexp.running.signals import Stop, StopRequest

    cfg = sweep.cfg
    plan, target = checkpoint.with_resumed(plan, store), select_target(cfg.device, cfg.dtype)
    prediction = predicted(plan, sweep, store, target.device.type, workers)
    for message in filter(None, (prediction and prediction.sentence, announced_size(sweep, plan))):
        print(message, flush=True)
    gpus = visible_gpus(torch.cuda.device_count()) if target.device.type == "cuda" else []
    progress = progress_display(plan.pending, len(plan.batches), prediction and prediction.forecast)
    stop = StopRequest(budget_seconds(cfg.budget))
    try:
        with (
            stop,
            Presence(store.root) as presence,
            ExtraProcesses(workers - 1, restart_arguments, store.root, gpus),
            progress,
            prediction.compared() if prediction is not None else nullcontext(),
        ):
            presence.follow(progress.so_far)
            kept = keeper(sweep, store)
            engine = Engine(
                store, target, prepared_splits(sweep), progress, stop, presence, cfg.name, cfg.checkpoint_seconds,
                kept, again,
            )  # fmt: skip
            engine.run(plan.batches)
            if kept is not None:  # what other processes of this run left undecided
                kept.drop_unselected()
    except Stop as request:
        pending = [cell for batch in plan.batches for cell in batch if cell.key not in again]
        recorded = sum(store.has(cell.dataset, cell.key) for cell in pending)
        by_others = max(0, recorded - progress.done - progress.skipped_cells)
        left = counted(plan.pending - progress.settled - by_others, "cell")
        print(f"\nstopped by {request}: everything is saved, {left} to do; the same command goes on from here")
        print_incomplete(sweep.candidates, store)
        return request.code
    except ValueError:  # from an archive that a second Ctrl-C left half written, under its temporary name
        if not stop.interrupted_twice:
            raise
        raise KeyboardInterrupt from None
    return summary(sweep.candidates, store)
