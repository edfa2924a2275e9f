"""Cells that are trained in memory, without a results folder: all betas of one split, and the best by validation."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from dlmexp.data.schema import Schema
from dlmexp.data.splits import Prepared
from dlmexp.models.file import TrainedModel
from dlmexp.objectives import OBJECTIVES
from dlmexp.plan.batches import cells_at_once
from dlmexp.plan.cell import Cell
from dlmexp.running.device import Target, free_memory
from dlmexp.running.programs import program, settings
from dlmexp.running.recording import trained_model
from dlmexp.training.train import Finished, Training, train


class Fit(NamedTuple):
    """The best model, its number of iterations, and the validation metric of every beta (NaN where training failed)."""

    model: TrainedModel
    iterations: int
    scores: dict[float, float]


class NothingFitted(Exception):
    """Training failed at every beta; the message says why at the last one."""


def best_fit(cells: Sequence[Cell], split: Prepared, schema: Schema, target: Target) -> Fit:
    """Train cells that differ in beta alone, the largest first, in as large batches as fit, and take the one with the
    lowest validation NLL (MSE for square loss), the larger beta of equals; a single cell needs no validation rows."""
    metric = OBJECTIVES[cells[0].objective].selected_by or "nll"
    size = max(1, cells_at_once(cells[0], target.device.type, free_memory(target)))
    best: tuple[float, TrainedModel, int] | None = None
    scores: dict[float, float] = {}
    why = ""
    for first in range(0, len(cells), size):
        some = tuple(cells[first : first + size])
        how = settings(some[0], target)
        made = program(some, lambda _: split, lambda cell: {}, target)
        for finished in train(Training.start(made, how), how):
            if finished is None:  # a GPU is at work
                continue
            cell = some[finished.cell]
            score, why = _score(finished, metric, len(cells) == 1, why)
            scores[cell.beta or 0.0] = score
            if not math.isnan(score) and (best is None or _better(score, cell, best)):
                best = score, trained_model(cell, schema, split, finished.posterior), finished.iterations
    if best is None:
        raise NothingFitted(why)
    return Fit(best[1], best[2], dict(sorted(scores.items(), reverse=True)))


def _better(score: float, cell: Cell, best: tuple[float, TrainedModel, int]) -> bool:
    return (score, -(cell.beta or 0.0)) < (best[0], -(best[1].cell.beta or 0.0))


def _score(finished: Finished, metric: str, alone: bool, why: str) -> tuple[float, str]:
    """The validation metric, NaN after a failure, and the last reason for one."""
    if finished.failed:
        return math.nan, finished.stopped
    if alone:
        return 0.0, why
    value = finished.metrics["validation"][metric]
    return (value, why) if math.isfinite(value) else (math.nan, f"the validation {metric} is not finite")
