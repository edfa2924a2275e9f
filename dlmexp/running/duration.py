"""How long a plan will take on this device, predicted from two short trials before it starts."""

import math
import os
from collections.abc import Iterable
from time import perf_counter
from typing import NamedTuple

from dlmexp.console import counted, duration
from dlmexp.objectives import OBJECTIVES
from dlmexp.plan.batches import Plan
from dlmexp.plan.cell import Cell
from dlmexp.running.processes import EXTRA_PROCESS

# The iteration at which cells converge is taken as exponentially distributed with this mean, by task. With the limit on
# iterations it gives the mean iterations of the cells in results/paper.
MEAN_ITERATIONS = {"binary": 1000.0, "count": 50_000.0, "regression": 8600.0}
# The work of a step, in multiplications: its product of M x M by M x rows, with additions to both dimensions.
ELEMENTWISE_COLUMNS = 60  # work that is linear in M x rows, as additional columns of the M x M matrix
SQUARE_ROWS = 4  # products of M x M matrices, as additional rows: this many times M
FIXED_PRODUCTS = 1 / 3  # products in a step of a fixed variant, relative to a step of a joint one
EVALUATION_OVERHEAD = 4  # overhead of an evaluation, relative to that of a step
SHORT_RUN = 3e10  # work of a run that is not predicted: some seconds on a slow machine
TRIAL_SECONDS = 0.4


class Pace(NamedTuple):
    """Measured speed of a device: a step takes `overhead + per_unit * work` seconds."""

    overhead: float
    per_unit: float


class Estimate(NamedTuple):
    """Seconds that a plan takes: `likely` with convergence as in results/paper, `longest` if no cell converges."""

    likely: float
    longest: float


def predicted_duration(plan: Plan, device: str, workers: int) -> str | None:
    """A message on how long the plan will take; None for a short plan, and in an extra process of a run."""
    if os.environ.get(EXTRA_PROCESS) or is_short(plan):
        return None
    likely, longest = estimate(plan.batches, measure_pace(device), workers)
    what = f"{counted(plan.pending, 'cell')} in {counted(len(plan.batches), 'batch')}"
    otherwise = f"{duration(longest)} if no cell converges before its limit"
    return f"{what}: about {duration(likely)} at the pace of a short trial, {otherwise}"


def estimate(batches: Iterable[tuple[Cell, ...]], pace: Pace, workers: int = 1) -> Estimate:
    """The duration of all batches. With several `workers` the device does the same work, but the overhead of one
    process is spent while another one computes."""
    likely = longest = 0.0
    for batch in batches:
        limit = _iterations(batch[0])
        overhead = pace.overhead * (1 + EVALUATION_OVERHEAD / (batch[0].evaluate_every or math.inf)) / workers
        seconds = overhead + pace.per_unit * _units(batch)
        longest += seconds * limit
        mean, first = MEAN_ITERATIONS[batch[0].task], batch[0].decay or 0
        expected = first + mean * -math.expm1(-(limit - first) / mean)
        likely += seconds * (expected if batch[0].has_stopping_rule else limit)
    return Estimate(likely, longest)


def measure_pace(device: str) -> Pace:
    """Time a step so small that it is all overhead, and a large one. On a GPU the overhead (kernel launches) grows with
    M, as Kuu is factorised column by column: there the small step has the M of the large one."""
    small, large = ((1, 64, 128), (64, 6000, 128)) if device == "cuda" else ((1, 64, 8), (4, 1000, 74))
    overhead = _seconds(small, device)
    return Pace(overhead, max(_seconds(large, device) - overhead, 0.0) / _work(*large))


def _iterations(cell: Cell) -> int:
    """The limit on iterations; a closed form counts as one."""
    return 1 if OBJECTIVES[cell.objective].solved(cell.variant) else cell.iterations


def is_short(plan: Plan) -> bool:
    """Whether it takes some seconds, so that a trial is not worth its time."""
    return sum(map(work_of, plan.batches)) < SHORT_RUN


def work_of(batch: tuple[Cell, ...]) -> float:
    """The work of training a batch up to its limit."""
    return _iterations(batch[0]) * _units(batch)


def _units(batch: tuple[Cell, ...]) -> float:
    """The work of one step of a batch."""
    first = batch[0]
    rows = min(first.n, first.minibatch or first.n)
    return _work(len(batch), rows, first.M, FIXED_PRODUCTS if first.variant == "fixed" else 1.0, first.samples or 0)


def _work(B: int, rows: int, M: int, products: float = 1.0, samples: int = 0) -> float:
    return B * M * (rows + SQUARE_ROWS * M) * (products * M + ELEMENTWISE_COLUMNS + samples)


def _seconds(shape: tuple[int, int, int], device: str) -> float:
    """Seconds of the fastest step within `TRIAL_SECONDS`; `shape` is (B, n, M)."""
    import torch

    from dlmexp.training.trial import joint_step

    B, n, M = shape
    step = joint_step(B, n=n, M=M, device=device)
    best, end = float("inf"), perf_counter() + TRIAL_SECONDS
    while perf_counter() < end or best == float("inf"):
        began = perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, perf_counter() - began)
    return best
