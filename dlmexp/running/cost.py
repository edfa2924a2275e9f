"""What training costs on a device: the seconds of a step by the shape of its batch, from a few measured numbers.

A step takes `latency + work`. Work is what the device computes, in units of one multiplication of the largest products;
latency is the rest: Python, kernel launches, factorisations column by column. Where several batches train at once on a
GPU, a step of one takes its own latency and the work of a step of each: latencies overlap, work does not. An H200 with
up to 12 batches at once was within 20 % of that (tests/running/test_cost.py and test_schedule.py have the numbers).
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from dlmexp.objectives import OBJECTIVES
from dlmexp.plan.batches import Plan
from dlmexp.plan.cell import Cell

# The work of a step: its product of M x M by M x rows, with additions to both dimensions.
SQUARE_ROWS = 4  # products of M x M matrices, as additional rows: this many times M
# At least so many rows in addition: on a GPU, what is done by cell (factorisations, Adam, the stopping rule) in many
# small kernels. Fitted to steps on an H200, several batches at once, with n = 100 to 11 000 and M = 40 to 206.
CELL_ROWS = {"cpu": 0.0, "cuda": 1300.0}
ELEMENTWISE_COLUMNS = {False: 90, True: 60}  # work that is linear in M x rows, by whether the variant is fixed
FIXED_PRODUCTS = 1 / 3  # products in a step of a fixed variant, relative to a step of a joint one
FIXED_LATENCY = 0.4  # the same of its latency
EVALUATION = 0.6  # of the work of a joint step on as many rows, whatever the variant
EVALUATION_LATENCY = 4  # that of an evaluation, relative to that of a step
START_SECONDS = {"cpu": 0.03, "cuda": 0.15}  # of a batch: its data, its program, a checkpoint, the capture of a graph
CAPTURE_SECONDS = {"cpu": 0.0, "cuda": 0.05}  # whenever cells leave a batch
RECORD_SECONDS = {"cpu": 5e-3, "cuda": 2e-3}  # of the thread that trains: on a GPU another one writes
SHORT_RUN = 6e10  # work of a run that is not predicted: some 20 seconds on a slow machine if nothing converges ...
STEP_UNITS = 1e7  # ... where this much would be done within the latency of a step

Batch = tuple[Cell, ...]


class Pace(msgspec.Struct, frozen=True):
    """Measured on a device: a joint step takes `latency + column * M + per_unit * units` seconds, where a cell has at
    least `cell_rows` rows in addition to its own.

    `factors` correct that for shapes that were timed themselves, `corrections` for kinds of steps by what whole runs
    took."""

    latency: float
    per_unit: float
    column: float = 0.0
    factors: dict[str, float] = {}
    corrections: dict[str, float] = {}
    cell_rows: float = 0.0


class Rows(NamedTuple):
    """Of a dataset: features, and rows that predictions are evaluated on."""

    features: int = 10
    validation: int = 0
    test: int = 1000


class Step(NamedTuple):
    """Seconds of one step: what others beside it can fill, and what they can't."""

    latency: float
    work: float

    @property
    def alone(self) -> float:
        return self.latency + self.work


def kind_of(cell: Cell) -> str:
    """Which steps cost alike, apart from their size."""
    how = "" if cell.parameterisation == "whitened" else f" {cell.parameterisation}"
    kind = f"{cell.variant} {cell.objective} {cell.form} {cell.likelihood} {cell.estimator_label} {cell.kernel}{how}"
    return kind + (f" {cell.dtype}" if cell.dtype != "float64" else "") + (" minibatch" if cell.minibatch else "")


def shape_of(cell: Cell) -> str:
    """Kind and size of the steps of a cell."""
    return f"{kind_of(cell)} n={rows_of(cell)} M={cell.M}"


def rows_of(cell: Cell) -> int:
    """Of a step."""
    return min(cell.n, cell.minibatch or cell.n)


def units_of(cell: Cell, cells: float, rows: int, cell_rows: float = 0.0) -> float:
    """The work of a step of so many cells on so many rows, and at least `cell_rows` in addition."""
    fixed = cell.variant == "fixed"
    columns = cell.M * (FIXED_PRODUCTS if fixed else 1.0) + ELEMENTWISE_COLUMNS[fixed] + 2 * (cell.samples or 0)
    return cells * cell.M * (rows + max(cell_rows, SQUARE_ROWS * cell.M)) * columns


def work_of(batch: Batch) -> float:
    """The work of training a batch up to its limit, latency included; a closed form counts as one step."""
    solved = OBJECTIVES[batch[0].objective].solved(batch[0].variant)
    return (1 if solved else batch[0].iterations) * (STEP_UNITS + units_of(batch[0], len(batch), rows_of(batch[0])))


def is_short(plan: Plan) -> bool:
    """Whether it takes some seconds, so that a trial is not worth its time."""
    return sum(map(work_of, plan.batches)) < SHORT_RUN


class Costs:
    """Seconds of what a run does, on a device of some pace."""

    def __init__(self, pace: Pace, rows: dict[str, Rows] | None = None):
        self.pace, self.rows = pace, rows or {}
        self._factors: dict[str, float] = {}

    def step(self, cell: Cell, cells: float) -> Step:
        """A step of a batch of so many cells like this one."""
        if OBJECTIVES[cell.objective].solved(cell.variant):
            return Step(self.pace.latency, self.pace.per_unit * units_of(cell, cells, cell.n))
        factor = self.factor(cell)
        latency = (self.pace.latency + self.pace.column * cell.M) * (FIXED_LATENCY if cell.variant == "fixed" else 1)
        units = units_of(cell, cells, rows_of(cell), self.pace.cell_rows)
        return Step(factor * latency, factor * self.pace.per_unit * units)

    def evaluation(self, cell: Cell, cells: float, final: bool) -> Step:
        """Predictions on the rows of the test (and at the end of the validation) of such cells."""
        rows = self.rows.get(cell.dataset, Rows())
        count = rows.test + (rows.validation if final else 0)
        work = EVALUATION * self.pace.per_unit * units_of(replace(cell, variant="joint"), cells, count)
        return Step(EVALUATION_LATENCY * self.pace.latency, work)

    def factor(self, cell: Cell) -> float:
        """Measured over modelled seconds of this shape, or of the nearest one of its kind; times what runs showed."""
        shape = shape_of(cell)
        if shape not in self._factors:
            self._factors[shape] = self._measured(cell, shape) * self.pace.corrections.get(kind_of(cell), 1.0)
        return self._factors[shape]

    def _measured(self, cell: Cell, shape: str) -> float:
        if shape in self.pace.factors:
            return self.pace.factors[shape]
        start = f"{kind_of(cell)} n="
        like = [other for other in self.pace.factors if other.startswith(start)]
        if like:
            return self.pace.factors[min(like, key=lambda other: _apart(other.removeprefix(start), cell))]
        # Of a kind that was never timed: as the others on the whole, since load and version change them together.
        logs = sorted(map(math.log, self.pace.factors.values()))
        return math.exp(logs[len(logs) // 2]) if logs else 1.0


def _apart(size: str, cell: Cell) -> float:
    """How different the size of a shape (`1000 M=74`) is from that of a cell."""
    rows, _, M = size.partition(" M=")
    return abs(math.log(int(rows) / rows_of(cell))) + abs(math.log(int(M) / cell.M))


class Stretch(NamedTuple):
    """Some iterations of a batch, with so many cells in it."""

    iterations: float
    cells: int


def stretches(iterations: Sequence[float], compact_at: float) -> list[Stretch]:
    """How a batch shrinks whose cells take so many iterations each: cells leave it when no more than `compact_at` of
    those in it are live."""
    left, begun, found = sorted(iterations), 0.0, []
    while left:
        inside = len(left)
        stays = min(inside - 1, math.floor(compact_at * inside))  # live cells when the others leave
        end = left[inside - stays - 1]
        found.append(Stretch(end - begun, inside))
        begun, left = end, left[bisect_right(left, end) :]
    return [stretch for stretch in found if stretch.iterations > 0]
