"""Cells that are trained in memory, without a results folder: all betas of one split, and the best by validation."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pandas as pd

from dlmexp.data.schema import Schema
from dlmexp.data.splits import Prepared
from dlmexp.models.file import TrainedModel
from dlmexp.objectives import OBJECTIVES
from dlmexp.plan.batches import cells_at_once
from dlmexp.plan.cell import Cell
from dlmexp.records.table import select
from dlmexp.running.device import Target, free_memory
from dlmexp.running.programs import program, settings
from dlmexp.running.recording import trained_model
from dlmexp.training.train import Finished, Training, train


class Fit(NamedTuple):
    """The best model, its number of iterations, whether it stopped by its rule, and the validation metric of every beta
    (NaN where training failed)."""

    model: TrainedModel
    iterations: int
    converged: bool
    scores: dict[float, float]


class NothingFitted(Exception):
    """Training failed at every beta; the message says why at the last one."""


def best_fit(cells: Sequence[Cell], split: Prepared, schema: Schema, target: Target) -> Fit:
    """Train cells that differ in beta alone, the largest first, in as large batches as fit, and select the one with the
    lowest validation NLL (MSE for square loss); a single cell needs no validation rows."""
    metric = OBJECTIVES[cells[0].objective].selected_by or "nll"
    size = max(1, cells_at_once(cells[0], target.device.type, free_memory(target)))
    fits: list[tuple[Cell, Finished]] = []
    for first in range(0, len(cells), size):
        batch = tuple(cells[first : first + size])
        how = replace(settings(batch[0], target), calibration=False)
        made = program(batch, lambda _: split, lambda cell: {}, target)
        fits += [(batch[done.cell], done) for done in train(Training.start(made, how), how) if done is not None]
    scores = [math.nan if done.failed else done.metrics.get("validation", {}).get(metric, math.nan) for _, done in fits]
    about = {"group": 0, "candidates": len(cells), "role": "fit", "beta": [cell.beta for cell, _ in fits]}
    status = ["failed" if done.failed else "done" for _, done in fits]
    best = select(pd.DataFrame({**about, "status": status, f"validation_{metric}": scores}), metric)
    if best.empty:
        last = fits[-1][1]
        raise NothingFitted(last.stopped if last.failed else f"the validation {metric} is not finite")
    cell, done = fits[int(best.index[0])]
    by_beta = {cell.beta or 0.0: score for (cell, _), score in zip(fits, scores, strict=True)}
    model = trained_model(cell, schema, split, done.posterior)
    return Fit(model, done.iterations, done.stopped != "limit", dict(sorted(by_beta.items(), reverse=True)))
