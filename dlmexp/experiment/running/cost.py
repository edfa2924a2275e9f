"""The time of training, by the shape of its batches.

A step of a batch has a fixed cost, and each cell in it adds its work at a rate:

    seconds = latency / batches at once * steps of batches
              + sum over cells of their steps * work / rate

The latency is that of launching a step's operations, the work the number of its multiplications. A
batch makes steps until the last of its cells has stopped, so the longest cell decides how often the
fixed cost is paid. Small batches that train at the same time on a GPU hide each other's latency.
Both numbers follow from measured steps (`fit_step_cost`).
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple, TypeVar

from dlmexp.experiment.plan.cell import Batch

GRADIENT_STEPS = 150  # the cost of measuring the gradients of a cell, in steps
ELEMENTWISE_COLUMNS = 90  # operations that are linear in M x rows, as additional columns
FIXED_SHARE = 0.5  # of the work of a joint variant, where hyperparameters are held
# Ratios of latency to the time of a multiplication that are tried: log10 of the multiplications
# that take as long as the fixed cost of a step.
LATENCY_EXPONENTS = [4 + exponent / 4 for exponent in range(33)]
USUAL_LATENCY_EXPONENTS = {"cpu": 7.0, "cuda": 9.5}  # measured on x86-64 cores and on an H200
# The weight of the distance to the usual ratio; that of the measured steps is 1.
LATENCY_PRIOR = 0.01
# As many batches train at once on a GPU as have this many multiplications in a step together, or as
# the engine admits (`capacity`).
CONCURRENT_WORK = 1.6e10
MAX_CONCURRENT_BATCHES = 12
MIN_WEIGHT = 0.1  # of a measurement that took little time
# The share of its limit that a cell makes before it converges, by task: means over the time of
# all published runs with a stopping rule. And that of the last cell of a batch.
USUAL_SHARE = {"regression": 0.6, "binary": 0.4, "count": 0.85}
USUAL_LONGEST_SHARE = 0.9


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
            kind=cell.shared_values,
            family=f"{cell.kind} {cell.variant} {cell.form} {cell.objective} {cell.estimator}",
            task=cell.task,
            # Gradients are measured for one cell after the other.
            cells=1 if is_gradient else len(batch),
            work=_work_of_step(batch),
            limit=_step_limit(batch),
            may_converge=cell.window is not None and not cell.is_solved and not is_gradient,
            is_timed=not is_gradient and not cell.is_solved,
        )

    @property
    def usual(self) -> "StepShares":
        """Return the shares that are expected before any cell has ended."""
        if not self.may_converge:
            return StepShares(1.0, 1.0)
        mean = USUAL_SHARE.get(self.task, fmean(USUAL_SHARE.values()))
        return StepShares(mean, USUAL_LONGEST_SHARE)


class StepShares(NamedTuple):
    """StepShares of the limit of steps: of a cell on average, and of the last cell of a batch."""

    mean: float
    longest: float


def _step_limit(batch: Batch) -> int:
    cell = batch[0]
    if cell.kind == "gradient":
        return GRADIENT_STEPS
    if cell.is_solved:
        return 1
    return max(1, cell.iterations)


def _work_of_step(batch: Batch) -> float:
    cell = batch[0]
    rows = min(cell.training_rows, cell.minibatch or cell.n)
    columns = cell.M + ELEMENTWISE_COLUMNS + 2 * (cell.samples or 0)
    products = cell.M * (rows + 4 * cell.M) * columns * cell.components
    return FIXED_SHARE * products if cell.variant == "fixed" else products


class Steps(NamedTuple):
    """Steps of batches, and the sum of the steps of their cells."""

    of_batches: float
    of_cells: float


@dataclass(frozen=True)
class Measurement:
    """Seconds that steps of batches of one shape took."""

    shape: BatchShape
    steps: Steps
    seconds: float
    alone: bool = False  # whether no other batch trained at the same time


@dataclass(frozen=True)
class StepCost:
    """The expected time of steps.

    Attributes:
        latency: The fixed cost of a step of a batch in multiplications.
        seconds_per_work: The time of a multiplication.
        corrections: The factor of each family whose cost has been measured.
        kinds: The factor of each kind whose cost has been measured, in addition.
    """

    latency: float
    seconds_per_work: float
    device: str = "cpu"
    corrections: dict[str, float] = field(default_factory=dict)
    kinds: dict[Hashable, float] = field(default_factory=dict)

    def seconds(self, shape: BatchShape, steps: Steps) -> float:
        """Return the seconds of steps of batches."""
        correction = self.corrections.get(shape.family, 1.0) * self.kinds.get(shape.kind, 1.0)
        latency = self.latency / _batches_at_once(shape, self.device)
        return self.seconds_per_work * correction * _work(shape, steps, latency)


def _batches_at_once(shape: BatchShape, device: str) -> float:
    """Return how many batches of a shape train at the same time."""
    if device == "cpu":
        return 1.0
    fill_device = CONCURRENT_WORK / (shape.cells * shape.work)
    return min(max(1.0, fill_device), MAX_CONCURRENT_BATCHES)


def _work(shape: BatchShape, steps: Steps, latency: float) -> float:
    return latency * steps.of_batches + shape.work * steps.of_cells


def fit_step_cost(measurements: Sequence[Measurement], device: str) -> StepCost:
    """Return the cost of which the logarithms of measured times differ least.

    The ratio of latency and rate is searched on a grid, near the usual one of the device; the rate
    then has a closed form. A measurement counts as much as it took. What the times of a family
    differ by on average becomes its correction, less so where little of it was measured; and what
    those of a kind still differ by becomes the kind's.

    Args:
        measurements: Steps of different shapes; at least one.
        device: "cpu" or "cuda".
    """
    weights = _weights(measurements)
    best_loss = math.inf
    latency = 10 ** USUAL_LATENCY_EXPONENTS[device]
    for exponent in LATENCY_EXPONENTS:
        residuals = _residuals(measurements, 10**exponent, device)
        scale = _mean(residuals, weights)
        spread = _mean([(residual - scale) ** 2 for residual in residuals], weights)
        loss = spread + LATENCY_PRIOR * (exponent - USUAL_LATENCY_EXPONENTS[device]) ** 2
        if loss < best_loss:
            best_loss = loss
            latency = 10**exponent
    residuals = _residuals(measurements, latency, device)
    scale = _mean(residuals, weights)
    residuals = [residual - scale for residual in residuals]
    of_families = [measurement.shape.family for measurement in measurements]
    families = _corrections(of_families, residuals, weights)
    unexplained = [
        residual - math.log(families[family])
        for residual, family in zip(residuals, of_families, strict=True)
    ]
    kinds = _corrections([measurement.shape.kind for measurement in measurements], unexplained, weights)
    return StepCost(latency, math.exp(scale), device, families, kinds)


def _residuals(measurements: Sequence[Measurement], latency: float, device: str) -> list[float]:
    """Return log(seconds / work) of each measurement."""
    residuals = []
    for measurement in measurements:
        at_once = 1.0 if measurement.alone else _batches_at_once(measurement.shape, device)
        work = _work(measurement.shape, measurement.steps, latency / at_once)
        residuals.append(math.log(max(measurement.seconds, 1e-12) / work))
    return residuals


def _weights(measurements: Sequence[Measurement]) -> list[float]:
    """Return the weight of each measurement: 1 for one that took the mean time."""
    mean = fmean(measurement.seconds for measurement in measurements) or 1.0
    return [MIN_WEIGHT + measurement.seconds / mean for measurement in measurements]


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    total = sum(value * weight for value, weight in zip(values, weights, strict=True))
    return total / sum(weights)


Name = TypeVar("Name", bound=Hashable)


def _corrections(
    names: Sequence[Name], residuals: Sequence[float], weights: Sequence[float]
) -> dict[Name, float]:
    """Return a factor per name: its mean residual, pulled towards 0 by one more of weight 1."""
    sums: dict[Name, float] = defaultdict(float)
    totals: dict[Name, float] = defaultdict(lambda: 1.0)
    for name, residual, weight in zip(names, residuals, weights, strict=True):
        sums[name] += weight * residual
        totals[name] += weight
    return {name: math.exp(total / totals[name]) for name, total in sums.items()}
