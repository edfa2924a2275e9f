"""Exact rejection sampling under an envelope: many rows, a fixed number of operations, no loop.

The envelope is piecewise exponential or, for counts with the exponential link, made of
half-normals. A piecewise exponential envelope bounds a row's log density by a straight line on each
of K intervals. A candidate picks an interval by its mass and a point in it by inversion, and is
accepted with probability density / envelope.

In addition to the L candidates for its L samples, a row draws spare candidates, which come first. A
rejected candidate is replaced by an accepted candidate from the row's pool, its first `POOL`
candidates. Whether a candidate is accepted does not depend on the values of other candidates, so
every sample has exactly the distribution of the target, even if one value replaces two rejected
candidates. Only a row whose pool is rejected as a whole keeps a rejected candidate. The probability
of this is 1e-12 at the typical acceptance rate of 0.95, and 4e-4 at 0.58, the lowest rate that was
seen up to v = 10^4 (Poisson counts of 0).
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
"""Number of candidates in a row's pool, those that may replace rejected ones."""
TILT = 1e-2
"""Where the log of the envelope falls by less than this over an interval, it is tilted to fall by
this much (`_propose`)."""
TANGENTS = 4
"""Number of tangents on each side of the mode, for `log_concave`."""
TANGENT_DROP = 8.0
"""The tails of `log_concave` start where the log density is this much below its maximum, as that of
a Gaussian is four standard deviations from its mean."""
PIECES = 64
"""Number of pieces between the tails, for `scale_mixture`."""
PIECES_DROP = 12.0
"""The tails of `scale_mixture` start where the log density is this much below its maximum."""
# LIFT and LEFT_DROP belong to `half_normals`. They were chosen on a grid of extreme v, mu and y:
# the acceptance rate is 0.96 for q as after training, at least 0.8 for v <= 100, and 0.58 in the
# worst case up to v = 10^4 (a count of 0, and a q much wider than the likelihood).
LIFT = 0.5
"""The right half-normal touches the density at x = a = log(1 + LIFT v / (1 + r v))."""
LEFT_DROP = 3.0
"""The left half-normal ends at x = -c, where log q~ has fallen by about this much."""


def number_of_spares(samples: int) -> int:
    """Return the number of candidates that a row draws in addition to those for its samples.

    There are at least two, and enough to fill a pool together with the samples; to these, one is
    added for every 16 samples.
    """
    return max(POOL - samples, 2) + samples // 16


def replace_rejected(
    x: Float[Tensor, "*B C N"], accepted: Bool[Tensor, "*B C N"], spare_count: int
) -> Float[Tensor, "*B L N"]:
    """Return the candidates after the spare ones, with replacements of those that were rejected.

    Rejected candidate l is replaced by replacement l modulo `spare_count`. The replacements are the
    first `spare_count` accepted candidates of the row's pool, repeated if there are fewer.
    """
    samples = x.shape[-2] - spare_count
    # 1. The accepted candidates of the pool, packed to the front. The rejected ones are all written
    #    to one slot beyond the end.
    pool_size = max(POOL, spare_count)
    pool = x[..., :pool_size, :]
    is_usable = accepted[..., :pool_size, :]
    usable_so_far = is_usable.cumsum(-2)
    slots = torch.cat((pool, pool[..., -1:, :]), -2)
    packed = slots.scatter(-2, torch.where(is_usable, usable_so_far - 1, pool_size), pool)
    # 2. `spare_count` replacements of each row
    usable_count = usable_so_far[..., -1:, :].clamp_min(1)
    number = torch.arange(spare_count, device=x.device).unsqueeze(-1) % usable_count
    replacements = packed.gather(-2, number)
    # 3. One replacement for every sample
    repeats = math.ceil(samples / spare_count)
    replacements = torch.cat((replacements,) * repeats, -2)[..., :samples, :]
    return torch.where(accepted[..., spare_count:, :], x[..., spare_count:, :], replacements)


class Intervals(NamedTuple):
    """Envelope of a density on K intervals, all [..., K, N].

    On an interval the envelope is exp(height - rate * distance from the origin).

    Attributes:
        origin: The end of the interval where the envelope is larger, up to rounding.
        side: The side of the origin on which the interval is: -1 or +1.
        length: The length of the interval, perhaps infinite.
        height: The log of the envelope at the origin.
        rate: How fast the log of the envelope falls. Rounding may make it slightly negative, but
            only where the length is finite.
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
    """Return samples of the density for every row, and which candidates were accepted.

    The density need not be normalised; it must lie below the envelope `intervals`.
    """
    spare_count = number_of_spares(samples)
    n = intervals.origin.shape[-1]
    x, log_envelope = _propose(intervals, draws.uniform(spare_count + samples, n, stream=0))
    threshold = draws.uniform(spare_count + samples, n, stream=1)
    accepted = threshold < (log_density(x) - log_envelope).exp_()
    return replace_rejected(x, accepted, spare_count), accepted


def _propose(
    intervals: Intervals, u: Float[Tensor, "*B C N"]
) -> tuple[Float[Tensor, "*B C N"], Float[Tensor, "*B C N"]]:
    """Return a candidate for each uniform number, and the log of the envelope there."""
    # 1. Dividing by the rate of a nearly flat envelope would lose digits. So the envelope is
    #    tilted, and lifted to stay above the density.
    is_flat = (intervals.rate * intervals.length).abs() < TILT
    rate = torch.where(is_flat, TILT / intervals.length, intervals.rate)
    height = torch.where(is_flat, intervals.height + 2 * TILT, intervals.height)
    # 2. The interval of each candidate, by mass = e^height (1 - e^(-rate length)) / rate
    exp_minus_1_at_end = (-rate * intervals.length).exp_() - 1
    mass = -height.exp() * exp_minus_1_at_end / rate
    cumulated = mass.cumsum(-2)
    u = u * cumulated[..., -1:, :]
    interval = _interval_of(u, cumulated)
    # 3. The point in it, by inversion: as u goes from (cumulated - mass) to cumulated,
    #    e^(-rate distance) - 1 = scale (u - (cumulated - mass)) goes from 0 to its value at the end
    scale = exp_minus_1_at_end / mass
    constant = _value_in_interval(interval, scale * (mass - cumulated))
    exp_minus_1 = torch.addcmul(constant, _value_in_interval(interval, scale), u)
    minus_rate_distance = exp_minus_1.clamp_min_(-1 + 1e-16).log1p_()
    # x = origin + side * distance
    origin = _value_in_interval(interval, intervals.origin)
    side_over_rate = _value_in_interval(interval, intervals.side / rate)
    x = torch.addcmul(origin, side_over_rate, minus_rate_distance, value=-1)
    return x, _value_in_interval(interval, height) + minus_rate_distance


def _interval_of(
    u: Float[Tensor, "*B C N"], cumulated: Float[Tensor, "*B K N"]
) -> Int[Tensor, "*B C N"]:
    """Return the interval of each u: the number of cumulated masses below it, but K - 1 at most."""
    # On a CPU, counting in bytes is twice as fast as a search, and as counting in 64-bit integers.
    interval = torch.zeros_like(u, dtype=torch.uint8)
    for j in range(cumulated.shape[-2] - 1):
        interval += (u > cumulated[..., j : j + 1, :]).view(torch.uint8)
    return interval.long()


def _value_in_interval(
    interval: Int[Tensor, "*B C N"], values: Float[Tensor, "*B K N"]
) -> Float[Tensor, "*B C N"]:
    """Return, for each candidate, the value of its interval, from the values of all intervals."""
    return values.gather(-2, interval)


def _product_sample(e: Float[Tensor, "*B L N"], accepted: Bool[Tensor, "*B C N"]) -> ProductSample:
    """Return the samples with the numbers of accepted candidates and of all candidates."""
    return ProductSample(e, accepted.sum(-2, dtype=e.dtype), proposed=accepted.shape[-2])


@product_sampler("log_concave", LogConcave)
def log_concave(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws
) -> ProductSample:
    """Draw by rejection under ten lines above log(q p): four tangents and a tail on each side."""
    assert isinstance(likelihood, LogConcave)
    mu, v, y = torch.broadcast_tensors(mu, v, y)
    mode = likelihood.mode(mu, v, y)
    left, right = likelihood.reach(mode, TANGENT_DROP)
    mode_over_samples = mode.over_samples()
    intervals = _tangents(likelihood, mode_over_samples, left.unsqueeze(-2), right.unsqueeze(-2))

    def log_density(x: Tensor) -> Tensor:
        return -likelihood.fall(x, mode_over_samples)

    x, accepted = sample_under(intervals, log_density, samples, draws)
    e = (x + mode_over_samples.shift) * v.rsqrt().unsqueeze(-2)
    return _product_sample(e, accepted)


def _tangents(
    likelihood: LogConcave,
    mode: Mode,
    left: Float[Tensor, "*B 1 N"],
    right: Float[Tensor, "*B 1 N"],
) -> Intervals:
    """Return tangents to log(q p) up to `left` and `right` of the mode, and the tails beyond."""
    # 1. The intervals, in units of the reach: where they start, where the tangent touches, and
    #    their lengths. The last interval of each side is the tail.
    number = torch.arange(2 * TANGENTS + 2, dtype=left.dtype, device=left.device).unsqueeze(-1)
    side = torch.ones_like(number).masked_fill(number <= TANGENTS, -1.0)
    start = number % (TANGENTS + 1) / TANGENTS
    is_tail = start == 1
    touch = (start + 0.5 / TANGENTS).masked_fill(is_tail, 1.0)
    length = torch.full_like(start, 1 / TANGENTS).masked_fill(is_tail, torch.inf)
    reach = torch.where(side < 0, left, right)
    # 2. The tangent at x, and its height at the origin of the interval
    x = side * touch * reach
    slope_of_p = likelihood.terms(mode.f + x, mode.y).slope
    slope = slope_of_p - mode.precision * (x + mode.shift)
    origin = side * start * reach
    height = -likelihood.fall(x, mode) + slope * (origin - x)
    # 3. A tangent that touches beyond a bend of the density is far above the mode at the origin of
    #    its interval. The height of the mode, 0, is then the better bound.
    is_steep = height > 0.5
    height = height.masked_fill(is_steep, 0.0)
    slope = slope.masked_fill(is_steep, 0.0)
    return Intervals(origin, side, length * reach, height, rate=-side * slope)


class MixtureDensity(NamedTuple):
    """Density of u = log w given y, where f ~ N(mu, v), y ~ N(f, w) and w ~ InvGamma(a, b).

    Its logarithm is A(u) + c(u) up to a constant, with d2 = (y - mu)^2 and

        A(u) = -a u - b e^-u - log(v + e^u) / 2     concave
        c(u) = -d2 / (2 (v + e^u))                  increasing; convex for w < v, concave for w > v
    """

    a: Tensor
    b: Tensor
    d2: Float[Tensor, "*B 1 N"]
    v: Float[Tensor, "*B 1 N"]

    def concave_part(self, u: Tensor) -> Tensor:
        """Return A(u)."""
        return -self.a * u - self.b * (-u).exp() - 0.5 * (self.v + u.exp()).log()

    def concave_slope(self, w: Tensor) -> Tensor:
        """Return A'(u) at w = e^u."""
        return -self.a + self.b / w - 0.5 * w / (self.v + w)

    def rising_part(self, u: Tensor) -> Tensor:
        """Return c(u)."""
        return -0.5 * self.d2 / (self.v + u.exp())

    def rising_slope(self, w: Tensor) -> Tensor:
        """Return c'(u) at w = e^u."""
        return 0.5 * self.d2 * w / (self.v + w).square()

    def steepest_rise(self) -> Tensor:
        """Return the largest c'(u), which is at w = v."""
        return self.d2 / (8 * self.v).clamp_min(1e-300)


@product_sampler("scale_mixture", StudentT)
def scale_mixture(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws
) -> ProductSample:
    """Draw u = log w from its density given y (`MixtureDensity`), then f given w and y.

    With noise of the variance w, Student's t likelihood is a mixture of Gaussians over w. On each
    interval of u, a tangent to A plus a tangent or a chord to c is above the log density, so the
    rejection is exact.
    """
    assert isinstance(likelihood, StudentT)
    mu, v, y = torch.broadcast_tensors(mu, v, y)
    d2 = (y - mu).square()
    low, high = likelihood.mixture_range(d2, v, PIECES_DROP)
    a, b = likelihood.over_samples().inverse_gamma
    v_samples = v.unsqueeze(-2)
    density = MixtureDensity(a, b, d2.unsqueeze(-2), v_samples)
    intervals, highest = _mixture_pieces(density, low.unsqueeze(-2), (high - low).unsqueeze(-2))

    def log_density(u: Tensor) -> Tensor:
        return density.concave_part(u) + density.rising_part(u) - highest

    u, accepted = sample_under(intervals, log_density, samples, draws)
    # f given w and y is N(mu + v (y - mu) / (v + w), v w / (v + w)).
    w = u.exp()
    mean_of_e = (v.sqrt() * (y - mu)).unsqueeze(-2) / (v_samples + w)
    std_of_e = (w / (v_samples + w)).sqrt()
    e = mean_of_e + std_of_e * draws.normal(samples, mu.shape[-1])
    return _product_sample(e, accepted)


def _mixture_pieces(
    density: MixtureDensity, low: Float[Tensor, "*B 1 N"], span: Float[Tensor, "*B 1 N"]
) -> tuple[Intervals, Float[Tensor, "*B 1 N"]]:
    """Return lines above the log density on intervals, shifted to a maximum of 0, and the shift.

    The shift is the highest value of the lines, which was subtracted from them. The first and the
    last interval are the tails, the others are pieces of [low, low + span].
    """
    # 1. The intervals, in units of the span: their left ends in [0, 1], and their lengths. All but
    #    the left tail extend to the right of their left end.
    number = torch.arange(PIECES + 2, dtype=low.dtype, device=low.device).unsqueeze(-1)
    start = (number - 1).clamp_min(0) / PIECES
    is_tail = (number == 0) | (start == 1)
    length = torch.full_like(start, 1 / PIECES).masked_fill(is_tail, torch.inf)
    side = torch.ones_like(start).masked_fill(number == 0, -1.0)
    left = low + start * span
    step = span / PIECES
    touch = left + torch.where(is_tail, 0.0, step / 2)
    # 2. Slope and height at the left end: of the tangent to A, plus those of the line above c
    slope = density.concave_slope(touch.exp())
    height = density.concave_part(touch) - slope * (touch - left)
    c_slope, c_height = _line_above_c(density, left, step, touch, is_tail, side)
    slope = slope + c_slope
    height = height + c_height
    # 3. The origin of an interval is its higher end: where the line rises, the right end.
    is_rising = (slope > 0) & ~is_tail
    origin = torch.where(is_rising, left + step, left)
    height = torch.where(is_rising, height + slope * step, height)
    side = torch.where(is_rising, -1.0, side)
    highest = height.amax(-2, keepdim=True)
    intervals = Intervals(origin, side, length * span, height - highest, rate=-side * slope)
    return intervals, highest


def _line_above_c(
    density: MixtureDensity,
    left: Float[Tensor, "*B K N"],
    step: Float[Tensor, "*B 1 N"],
    touch: Float[Tensor, "*B K N"],
    is_tail: Bool[Tensor, "K 1"],
    side: Float[Tensor, "K 1"],
) -> tuple[Float[Tensor, "*B K N"], Float[Tensor, "*B K N"]]:
    """Return slope and height at the left end of a line above c on each interval.

    The line is a tangent where c is concave, and a chord where c is convex. On an interval where c
    changes from convex to concave, the line starts from c at the left end, with the largest slope
    that c has anywhere.
    """
    is_concave = left.exp() >= density.v
    is_convex = (left + step).exp() <= density.v
    c_left = density.rising_part(left)
    tangent = density.rising_slope(touch.exp())
    chord = (density.rising_part(left + step) - c_left) / step
    slope = torch.where(is_convex, chord, density.steepest_rise())
    slope = torch.where(is_concave, tangent, slope)
    height = torch.where(is_concave, density.rising_part(touch) - tangent * (touch - left), c_left)
    # As c increases, it is below its value at the end of the left tail in all of this tail. In the
    # right tail it is below its limit 0, which is the line unless c is concave there.
    is_left_tail = side < 0
    is_convex_right_tail = is_tail & (side > 0) & ~is_concave
    slope = torch.where(is_tail & (is_left_tail | ~is_concave), 0.0, slope)
    height = torch.where(is_left_tail, c_left, height)
    height = torch.where(is_convex_right_tail, 0.0, height)
    return slope, height


class HalfNormalEnvelope(NamedTuple):
    """An envelope of q~ for Poisson counts, relative to the peak of q~: all [..., N].

    With x = f - mode, the envelope is

        exp(lift - x^2 / (2 right^2))     for x > 0
        exp(-x^2 / (2 left^2))            for -c < x < 0
        exp(-depth + slope (x + c))       for x < -c

    With the rate r = e^f at the mode and p = 1/v, log q~ falls by r (e^x - 1 - x) + p x^2/2 from
    the mode to x, and e^x - 1 - x is bounded from below by parabolas:

    - for x > 0 by k x^2/2 - d with k = (e^a - 1)/a, for any a > 0: curve and parabola have the same
      slope at x = a, and d is such that they touch there;
    - for -c < x < 0 by k x^2/2 with k = 2 (e^-c - 1 + c)/c^2: curve and parabola are equal at 0 and
      at -c.

    So q~ is below a half-normal on each side. For x < -c, log q~ is below its tangent at -c.
    """

    right: Tensor
    lift: Tensor
    left: Tensor
    c: Tensor
    depth: Tensor
    slope: Tensor


def half_normal_envelope(r: Tensor, p: Tensor) -> HalfNormalEnvelope:
    """Return the envelope for a rate r at the mode and a precision p = 1/v of q."""
    # a = log(1 + LIFT / (r + p)),  k = (e^a - 1) / a on the right
    a = torch.log1p(LIFT / (r + p))
    rise = torch.expm1(a)
    c = _left_end(r, p)
    exp_minus_c_minus_1 = torch.expm1(-c)
    half_c_squared = c * c / 2
    # The precisions of the two half-normals, p + r k
    p_right = torch.addcdiv(p, r * rise, a)
    p_left = torch.addcdiv(p, r * (c + exp_minus_c_minus_1), half_c_squared)
    return HalfNormalEnvelope(
        right=p_right.rsqrt(),
        # r d, with d = a + (e^a - 1) (a/2 - 1)
        lift=r * torch.addcmul(a, rise, a / 2 - 1),
        left=p_left.rsqrt(),
        c=c,
        # How far log q~ has fallen at -c, and its slope there, p c + r (1 - e^-c)
        depth=p_left * half_c_squared,
        slope=torch.addcmul(p * c, r, exp_minus_c_minus_1, value=-1),
    )


@product_sampler("half_normals", Poisson)
def half_normals(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws
) -> ProductSample:
    """Draw by rejection under two half-normals and an exponential tail (`HalfNormalEnvelope`)."""
    assert isinstance(likelihood, Poisson)
    mu, v, y = torch.broadcast_tensors(mu, v, y)
    mode = likelihood.mode(mu, v, y)
    wait_for_loss = start_on_side_stream(lambda: likelihood.log_loss_around(mode), mu.device)
    envelope = half_normal_envelope(mode.terms.curvature, mode.precision)
    spare_count = number_of_spares(samples)
    arrays = draws.transformed(_candidate_numbers, 3 * (spare_count + samples), mu.shape[-1])
    numbers = CandidateNumbers(*arrays)
    x, depth, inside = _propose_from_parts(envelope, numbers)
    fall = likelihood.fall(x, mode.over_samples())
    accepted = (fall - depth < numbers.chance) & inside
    x = replace_rejected(x, accepted, spare_count)
    e = x.add_(mode.shift.unsqueeze(-2)).mul_(mode.precision.sqrt().unsqueeze(-2))
    sample = _product_sample(e, accepted)
    return sample._replace(loss=wait_for_loss())


class CandidateNumbers(NamedTuple):
    """Random numbers [..., C, N] from which the C candidates of a row are computed.

    Attributes:
        pick: Exponential; picks one of the three parts of the envelope.
        chance: Exponential; a candidate is accepted if log(envelope / q~) is less than this.
        size: Half-normal; the distance from the mode, in units of the width of a half-normal part.
        half_square: size^2 / 2.
    """

    pick: Tensor
    chance: Tensor
    size: Tensor
    half_square: Tensor


def _candidate_numbers(u: Float[Tensor, "*B C3 N"]) -> tuple[Tensor, ...]:
    """Return `CandidateNumbers` of uniforms [..., 3 C, N]."""
    pick, chance, half = u.chunk(3, -2)
    half = half.erfinv()
    return CandidateNumbers(
        pick=pick.log().neg_(),
        chance=chance.log().neg_(),
        size=half * math.sqrt(2),
        half_square=half.square(),
    )


def _propose_from_parts(
    envelope: HalfNormalEnvelope, numbers: CandidateNumbers
) -> tuple[Float[Tensor, "*B C N"], Float[Tensor, "*B C N"], Bool[Tensor, "*B C N"]]:
    """Return candidates, minus the log of the envelope there, and which of them are valid.

    Candidates of the left half-normal beyond -c are not valid: the envelope there is the tail.
    """
    # 1. Masses of the three parts, in units of sqrt(pi/2); that of the left half-normal is `left`
    right_mass = envelope.lift.exp() * envelope.right
    tail_mass = math.sqrt(2 / math.pi) * (-envelope.depth).exp() / envelope.slope
    other_mass = envelope.left + tail_mass
    total = right_mass + other_mass
    # 2. The exponential number picks the part: the right one if it is small, the tail if it is
    #    large. In the tail, its excess over the threshold is exponential, too.
    right_threshold = (total / other_mass).unsqueeze(-2).log()
    tail_threshold = (total / tail_mass).unsqueeze(-2).log()
    # As a number, 0 or 1, for the products below: torch.where takes three times as long on a CPU.
    is_right = (numbers.pick < right_threshold).to(numbers.pick.dtype)
    excess = numbers.pick - tail_threshold
    is_tail = excess > 0
    # 3. In the tail x = -c - excess / slope; else x = width size, where width is -left or +right
    c = envelope.c.unsqueeze(-2)
    x_in_tail = torch.addcdiv(-c, excess, envelope.slope.unsqueeze(-2), value=-1)
    right_plus_left = (envelope.right + envelope.left).unsqueeze(-2)
    width = torch.addcmul(-envelope.left.unsqueeze(-2), is_right, right_plus_left)
    x = torch.where(is_tail, x_in_tail, width.mul_(numbers.size))
    # 4. Minus the log: in the tail depth + excess; else size^2 / 2, minus the lift on the right
    lift = envelope.lift.unsqueeze(-2)
    depth_of_half_normal = torch.addcmul(numbers.half_square, is_right, lift, value=-1)
    depth = torch.where(is_tail, excess + envelope.depth.unsqueeze(-2), depth_of_half_normal)
    return x, depth, is_tail | (x >= -c)


def _left_end(r: Tensor, p: Tensor) -> Tensor:
    """Return c, about where log q~ has fallen by LEFT_DROP on the left.

    The envelope is valid for any c > 0; the choice decides how many candidates are accepted.
    """
    # sqrt(2 LEFT_DROP r + 1) - 1
    root = (2 * LEFT_DROP * r + 1).sqrt() - 1
    return 2 * LEFT_DROP * torch.addcmul(2 * LEFT_DROP * p, root, root).rsqrt()


def start_on_side_stream(work: Callable[[], Tensor], device: torch.device) -> Callable[[], Tensor]:
    """Start `work` on a side stream of a GPU, and return a function that waits for its result.

    On a CPU, return `work` itself, which then runs when the result is needed. A captured graph
    contains both streams and the points where one waits for the other. As each stream waits for the
    other, neither reuses memory that the other still reads, provided that the tensors that `work`
    reads are kept until its result has been used.
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
    """Return the side stream of a main stream.

    Every main stream has its own: memory that is freed on a side stream may still be read on its
    main stream.
    """
    return torch.cuda.Stream(device)
