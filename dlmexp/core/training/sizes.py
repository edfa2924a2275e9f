"""How many cells make a batch, going by the memory of a step."""

from dataclasses import dataclass

# A step holds at most 8 arrays of [B, M, n] (tested with the core; on a GPU one of them is a factor
# of the kernel with a column for every feature); predictions and draws need some more.
ARRAYS = 12
CPU_BYTES = 16e6
"""Of one such array: beyond the caches a larger batch gains nothing more, ..."""
CPU_CELLS = 4
"""... but several cores can train some cells each, if these are not too large:"""
CPU_LARGEST_BYTES = 100e6
GPU_SHARE = 0.6
"""Of the memory that is free."""


@dataclass(frozen=True)
class StepSize:
    """What the memory of a step depends on, for one cell.

    Attributes:
        rows: The number of rows of a step.
        M: The number of inducing inputs.
        samples: Samples per row that the estimator draws; 0 if it draws none.
        iterations: The most iterations, of which each leaves its objective.
        row_bytes: Bytes of a number that belongs to a row; all others are float64.
        components: The number of Gaussians of q, each with an array of its own.
        starts: The number of starts that train side by side.
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
        """Return the entries of the largest arrays: those of [M, rows], and of the samples."""
        return self.starts * self.rows * (self.M * self.components + self.samples)

    @property
    def bytes(self) -> float:
        """Return the memory that a GPU needs for a cell."""
        return self.row_bytes * ARRAYS * self.entries + 8 * self.iterations

    def cells_at_once(self, free: float | None) -> int:
        """Return the batch size.

        Args:
            free: The free memory of a GPU in bytes; None on a CPU.
        """
        if free is not None:
            return max(1, int(GPU_SHARE * free / self.bytes))
        array_bytes = self.row_bytes * self.entries
        within_caches = int(CPU_BYTES / array_bytes)
        for_several_cores = min(CPU_CELLS, int(CPU_LARGEST_BYTES / array_bytes))
        return max(1, within_caches, for_several_cores)
