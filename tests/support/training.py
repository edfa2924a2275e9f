"""Batches in training, as `Progress` sees them."""

from types import SimpleNamespace
from typing import Any

import torch
from msgspec.structs import replace

from dlmexp.experiment.plan.cell import Batch
from dlmexp.experiment.running.progress import Progress
from tests.support.cells import PLAIN


def batch_of(cells: int, **values: Any) -> Batch:
    """Return a batch of cells with different seeds."""
    return tuple(replace(PLAIN, seed=seed, **values) for seed in range(cells))


def look(
    progress: Progress,
    cells: Batch,
    iteration: int,
    objective: float = 1.0,
    training: Any = None,
    live: int | None = None,
) -> None:
    """Let `progress` see a batch at an iteration; all of its cells, or the first `live`, run."""
    training = training or SimpleNamespace()
    running = len(cells) if live is None else live
    training.cells = range(len(cells))
    training.iteration = iteration
    training.live = lambda: torch.arange(len(cells)) < running
    training.state = SimpleNamespace(history=torch.full((len(cells), iteration), objective))
    progress.tick(cells, training)
