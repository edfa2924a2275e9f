"""How many cells to train at once: as many as pay on this device."""

from dlmexp.objectives import OBJECTIVES
from dlmexp.plan.cell import Cell

# A step holds at most 8 arrays of [B, M, n] (tested with the core); predictions and draws need some more.
ARRAYS = 12
CPU_BYTES = 16e6  # of one such array: beyond the caches a larger batch gains nothing more
EVERY = 1_000_000
GPU_SHARE = 0.6  # of the memory that is free when the run starts


def cells_at_once(cell: Cell, device: str, free: float | None) -> int:
    """The batch size for cells of this shape; `free` is the GPU's free memory in bytes."""
    if OBJECTIVES[cell.objective].solved(cell.variant):
        return EVERY  # one eigendecomposition per seed serves all betas
    rows = min(cell.n, cell.minibatch or cell.n)
    width = 8 if cell.dtype == "float64" else 4
    array = width * rows * (cell.M + (cell.samples or 0))
    if device == "cpu":
        return max(1, int(CPU_BYTES / array))
    assert free is not None
    history = width * (cell.max_iterations or 0)
    return max(1, int(GPU_SHARE * free / (ARRAYS * array + history)))
