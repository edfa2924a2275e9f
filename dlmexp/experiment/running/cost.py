"""The time of a training step, by the shape of its batch.

A step of one cell in a batch takes a share of a fixed cost, and its work at a rate:

    seconds = latency / cells + work / rate

`cells` is the number of cells in the batch. The latency is that of launching a step's operations,
the work the number of its multiplications. Both numbers follow from measured steps (`fitted`).
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from dlmexp.experiment.plan.cell import Batch

GRADIENT_STEPS = 150  # the cost of measuring the gradients of a cell, in steps
ELEMENTWISE_COLUMNS = 90  # operations that are linear in M x rows, as additional columns
FIXED_SHARE = 0.5  # of the work of a joint variant, where hyperparameters are held
# Ratios of latency to the time of a multiplication that are tried: log10 of the multiplications
# that take as long as the fixed cost of a step.
LATENCIES = [4 + exponent / 4 for exponent in range(33)]
USUAL_LATENCY = {"cpu": 7.0, "cuda": 9.5}  # measured on x86-64 cores and on an H200
# The weight of the distance to the usual ratio; that of the measured steps is 1.
LATENCY_PRIOR = 0.01
# The share of its limit that a cell makes before it converges, by task: means over the time of
# all published runs with a stopping rule.
USUAL_SHARE = {"regression": 0.6, "binary": 0.4, "count": 0.85}


@dataclass(frozen=True)
class BatchShape:
    """What the time of a kind of batch depends on.

    Attributes:
        kind: What batches of this kind share.
        family: What costs are alike for: variant, form, objective and estimator.
        task: The task of its data.
        cells: The cells of its largest batch.
        work: Multiplications of a step of one cell.
        limit: The number of steps of a cell that does not converge; a closed form counts as one.
        may_converge: Whether a stopping rule can end training before the limit.
        is_timed: Whether its cells are trained step by step, so that steps can be timed.
    """

    kind: Hashable
    family: str
    task: str
    cells: int
    work: float
    limit: int
    may_converge: bool
    is_timed: bool

    @classmethod
    def of(cls, batch: Batch) -> "BatchShape":
        """Return the shape of a batch."""
        cell = batch[0]
        is_gradient = cell.kind == "gradient"
        return cls(
            kind=cell.group,
            family=f"{cell.kind} {cell.variant} {cell.form} {cell.objective} {cell.estimator}",
            task=cell.task,
            # Gradients are measured for one cell after the other.
            cells=1 if is_gradient else len(batch),
            work=_work_of_step(batch),
            limit=_limit(batch),
            may_converge=cell.window is not None and not cell.solved and not is_gradient,
            is_timed=not is_gradient and not cell.solved,
        )

    @property
    def usual_share(self) -> float:
        """Return the share of its limit that a cell is expected to need, before any has ended."""
        if not self.may_converge:
            return 1.0
        return USUAL_SHARE.get(self.task, fmean(USUAL_SHARE.values()))


def _limit(batch: Batch) -> int:
    cell = batch[0]
    if cell.kind == "gradient":
        return GRADIENT_STEPS
    if cell.solved:
        return 1
    return max(1, cell.iterations)


def _work_of_step(batch: Batch) -> float:
    cell = batch[0]
    rows = min(cell.training_rows, cell.minibatch or cell.n)
    columns = cell.M + ELEMENTWISE_COLUMNS + 2 * (cell.samples or 0)
    products = cell.M * (rows + 4 * cell.M) * columns * cell.components
    return FIXED_SHARE * products if cell.variant == "fixed" else products


@dataclass(frozen=True)
class Measured:
    """Seconds that a step of one cell took, in batches of one shape."""

    shape: BatchShape
    seconds: float


@dataclass(frozen=True)
class StepCost:
    """The expected time of a step.

    Attributes:
        latency: The fixed cost of a step in multiplications.
        seconds_per_work: The time of a multiplication.
        corrections: The factor of each family whose cost has been measured.
    """

    latency: float
    seconds_per_work: float
    corrections: dict[str, float] = field(default_factory=dict)

    def seconds(self, shape: BatchShape) -> float:
        """Return the seconds of a step of one cell."""
        work = self.latency / shape.cells + shape.work
        correction = self.corrections.get(shape.family, 1.0)
        return self.seconds_per_work * work * correction


def fitted(measured: Sequence[Measured], device: str) -> StepCost:
    """Return the cost of which the logarithms of measured steps differ least.

    The ratio of latency and rate is searched on a grid, near the usual one of the device; the rate
    then has a closed form. What the steps of a family differ by on average becomes its correction,
    less so where few of them were measured.

    Args:
        measured: Steps of different shapes; at least one.
        device: "cpu" or "cuda".
    """
    best_loss = math.inf
    best = StepCost(10 ** USUAL_LATENCY[device], 1.0)
    for exponent in LATENCIES:
        residuals = [_residual(step, 10**exponent) for step in measured]
        scale = fmean(residuals)
        spread = fmean((residual - scale) ** 2 for residual in residuals)
        loss = spread + LATENCY_PRIOR * (exponent - USUAL_LATENCY[device]) ** 2
        if loss < best_loss:
            best_loss = loss
            best = StepCost(10**exponent, math.exp(scale), _corrections(measured, residuals, scale))
    return best


def _residual(step: Measured, latency: float) -> float:
    """Return log(seconds / (latency / cells + work))."""
    base = latency / step.shape.cells + step.shape.work
    return math.log(max(step.seconds, 1e-12)) - math.log(base)


def _corrections(
    measured: Sequence[Measured], residuals: Sequence[float], scale: float
) -> dict[str, float]:
    """Return the factor of each family: its mean residual, pulled towards 0 by one more step."""
    by_family: dict[str, list[float]] = defaultdict(list)
    for step, residual in zip(measured, residuals, strict=True):
        by_family[step.shape.family].append(residual - scale)
    corrections = {}
    for family, values in by_family.items():
        mean = sum(values) / (len(values) + 1)
        corrections[family] = math.exp(mean)
    return corrections
