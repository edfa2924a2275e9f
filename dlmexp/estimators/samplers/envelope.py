"""Exact rejection sampling under a piecewise exponential envelope: many rows, a fixed number of operations, no loop.

A row's log density is bounded on each of K intervals by a straight line. A candidate picks an interval by its mass and
a point in it by inversion, and is accepted with probability density / envelope (`pool` replaces those that are not).
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dlmexp.estimators.draws import RandomNumbers
from dlmexp.estimators.samplers.pool import replace_rejected, spares

TILT = 1e-2


class Intervals(NamedTuple):
    """Envelope of a density: exp(height - rate * distance from `origin`) on an interval of `length`, on the `side`
    (-1, +1) of its origin.

    All [..., K, N]. An interval starts at its higher end, up to rounding: `rate` may be slightly negative, but not
    where the length is infinite.
    """

    origin: Float[Tensor, "*B K N"]
    side: Float[Tensor, "*#B K #N"]
    length: Float[Tensor, "*B K N"]
    height: Float[Tensor, "*B K N"]
    rate: Float[Tensor, "*B K N"]


def sample_under(
    intervals: Intervals,
    log_density: Callable[[Float[Tensor, "*B C N"]], Float[Tensor, "*B C N"]],
    samples: int,
    draws: RandomNumbers,
) -> tuple[Float[Tensor, "*B L N"], Bool[Tensor, "*B C N"]]:
    """`samples` draws per row from the density, and which of the row's candidates were accepted."""
    extra, n = spares(samples), intervals.origin.shape[-1]
    x, log_envelope = _propose(intervals, draws.uniform(extra + samples, n, stream=0))
    accepted = draws.uniform(extra + samples, n, stream=1) < (log_density(x) - log_envelope).exp_()
    return replace_rejected(x, accepted, extra), accepted


def _propose(
    intervals: Intervals, u: Float[Tensor, "*B C N"]
) -> tuple[Float[Tensor, "*B C N"], Float[Tensor, "*B C N"]]:
    """One point per uniform number, and the log of the envelope there."""
    # A nearly flat piece is tilted, and lifted to stay above: dividing by its rate would lose digits.
    flat = (intervals.rate * intervals.length).abs() < TILT
    rate = torch.where(flat, TILT / intervals.length, intervals.rate)
    height = torch.where(flat, intervals.height + 2 * TILT, intervals.height)
    shrink = (-rate * intervals.length).exp_() - 1
    mass = -height.exp() * shrink / rate
    ends = mass.cumsum(-2)
    u = u * ends[..., -1:, :]
    # Counting in bytes is twice as fast on a CPU as a search, and as counting in longs.
    interval = torch.zeros_like(u, dtype=torch.uint8)
    for j in range(ends.shape[-2] - 1):
        interval += (u > ends[..., j : j + 1, :]).view(torch.uint8)
    interval = interval.long()
    scale = shrink / mass
    fall = torch.addcmul(_at(interval, scale * (mass - ends)), _at(interval, scale), u).clamp_min_(-1 + 1e-16).log1p_()
    return torch.addcmul(_at(interval, intervals.origin), _at(interval, intervals.side / rate), fall, value=-1), _at(
        interval, height
    ) + fall


def _at(interval: Int[Tensor, "*B C N"], table: Float[Tensor, "*B K N"]) -> Float[Tensor, "*B C N"]:
    return table.gather(-2, interval)
