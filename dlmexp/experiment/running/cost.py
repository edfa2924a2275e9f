"""The time of training, by the shape of its batches.

A step of a batch has a fixed cost, the latency, and each cell in it adds its work:

    seconds = (latency / batches at the same time * steps of batches + work * steps of cells) / rate

The work of a cell is the number of multiplications in a step, the latency the number that would
take as long as launching the operations of a step, and the rate that of multiplications per second.
A batch makes steps until the last of its cells has stopped, so its longest cell decides how often
the latency is paid. Small batches that train at the same time on a GPU hide each other's latency.
Latency and rate follow from measured steps (`fit_step_cost`).
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple, TypeVar

from dlmexp.experiment.plan.cell import Batch
from dlmexp.experiment.running.capacity import MAX_CONCURRENT_BATCHES

GRADIENT_STEPS = 150  # the cost of measuring the gradients of a cell, in steps
# The cost of elementwise operations on [M, rows], as additional columns of the products.
ELEMENTWISE_COLUMNS = 90
# The work of a variant with fixed hyperparameters, as a share of that of a joint one.
FIXED_SHARE = 0.5
# Values of log10(latency) that are tried: 4 to 12 in steps of 1/4.
LATENCY_EXPONENTS = [4 + quarter / 4 for quarter in range(33)]
# log10(latency) on usual machines, measured on x86-64 cores and on an H200.
USUAL_LATENCY_EXPONENTS = {"cpu": 7.0, "cuda": 9.5}
# The weight of the squared distance to the usual exponent in the loss of a fit, where the residuals
# of measured steps have weight 1.
LATENCY_PRIOR = 0.01
# As many batches train at the same time on a GPU as have this many multiplications in a step
# together, but at most `MAX_CONCURRENT_BATCHES`.
CONCURRENT_WORK = 1.6e10
MIN_WEIGHT = 0.1  # of a measurement that took no time
# Steps until a cell has converged, as a share of its limit, by task: means over all published runs
# with a stopping rule, weighted by their time.
USUAL_SHARE = {"regression": 0.6, "binary": 0.4, "count": 0.85}
USUAL_LONGEST_SHARE = 0.9  # the same share for the last cell of a batch


@dataclass(frozen=True)
class BatchShape:
    """What the time of batches of one kind depends on.

    Attributes:
        kind: The name of the kind (`Cell.shared_values`).
        family: The name of the kinds that this one is compared with, as they do similar operations:
            variant, form, objective and estimator.
        task: The task of its data.
        cells: The number of cells in its largest batch.
        work: Multiplications of a step of one cell.
        limit: The number of steps of a cell that does not converge; a closed form counts as one.
        may_converge: Whether a stopping rule can end training before the limit.
        is_timed: Whether its steps can be timed, as its cells are trained step by step.
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
    def usual_shares(self) -> "StepShares":
        """The shares that are expected before any cell has stopped."""
        if not self.may_converge:
            return StepShares(mean=1.0, longest=1.0)
        mean = USUAL_SHARE.get(self.task, fmean(USUAL_SHARE.values()))
        return StepShares(mean, USUAL_LONGEST_SHARE)


class StepShares(NamedTuple):
    """Steps as shares of their limit: of a cell on average, and of the last cell of a batch."""

    mean: float
    longest: float


def _step_limit(batch: Batch) -> int:
    """Return the number of steps of a cell that does not converge."""
    cell = batch[0]
    if cell.kind == "gradient":
        return GRADIENT_STEPS
    if cell.is_solved:
        return 1
    return max(1, cell.iterations)


def _work_of_step(batch: Batch) -> float:
    """Return the multiplications in a step of one cell."""
    cell = batch[0]
    rows = min(cell.training_rows, cell.minibatch or cell.n)
    columns = cell.M + ELEMENTWISE_COLUMNS + 2 * (cell.samples or 0)
    work = cell.M * (rows + 4 * cell.M) * columns * cell.components
    return FIXED_SHARE * work if cell.variant == "fixed" else work


class Steps(NamedTuple):
    """The steps of some batches, and the sum of the steps of all cells in them."""

    of_batches: float
    of_cells: float


@dataclass(frozen=True)
class Measurement:
    """The seconds that some steps of batches of one shape took."""

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
        device: "cpu" or "cuda".
        family_factors: A factor on the seconds of each family that has been measured.
        kind_factors: A further factor for each kind that has been measured.
    """

    latency: float
    seconds_per_work: float
    device: str = "cpu"
    family_factors: dict[str, float] = field(default_factory=dict)
    kind_factors: dict[Hashable, float] = field(default_factory=dict)

    def seconds(self, shape: BatchShape, steps: Steps) -> float:
        """Return the seconds that steps of batches of this shape take."""
        family_factor = self.family_factors.get(shape.family, 1.0)
        kind_factor = self.kind_factors.get(shape.kind, 1.0)
        latency = self.latency / _concurrent_batches(shape, self.device)
        return self.seconds_per_work * (family_factor * kind_factor) * _work(shape, steps, latency)


def _concurrent_batches(shape: BatchShape, device: str) -> float:
    """Return how many batches of a shape train at the same time."""
    if device == "cpu":
        return 1.0
    batches_that_fill_gpu = CONCURRENT_WORK / (shape.cells * shape.work)
    return min(max(1.0, batches_that_fill_gpu), MAX_CONCURRENT_BATCHES)


def _work(shape: BatchShape, steps: Steps, latency: float) -> float:
    """Return the time of steps in multiplications."""
    return latency * steps.of_batches + shape.work * steps.of_cells


def fit_step_cost(measurements: Sequence[Measurement], device: str) -> StepCost:
    """Return the cost that fits measured times best: weighted least squares of their logarithms.

    The latency is searched on a grid, with a penalty on its distance to the usual one of the
    device. For each latency, the rate has a closed form. Measurements have weights by their
    duration. The mean residual of a family becomes its factor, shrunk towards 1 where little was
    measured. What it leaves of the residuals of a kind becomes the factor of that kind in the same
    way.

    Args:
        measurements: Steps of different shapes; at least one.
        device: "cpu" or "cuda".
    """
    weights = _weights(measurements)
    best_loss = math.inf
    latency = 10 ** USUAL_LATENCY_EXPONENTS[device]
    for exponent in LATENCY_EXPONENTS:
        residuals = _residuals(measurements, 10**exponent, device)
        scale = _mean(residuals, weights)  # the logarithm of 1 / rate that fits best
        spread = _mean([(residual - scale) ** 2 for residual in residuals], weights)
        loss = spread + LATENCY_PRIOR * (exponent - USUAL_LATENCY_EXPONENTS[device]) ** 2
        if loss < best_loss:
            best_loss = loss
            latency = 10**exponent
    residuals = _residuals(measurements, latency, device)
    scale = _mean(residuals, weights)
    residuals = [residual - scale for residual in residuals]
    families = [measurement.shape.family for measurement in measurements]
    family_factors = _factors(families, residuals, weights)
    unexplained: list[float] = []
    for residual, family in zip(residuals, families, strict=True):
        unexplained.append(residual - math.log(family_factors[family]))
    kinds = [measurement.shape.kind for measurement in measurements]
    return StepCost(
        latency=latency,
        seconds_per_work=math.exp(scale),
        device=device,
        family_factors=family_factors,
        kind_factors=_factors(kinds, unexplained, weights),
    )


def _residuals(measurements: Sequence[Measurement], latency: float, device: str) -> list[float]:
    """Return log(seconds / work) of each measurement."""
    residuals: list[float] = []
    for measurement in measurements:
        shape = measurement.shape
        concurrent_batches = 1.0 if measurement.alone else _concurrent_batches(shape, device)
        work = _work(shape, measurement.steps, latency / concurrent_batches)
        residuals.append(math.log(max(measurement.seconds, 1e-12) / work))
    return residuals


def _weights(measurements: Sequence[Measurement]) -> list[float]:
    """Return the weights of measurements: duration over mean duration, plus `MIN_WEIGHT`."""
    mean = fmean(measurement.seconds for measurement in measurements) or 1.0
    return [MIN_WEIGHT + measurement.seconds / mean for measurement in measurements]


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the weighted mean."""
    total = sum(value * weight for value, weight in zip(values, weights, strict=True))
    return total / sum(weights)


Name = TypeVar("Name", bound=Hashable)


def _factors(
    names: Sequence[Name], residuals: Sequence[float], weights: Sequence[float]
) -> dict[Name, float]:
    """Return a factor per name: the exponential of the mean of its residuals.

    The mean includes one more residual of 0 with weight 1, which shrinks the factors towards 1.
    """
    sums: dict[Name, float] = defaultdict(float)
    total_weights: dict[Name, float] = defaultdict(lambda: 1.0)  # of that additional residual
    for name, residual, weight in zip(names, residuals, weights, strict=True):
        sums[name] += weight * residual
        total_weights[name] += weight
    return {name: math.exp(total / total_weights[name]) for name, total in sums.items()}
