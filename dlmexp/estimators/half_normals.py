"""Counts with the exponential link: q~ under two half-normals and an exponential tail.

With x the distance from the mode, r the rate e^f there and p = 1/v, log q~ falls by r (e^x - 1 - x) + p x^2/2, and
e^x - 1 - x is bounded by parabolas, all of them below it:

- on the right k x^2/2 - d with k = (e^a - 1)/a, whichever a > 0: the two touch at x = a, where d makes them meet;
- on the left as far as -c the one through the origin and its value at -c: k = 2 (e^-c - 1 + c)/c^2.

So q~ lies under a half-normal on either side, and beyond -c under the tangent to its logarithm there.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from dlmexp.estimators.draws import Draws
from dlmexp.estimators.envelope import replace_rejected, spares
from dlmexp.estimators.product_samplers import ProductSample, product_sampler
from dlmexp.gp.likelihoods import Likelihood, Poisson

# Chosen on a grid of corners: acceptance is 0.96 where q is as after training, at least 0.8 for v <= 100, and 0.58 in
# the worst corner up to v = 10^4 (no counts, and a q that reaches far beyond where the likelihood cuts it off).
LIFT = 0.5  # a = log(1 + LIFT v / (1 + r v))
DROP = 3.0  # q~ has fallen by about this much at -c


class Pieces(NamedTuple):
    """What lies above q~, as fractions of its peak: exp(lift - x^2 / 2 right^2) on the right, exp(-x^2 / 2 left^2) on
    the left as far as -c, and exp(-depth + slope (x + c)) beyond. All [..., N]."""

    right: Tensor
    lift: Tensor
    left: Tensor
    c: Tensor
    depth: Tensor
    slope: Tensor


def pieces(r: Tensor, p: Tensor) -> Pieces:
    """For a rate r at the mode and a precision p = 1/v of q."""
    a = torch.log1p(LIFT / (r + p))
    rise = torch.expm1(a)
    c = _reach(r, p)
    fall, area = torch.expm1(-c), c * c / 2
    p_left = torch.addcdiv(p, r * (c + fall), area)
    return Pieces(
        right=torch.addcdiv(p, r * rise, a).rsqrt(),
        lift=r * torch.addcmul(a, rise, a / 2 - 1),
        left=p_left.rsqrt(),
        c=c,
        depth=p_left * area,
        slope=torch.addcmul(p * c, r, fall, value=-1),
    )


@product_sampler("half_normals", Poisson)
def half_normals(likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws) -> ProductSample:
    """Exact rejection under `pieces`."""
    assert isinstance(likelihood, Poisson)
    mu, v, y = torch.broadcast_tensors(mu, v, y)
    mode = likelihood.mode(mu, v, y)
    loss = on_side_stream(lambda: likelihood.log_loss_around(mode), mu.device)
    right_width, lift, left_width, c, depth, slope = pieces(mode.at.curvature, mode.precision)
    # Masses in units of sqrt(pi/2).
    right_mass, tail_mass = lift.exp() * right_width, math.sqrt(2 / math.pi) * (-depth).exp() / slope
    others = left_width + tail_mass
    total = right_mass + others

    extra, n = spares(samples), mu.shape[-1]
    pick, chance, size, bound = draws.transformed(_ingredients, 3 * (extra + samples), n)
    lift, c, depth, slope, step, left_width, first, last = (
        t.unsqueeze(-2)
        for t in (lift, c, depth, slope, right_width + left_width, left_width, total / others, total / tail_mass)
    )
    # An exponential picks the piece: right if it is small, the tail if it is large, and then what it has beyond the
    # threshold is an exponential again. `right` is a number, 0 or 1: torch.where takes three times as long on a CPU.
    right = (pick < first.log()).to(mu.dtype)
    beyond = pick - last.log()
    tail = beyond > 0
    x = torch.where(
        tail, torch.addcdiv(-c, beyond, slope, value=-1), torch.addcmul(-left_width, right, step).mul_(size)
    )
    bound = torch.where(tail, beyond + depth, torch.addcmul(bound, right, lift, value=-1))
    # What the half-normal proposes beyond -c is the tail's affair.
    accepted = (likelihood.fall(x, mode.over_samples()) - bound < chance) & (tail | (x >= -c))

    x = replace_rejected(x, accepted, extra)
    e = x.add_(mode.shift.unsqueeze(-2)).mul_(mode.precision.sqrt().unsqueeze(-2))
    return ProductSample(e, accepted.sum(-2, dtype=mu.dtype), accepted.shape[-2], loss())


def _ingredients(u: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Two exponentials, a half-normal, and how far its log density lies below that at 0, of uniforms [..., 3 C, N]."""
    pick, chance, half = u.chunk(3, -2)
    half = half.erfinv()
    return pick.log().neg_(), chance.log().neg_(), half * math.sqrt(2), half.square()


def _reach(r: Tensor, p: Tensor) -> Tensor:
    """About where the fall on the left is DROP; any other point would do, only not as well."""
    return 2 * DROP * torch.addcmul(2 * DROP * p, *[(2 * DROP * r + 1).sqrt() - 1] * 2).rsqrt()


def on_side_stream(work: Callable[[], Tensor], device: torch.device) -> Callable[[], Tensor]:
    """Begin `work` and return a function that waits for its result; on a CPU, `work` itself.

    A captured graph takes the fork and the join along. Both streams wait for each other, so neither reuses memory that
    the other still reads, provided that what `work` reads is kept until its result has been asked for."""
    if device.type != "cuda":
        return work
    main = torch.cuda.current_stream(device)
    side = _side_stream(device, main.stream_id)
    side.wait_stream(main)
    with torch.cuda.stream(side):
        result = work()

    def wait() -> Tensor:
        main.wait_stream(side)
        return result

    return wait


@cache
def _side_stream(device: torch.device, beside: int) -> torch.cuda.Stream:
    """One for each stream that work is taken from: what is freed on a side stream may still be read on its main one."""
    return torch.cuda.Stream(device)
