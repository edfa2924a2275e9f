"""Counts with the exponential link: q~ under two half-normals and an exponential tail.

With x the distance from the mode, r the rate e^f there and p = 1/v, log q~ falls by r (e^x - 1 - x) + p x^2/2, and
e^x - 1 - x is bounded by parabolas, all of them below it:

- on the right k x^2/2 - d with k = (e^a - 1)/a, whichever a > 0: the two touch at x = a, where d makes them meet;
- on the left as far as -c the one through the origin and its value at -c: k = 2 (e^-c - 1 + c)/c^2.

So q~ lies under a half-normal on either side, and beyond -c under the tangent to its logarithm there.
"""

import math

import torch
from torch import Tensor

from dlmexp.estimators.draws import RandomNumbers
from dlmexp.estimators.samplers.base import ProductSample
from dlmexp.estimators.samplers.pool import replace_rejected, share, spares
from dlmexp.gp.likelihoods import Likelihood, Poisson

# Chosen on a grid of corners: acceptance is 0.96 where q is as after training, 0.82 in the worst corner.
LIFT = 0.5  # a = log(1 + LIFT v / (1 + r v))
DROP = 3.0  # q~ has fallen by about this much at -c


def half_normals(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: RandomNumbers
) -> ProductSample:
    """Exact rejection (`pool`). Shapes: [..., N] to [..., L, N]."""
    assert isinstance(likelihood, Poisson)
    mu, v, y = torch.broadcast_tensors(mu, v, y)
    mode = likelihood.mode(mu, v, y)
    r, p = mode.at.curvature, mode.precision

    a = torch.log1p(LIFT / (r + p))
    rise = torch.expm1(a)
    k_right = rise / a
    lift = r * torch.addcmul(a, rise, a / 2 - 1)
    c = _reach(r, p)
    fall, area = torch.expm1(-c), c * c / 2
    k_left = (c + fall) / area
    slope = torch.addcmul(p * c, r, fall, value=-1)
    p_right, p_left = torch.addcmul(p, r, k_right), torch.addcmul(p, r, k_left)
    depth = p_left * area
    wide_right, wide_left = p_right.rsqrt(), p_left.rsqrt()
    # Masses in units of sqrt(pi/2).
    right_mass, tail_mass = lift.exp() * wide_right, math.sqrt(2 / math.pi) * (-depth).exp() / slope
    others = wide_left + tail_mass
    total = right_mass + others

    # An exponential picks the piece: right if it is small, the tail if it is large, and then what it has beyond the
    # threshold is an exponential again. `right` is a number, 0 or 1: torch.where takes three times as long on a CPU.
    extra, n = spares(samples), mu.shape[-1]
    count = extra + samples
    pick, chance = draws.exponential(2 * count, n).split(count, -2)
    right = (pick < (total / others).log().unsqueeze(-2)).to(mu.dtype)
    beyond = pick - (total / tail_mass).log().unsqueeze(-2)
    tail = beyond > 0
    x = draws.normal(count, n).abs_().mul_(_either(right, wide_right, -wide_left))
    c, slope = c.unsqueeze(-2), slope.unsqueeze(-2)
    x = torch.where(tail, torch.addcdiv(-c, beyond, slope, value=-1), x)

    # How far log q~ lies below its bound; an exponential that exceeds this accepts.
    square = x.square().mul_(0.5)
    bend = x.exp().sub_(x).sub_(1)
    r, p = r.unsqueeze(-2), p.unsqueeze(-2)
    gap = torch.addcmul(bend, _either(right, k_right, k_left), square, value=-1).mul_(r)
    gap.addcmul_(right, lift.unsqueeze(-2))
    gap_tail = bend.mul_(r).addcmul_(square, p).addcmul_(x + c, slope).sub_(depth.unsqueeze(-2))
    # What the half-normal proposes beyond -c is the tail's affair.
    accepted = torch.where(x < -c, tail & (gap_tail < chance), gap < chance)

    x = replace_rejected(x, accepted, extra)
    e = x.add_(mode.shift.unsqueeze(-2)).mul_(p.sqrt())
    return ProductSample(e, share(accepted, mu.dtype), likelihood.log_loss_around(mode))


def _either(right: Tensor, if_right: Tensor, if_left: Tensor) -> Tensor:
    return torch.addcmul(if_left.unsqueeze(-2), right, (if_right - if_left).unsqueeze(-2))


def _reach(r: Tensor, p: Tensor) -> Tensor:
    """Where on the left either half of the fall alone is DROP (`Poisson.reach`), the two combined smoothly."""
    return 2 * DROP * torch.addcmul(2 * DROP * p, *[(2 * DROP * r + 1).sqrt() - 1] * 2).rsqrt()
