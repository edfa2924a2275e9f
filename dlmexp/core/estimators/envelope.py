"""Exact rejection sampling under an envelope: many rows, a fixed number of operations, no loop.

The envelope is piecewise exponential or, for counts with the exponential link, made of
half-normals. In the first case, a row's log density is bounded on each of K intervals by a straight
line. A candidate picks an interval by its mass and a point in it by inversion, and is accepted with
probability density / envelope.

In addition to the L candidates for its L samples, a row draws spares; a rejected candidate is
replaced by an accepted one of the row's first few. Which candidates are accepted says nothing about
the values of those accepted, so every sample has exactly the target's distribution. That holds too
where several are rejected and one value replaces two of them. Only a row whose POOL first
candidates are all rejected would keep one that was not accepted: a chance of 1e-12 at the typical
acceptance of 0.95, and of 4e-4 at 0.58, the worst that was seen up to v = 10^4 (Poisson counts of
0).
"""

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
from dlmexp.core.likelihoods.log_concave import Mode

POOL = 9
"""Candidates of a row, spares first, that may stand in for rejected ones."""
TILT = 1e-2
"""Fall over a piece that is nearly flat."""
TANGENTS = 4
"""Tangents on each side of the mode, for `log_concave`."""
TANGENT_DROP = 8.0
"""The tails of `log_concave` start where a Gaussian is four deviations out."""
PIECES = 64
"""Pieces of `scale_mixture`."""
PIECES_DROP = 12.0
"""The tails of `scale_mixture` start where the log density has fallen by as much."""
# Of `half_normals`, chosen on a grid of corners: acceptance is 0.96 where q is as after training,
# at least 0.8 for v <= 100, and 0.58 in the worst corner up to v = 10^4 (no counts, and a q that
# reaches far beyond where the likelihood cuts it off).
LIFT = 0.5
"""a = log(1 + LIFT v / (1 + r v))"""
LEFT_DROP = 3.0
"""q~ has fallen by about this much at -c."""


def spares(samples: int) -> int:
    """Return how many candidates a row draws beyond the samples.

    They are at least two, fill a pool together with the samples, and grow with their number.
    """
    return max(POOL - samples, 2) + samples // 16


def replace_rejected(
    x: Float[Tensor, "*B C N"], accepted: Bool[Tensor, "*B C N"], extra: int
) -> Float[Tensor, "*B L N"]:
    """Return the candidates from `extra` on, where the rejected ones are replaced.

    Number l of these, if rejected, gives way to stand-in number l modulo `extra`. The stand-ins are
    the first `extra` accepted candidates of the row's pool, over again if it has fewer.
    """
    samples = x.shape[-2] - extra
    size = max(POOL, extra)
    pool = x[..., :size, :]
    usable = accepted[..., :size, :]
    count = usable.cumsum(-2)
    # Accepted values packed to the front; the rejected all land in a slot beyond the end.
    slots = torch.cat((pool, pool[..., -1:, :]), -2)
    packed = slots.scatter(-2, torch.where(usable, count - 1, size), pool)
    turn = torch.arange(extra, device=x.device).unsqueeze(-1) % count[..., -1:, :].clamp_min(1)
    stand_in = packed.gather(-2, turn)
    times = -(-samples // extra)  # rounded up
    stand_in = torch.cat((stand_in,) * times, -2)[..., :samples, :]
    return torch.where(accepted[..., extra:, :], x[..., extra:, :], stand_in)


class Intervals(NamedTuple):
    """Envelope of a density on K intervals, all [..., K, N].

    It is exp(height - rate * distance from `origin`) on an interval of `length`, on the `side`
    (-1, +1) of its origin. An interval starts at its higher end, up to rounding: `rate` may be
    slightly negative, but not where the length is infinite.
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
    draws: Draws,
) -> tuple[Float[Tensor, "*B L N"], Bool[Tensor, "*B C N"]]:
    """Return `samples` draws per row from the density, and which candidates were accepted."""
    extra = spares(samples)
    n = intervals.origin.shape[-1]
    x, log_envelope = _propose(intervals, draws.uniform(extra + samples, n, stream=0))
    threshold = draws.uniform(extra + samples, n, stream=1)
    accepted = threshold < (log_density(x) - log_envelope).exp_()
    return replace_rejected(x, accepted, extra), accepted


def _propose(
    intervals: Intervals, u: Float[Tensor, "*B C N"]
) -> tuple[Float[Tensor, "*B C N"], Float[Tensor, "*B C N"]]:
    """Return one point per uniform number, and the log of the envelope there."""
    # A nearly flat piece is tilted, and lifted to stay above: dividing by its rate would lose
    # digits.
    flat = (intervals.rate * intervals.length).abs() < TILT
    rate = torch.where(flat, TILT / intervals.length, intervals.rate)
    height = torch.where(flat, intervals.height + 2 * TILT, intervals.height)
    # mass = e^height (1 - e^(-rate length)) / rate
    shrink = (-rate * intervals.length).exp_() - 1
    mass = -height.exp() * shrink / rate
    ends = mass.cumsum(-2)
    u = u * ends[..., -1:, :]
    interval = _interval_of(u, ends)
    # Inversion within the interval, whose mass lies from ends - mass to ends:
    # e^(-rate distance) - 1 = shrink (u - (ends - mass)) / mass = scale (mass - ends) + scale u
    scale = shrink / mass
    constant = _at(interval, scale * (mass - ends))
    exp_minus_1 = torch.addcmul(constant, _at(interval, scale), u)
    # -rate distance
    fall = exp_minus_1.clamp_min_(-1 + 1e-16).log1p_()
    # x = origin + side * distance
    origin = _at(interval, intervals.origin)
    x = torch.addcmul(origin, _at(interval, intervals.side / rate), fall, value=-1)
    return x, _at(interval, height) + fall


def _interval_of(
    u: Float[Tensor, "*B C N"], ends: Float[Tensor, "*B K N"]
) -> Int[Tensor, "*B C N"]:
    """Return the number of ends, without the last, that lie below u."""
    # On a CPU, counting in bytes is twice as fast as a search, or as counting in longs.
    interval = torch.zeros_like(u, dtype=torch.uint8)
    for j in range(ends.shape[-2] - 1):
        interval += (u > ends[..., j : j + 1, :]).view(torch.uint8)
    return interval.long()


def _at(interval: Int[Tensor, "*B C N"], table: Float[Tensor, "*B K N"]) -> Float[Tensor, "*B C N"]:
    return table.gather(-2, interval)


@product_sampler("log_concave", LogConcave)
def log_concave(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws
) -> ProductSample:
    """Draw by rejection under 10 lines above log(q p): four tangents and a tail on either side."""
    assert isinstance(likelihood, LogConcave)
    mu, v, y = torch.broadcast_tensors(mu, v, y)
    mode = likelihood.mode(mu, v, y)
    left, right = likelihood.reach(mode, TANGENT_DROP)
    sample_mode = mode.over_samples()
    intervals = _tangents(likelihood, sample_mode, left.unsqueeze(-2), right.unsqueeze(-2))

    def log_density(x: Tensor) -> Tensor:
        return -likelihood.fall(x, sample_mode)

    x, accepted = sample_under(intervals, log_density, samples, draws)
    e = (x + sample_mode.shift) * v.rsqrt().unsqueeze(-2)
    return ProductSample(e, accepted.sum(-2, dtype=mu.dtype), accepted.shape[-2])


def _tangents(
    likelihood: LogConcave,
    mode: Mode,
    left: Float[Tensor, "*B 1 N"],
    right: Float[Tensor, "*B 1 N"],
) -> Intervals:
    """Return tangents to log(q p) up to `left` and `right` of the mode, and the tails beyond."""
    # Per interval, in units of the reach: where it starts, where the tangent touches, how long it
    # is; and its side.
    number = torch.arange(2 * TANGENTS + 2, dtype=left.dtype, device=left.device).unsqueeze(-1)
    side = torch.ones_like(number).masked_fill(number <= TANGENTS, -1.0)
    start = number % (TANGENTS + 1) / TANGENTS
    tail = start == 1
    touch = (start + 0.5 / TANGENTS).masked_fill(tail, 1.0)
    length = torch.full_like(start, 1 / TANGENTS).masked_fill(tail, torch.inf)
    reach = torch.where(side < 0, left, right)
    # The tangent at x, and its height at the interval's origin
    x = side * touch * reach
    slope_of_p = likelihood.terms(mode.f + x, mode.y).slope
    slope = slope_of_p - mode.precision * (x + mode.shift)
    origin = side * start * reach
    height = -likelihood.fall(x, mode) + slope * (origin - x)
    # A tangent that touches behind a knee rises far above the mode where its interval starts: there
    # flat is better.
    steep = height > 0.5
    height = height.masked_fill(steep, 0.0)
    slope = slope.masked_fill(steep, 0.0)
    return Intervals(origin, side, length * reach, height, -side * slope)


class MixtureDensity(NamedTuple):
    """Density of u = log w given y, where f ~ N(mu, v), y ~ N(f, w) and w ~ InvGamma(a, b).

    Its logarithm is A(u) + c(u) up to a constant, with d2 = (y - mu)^2 and

        A(u) = -a u - b e^-u - log(v + e^u) / 2     concave
        c(u) = -d2 / (2 (v + e^u))                  rising; convex for w < v, concave beyond
    """

    a: Tensor
    b: Tensor
    d2: Float[Tensor, "*B 1 N"]
    v: Float[Tensor, "*B 1 N"]

    def concave(self, u: Tensor) -> Tensor:
        """Return A(u)."""
        return -self.a * u - self.b * (-u).exp() - 0.5 * (self.v + u.exp()).log()

    def concave_slope(self, w: Tensor) -> Tensor:
        """Return A'(u) at w = e^u."""
        return -self.a + self.b / w - 0.5 * w / (self.v + w)

    def rising(self, u: Tensor) -> Tensor:
        """Return c(u)."""
        return -0.5 * self.d2 / (self.v + u.exp())

    def rising_slope(self, w: Tensor) -> Tensor:
        """Return c'(u) at w = e^u."""
        return 0.5 * self.d2 * w / (self.v + w).square()

    def steepest_rise(self) -> Tensor:
        """Return the largest c'(u), at w = v."""
        return self.d2 / (8 * self.v).clamp_min(1e-300)


@product_sampler("scale_mixture", StudentT)
def scale_mixture(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws
) -> ProductSample:
    """Draw u = log w from its density given y (`MixtureDensity`), then f given w and y.

    A tangent to A plus a tangent or a chord to c bounds the log density on each interval, so the
    rejection is exact.
    """
    assert isinstance(likelihood, StudentT)
    mu, v, y = torch.broadcast_tensors(mu, v, y)
    d2 = (y - mu).square()
    low, high = likelihood.mixture_range(d2, v, PIECES_DROP)
    a, b = likelihood.over_samples().inverse_gamma
    v_samples = v.unsqueeze(-2)
    density = MixtureDensity(a, b, d2.unsqueeze(-2), v_samples)
    intervals, top = _mixture_pieces(density, low.unsqueeze(-2), (high - low).unsqueeze(-2))

    def log_density(u: Tensor) -> Tensor:
        return density.concave(u) + density.rising(u) - top

    u, accepted = sample_under(intervals, log_density, samples, draws)
    # f given w and y is N(mu + v (y - mu) / (v + w), v w / (v + w)).
    w = u.exp()
    centre = (v.sqrt() * (y - mu)).unsqueeze(-2) / (v_samples + w)
    e = centre + (w / (v_samples + w)).sqrt() * draws.normal(samples, mu.shape[-1])
    return ProductSample(e, accepted.sum(-2, dtype=mu.dtype), accepted.shape[-2])


def _mixture_pieces(
    density: MixtureDensity, low: Float[Tensor, "*B 1 N"], span: Float[Tensor, "*B 1 N"]
) -> tuple[Intervals, Float[Tensor, "*B 1 N"]]:
    """Return lines above the log density less `top`, and `top`.

    The intervals are pieces of [low, low + span], and the two tails, first and last.
    """
    # Left ends of the intervals in [0, 1], their lengths, and their directions.
    number = torch.arange(PIECES + 2, dtype=low.dtype, device=low.device).unsqueeze(-1)
    start = (number - 1).clamp_min(0) / PIECES
    tail = (number == 0) | (start == 1)
    length = torch.full_like(start, 1 / PIECES).masked_fill(tail, torch.inf)
    side = torch.ones_like(start).masked_fill(number == 0, -1.0)
    left = low + start * span
    step = span / PIECES
    touch = left + torch.where(tail, 0.0, step / 2)
    # Slope and height at the left end of the tangent to A, and of the line above c
    slope = density.concave_slope(touch.exp())
    height = density.concave(touch) - slope * (touch - left)
    c_slope, c_height = _line_above_c(density, left, step, touch, tail, side)
    slope = slope + c_slope
    height = height + c_height
    # A rising line starts at its right end.
    rising = (slope > 0) & ~tail
    origin = torch.where(rising, left + step, left)
    height = torch.where(rising, height + slope * step, height)
    side = torch.where(rising, -1.0, side)
    top = height.amax(-2, keepdim=True)
    return Intervals(origin, side, length * span, height - top, -side * slope), top


def _line_above_c(
    density: MixtureDensity,
    left: Float[Tensor, "*B K N"],
    step: Float[Tensor, "*B 1 N"],
    touch: Float[Tensor, "*B K N"],
    tail: Bool[Tensor, "K 1"],
    side: Float[Tensor, "K 1"],
) -> tuple[Float[Tensor, "*B K N"], Float[Tensor, "*B K N"]]:
    """Return slope and height at the left end of a line above c on each interval.

    It is a tangent where c is concave, a chord where c is convex, and the steepest line from the
    left end where c turns.
    """
    is_concave = left.exp() >= density.v
    is_convex = (left + step).exp() <= density.v
    c_left = density.rising(left)
    tangent = density.rising_slope(touch.exp())
    chord = (density.rising(left + step) - c_left) / step
    slope = torch.where(is_convex, chord, density.steepest_rise())
    slope = torch.where(is_concave, tangent, slope)
    height = torch.where(is_concave, density.rising(touch) - tangent * (touch - left), c_left)
    # In the tails: to the left c is below its value at the end; to the right, if still convex,
    # below its limit 0.
    slope = torch.where(tail & ((side < 0) | ~is_concave), 0.0, slope)
    height = torch.where(side < 0, c_left, height)
    height = torch.where(tail & (side > 0) & ~is_concave, 0.0, height)
    return slope, height


class Pieces(NamedTuple):
    """What lies above q~ of counts, as fractions of its peak: all [..., N].

    It is exp(lift - x^2 / (2 right^2)) on the right, exp(-x^2 / (2 left^2)) on the left as far as
    -c, and exp(-depth + slope (x + c)) beyond.

    With x the distance from the mode, r the rate e^f there and p = 1/v, log q~ falls by
    r (e^x - 1 - x) + p x^2/2, and e^x - 1 - x is bounded from below by parabolas:

    - on the right k x^2/2 - d with k = (e^a - 1)/a for any a > 0: then both have the same slope at
      x = a, and d is such that they touch there;
    - on the left as far as -c the one through the origin and its value at -c:
      k = 2 (e^-c - 1 + c)/c^2.

    So q~ lies under a half-normal on either side, and beyond -c under the tangent to its logarithm
    there.
    """

    right: Tensor
    lift: Tensor
    left: Tensor
    c: Tensor
    depth: Tensor
    slope: Tensor


def pieces(r: Tensor, p: Tensor) -> Pieces:
    """Return the pieces for a rate r at the mode and a precision p = 1/v of q."""
    # a = log(1 + LIFT / (r + p)),  k = (e^a - 1) / a on the right
    a = torch.log1p(LIFT / (r + p))
    rise = torch.expm1(a)
    c = _left_end(r, p)
    # e^-c - 1
    fall = torch.expm1(-c)
    half_square = c * c / 2
    # p + r k on the left
    p_left = torch.addcdiv(p, r * (c + fall), half_square)
    return Pieces(
        right=torch.addcdiv(p, r * rise, a).rsqrt(),
        lift=r * torch.addcmul(a, rise, a / 2 - 1),
        left=p_left.rsqrt(),
        c=c,
        depth=p_left * half_square,
        slope=torch.addcmul(p * c, r, fall, value=-1),
    )


@product_sampler("half_normals", Poisson)
def half_normals(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws
) -> ProductSample:
    """Draw by rejection under two half-normals and an exponential tail, `pieces`."""
    assert isinstance(likelihood, Poisson)
    mu, v, y = torch.broadcast_tensors(mu, v, y)
    mode = likelihood.mode(mu, v, y)
    wait_for_loss = on_side_stream(lambda: likelihood.log_loss_around(mode), mu.device)
    envelope = pieces(mode.at.curvature, mode.precision)
    extra = spares(samples)
    arrays = draws.transformed(_ingredients, 3 * (extra + samples), mu.shape[-1])
    ingredients = Ingredients(*arrays)
    x, depth, inside = _propose_from_pieces(envelope, ingredients)
    fall = likelihood.fall(x, mode.over_samples())
    accepted = (fall - depth < ingredients.chance) & inside
    x = replace_rejected(x, accepted, extra)
    e = x.add_(mode.shift.unsqueeze(-2)).mul_(mode.precision.sqrt().unsqueeze(-2))
    return ProductSample(e, accepted.sum(-2, dtype=mu.dtype), accepted.shape[-2], wait_for_loss())


class Ingredients(NamedTuple):
    """Random numbers [..., C, N] of which candidates are made."""

    pick: Tensor
    """exponential, picks the piece"""
    chance: Tensor
    """exponential, minus the log of the uniform that accepts"""
    size: Tensor
    """half-normal"""
    half_square: Tensor
    """size^2 / 2"""


def _ingredients(u: Float[Tensor, "*B C3 N"]) -> tuple[Tensor, ...]:
    """Return `Ingredients` of uniforms [..., 3 C, N]."""
    pick, chance, half = u.chunk(3, -2)
    half = half.erfinv()
    return Ingredients(
        pick=pick.log().neg_(),
        chance=chance.log().neg_(),
        size=half * math.sqrt(2),
        half_square=half.square(),
    )


def _propose_from_pieces(
    envelope: Pieces, numbers: Ingredients
) -> tuple[Float[Tensor, "*B C N"], Float[Tensor, "*B C N"], Bool[Tensor, "*B C N"]]:
    """Return candidates, how far the envelope lies below q~'s peak there, and which are allowed.

    A half-normal's candidates beyond -c are not allowed: the tail has candidates of its own there.
    """
    # Masses in units of sqrt(pi/2)
    right_mass = envelope.lift.exp() * envelope.right
    tail_mass = math.sqrt(2 / math.pi) * (-envelope.depth).exp() / envelope.slope
    others = envelope.left + tail_mass
    total = right_mass + others
    # An exponential picks the piece: the right if it is small, the tail if it is large, and then
    # its excess over the threshold is an exponential again.
    right_threshold = (total / others).unsqueeze(-2).log()
    tail_threshold = (total / tail_mass).unsqueeze(-2).log()
    # A number, 0 or 1: torch.where takes three times as long on a CPU.
    right = (numbers.pick < right_threshold).to(numbers.pick.dtype)
    excess = numbers.pick - tail_threshold
    tail = excess > 0
    c = envelope.c.unsqueeze(-2)
    # In the tail x = -c - excess / slope; else x = width size, where width is -left or +right
    x_of_tail = torch.addcdiv(-c, excess, envelope.slope.unsqueeze(-2), value=-1)
    step = (envelope.right + envelope.left).unsqueeze(-2)
    width = torch.addcmul(-envelope.left.unsqueeze(-2), right, step)
    x = torch.where(tail, x_of_tail, width.mul_(numbers.size))
    # In the tail depth + excess; else size^2 / 2, less the lift on the right
    lift = envelope.lift.unsqueeze(-2)
    depth_of_half = torch.addcmul(numbers.half_square, right, lift, value=-1)
    depth = torch.where(tail, excess + envelope.depth.unsqueeze(-2), depth_of_half)
    return x, depth, tail | (x >= -c)


def _left_end(r: Tensor, p: Tensor) -> Tensor:
    """Return c, about where the fall on the left is LEFT_DROP.

    Any other point would do, only not as well.
    """
    # sqrt(2 LEFT_DROP r + 1) - 1
    root = (2 * LEFT_DROP * r + 1).sqrt() - 1
    return 2 * LEFT_DROP * torch.addcmul(2 * LEFT_DROP * p, root, root).rsqrt()


def on_side_stream(work: Callable[[], Tensor], device: torch.device) -> Callable[[], Tensor]:
    """Begin `work` and return a function that waits for its result; on a CPU, `work` itself.

    A captured graph takes the fork and the join along. Both streams wait for each other, so neither
    reuses memory that the other still reads, provided that what `work` reads is kept until its
    result has been used.
    """
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
def _side_stream(device: torch.device, main_stream: int) -> torch.cuda.Stream:
    """Return the side stream of a main one.

    Each has its own: what is freed on a side stream may still be read on its main one.
    """
    return torch.cuda.Stream(device)
