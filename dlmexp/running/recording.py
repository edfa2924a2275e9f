"""What became of a cell, as its record: written beside training, and known here before it is on the disk."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from dlmexp.data.splits import Normalisation, Prepared
from dlmexp.objectives import OBJECTIVES
from dlmexp.plan.cell import Cell
from dlmexp.records.provenance import provenance
from dlmexp.records.record import CALIBRATION, Record, Result
from dlmexp.records.store import Store
from dlmexp.running.keeping import Keeper
from dlmexp.running.programs import Hyperparameters
from dlmexp.running.progress import Progress
from dlmexp.running.writer import Writer
from dlmexp.training.train import Finished
from dlmexp.training.trivial import trivial_metrics


class AboutSplit(NamedTuple):
    """What records and models say of their split."""

    features: Normalisation
    y_mean: float
    y_std: float
    trivial: dict[str, dict[str, float]]  # metrics of the trivial predictor


@dataclass
class Recorder:
    """Writes one record per cell, and knows those that it has written."""

    store: Store
    writer: Writer
    prepared: Callable[[Cell], Prepared]
    progress: Progress
    device: str
    experiment: str
    keeper: Keeper | None = None  # of trained models
    written: dict[str, bool] = field(default_factory=dict)  # keys, some of which may still wait for the writer: done?
    new_bases: bool = False  # a fit that others start from was written; whoever acts on it makes this False
    _bases: dict[str, Hyperparameters] = field(default_factory=dict)  # of ELBO fits, written or not yet
    _splits: dict[tuple, AboutSplit] = field(default_factory=dict)

    def split(self, cell: Cell) -> Prepared:
        """The data to train a cell on. What its record says of them is noted: large ones take long to prepare again."""
        split, of = self.prepared(cell), _split_of(cell)
        if of not in self._splits:
            parts = {"validation": split.y_val, "test": split.y_test}
            trivial = trivial_metrics(cell.task, split.y_train, parts)
            self._splits[of] = AboutSplit(split.features, split.y_mean, split.y_std, trivial)
        return split

    def base(self, cell: Cell) -> Hyperparameters | None:
        """Hyperparameters of the ELBO fit that this cell starts from; None if it has no sound record."""
        assert cell.base is not None
        return self._bases.get(cell.base) or self.store.base(cell.dataset, cell.base)

    def fit(self, cell: Cell, finished: Finished) -> None:
        """Write the record of a fit, as failed if its training failed or a number of its result is not finite."""
        why = finished.stopped if finished.failed else _not_finite(finished)
        if why:
            self.failure(cell, why, finished.iterations, finished.state)
            return
        split = self._splits[_split_of(cell)]
        scalars = {k: float(np.mean(v)) for k, v in finished.hyperparameters.items() if k != "Z"}
        objective = OBJECTIVES[cell.objective]
        all_iterations = finished.stopped == "limit" and cell.window is None  # as many as were asked for
        result = Result(
            validation=finished.metrics.get("validation", {}),
            test=finished.metrics.get("test", {}),
            trivial=split.trivial,
            iterations=finished.iterations,
            converged=finished.stopped != "limit" or all_iterations,
            stopped=("epochs" if cell.epochs else "iterations") if all_iterations else finished.stopped,
            seconds=float(finished.seconds),
            alone=finished.alone,
            acceptance=finished.acceptance,
            objective_value=float(finished.objective[-1]) if len(finished.objective) else None,
            y_mean=split.y_mean,
            y_std=split.y_std,
            hyperparameters=scalars,
            note=objective.note(cell.variant, cell.beta, cell.task),
        )
        arrays: dict[str, np.ndarray] = (
            {"objective": finished.objective.astype(np.float32)} if len(finished.objective) else {}
        )
        arrays |= finished.reliability
        if cell.evaluate != "end":
            arrays |= finished.curve.arrays()
            arrays["epochs"] = arrays["evaluated_at"] / cell.iterations_per_epoch
        if objective.gives_hyperparameters and cell.beta == 1.0:
            arrays |= finished.hyperparameters
            self._bases[cell.key] = finished.hyperparameters
        model = None if self.keeper is None else self.keeper.model(cell, split, finished.posterior)
        self._write(cell, "done", result, arrays, model)

    def gradient(self, cell: Cell, statistics: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """Write what was measured of an estimator's gradient."""
        self._write(cell, "done", Result(**statistics), arrays)

    def failure(self, cell: Cell, reason: str, iterations: int = 0, state: dict[str, np.ndarray] | None = None) -> None:
        self._write(cell, "failed", Result(reason=reason, iterations=iterations), state or {})

    def _write(
        self,
        cell: Cell,
        status: Literal["done", "failed"],
        result: Result,
        arrays: dict[str, np.ndarray],
        model: bytes | None = None,
    ) -> None:
        made = provenance(self.device)
        record = Record(key=cell.key, status=status, cell=cell, result=result, made=made)
        self.writer.do(partial(self.store.write, record, arrays, model))
        self.written[cell.key] = record.done
        self.new_bases |= OBJECTIVES[cell.objective].gives_hyperparameters and cell.beta == 1.0
        self.progress.finished(record)


def _split_of(cell: Cell) -> tuple:
    return cell.dataset, cell.task, cell.seed, cell.n


def _not_finite(finished: Finished) -> str:
    """The reason why a result with NaN or infinite numbers counts as failed; '' if all are finite. Scores of
    calibration are recorded as they are: they neither train nor select."""
    if len(finished.objective) and not np.isfinite(finished.objective[-1]):
        return "the objective is not finite"
    for part, metrics in finished.metrics.items():
        for name, value in metrics.items():
            if name not in CALIBRATION and not np.isfinite(value):
                return f"the {part} {name} is not finite"
    return ""
