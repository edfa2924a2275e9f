"""How long a run takes: a bound before it starts, and the time left, from what it has done. Both go by work, in
multiplications of the largest products of a step."""

import time
from collections.abc import Iterable

from dlmexp.plan.cell import Cell
from dlmexp.running.checkpoint import Batch

PACE = {"cpu": 1e9, "cuda": 3e12}  # work in a second: of a slow core, and of an H200
SHORT_RUN = {"cpu": 6e10, "cuda": 2e14}  # work of a run that takes a minute at most
STEP_WORK = 1e7  # that would be done in the time of a step of no cells
ELEMENTWISE = {"joint": 90, "fixed": 60}  # work that is linear in M x rows, as additional columns
PRODUCTS = {"joint": 1, "fixed": 1 / 3}  # in a step, relative to a joint variant
GRADIENT_STEPS = 150  # the cost of measuring the gradients of a cell
NEARLY = 0.9  # how far a cell is that has outlived the others


def step_work(cell: Cell, cells: int) -> float:
    """The work of a step of so many cells, with that of a step of none."""
    rows = min(cell.n, cell.minibatch or cell.n)
    columns = cell.M * PRODUCTS[cell.variant] + ELEMENTWISE[cell.variant] + 2 * (cell.samples or 0)
    return STEP_WORK + cells * cell.M * (rows + 4 * cell.M) * columns


def batch_work(batch: Batch) -> float:
    """The work of training a batch up to its limit; a closed form counts as one step, and gradients are measured for
    one cell after the other."""
    if batch[0].kind == "gradient":
        return GRADIENT_STEPS * len(batch) * step_work(batch[0], 1)
    return max(1, 0 if batch[0].solved else batch[0].iterations) * step_work(batch[0], len(batch))


def is_short(batches: Iterable[Batch], device: str = "cpu") -> bool:
    """Whether a run takes so little time that more processes, or threads, would not pay."""
    return sum(map(batch_work, batches)) < SHORT_RUN[device]


def bound(batches: Iterable[Batch], device: str, processors: int) -> float:
    """Seconds that batches take on so many cores or GPUs if no cell converges before its limit."""
    return sum(map(batch_work, batches)) / (PACE[device] * processors)


class Clock:
    """The time left of a run, by the share of its work that is done. Cells in training are taken to need the share of
    their limit that those before them needed."""

    def __init__(self, batches: Iterable[Batch]):
        self.began = time.monotonic()
        self._waiting = {cell.key: batch_work(batch) / len(batch) for batch in batches for cell in batch}
        self._total, self._settled = sum(self._waiting.values()), 0.0
        self._training: dict[str, tuple[float, float]] = {}  # of cells in training: work, and share of their limit
        self._shares = [0.0, 0]  # sum and number of those at which cells have stopped

    def seen(self, cells: Iterable[Cell], iteration: int) -> None:
        """These cells are in training, at this iteration."""
        for cell in cells:
            self._training[cell.key] = self._waiting.get(cell.key, 0.0), iteration / max(1, cell.iterations)

    def settled(self, cell: Cell, iterations: int | None = None) -> None:
        """A cell has its record; after so many iterations if it was trained here."""
        self._training.pop(cell.key, None)
        self._settled += self._waiting.pop(cell.key, 0.0)
        if iterations and cell.iterations:
            self._shares[0] += iterations / cell.iterations
            self._shares[1] += 1

    def seconds_left(self) -> float | None:
        """None before a cell has its record. In any thread."""
        if not self._settled:
            return None
        usual = self._shares[0] / self._shares[1] if self._shares[1] else 1.0
        done = sum(work * min(NEARLY, share / usual) for work, share in list(self._training.values()))
        return (time.monotonic() - self.began) * max(0.0, self._total / (self._settled + done) - 1)
