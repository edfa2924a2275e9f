"""Which cells are to be trained, in which batches and in which order."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dlmexp.plan.cell import Cell

Batch = tuple[Cell, ...]
# A step holds at most 8 arrays of [B, M, n] (tested with the core; on a GPU one of them is a factor of the kernel with
# a column for every feature); predictions and draws need some more.
ARRAYS = 12
CPU_BYTES = 16e6  # of one such array: beyond the caches a larger batch gains nothing more ...
CPU_CELLS, CPU_MOST_BYTES = 4, 100e6  # ... but that several cores can train some cells each, if these are not too large
EVERY = 1_000_000
GPU_SHARE = 0.6  # of the memory that is free when the run starts


@dataclass(frozen=True)
class Plan:
    """All cells of a run, and the batches of those that are not done, the ones others depend on first."""

    cells: tuple[Cell, ...]
    batches: tuple[Batch, ...]
    done: frozenset[str]
    failed: frozenset[str]

    @property
    def pending(self) -> int:
        return sum(map(len, self.batches))


def plan(
    cells: Iterable[Cell],
    done: set[str],
    failed: set[str],
    cells_at_once: Callable[[Cell], int],
    retry_failed: bool = False,
) -> Plan:
    """Group the pending cells into batches of equal shape; the order in which cells are given does not matter.

    Small before large, so that something shows early; ELBO fits before the fixed variants that start from them.
    Batches are cut from all cells and then lose those that are done: who trains with whom, and with it the last bit of
    a result, does not depend on how far an interrupted run had come.
    """
    chosen = {cell.key: cell for cell in cells}
    skip = done if retry_failed else done | failed
    bases: dict[tuple, set[str]] = {}
    for cell in chosen.values():
        bases.setdefault((cell.group, cell.seed), set()).add(cell.base or "")
    groups: dict[tuple, list[Cell]] = {}
    for cell in sorted(chosen.values(), key=lambda cell: (cell.seed, -(cell.beta or 0.0))):
        # A batch takes one fit per seed as its start; cells that start from another one go with their like.
        start = sorted(bases[cell.group, cell.seed]).index(cell.base or "")
        work = (cell.M * cell.n, cell.dataset, cell.base is not None)
        groups.setdefault((*work, cell.group, start), []).append(cell)
    batches: list[Batch] = []
    ordered = [groups[rank] for rank in sorted(groups, key=lambda rank: (*rank[:3], str(rank[3:])))]
    for members in ordered:
        size = max(1, cells_at_once(members[0]))
        parts = -(-len(members) // size)  # even parts, rather than full ones and a rest
        for i in range(parts):
            together = members[len(members) * i // parts : len(members) * (i + 1) // parts]
            batches.append(tuple(cell for cell in together if cell.key not in skip))
    everything = tuple(cell for members in sorted(ordered, key=lambda members: members[0].n) for cell in members)
    return Plan(everything, tuple(filter(None, batches)), frozenset(done & chosen.keys()),
                frozenset(failed & chosen.keys()))  # fmt: skip


def cells_at_once(cell: Cell, device: str, free: float | None) -> int:
    """The batch size for cells of this shape; `free` is the GPU's free memory in bytes."""
    if cell.solved:
        return EVERY  # one eigendecomposition per seed serves all betas
    if device == "cpu":
        each = _width(cell) * entries_of((cell,))
        return max(1, int(CPU_BYTES / each), min(CPU_CELLS, int(CPU_MOST_BYTES / each)))
    assert free is not None
    return max(1, int(GPU_SHARE * free / bytes_of((cell,))))


def entries_of(batch: Sequence[Cell]) -> int:
    """Entries of the largest arrays in a step of this batch: those of [B, M, rows], and of its samples."""
    cell = batch[0]
    return len(batch) * min(cell.n, cell.minibatch or cell.n) * (cell.M + (cell.samples or 0))


def bytes_of(batch: Sequence[Cell]) -> float:
    """Memory that a GPU needs to train this batch."""
    history = len(batch) * batch[0].iterations
    return _width(batch[0]) * ARRAYS * entries_of(batch) + 8 * history


def _width(cell: Cell) -> int:
    """Bytes of a number that belongs to a row; all others are float64."""
    return 8 if cell.dtype == "float64" else 4
