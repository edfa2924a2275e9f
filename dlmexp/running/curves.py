"""Learning curves of cells in training, from the checkpoints of their batches, on whatever node these train."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dlmexp.errors import Unreadable
from dlmexp.records.store import Store
from dlmexp.running import checkpoint

COLUMNS = ("key", "dataset", "n", "seed", "variant", "objective", "estimator", "beta", "iteration", "objective_value")


def running_curves(root: Path) -> pd.DataFrame:
    """One row per cell in training and iteration, up to the last checkpoint: the objective, and the test metrics at the
    iterations where the cell is evaluated (`evaluate=`)."""
    rows = [row for one in checkpoint.find(Store(root, read_only=True)) for row in _rows(one)]
    return pd.DataFrame(rows, columns=list(dict.fromkeys([*COLUMNS, *(name for row in rows for name in row)])))


def _rows(saved: checkpoint.Checkpoint) -> Iterator[dict[str, Any]]:
    try:
        history = saved.arrays().get("history", np.empty((0, 0)))
    except (FileNotFoundError, Unreadable):
        return  # its batch has ended since, or the file is damaged
    waiting = {cell.key for cell in saved.open}
    for index, curve, objectives in zip(saved.notes.cells, saved.notes.curves, history, strict=False):
        cell = saved.cells[index]
        if cell.key not in waiting:
            continue
        about = {"key": cell.key, "dataset": cell.dataset, "n": cell.n, "seed": cell.seed, "variant": cell.variant}
        about |= {"objective": cell.objective, "estimator": cell.estimator_label, "beta": cell.beta}
        metrics = dict(zip(curve.get("iterations", ()), curve.get("metrics", ()), strict=False))
        values = dict(enumerate(objectives[: saved.notes.iteration or 0].tolist(), start=1))
        for iteration in sorted(values.keys() | metrics.keys()):  # evaluated before the first one too
            value = values.get(iteration)
            measured = {f"test_{name}": number for name, number in metrics.get(iteration, {}).items()}
            yield {**about, "iteration": iteration, "objective_value": value, **measured}
