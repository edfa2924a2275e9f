"""Exact rejection sampling under a piecewise exponential envelope: many rows, a fixed number of operations, no loop.

A row's log density is bounded on each of K cells by a straight line. A candidate picks a cell by its mass and a point
in it by inversion, and is accepted with probability density / envelope (`pool` replaces those that are not).
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dlmexp.estimators.draws import RandomNumbers
from dlmexp.estimators.samplers.pool import replace_rejected, spares

TILT = 1e-2


class Cells(NamedTuple):
    """Envelope of a density: exp(height - rate * distance from `origin`) on a cell of `length` on its `side` (-1, +1).

    All [..., K, N]. A cell starts at its higher end, up to rounding: `rate` may be slightly negative, but not where the
    length is infinite.
    """

    origin: Float[Tensor, "*B K N"]
    side: Float[Tensor, "*#B K #N"]
    length: Float[Tensor, "*B K N"]
    height: Float[Tensor, "*B K N"]
    rate: Float[Tensor, "*B K N"]


def sample_under(
    cells: Cells,
    log_density: Callable[[Float[Tensor, "*B C N"]], Float[Tensor, "*B C N"]],
    samples: int,
    draws: RandomNumbers,
) -> tuple[Float[Tensor, "*B L N"], Bool[Tensor, "*B C N"]]:
    """`samples` draws per row from the density, and which of the row's candidates were accepted."""
    extra, n = spares(samples), cells.origin.shape[-1]
    x, log_envelope = _propose(cells, draws.uniform(extra + samples, n, stream=0))
    accepted = draws.uniform(extra + samples, n, stream=1) < (log_density(x) - log_envelope).exp_()
    return replace_rejected(x, accepted, extra), accepted


def _propose(cells: Cells, u: Float[Tensor, "*B C N"]) -> tuple[Float[Tensor, "*B C N"], Float[Tensor, "*B C N"]]:
    """One point per uniform number, and the log of the envelope there."""
    # A nearly flat piece is tilted, and lifted to stay above: dividing by its rate would lose digits.
    flat = (cells.rate * cells.length).abs() < TILT
    rate = torch.where(flat, TILT / cells.length, cells.rate)
    height = torch.where(flat, cells.height + 2 * TILT, cells.height)
    shrink = (-rate * cells.length).exp_() - 1
    mass = -height.exp() * shrink / rate
    ends = mass.cumsum(-2)
    u = u * ends[..., -1:, :]
    # Counting in bytes is twice as fast on a CPU as a search, and as counting in longs.
    cell = torch.zeros_like(u, dtype=torch.uint8)
    for j in range(ends.shape[-2] - 1):
        cell += (u > ends[..., j : j + 1, :]).view(torch.uint8)
    cell = cell.long()
    scale = shrink / mass
    fall = torch.addcmul(_at(cell, scale * (mass - ends)), _at(cell, scale), u).clamp_min_(-1 + 1e-16).log1p_()
    return torch.addcmul(_at(cell, cells.origin), _at(cell, cells.side / rate), fall, value=-1), _at(
        cell, height
    ) + fall


def _at(cell: Int[Tensor, "*B C N"], table: Float[Tensor, "*B K N"]) -> Float[Tensor, "*B C N"]:
    return table.gather(-2, cell)
