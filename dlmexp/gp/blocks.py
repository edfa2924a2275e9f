"""Arrays of [B, M, N] on a CPU in blocks of cells and rows that stay in its caches while all is done that is to be done
with them, in memory that is kept from step to step: new pages from the system took up to a quarter of a step's time."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

ENTRIES = 160_000  # of a block: much smaller ones lose in products what they gain in the caches
WIDTH = 45  # of the strips in which products with triangular and symmetric results leave out what is zero or known


class Block(NamedTuple):
    """Some cells, and some rows of each: all rows of several cells, or a part of the rows of one."""

    cells: slice
    rows: slice


def blocks(B: int, M: int, N: int) -> list[Block]:
    """All of [B, M, N], cell by cell, in parts of equal size."""
    if 4 * M * N <= ENTRIES:
        every = slice(0, N)
        return [Block(cells, every) for cells in _parts(B, ENTRIES // max(1, M * N))]
    return [Block(slice(b, b + 1), rows) for b in range(B) for rows in _parts(N, max(1, ENTRIES // M))]


def _parts(length: int, most: int) -> list[slice]:
    count = -(-length // most)
    return [slice(length * i // count, length * (i + 1) // count) for i in range(count)]


class Workspace:
    """Memory that one training step after another works in."""

    def __init__(self) -> None:
        self._memory: dict[str, Tensor] = {}

    def array(self, name: str, like: Tensor, shape: Sequence[int]) -> Tensor:
        """An array of this shape with arbitrary contents, which overwrites the last one of that name."""
        size = torch.Size(shape).numel()
        held = self._memory.get(name)
        if held is None or held.numel() < size or held.dtype != like.dtype:
            held = self._memory[name] = like.new_empty(size)
        return held[:size].view(shape)


def strips(M: int) -> list[slice]:
    """The rows of an M x M matrix, strip by strip."""
    return _parts(M, -(-M // max(1, round(M / WIDTH))))


def lower_product(R: Tensor, K: Tensor, out: Tensor) -> Tensor:
    """`R K` for lower triangles R [b, M, M] and K [b, M, n], without most of the products with zeros."""
    if len(R) > 1:
        return torch.bmm(R, K, out=out)
    for rows in strips(R.shape[-1]):
        torch.mm(R[0, rows, : rows.stop], K[0, : rows.stop], out=out[0, rows])
    return out


def add_symmetric_product_(P: Tensor, left: Tensor, right: Tensor) -> None:
    """Add `left right^T`, which is symmetric, to P [b, M, M]: of the upper triangle only what lies within a strip, the
    rest is left to `symmetrise_`."""
    if len(P) > 1:
        P.baddbmm_(left, right.mT)
        return
    for rows in strips(P.shape[-1]):
        P[0, rows, : rows.stop].addmm_(left[0, rows], right[0, : rows.stop].mT)


def symmetrise_(P: Tensor) -> None:
    """Complete matrices [B, M, M] that `add_symmetric_product_` made."""
    for rows in strips(P.shape[-1])[1:]:
        P[..., : rows.start, rows] = P[..., rows, : rows.start].mT
