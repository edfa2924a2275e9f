"""Exact rejection sampling under an envelope: many rows, a fixed number of operations, no loop.

It is piecewise exponential or, for counts with the exponential link, made of half-normals. In the
first case, a row's log density is bounded on each of K intervals by a straight line. A candidate
picks an interval by its mass and a point in it by inversion, and is accepted with probability
density / envelope.

Besides the L candidates asked for, a row draws some spares; a rejected candidate is replaced by an
accepted one of the row's first few. Which candidates are accepted says nothing about the values of
those accepted, so every sample has exactly the target's distribution; where several are rejected a
value may serve twice, which leaves that true. Only a row whose POOL first candidates are rejected
altogether would keep one that was not accepted: a chance of 1e-12 at the typical acceptance of
0.95, and of 4e-4 at 0.58, the worst that was found up to v = 10^4 (Poisson counts of 0)."""

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dlmexp.core.estimators.draws import Draws
from dlmexp.core.estimators.product_samplers import ProductSample, product_sampler
from dlmexp.core.likelihoods import Likelihood, LogConcave, Poisson, StudentT

POOL = 9  # candidates of a row, spares first, that may stand in for rejected ones
TILT = 1e-2  # of a piece that is nearly flat
TANGENTS, TANGENT_DROP = (
    4,
    8.0,
)  # `log_concave`, on each side: the tails start where a Gaussian is four deviations out
PIECES, PIECES_DROP = 64, 12.0  # `scale_mixture`
# Of `half_normals`, chosen on a grid of corners: acceptance is 0.96 where q is as after training,
# at least 0.8 for v <= 100, and 0.58 in the worst corner up to v = 10^4 (no counts, and a q that
# reaches far beyond where the likelihood cuts it off).
LIFT = 0.5  # a = log(1 + LIFT v / (1 + r v))
DROP = 3.0  # q~ has fallen by about this much at -c


def spares(samples: int) -> int:
    """How many candidates a row draws beyond the samples asked for."""
    return max(POOL - samples, 2) + samples // 16


def replace_rejected(
    x: Float[Tensor, "*B C N"], accepted: Bool[Tensor, "*B C N"], extra: int
) -> Float[Tensor, "*B L N"]:
    """Candidates from `extra` on; number l of these, if rejected, gives way to stand-in number l
    modulo `extra`.

    The stand-ins are the first `extra` accepted candidates of the row's pool, over again if it has
    fewer."""
    size = max(POOL, extra)
    pool, usable = x[..., :size, :], accepted[..., :size, :]
    count = usable.cumsum(-2)
    # Accepted values packed to the front; the rejected all land in a slot beyond the end.
    packed = torch.cat((pool, pool[..., -1:, :]), -2).scatter(
        -2, torch.where(usable, count - 1, size), pool
    )
    turn = torch.arange(extra, device=x.device).unsqueeze(-1) % count[..., -1:, :].clamp_min(1)
    stand_in = packed.gather(-2, turn)
    times = -(-(x.shape[-2] - extra) // extra)
    stand_in = torch.cat((stand_in,) * times, -2)[..., : x.shape[-2] - extra, :]
    return torch.where(accepted[..., extra:, :], x[..., extra:, :], stand_in)


class Intervals(NamedTuple):
    """Envelope of a density: exp(height - rate * distance from `origin`) on an interval of
    `length`, on the `side` (-1, +1) of its origin.

    All [..., K, N]. An interval starts at its higher end, up to rounding: `rate` may be slightly
    negative, but not where the length is infinite."""

    origin: Float[Tensor, "*B K N"]
    side: Float[Tensor, "*#B K #N"]
    length: Float[Tensor, "*B K N"]
    height: Float[Tensor, "*B K N"]
    rate: Float[Tensor, "*B K N"]


def sample_under(
    intervals: Intervals,
    log_density: Callable[[Float[Tensor, "*B C N"]], Float[Tensor, "*B C N"]],
    samples: int,
    draws: Draws,
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
    # A nearly flat piece is tilted, and lifted to stay above: dividing by its rate would lose
    # digits.
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
    fall = (
        torch.addcmul(_at(interval, scale * (mass - ends)), _at(interval, scale), u)
        .clamp_min_(-1 + 1e-16)
        .log1p_()
    )
    x = torch.addcmul(
        _at(interval, intervals.origin), _at(interval, intervals.side / rate), fall, value=-1
    )
    return x, _at(interval, height) + fall


def _at(interval: Int[Tensor, "*B C N"], table: Float[Tensor, "*B K N"]) -> Float[Tensor, "*B C N"]:
    return table.gather(-2, interval)


@product_sampler("log_concave", LogConcave)
def log_concave(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws
) -> ProductSample:
    """Exact rejection under 10 tangents to log(q p), four on either side of the mode and the
    tails."""
    assert isinstance(likelihood, LogConcave)
    mu, v, y = torch.broadcast_tensors(mu, v, y)
    mode = likelihood.mode(mu, v, y)
    left, right = likelihood.reach(mode, TANGENT_DROP)
    over = mode.over_samples()

    # Per interval, in units of the reach: where it starts, where the tangent touches, how long it
    # is; and its side.
    number = torch.arange(2 * TANGENTS + 2, dtype=mu.dtype, device=mu.device).unsqueeze(-1)
    side = torch.ones_like(number).masked_fill(number <= TANGENTS, -1.0)
    start = number % (TANGENTS + 1) / TANGENTS
    tail = start == 1
    touch = (start + 0.5 / TANGENTS).masked_fill(tail, 1.0)
    length = torch.full_like(start, 1 / TANGENTS).masked_fill(tail, torch.inf)
    reach = torch.where(side < 0, left.unsqueeze(-2), right.unsqueeze(-2))
    x = side * touch * reach
    slope = likelihood.terms(over.f + x, over.y).slope - over.precision * (x + over.shift)
    height = -likelihood.fall(x, over)
    origin = side * start * reach
    height = height + slope * (origin - x)
    # A tangent that touches behind a bend rises far above the mode where its interval starts: there
    # flat is better.
    steep = height > 0.5
    height, slope = height.masked_fill(steep, 0.0), slope.masked_fill(steep, 0.0)
    intervals = Intervals(origin, side, length * reach, height, -side * slope)

    x, accepted = sample_under(intervals, lambda x: -likelihood.fall(x, over), samples, draws)
    e = (x + over.shift) * v.rsqrt().unsqueeze(-2)
    return ProductSample(e, accepted.sum(-2, dtype=mu.dtype), accepted.shape[-2])


@product_sampler("scale_mixture", StudentT)
def scale_mixture(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws
) -> ProductSample:
    """Draw u = log w from its density given y, proportional to InvGamma(w) N(y; mu, v + w) dw, then
    f given w and y.

    log of that density is A(u) + c(u) with A concave and c(u) = -(y - mu)^2 / (2 (v + w)) rising,
    convex for w < v and concave beyond: a tangent to A plus a tangent or a chord to c bounds it on
    each interval, so the rejection is exact."""
    assert isinstance(likelihood, StudentT)
    mu, v, y = torch.broadcast_tensors(mu, v, y)
    low, high = likelihood.mixture_range((y - mu).square(), v, PIECES_DROP)
    lifted = likelihood.over_samples()
    a, b = lifted.nu / 2, lifted.nu * lifted.scale.square() / 2
    d2, v_, low_, span = ((t.unsqueeze(-2)) for t in ((y - mu).square(), v, low, high - low))

    def concave(u: Tensor) -> Tensor:
        return -a * u - b * (-u).exp() - 0.5 * (v_ + u.exp()).log()

    def mixed(u: Tensor) -> Tensor:
        return -0.5 * d2 / (v_ + u.exp())

    def mixed_slope(w: Tensor) -> Tensor:
        return 0.5 * d2 * w / (v_ + w).square()

    # Left ends of the intervals in [0, 1] (the two tails first and last), their lengths, and their
    # directions.
    number = torch.arange(PIECES + 2, dtype=mu.dtype, device=mu.device).unsqueeze(-1)
    start = (number - 1).clamp_min(0) / PIECES
    tail = (number == 0) | (start == 1)
    length = torch.full_like(start, 1 / PIECES).masked_fill(tail, torch.inf)
    side = torch.ones_like(start).masked_fill(number == 0, -1.0)
    left = low_ + start * span
    step = span / PIECES
    touch = left + torch.where(tail, 0.0, step / 2)
    w = touch.exp()
    slope = -a + b / w - 0.5 * w / (v_ + w)
    height = concave(touch) - slope * (touch - left)
    # c on the interval: tangent where concave; chord where convex; steepest line from the left end
    # where it turns.
    first, last = left.exp() >= v_, (left + step).exp() <= v_
    c0 = mixed(left)
    c_slope = torch.where(
        first,
        mixed_slope(w),
        torch.where(last, (mixed(left + step) - c0) / step, d2 / (8 * v_).clamp_min(1e-300)),
    )
    c_height = torch.where(first, mixed(touch) - mixed_slope(w) * (touch - left), c0)
    # In the tails: to the left c is below its value at the end; to the right, if still convex,
    # below its limit 0.
    c_slope = torch.where(tail & ((side < 0) | ~first), 0.0, c_slope)
    c_height = torch.where(tail & (side > 0) & ~first, 0.0, torch.where(side < 0, c0, c_height))
    slope, height = slope + c_slope, height + c_height
    rising = (slope > 0) & ~tail
    origin = torch.where(rising, left + step, left)
    height = torch.where(rising, height + slope * step, height)
    top = height.amax(-2, keepdim=True)
    side = torch.where(rising, -1.0, side)
    intervals = Intervals(origin, side, length * span, height - top, -side * slope)
    u, accepted = sample_under(intervals, lambda u: concave(u) + mixed(u) - top, samples, draws)

    w = u.exp()
    centre = (v.sqrt() * (y - mu)).unsqueeze(-2) / (v_ + w)
    e = centre + (w / (v_ + w)).sqrt() * draws.normal(samples, mu.shape[-1])
    return ProductSample(e, accepted.sum(-2, dtype=mu.dtype), accepted.shape[-2])


class Pieces(NamedTuple):
    """What lies above q~ of counts, as fractions of its peak: exp(lift - x^2 / 2 right^2) on the
    right, exp(-x^2 / 2 left^2) on the left as far as -c, and exp(-depth + slope (x + c)) beyond.
    All [..., N].

    With x the distance from the mode, r the rate e^f there and p = 1/v, log q~ falls by r (e^x - 1
    - x) + p x^2/2, and e^x - 1 - x is bounded by parabolas, all of them below it:

    - on the right k x^2/2 - d with k = (e^a - 1)/a, whichever a > 0: the two touch at x = a, where
    d makes them meet; - on the left as far as -c the one through the origin and its value at -c: k
    = 2 (e^-c - 1 + c)/c^2.

    So q~ lies under a half-normal on either side, and beyond -c under the tangent to its logarithm
    there."""

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
def half_normals(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws
) -> ProductSample:
    """Exact rejection under two half-normals and an exponential tail, `pieces`."""
    assert isinstance(likelihood, Poisson)
    mu, v, y = torch.broadcast_tensors(mu, v, y)
    mode = likelihood.mode(mu, v, y)
    loss = on_side_stream(lambda: likelihood.log_loss_around(mode), mu.device)
    right_width, lift, left_width, c, depth, slope = pieces(mode.at.curvature, mode.precision)
    # Masses in units of sqrt(pi/2).
    right_mass, tail_mass = (
        lift.exp() * right_width,
        math.sqrt(2 / math.pi) * (-depth).exp() / slope,
    )
    others = left_width + tail_mass
    total = right_mass + others

    extra, n = spares(samples), mu.shape[-1]
    pick, chance, size, bound = draws.transformed(_ingredients, 3 * (extra + samples), n)
    lift, c, depth, slope, step, left_width, first, last = (
        t.unsqueeze(-2)
        for t in (
            lift,
            c,
            depth,
            slope,
            right_width + left_width,
            left_width,
            total / others,
            total / tail_mass,
        )
    )
    # An exponential picks the piece: right if it is small, the tail if it is large, and then what
    # it has beyond the threshold is an exponential again. `right` is a number, 0 or 1: torch.where
    # takes three times as long on a CPU.
    right = (pick < first.log()).to(mu.dtype)
    beyond = pick - last.log()
    tail = beyond > 0
    x = torch.where(
        tail,
        torch.addcdiv(-c, beyond, slope, value=-1),
        torch.addcmul(-left_width, right, step).mul_(size),
    )
    bound = torch.where(tail, beyond + depth, torch.addcmul(bound, right, lift, value=-1))
    # What the half-normal proposes beyond -c is the tail's affair.
    accepted = (likelihood.fall(x, mode.over_samples()) - bound < chance) & (tail | (x >= -c))

    x = replace_rejected(x, accepted, extra)
    e = x.add_(mode.shift.unsqueeze(-2)).mul_(mode.precision.sqrt().unsqueeze(-2))
    return ProductSample(e, accepted.sum(-2, dtype=mu.dtype), accepted.shape[-2], loss())


def _ingredients(u: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Two exponentials, a half-normal, and how far its log density lies below that at 0, of
    uniforms [..., 3 C, N]."""
    pick, chance, half = u.chunk(3, -2)
    half = half.erfinv()
    return pick.log().neg_(), chance.log().neg_(), half * math.sqrt(2), half.square()


def _reach(r: Tensor, p: Tensor) -> Tensor:
    """About where the fall on the left is DROP; any other point would do, only not as well."""
    return 2 * DROP * torch.addcmul(2 * DROP * p, *[(2 * DROP * r + 1).sqrt() - 1] * 2).rsqrt()


def on_side_stream(work: Callable[[], Tensor], device: torch.device) -> Callable[[], Tensor]:
    """Begin `work` and return a function that waits for its result; on a CPU, `work` itself.

    A captured graph takes the fork and the join along. Both streams wait for each other, so neither
    reuses memory that the other still reads, provided that what `work` reads is kept until its
    result has been asked for."""
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
    """One for each stream that work is taken from: what is freed on a side stream may still be read
    on its main one."""
    return torch.cuda.Stream(device)
