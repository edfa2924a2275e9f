"""How many cells train as one batch, by the memory that a step takes."""

from dataclasses import dataclass

ARRAYS = 12
"""Number of arrays [B, M, rows] that must fit into memory at the same time. A step holds at most 8,
which the tests count; predictions and random draws need a few more."""
CPU_BYTES = 16e6
"""The most bytes of one such array on a CPU. A batch too large for the caches gains nothing."""
CPU_CELLS = 4
"""Up to this number of cells train together on a CPU even if an array has more than `CPU_BYTES`, so
that several cores have work."""
CPU_LARGEST_BYTES = 100e6
"""The most bytes of an array of these `CPU_CELLS` cells."""
GPU_SHARE = 0.6
"""Share of the free memory of a GPU that a batch may take."""


@dataclass(frozen=True)
class StepSize:
    """The sizes that determine the memory of a training step of one cell.

    Attributes:
        rows: The number of rows of a step.
        M: The number of inducing inputs.
        samples: Samples per row that the estimator draws; 0 if it draws none.
        iterations: The largest number of iterations. The objective of every iteration is kept.
        row_bytes: Bytes of a number in arrays over rows: 8 in float64, 4 in float32.
        components: The number of Gaussians of which q is a mixture. Each has arrays of its own.
        starts: The number of starts of L-BFGS, which train side by side.
    """

    rows: int
    M: int
    samples: int = 0
    iterations: int = 0
    row_bytes: int = 8
    components: int = 1
    starts: int = 1

    @property
    def entries(self) -> int:
        """Return the number of entries of the largest arrays: [M, rows] and [samples, rows]."""
        return self.starts * self.rows * (self.M * self.components + self.samples)

    @property
    def bytes(self) -> float:
        """Return the bytes that a GPU needs for one cell."""
        return self.row_bytes * ARRAYS * self.entries + 8 * self.iterations

    def cells_at_once(self, free: float | None) -> int:
        """Return how many cells should train as one batch.

        Args:
            free: The free memory of a GPU in bytes; None on a CPU.
        """
        if free is not None:
            return max(1, int(GPU_SHARE * free / self.bytes))
        array_bytes = self.row_bytes * self.entries
        within_caches = int(CPU_BYTES / array_bytes)
        for_several_cores = min(CPU_CELLS, int(CPU_LARGEST_BYTES / array_bytes))
        return max(1, within_caches, for_several_cores)
