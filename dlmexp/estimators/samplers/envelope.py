"""Exact rejection sampling under a piecewise exponential envelope: many rows, a fixed number of operations, no loop.

A row's log density is bounded on each of K cells by a straight line. A candidate picks a cell by its mass and a place in it by inversion,
and is accepted with probability density / envelope. Besides the L candidates asked for, a row draws some spares; a rejected
candidate is replaced by the row's next accepted spare. Whether candidates are accepted says nothing about the values of the
accepted ones, so every sample has exactly the target's distribution; should a row's spares run out, an accepted value is used
twice, which leaves that true. Only a row whose L + spares candidates are all rejected would keep one that was not accepted: with
the acceptance rates of the envelopes here (at least 0.85, 0.97 typical) and at least 9 candidates, a chance below 1e-7 in the
worst corner and 1e-13 typically.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dlmexp.estimators.draws import RandomNumbers


class Cells(NamedTuple):
    """Envelope of a density: on cell k it is exp(height - rate * distance from `origin`), over `length` in direction `side`.

    All [..., K, N]. `rate` of either sign where the length is finite, positive where it is infinite. A cell starts at its higher end.
    """

    origin: Float[Tensor, "*B K N"]
    side: Float[Tensor, "*#B K #N"]
    length: Float[Tensor, "*B K N"]
    height: Float[Tensor, "*B K N"]
    rate: Float[Tensor, "*B K N"]


def spares(samples: int) -> int:
    """How many candidates a row draws beyond the samples asked for."""
    return max(8 - samples, 3) + samples // 4


def sample_under(
    cells: Cells,
    log_density: Callable[[Float[Tensor, "*B C N"]], Float[Tensor, "*B C N"]],
    samples: int,
    draws: RandomNumbers,
) -> tuple[Float[Tensor, "*B L N"], Float[Tensor, "*B N"]]:
    """`samples` draws per row from the density, and the share of the row's candidates that were accepted."""
    extra, n = spares(samples), cells.origin.shape[-1]
    x, log_envelope = _propose(cells, draws.uniform(extra + samples, n, stream=0))
    accepted = draws.uniform(extra + samples, n, stream=1).log() < log_density(x) - log_envelope
    return _replace_rejected(x, accepted, extra), accepted.to(x.dtype).mean(-2)


def _propose(cells: Cells, u: Float[Tensor, "*B C N"]) -> tuple[Float[Tensor, "*B C N"], Float[Tensor, "*B C N"]]:
    """One place per uniform number, and the log of the envelope there."""
    k = cells.origin.shape[-2]
    # A nearly flat piece is tilted, and lifted to stay above: dividing by its rate would lose digits.
    flat = (cells.rate * cells.length).abs() < 1e-4
    rate = torch.where(flat, 1e-4 / cells.length, cells.rate)
    height = torch.where(flat, cells.height + 2e-4, cells.height)
    shrink = torch.expm1(-rate * cells.length)
    mass = -height.exp() * shrink / rate
    ends = mass.cumsum(-2)
    u = u * ends[..., -1:, :]
    cell = torch.zeros_like(u, dtype=torch.long)
    for j in range(k - 1):
        cell += u > ends[..., j : j + 1, :]
    packed = torch.stack((cells.origin, cells.side / rate, height, ends - mass, shrink / mass), -1).movedim(-3, -2)
    rows = torch.arange(packed[..., 0, 0].numel(), device=u.device).view(packed.shape[:-2]).unsqueeze(-2)
    chosen = packed.flatten(0, -2).index_select(0, (rows * k + cell).flatten()).view(*u.shape, 5)
    origin, run, height, start, scale = chosen.unbind(-1)
    fall = torch.log1p(((u - start) * scale).clamp_min_(-1 + 1e-16))
    return torch.addcmul(origin, run, fall, value=-1), height + fall


def _replace_rejected(
    x: Float[Tensor, "*B C N"], accepted: Bool[Tensor, "*B C N"], extra: int
) -> Float[Tensor, "*B L N"]:
    """Candidates from `extra` on, the rejected ones replaced by the row's accepted ones in their order."""
    count = accepted.cumsum(-2)
    total = count[..., -1:, :]
    # Accepted values packed to the front; the rejected all land in a slot beyond the end.
    slot = torch.where(accepted, count - 1, x.shape[-2])
    packed = torch.cat((x, x[..., -1:, :]), -2).scatter(-2, slot, x)
    kept = accepted[..., extra:, :]
    turn = (~kept).cumsum(-2) - 1
    return torch.where(kept, x[..., extra:, :], packed.gather(-2, turn.clamp_min(0) % total.clamp_min(1)))
