"""How long a plan will take on this device, from two short trials before it starts."""

import math
import os
from collections.abc import Iterable
from time import perf_counter
from typing import NamedTuple

from dlmexp.console import counted, duration
from dlmexp.objectives import OBJECTIVES
from dlmexp.plan.batches import Plan
from dlmexp.plan.cell import Cell
from dlmexp.running.processes import COLLEAGUE

# Iterations until cells converge, if that came at random: gives the mean iterations of the cells in results/paper.
UNTIL = {"binary": 1000.0, "count": 50_000.0, "regression": 8600.0}
BESIDE = 60  # what a step does beside its products of M x M by M x n costs as much as so many more columns of M,
SQUARES = 4  # and its M x M products as much as so many times M more rows
FIXED = 1 / 3  # of a joint step's products
EVALUATION = 4  # times what a step costs beside its work
BRIEF = 3e10  # units of work of a run that needs no estimate: some seconds on a slow machine
TRIAL_SECONDS = 0.4


class Pace(NamedTuple):
    """Seconds of a step: so many for the step itself, and so many for each unit of its work."""

    step: float
    unit: float


class Estimate(NamedTuple):
    """Seconds, if cells converge as early as they did for us, and if none does before its limit."""

    likely: float
    most: float


def foretold(plan: Plan, device: str, workers: int) -> str | None:
    """A sentence about the time a plan will take; None for a short one, and for a colleague of the one who says it."""
    if os.environ.get(COLLEAGUE) or sum(_iterations(b[0]) * _units(b) for b in plan.batches) < BRIEF:
        return None
    likely, most = estimate(plan.batches, measured(device), workers)
    what = f"{counted(plan.pending, 'cell')} in {counted(len(plan.batches), 'batch')}"
    otherwise = f"{duration(most)} if no cell converges before its limit"
    return f"{what}: about {duration(likely)} at the pace of a short trial, {otherwise}"


def estimate(batches: Iterable[tuple[Cell, ...]], pace: Pace, workers: int = 1) -> Estimate:
    """Processes side by side share the device, and hide from each other what a step costs beside its work."""
    likely = most = 0.0
    for batch in batches:
        limit = _iterations(batch[0])
        overhead = pace.step * (1 + EVALUATION / (batch[0].evaluate_every or math.inf)) / workers
        seconds = overhead + pace.unit * _units(batch)
        most += seconds * limit
        until = UNTIL[batch[0].task]
        likely += seconds * (limit if batch[0].epochs else until * -math.expm1(-limit / until))
    return Estimate(likely, most)


def measured(device: str) -> Pace:
    """The pace of a step so small that only its overhead counts, and of a large one. On a GPU the overhead is a long
    row of kernels, longer for a larger M: the factor of Kuu comes column by column."""
    small, large = ((1, 64, 128), (64, 6000, 128)) if device == "cuda" else ((1, 64, 8), (4, 1000, 74))
    overhead = _seconds(small, device)
    return Pace(overhead, max(_seconds(large, device) - overhead, 0.0) / _work(*large))


def _iterations(cell: Cell) -> int:
    return 1 if OBJECTIVES[cell.objective].solved(cell.variant) else cell.iterations


def _units(batch: tuple[Cell, ...]) -> float:
    first = batch[0]
    rows = min(first.n, first.minibatch or first.n)
    return _work(len(batch), rows, first.M, FIXED if first.variant == "fixed" else 1.0, first.samples or 0)


def _work(B: int, rows: int, M: int, products: float = 1.0, samples: int = 0) -> float:
    return B * M * (rows + SQUARES * M) * (products * M + BESIDE + samples)


def _seconds(shape: tuple[int, int, int], device: str) -> float:
    """The fastest of the steps that fit into the trial."""
    import torch

    from dlmexp.training.trial import joint_step

    B, n, M = shape
    one = joint_step(B, n=n, M=M, device=device)
    best, end = float("inf"), perf_counter() + TRIAL_SECONDS
    while perf_counter() < end or best == float("inf"):
        began = perf_counter()
        one()
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, perf_counter() - began)
    return best
