"""Train the batches of a plan and leave one record per cell."""

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from dlmexp.data.splits import Prepared
from dlmexp.plan.cell import Cell
from dlmexp.records.provenance import provenance
from dlmexp.records.schema import Record, Result
from dlmexp.records.store import Store
from dlmexp.running import checkpoint
from dlmexp.running.presence import Presence
from dlmexp.running.programs import Hyperparameters, Place, program, settings
from dlmexp.running.progress import View
from dlmexp.running.signals import StopRequest
from dlmexp.training.gradients import gradient_statistics
from dlmexp.training.settings import Settings
from dlmexp.training.solve import solve
from dlmexp.training.state import State
from dlmexp.training.train import Curve, Finished, Training, train

POLL_SECONDS = 2.0

Batch = tuple[Cell, ...]
NO_BASE = "the ELBO fit whose hyperparameters it takes has no sound record"


@dataclass
class Engine:
    """Runs batches one after another; everything it knows of the outside comes in here."""

    store: Store
    place: Place
    prepared: Callable[[Cell], Prepared]
    view: View
    stop: StopRequest
    presence: Presence
    experiment: str
    checkpoint_seconds: float
    _refit: dict[str, Cell] = field(default_factory=dict)

    def run(self, batches: Iterable[Batch]) -> None:
        """Train what is pending. Batches that another process has taken come last, and are waited for."""
        batches = list(batches)
        # What a pack has and the plan wants all the same: fits that came without their hyperparameters.
        self._refit = {cell.key: cell for batch in batches for cell in batch if cell.key in self.store.packs.records}
        queue, taken = deque(self._resumable(batches)), deque[Batch]()
        while queue or taken:
            self.stop.obey()
            waiting = not queue
            batch = (taken if waiting else queue).popleft()
            done, failed = self._keys()
            pending = tuple(cell for cell in batch if cell.key not in done)
            if not pending:
                self.view.skipped(len(batch))
                continue
            ahead = {cell.key for other in (*queue, *taken) for cell in other}
            if busy := self._elsewhere(pending, done | failed, ahead):
                self.presence.announce(())
                taken.append(batch)
                if waiting:
                    self.view.waiting(busy)
                    time.sleep(POLL_SECONDS)
                continue
            try:
                self._batch(batch, pending)
            except torch.OutOfMemoryError:
                if len(pending) == 1:
                    raise
                torch.cuda.empty_cache()
                self.view.halved(len(pending))
                for cells in (batch, pending):
                    checkpoint.discard(checkpoint.path_of(self.store, cells))
                half = len(pending) // 2
                queue.extendleft((pending[half:], pending[:half]))
            self.presence.announce(())

    def _keys(self) -> tuple[set[str], set[str]]:
        done, failed = self.store.keys()
        again = {key for key, cell in self._refit.items() if not self.store.path(cell.dataset, key).exists()}
        return done - again, failed

    def _elsewhere(self, pending: Batch, settled: set[str], ahead: set[str]) -> str | None:
        """Announce the cells; who has them (or the ELBO fits they need) already, if somebody has.

        An ELBO fit that nobody has and that is not `ahead` here either will not come: then there is no waiting for it.
        """
        self.presence.announce(cell.key for cell in pending)
        needed = {cell.base for cell in pending if cell.base} - settled
        earlier = self.presence.earlier({cell.key for cell in pending} | needed)
        if earlier:
            return earlier[0].who
        return "a batch of this run" if needed & ahead else None

    def _resumable(self, batches: Iterable[Batch]) -> list[Batch]:
        """The batches, with cells that a checkpoint holds regrouped as they were when it was written."""
        pending = {cell.key: cell for batch in batches for cell in batch}
        done, _ = self._keys()
        resumed: list[Batch] = []
        for found in checkpoint.find(self.store):
            if all(cell.key in done for cell in found.open):
                checkpoint.discard(found.path)
            elif any(cell.key in pending for cell in found.open):
                resumed.append(found.cells)
                for cell in found.open:
                    pending.pop(cell.key, None)
        rest = (tuple(cell for cell in batch if cell.key in pending) for batch in batches)
        return resumed + [batch for batch in rest if batch]

    def _batch(self, batch: Batch, pending: Batch) -> None:
        self.view.started(pending)
        if orphans := self._orphans(pending):
            for cell in orphans:
                self._fail(cell, NO_BASE)
            checkpoint.discard(checkpoint.path_of(self.store, batch))
            batch = pending = tuple(cell for cell in pending if cell not in orphans)
        if not pending:
            return
        if batch[0].kind == "gradient":
            self._gradients(pending)
        elif batch[0].objective == "sq_dlm" and batch[0].variant == "fixed":
            for finished in solve(self._program(pending)):
                self._record(pending[finished.cell], finished)
        else:
            self._train(batch, pending)

    def _orphans(self, cells: Batch) -> set[Cell]:
        """Those whose ELBO fit did not succeed."""
        bases = {(cell.dataset, cell.base) for cell in cells if cell.base}
        lost = {base for dataset, base in bases if self.store.base(dataset, base) is None}
        return {cell for cell in cells if cell.base in lost}

    def _program(self, cells: Batch) -> Any:
        return program(cells, self.prepared, self._base, self.place)

    def _train(self, batch: Batch, pending: Batch) -> None:
        how = settings(batch[0], self.place)
        resumed = self._resume(batch, how)
        training, cells = resumed or (Training.start(self._program(pending), how), pending)
        path = checkpoint.path_of(self.store, cells)
        if not resumed:
            checkpoint.save(path, cells, {"open": list(range(len(cells)))}, {})
        saved, wanted = time.monotonic(), {cell.key for cell in pending}

        def between(training: Training) -> None:
            nonlocal saved
            self.view.tick(training)
            asked = self.stop.received is not None
            if training.unreported().any() and (asked or time.monotonic() - saved >= self.checkpoint_seconds):
                self._save(path, cells, training)
                saved = time.monotonic()
            if asked:  # and not if the request came in this very moment, after the check: nothing would be saved
                self.stop.obey()

        for finished in train(training, how, between):
            if cells[finished.cell].key in wanted:
                self._record(cells[finished.cell], finished)
        checkpoint.discard(path)

    def _save(self, path: Any, cells: Batch, training: Training) -> None:
        notes = {
            "open": [training.cells[i] for i in np.flatnonzero(training.unreported())],
            "cells": training.cells,
            "seconds": training.seconds,
            "curves": [asdict(curve) for curve in training.curves],
            "iteration": int(training.state.iteration),
        }
        checkpoint.save(path, cells, notes, training.state.arrays())

    def _resume(self, batch: Batch, how: Settings) -> tuple[Training, Batch] | None:
        """The training where its checkpoint left it, with cells that have been finished since: see `Checkpoint`."""
        path = checkpoint.path_of(self.store, batch)
        found = next((c for c in checkpoint.find(self.store) if c.path == path), None)
        if found is None:
            return None
        notes = found.notes
        if "iteration" not in notes:
            return Training.start(self._program(found.cells), how), found.cells
        try:
            state = State.from_arrays(found.arrays(), self.place.device)
        except Exception:  # a damaged archive can raise nearly anything
            self.store.quarantine(path, "the checkpoint can't be read")
            return None
        program = self._program(tuple(found.cells[i] for i in notes["cells"]))
        curves = [Curve(**curve) for curve in notes["curves"]]
        self.view.resumed(notes["iteration"])
        return Training(program, state, notes["cells"], notes["seconds"], curves), found.cells

    def _gradients(self, cells: Batch) -> None:
        statistics = gradient_statistics(self._program(cells))
        for cell, (result, arrays) in zip(cells, statistics, strict=True):
            self._write(cell, "done", Result(**result), arrays)

    def _base(self, cell: Cell) -> Hyperparameters:
        """Hyperparameters of the ELBO fit that this cell starts from."""
        assert cell.base is not None
        found = self.store.base(cell.dataset, cell.base)
        assert found is not None, NO_BASE
        return found

    def _record(self, cell: Cell, finished: Finished) -> None:
        if finished.failed or (why := _not_finite(finished)):
            self._fail(cell, finished.stopped if finished.failed else why, finished.iterations, finished.state)
            return
        split = self.prepared(cell)
        scalars = {k: float(np.mean(v)) for k, v in finished.hyperparameters.items() if k != "Z"}
        result = Result(
            validation=finished.metrics.get("validation", {}),
            test=finished.metrics.get("test", {}),
            iterations=finished.iterations,
            converged=finished.stopped != "limit" or cell.epochs is not None,
            stopped="epochs" if cell.epochs is not None else finished.stopped,
            seconds=float(finished.seconds),
            acceptance=finished.acceptance,
            objective_value=float(finished.objective[-1]) if len(finished.objective) else None,
            y_mean=split.y_mean,
            y_std=split.y_std,
            hyperparameters=scalars,
        )
        arrays: dict[str, np.ndarray] = (
            {"objective": finished.objective.astype(np.float32)} if len(finished.objective) else {}
        )
        if cell.evaluate != "end":
            arrays |= finished.curve.arrays()
            arrays["epochs"] = arrays["evaluated_at"] / cell.iterations_per_epoch
        if cell.objective == "elbo" and cell.beta == 1.0:
            arrays |= finished.hyperparameters
        self._write(cell, "done", result, arrays)

    def _fail(self, cell: Cell, reason: str, iterations: int = 0, state: dict[str, np.ndarray] | None = None) -> None:
        self._write(cell, "failed", Result(reason=reason, iterations=iterations), state or {})

    def _write(
        self, cell: Cell, status: Literal["done", "failed"], result: Result, arrays: dict[str, np.ndarray]
    ) -> None:
        made = provenance(str(self.place.device), self.experiment)
        record = Record(key=cell.key, status=status, cell=cell, result=result, made=made)
        self.store.write(record, arrays)
        self.view.finished(record)


def _not_finite(finished: Finished) -> str:
    """What of a result is no number, in words; '' if all is well."""
    if len(finished.objective) and not np.isfinite(finished.objective[-1]):
        return "the objective is not finite"
    for part, metrics in finished.metrics.items():
        for name, value in metrics.items():
            if not np.isfinite(value):
                return f"the {part} {name} is not finite"
    return ""
