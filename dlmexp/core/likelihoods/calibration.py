"""Scores of a whole predictive distribution, per row: CRPS, coverage and width of central
intervals, Brier score.

Their means over rows are recorded with the other metrics (docs/SPEC.md, section 7). All of them are
lower = better but coverage, which should be what the interval promises.

For counts the distribution is a Poisson mixed over q. Where it is on few counts, it is summed count
by count, which is exact but for tails of 1e-6. Wider ones are tabulated in blocks of counts; their
CRPS is then good to about 1e-3. Every row is treated by what it is alone, so that scores do not
depend on the rows computed with it."""

import math
from collections.abc import Callable, Iterator
from statistics import NormalDist

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dlmexp.core.gp.fused import fused
from dlmexp.core.gp.special import gauss_hermite

Scores = dict[str, Tensor]

LEVELS = (50, 90, 95)  # per cent, of central intervals in regression
INV_SQRT_PI = 1 / math.sqrt(math.pi)


def brier(p: Float[Tensor, "*B N"], y: Float[Tensor, "*B N"]) -> Scores:
    """(p - y)^2 per row of binary data, p the probability of class 1."""
    return {"brier": (p - y).square()}


def normal_scores(
    mu: Float[Tensor, "*B N"], variance: Float[Tensor, "*B N"], y: Float[Tensor, "*B N"]
) -> Scores:
    """Scores of N(mu, variance); CRPS in closed form: s (z (2 Phi(z) - 1) + 2 phi(z) - 1/sqrt(pi)),
    z = (y - mu)/s."""
    s = variance.sqrt()
    z = (y - mu).abs() / s
    inside = torch.erf(z * math.sqrt(0.5))
    density = (-0.5 * z.square()).exp() * math.sqrt(2 / math.pi)
    found = {"crps": s * (z * inside + density - INV_SQRT_PI)}
    for level in LEVELS:
        half = half_width(level)
        found |= {f"coverage_{level}": (z <= half).to(z.dtype), f"width_{level}": 2 * half * s}
    return found


def half_width(level: int) -> float:
    """Half the width of the central interval of N(0, 1) that holds `level` per cent."""
    return NormalDist().inv_cdf((1 + level / 100) / 2)


def normal_mixture_scores(
    d: Float[Tensor, "*B N"], variances: Float[Tensor, "K *B N"], weights: Float[Tensor, "K *B #N"]
) -> Scores:
    """Scores of a mixture of N(mu, variance_k) with a common mean, at the distances d = y - mu.

    CRPS = E|X - y| - E|X - X'|/2, and X - X' is a mixture of N(0, variance_k + variance_l).
    """
    s, d = variances.sqrt(), d.abs()
    z = d / s
    mean = s * (
        z * torch.erf(z * math.sqrt(0.5)) + (-0.5 * z.square()).exp() * math.sqrt(2 / math.pi)
    )
    apart = torch.zeros_like(d)
    for variance, weight in zip(
        variances, weights, strict=True
    ):  # over the few nodes: K^2 rows would not fit
        apart += weight * (weights * (variance + variances).sqrt()).sum(0)
    found = {"crps": (weights * mean).sum(0) - apart * math.sqrt(2 / math.pi) / 2}
    now = _inside(d, s, weights)
    for level in LEVELS:
        h = normal_mixture_half_width(level, s, weights)
        found |= {f"coverage_{level}": (now <= level / 100).to(d.dtype), f"width_{level}": 2 * h}
    return found


def normal_mixture_half_width(
    level: int, s: Float[Tensor, "K *B N"], weights: Float[Tensor, "K *B #N"]
) -> Float[Tensor, "*B N"]:
    """Half the width of the central interval that holds `level` per cent of a mixture of normals
    with a common mean and standard deviations s. The distribution function of |X - mu| is concave:
    from the first step on Newton stays left of the root."""
    h = half_width(level) * (weights * s).sum(0)
    for _ in range(4):
        density = (weights / s * (-0.5 * (h / s).square()).exp()).sum(0) * math.sqrt(2 / math.pi)
        h = (h + (level / 100 - _inside(h, s, weights)) / density).clamp_min(0)
    return h


def _inside(h: Tensor, s: Tensor, weights: Tensor) -> Tensor:
    """P(|X - mu| <= h)."""
    return (weights * torch.erf(h / s * math.sqrt(0.5))).sum(0)


TAILS = {"lower_95": 0.025, "upper_95": 0.975}
TAIL = 5.0  # standard deviations beyond which a distribution ends
NODE_LEVELS = (
    13,
    17,
    25,
    33,
    49,
    65,
    97,
    129,
)  # of the rule over q: for each row the first that is fine enough
SINGLE = 512  # so many counts are summed one by one,
# in groups of rows that end near each other: together below 700, or the pmf at the first would
# underflow
NEAR = 128
LARGEST = 2048  # and not beyond this one
BLOCKS, BLOCK_NODES, FIRST = 160, 12, 16
ENTRIES_AT_ONCE = {"cpu": 1 << 16, "cuda": 1 << 23}  # what a CPU's cache holds

LogProb = Callable[[Tensor, Tensor], Tensor]
Function = Callable[[Tensor], Tensor]


def count_scores(
    log_prob: LogProb, rate: Function, latent: Function, mu: Float[Tensor, "*B N"], v: Float[Tensor, "*B N"],
    y: Float[Tensor, "*B N"],
) -> Scores:  # fmt: skip
    """Scores of a Poisson with rate `rate(f)`, f ~ N(mu, v). All elementwise: `log_prob(f, k)` is
    log p(k|f), and `latent` the inverse of `rate`.

    The interval runs from the smallest k with F(k) >= 2.5 % to the smallest with F(k) >= 97.5 %,
    both ends included, so that it covers at least 95 %; its width is the difference of the ends.
    """
    shape = torch.broadcast_shapes(mu.shape, v.shape, y.shape)
    mu, v, y = (t.double().expand(shape).reshape(-1) for t in (mu, v, y))
    found = _measured(log_prob, rate, latent, mu, v, y)
    lower, upper = (found[name] for name in TAILS)
    scores = {
        "crps": found["crps"], "coverage_95": ((lower <= y) & (y <= upper)).to(y.dtype), "width_95": upper - lower
    }  # fmt: skip
    # Comparisons with NaN are false, and a row without a distribution has no coverage either.
    return {
        name: torch.where(found["crps"].isnan(), torch.nan, value).view(shape)
        for name, value in scores.items()
    }


def count_interval(
    log_prob: LogProb,
    rate: Function,
    latent: Function,
    mu: Float[Tensor, "*B N"],
    v: Float[Tensor, "*B N"],
) -> tuple[Float[Tensor, "*B N"], Float[Tensor, "*B N"]]:
    """The ends of the interval that `count_scores` measures."""
    flat = (t.double().reshape(-1) for t in (mu, v, torch.zeros_like(mu)))
    found = _measured(log_prob, rate, latent, *flat)
    lower, upper = (found[name].view(mu.shape).to(mu.dtype) for name in TAILS)
    return lower, upper


def count_cdf(
    rate: Function, mu: Float[Tensor, "*B N"], v: Float[Tensor, "*B N"], k: Float[Tensor, "*B N"]
) -> Float[Tensor, "*B N"]:
    """P(Y <= k) of a Poisson with rate `rate(f)`, f ~ N(mu, v): the regularised upper gamma
    function Q(k + 1, rate), averaged over q by the trapezoidal rule. One node at a time, so that
    memory is that of the rows."""
    e = torch.linspace(-TAIL, TAIL, NODE_LEVELS[-1], dtype=mu.dtype, device=mu.device)
    weights, s, count = (
        torch.softmax(-0.5 * e.square(), 0),
        v.clamp_min(0).sqrt(),
        k.floor().clamp_min(-1),
    )
    found = torch.zeros_like(mu + k)
    for node, weight in zip(e, weights, strict=True):
        found += weight * torch.special.gammaincc(
            (count + 1).clamp_min(1e-300), rate(mu + s * node)
        )
    return torch.where(count < 0, 0.0, found)


def _measured(
    log_prob: LogProb, rate: Function, latent: Function, mu: Float[Tensor, "R"], v: Float[Tensor, "R"],
    y: Float[Tensor, "R"],
) -> dict[str, Float[Tensor, "R"]]:  # fmt: skip
    """CRPS and both ends of the interval, of rows in float64."""
    s = v.clamp_min(0).sqrt()
    low_rate, high_rate = (
        rate(mu + side * s).nan_to_num(0.0, 1e12).clamp(1e-12, 1e12) for side in (-TAIL, TAIL)
    )
    low = (low_rate.sqrt() - TAIL / 2).clamp_min(0).square().floor()
    high = (high_rate.sqrt() + TAIL / 2).square().ceil()
    single = (high - low <= SINGLE) & (high <= LARGEST)
    found = {name: torch.empty_like(mu) for name in ("crps", *TAILS)}
    for rows, e, weights in _groups(rate, mu, s, high, single):
        f = mu[rows] + s[rows] * e[:, None]
        some = _by_counts(log_prob, rate, f, weights, low[rows].min(), high[rows].max(), y[rows])
        for name, value in some.items():
            found[name][rows] = value
    for rows in (
        (~single)
        .nonzero()
        .squeeze(-1)
        .split(ENTRIES_AT_ONCE[mu.device.type] // (BLOCKS * BLOCK_NODES))
    ):
        edges = _edges((high_rate[rows] / low_rate[rows]).log() / (2 * TAIL), low[rows], high[rows])
        for name, value in _by_blocks(
            edges, _distribution(rate, latent, mu[rows], s[rows], edges), y[rows]
        ).items():
            found[name][rows] = value
    return found


def _groups(
    rate: Function,
    mu: Float[Tensor, "R"],
    s: Float[Tensor, "R"],
    high: Float[Tensor, "R"],
    single: Bool[Tensor, "R"],
) -> Iterator[tuple[Int[Tensor, "r"], Float[Tensor, "K"], Float[Tensor, "K"]]]:
    """Rows that are summed together, as many as fit at once, with nodes and weights of the
    trapezoidal rule over q."""
    # The step has to be fine against the product of q and the likelihood of a high count. Beyond
    # the last level sums over counts are still right, and quantiles to a hundredth of q's
    # deviation.
    wanted = 2 * TAIL * (1 + s.square() * rate(mu + 2 * s)).sqrt() / 1.1 + 1
    levels = torch.tensor(NODE_LEVELS[:-1], dtype=mu.dtype, device=mu.device)
    rows = single.nonzero().squeeze(-1)
    rows = rows[high[rows].argsort()]
    group = (
        torch.searchsorted(levels, wanted[rows].nan_to_num(NODE_LEVELS[-1])) * LARGEST
        + (high[rows] // NEAR).long()
    )
    group, order = group.sort(stable=True)
    values, sizes = group.unique(return_counts=True)
    for value, some in zip(values.tolist(), rows[order].split(sizes.tolist()), strict=True):
        nodes = NODE_LEVELS[value // LARGEST]
        e = torch.linspace(-TAIL, TAIL, nodes, dtype=mu.dtype, device=mu.device)
        for piece in some.split(ENTRIES_AT_ONCE[mu.device.type] // nodes):
            yield piece, e, torch.softmax(-0.5 * e.square(), 0)


def _by_counts(
    log_prob: LogProb, rate: Function, f: Float[Tensor, "K R"], weights: Float[Tensor, "K"], low: Tensor, high: Tensor,
    y: Float[Tensor, "R"],
) -> Scores:  # fmt: skip
    """All counts of a range one after the other: p(k|f) = p(k-1|f) rate / k."""
    rates, nothing = rate(f), f.new_zeros(1)
    p = log_prob(f, low).exp_()
    F = torch.zeros_like(y)
    crps = (low - y).clamp_min(0) + (y - 1 - high).clamp_min(0)
    ends = {name: low.expand_as(y).clone() for name in TAILS}
    if fused(y):
        from dlmexp.core.gp.fused.small import sums_over_counts

        more = sums_over_counts(
            p, rates, weights, int(low), int(high), y, (TAILS["lower_95"], TAILS["upper_95"])
        )
        return {
            name: value + added
            for (name, value), added in zip((("crps", crps), *ends.items()), more, strict=True)
        }
    for k in range(int(low), int(high) + 1):
        if k > low:
            torch.addcmul(nothing, p, rates, value=1 / k, out=p)
        F += weights @ p
        crps += (F - (y <= k).to(F.dtype)).square_()
        for name, share in TAILS.items():
            ends[name] += share > F
    return {"crps": crps, **ends}


def _edges(
    root: Float[Tensor, "R"], low: Float[Tensor, "R"], high: Float[Tensor, "R"]
) -> Float[Tensor, "R G"]:
    """Ends of the blocks of counts: block g is what lies above edge g, up to and with edge g + 1;
    it may be empty.

    Evenly spaced in asinh(root sqrt(x)) / root, which makes a variance of x + root^2 x^2 constant.
    """
    root = root.clamp_min(1e-4)[:, None]
    first, last = (torch.asinh(root * (x + 1).sqrt()[:, None]) for x in (low, high))
    t = first + (last - first) * torch.linspace(
        0, 1, BLOCKS + 1, dtype=root.dtype, device=root.device
    )
    edges = ((torch.sinh(t) / root).square() - 1).round()
    edges[:, 0], edges[:, -1] = low - 1, high
    return edges


def _distribution(
    rate: Function,
    latent: Function,
    mu: Float[Tensor, "R"],
    s: Float[Tensor, "R"],
    k: Float[Tensor, "R G"],
) -> Float[Tensor, "R G"]:
    """F(k) = P(rate(f) < G) with G ~ Gamma(k + 1), as (G / (k + 1))^(1/3) is close to normal
    (Wilson and Hilferty). Of the two, f and G, one is integrated out as a normal, and the other,
    which is the less spread, by quadrature. The first counts, for which G is not so close, are
    summed."""
    e = torch.linspace(-TAIL, TAIL, NODE_LEVELS[-1], dtype=mu.dtype, device=mu.device)
    weights, rates = torch.softmax(-0.5 * e.square(), 0), rate(mu + s * e[:, None])
    p, first = torch.exp(-rates), []
    for count in range(FIRST):
        first.append(weights @ p)
        p = p * rates / (count + 1)
    exact = torch.stack(first, -1).cumsum(-1).gather(-1, k.clamp(0, FIRST - 1).long())
    few = k < FIRST
    mu, s, k = mu[:, None], s[:, None], k.clamp_min(0) + 1
    e, log_w = gauss_hermite(BLOCK_NODES, mu.dtype, mu.device)
    e, w = e.view(-1, 1, 1), log_w.exp().view(-1, 1, 1)
    centre, spread = 1 - 1 / (9 * k), 1 / (3 * k.sqrt())
    over_f = torch.special.ndtr((centre - (rate(mu + s * e) / k) ** (1 / 3)) / spread)
    over_G = torch.special.ndtr((latent(k * (centre + spread * e).clamp_min(1e-3) ** 3) - mu) / s)
    return torch.where(few, exact, (w * torch.where(s.square() * k < 1, over_f, over_G)).sum(0))


def _by_blocks(
    edges: Float[Tensor, "R G"], F: Float[Tensor, "R G"], y: Float[Tensor, "R"]
) -> Scores:
    """From the distribution function F at the edges of blocks, taken as linear in between."""
    F = torch.cat((torch.zeros_like(F[:, :1]), F[:, 1:].cummax(-1).values.clamp(0, 1)), -1)
    size = edges.diff(dim=-1)
    start, end = F[:, :-1], F[:, 1:]

    def over_block(at_start: Tensor, at_end: Tensor) -> Tensor:
        """Sum over the counts of a block of something that is linear in between."""
        return size * at_start + (at_end - at_start) * (size + 1) / 2

    def block_of(table: Tensor, value: Tensor) -> Tensor:
        return (torch.searchsorted(table, value) - 1).clamp(0, BLOCKS - 1)

    # CRPS = E|X - y| - E|X - X'|/2 with E|X - y| = E X - y + 2 E(y - X)+. E(y - X)+ is the sum of
    # F(k) over k < y, E X the sum of 1 - F over all counts, and E|X - X'|/2 that of F (1 - F).
    spread = over_block(start * (1 - start), end * (1 - end)).sum(-1)
    mean = edges[:, 0] + 1 + over_block(1 - start, 1 - end).sum(-1)
    below = torch.nn.functional.pad(over_block(start, end).cumsum(-1), (1, 0))
    last = (y - 1).unsqueeze(-1)
    g = block_of(edges, last)
    inside = (last - edges.gather(-1, g)).clamp_min(0)
    n = size.gather(-1, g).clamp_min(1)
    part = torch.minimum(inside, n)
    rise = (end - start).gather(-1, g) / n * part * (part + 1) / 2
    short = below.gather(-1, g) + start.gather(-1, g) * part + rise + (inside - part)
    found = {"crps": 2 * short.squeeze(-1) - y + mean - spread}
    for name, share in TAILS.items():
        g = block_of(F, torch.full_like(last, share))
        n, mass = size.gather(-1, g), (end - start).gather(-1, g)
        steps = ((share - start.gather(-1, g)) / mass.clamp_min(1e-300) * n).ceil()
        found[name] = (edges.gather(-1, g) + torch.minimum(steps.clamp_min(1), n)).squeeze(-1)
    return found
