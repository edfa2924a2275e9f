"""Training steps per second with several batches in flight, as a run has them, and the rate of matrix products."""

from time import perf_counter

import numpy as np
import torch

from dlmexp.benchmark.measure import synchronise
from dlmexp.data.splits import Normalisation, Prepared
from dlmexp.plan.cell import Cell
from dlmexp.running.device import Target
from dlmexp.running.engine import Capacity
from dlmexp.running.programs import step_seconds
from dlmexp.training.trial import synthetic_data


def in_flight(batch: tuple[Cell, ...], device: str) -> int:
    """How many such batches a run trains at once."""
    if device == "cuda":
        torch.cuda.empty_cache()  # what was measured before is not in the way
    return Capacity.of(torch.device(device)).alike(batch)


def steps_per_second(batch: tuple[Cell, ...], features: int, device: str, together: int, seconds: float) -> float:
    """Steps of all batches, of which so many are in flight: on a GPU each with a graph on its own stream, replayed in
    turn."""
    target = Target(torch.device(device), torch.float64)
    return 1 / step_seconds(batch, lambda cell: _made_up(cell, features), target, together, seconds)


def _made_up(cell: Cell, features: int) -> Prepared:
    """Data of the shape of a cell."""
    X, y = (part[0].numpy() for part in synthetic_data(1, cell.n, features, cell.likelihood, "cpu"))
    none = Normalisation(np.zeros(features), np.ones(features), np.zeros(features, dtype=bool))
    return Prepared(X, y, X[:0], y[:0], X[:0], y[:0], 0.0, 1.0, none)


def product_rate(device: str, seconds: float = 1.0) -> float:
    """Floating-point operations per second of a large product of float64 matrices."""
    size = 4096 if device == "cuda" else 1024
    a, b = torch.randn(2, size, size, dtype=torch.float64, device=device)
    torch.mm(a, b)
    synchronise(device)
    best, began = float("inf"), perf_counter()
    while perf_counter() - began < seconds:
        start = perf_counter()
        torch.mm(a, b)
        synchronise(device)
        best = min(best, perf_counter() - start)
    return 2 * size**3 / best
