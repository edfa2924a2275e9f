"""Scores of a whole predictive distribution, per row.

These are CRPS, coverage and width of central intervals, and the Brier score. Their means over rows
are recorded with the other metrics (docs/SPEC.md, section 7). Lower is better for all scores but
coverage, which should equal the nominal probability of the interval.

For counts the distribution is a mixture of Poissons: the rate depends on a latent f, which has the
distribution q = N(mu, v). A distribution that spans few counts (`MAX_SUMMED_RANGE`) is summed count
by count, which is exact but for tails of 1e-6. A wider one is tabulated in blocks of counts, and
its CRPS has an error of about 1e-3. The scores of a row do not depend on the rows that are computed
with it.
"""

import math
from collections.abc import Callable, Iterator
from statistics import NormalDist
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dlmexp.core.gp.fused import uses_triton
from dlmexp.core.gp.special import gauss_hermite

Scores = dict[str, Tensor]

LEVELS = (50, 90, 95)
"""Nominal probabilities of the central intervals in regression, in per cent."""
INV_SQRT_PI = 1 / math.sqrt(math.pi)
SQRT_HALF = math.sqrt(0.5)
SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def brier(p: Float[Tensor, "*B N"], y: Float[Tensor, "*B N"]) -> Scores:
    """Return (p - y)^2 per row of binary data, where p is the probability of class 1."""
    return {"brier": (p - y).square()}


def normal_scores(
    mu: Float[Tensor, "*B N"], variance: Float[Tensor, "*B N"], y: Float[Tensor, "*B N"]
) -> Scores:
    """Return the scores of N(mu, variance) per row.

    With z = |y - mu| / s, CRPS = s (z (2 Phi(z) - 1) + 2 phi(z) - 1/sqrt(pi)).
    """
    s = variance.sqrt()
    z = (y - mu).abs() / s
    # 2 Phi(z) - 1
    mass_within_z = torch.erf(z * SQRT_HALF)
    # 2 phi(z)
    density = (-0.5 * z.square()).exp() * SQRT_2_OVER_PI
    scores = {"crps": s * (z * mass_within_z + density - INV_SQRT_PI)}
    for level in LEVELS:
        half = half_width(level)
        scores[f"coverage_{level}"] = (z <= half).to(z.dtype)
        scores[f"width_{level}"] = 2 * half * s
    return scores


def half_width(level: int) -> float:
    """Return half the width of the central interval of N(0, 1) that holds `level` per cent."""
    return NormalDist().inv_cdf((1 + level / 100) / 2)


def normal_mixture_scores(
    d: Float[Tensor, "*B N"], variances: Float[Tensor, "K *B N"], weights: Float[Tensor, "K *#B #N"]
) -> Scores:
    """Return the scores of a mixture of N(mu, variance_k) with a common mean, at d = y - mu.

    CRPS = E|X - y| - E|X - X'|/2, and X - X' is a mixture of N(0, variance_k + variance_l).
    """
    s = variances.sqrt()
    d = d.abs()
    z = d / s
    # E|X_k - y| = s_k (z (2 Phi(z) - 1) + 2 phi(z))
    distance = s * (z * torch.erf(z * SQRT_HALF) + (-0.5 * z.square()).exp() * SQRT_2_OVER_PI)
    # E|X - X'| / sqrt(2/pi) = sum_kl w_k w_l sqrt(variance_k + variance_l), one k at a time: K^2 N
    # numbers would not fit into memory.
    mean_gap = torch.zeros_like(d)
    for variance, weight in zip(variances, weights, strict=True):
        mean_gap += weight * (weights * (variance + variances).sqrt()).sum(0)
    scores = {"crps": (weights * distance).sum(0) - mean_gap * SQRT_2_OVER_PI / 2}
    mass_within_d = _mass_within(d, s, weights)
    for level in LEVELS:
        half = normal_mixture_half_width(level, s, weights)
        scores[f"coverage_{level}"] = (mass_within_d <= level / 100).to(d.dtype)
        scores[f"width_{level}"] = 2 * half
    return scores


def normal_mixture_half_width(
    level: int, s: Float[Tensor, "K *B N"], weights: Float[Tensor, "K *#B #N"]
) -> Float[Tensor, "*B N"]:
    """Return half the width of the central interval that holds `level` per cent of a mixture.

    The mixture has normal components with a common mean mu and standard deviations s. Four steps of
    Newton's method solve P(|X - mu| <= h) = level / 100 for the half width h. As the left side is
    concave in h, every step ends at or left of the solution. A step from far to the right may end
    below 0; then the next one starts at 0.
    """
    h = half_width(level) * (weights * s).sum(0)
    for _ in range(4):
        # p(h) = 2 sum_k w_k phi(h / s_k) / s_k, the density of |X - mu|
        density = (weights / s * (-0.5 * (h / s).square()).exp()).sum(0) * SQRT_2_OVER_PI
        # h - (P(|X - mu| <= h) - level) / p(h), at least 0
        h = h + (level / 100 - _mass_within(h, s, weights)) / density
        h = h.clamp_min(0)
    return h


def _mass_within(h: Tensor, s: Tensor, weights: Tensor) -> Tensor:
    """Return P(|X - mu| <= h) = sum_k w_k erf(h / (sqrt(2) s_k))."""
    return (weights * torch.erf(h / s * SQRT_HALF)).sum(0)


# What follows is about counts.

LOWER_SHARE = 0.025
"""Value of the distribution function at the lower end of the central 95 % interval of counts."""
UPPER_SHARE = 0.975
"""Value of the distribution function at the upper end of the interval."""
MAX_DEVIATIONS = 5.0
"""How far ranges extend: the range of f this number of standard deviations of q from mu, and the
range of counts this number of standard deviations of a Poisson beyond the rates at its ends."""
NODE_COUNTS = (13, 17, 25, 33, 49, 65, 97, 129)
"""Numbers of nodes of the rules over q. Each row uses the first rule that is fine enough."""
MAX_SUMMED_RANGE = 512
"""A range with more counts is not summed count by count."""
MAX_SUMMED_COUNT = 2048
"""A range that ends beyond this count is not summed count by count."""
GROUP_SPAN = 128
"""Rows are summed in groups. The largest counts of the rows of a group differ by at most this.

So the range of a group has at most `MAX_SUMMED_RANGE + GROUP_SPAN` counts. With 700 or more, the
probability of its first count, which can be as low as exp(-range), would underflow."""
GROUPS_PER_RULE = MAX_SUMMED_COUNT // GROUP_SPAN + 1
"""The most groups of rows with the same number of nodes."""
BLOCKS = 160
"""Number of blocks of counts in the table of a wide distribution."""
BLOCK_NODES = 12
"""Number of nodes of the quadrature for F at the edges of blocks."""
FIRST_COUNTS = 16
"""F(k) of the counts k below this is summed even where F of larger counts is approximated."""
ENTRIES_AT_ONCE = {"cpu": 1 << 16, "cuda": 1 << 23}
"""The most entries [K, R] of rows that are computed together; on a CPU they fit into its cache."""

LogProb = Callable[[Tensor, Tensor], Tensor]
"""log_prob(f, k) returns log p(k|f), elementwise."""
Elementwise = Callable[[Tensor], Tensor]


class CountScores(NamedTuple):
    """CRPS and the ends of the central 95 % interval of R rows of counts, in float64."""

    crps: Float[Tensor, "R"]
    lower: Float[Tensor, "R"]
    upper: Float[Tensor, "R"]

    @classmethod
    def empty(cls, like: Float[Tensor, "R"]) -> "CountScores":
        """Return scores with arbitrary values, to be written by `fill`."""
        return cls(torch.empty_like(like), torch.empty_like(like), torch.empty_like(like))

    def fill(self, rows: Int[Tensor, "r"], scores: "CountScores") -> None:
        """Write the scores of some rows."""
        self.crps[rows] = scores.crps
        self.lower[rows] = scores.lower
        self.upper[rows] = scores.upper


def count_scores(
    log_prob: LogProb,
    rate: Elementwise,
    latent: Elementwise,
    mu: Float[Tensor, "*B N"],
    v: Float[Tensor, "*B N"],
    y: Float[Tensor, "*B N"],
) -> Scores:
    """Return the scores of a Poisson with rate `rate(f)`, f ~ N(mu, v).

    `log_prob(f, k)` is the log probability of count k at f, and `latent` is the inverse of `rate`.
    The interval runs from the smallest k with F(k) >= 2.5 % to the smallest k with F(k) >= 97.5 %.
    It contains both ends, so that it covers at least 95 %. Its width is the difference of the ends.
    """
    shape = torch.broadcast_shapes(mu.shape, v.shape, y.shape)
    mu = mu.double().expand(shape).reshape(-1)
    v = v.double().expand(shape).reshape(-1)
    y = y.double().expand(shape).reshape(-1)
    by_row = _scores_of_rows(log_prob, rate, latent, mu, v, y)
    covered = (by_row.lower <= y) & (y <= by_row.upper)
    scores = {
        "crps": by_row.crps,
        "coverage_95": covered.to(y.dtype),
        "width_95": by_row.upper - by_row.lower,
    }
    # Comparisons with NaN are false, so without this a row with NaN would count as not covered.
    is_undefined = by_row.crps.isnan()
    for name, value in scores.items():
        scores[name] = torch.where(is_undefined, torch.nan, value).view(shape)
    return scores


def count_interval(
    log_prob: LogProb,
    rate: Elementwise,
    latent: Elementwise,
    mu: Float[Tensor, "*B N"],
    v: Float[Tensor, "*B N"],
) -> tuple[Float[Tensor, "*B N"], Float[Tensor, "*B N"]]:
    """Return the ends of the interval that `count_scores` measures."""
    flat_mu = mu.double().reshape(-1)
    flat_v = v.double().reshape(-1)
    # The interval does not depend on y, so any y will do.
    y = torch.zeros_like(flat_mu)
    by_row = _scores_of_rows(log_prob, rate, latent, flat_mu, flat_v, y)
    lower = by_row.lower.view(mu.shape).to(mu.dtype)
    upper = by_row.upper.view(mu.shape).to(mu.dtype)
    return lower, upper


def count_cdf(
    rate: Elementwise, mu: Float[Tensor, "*B N"], v: Float[Tensor, "*B N"], k: Float[Tensor, "*B N"]
) -> Float[Tensor, "*B N"]:
    """Return P(Y <= k) of a Poisson with rate `rate(f)`, f ~ N(mu, v).

    It is the regularised upper gamma function Q(k + 1, rate), averaged over q by the trapezoidal
    rule, one node at a time to save memory.
    """
    e, weights = _trapezoidal_rule(NODE_COUNTS[-1], mu)
    s = v.clamp_min(0).sqrt()
    # All negative k become -1. Their probability is set to 0 at the end.
    count = k.floor().clamp_min(-1)
    # k + 1 has to be positive, also where k = -1.
    shape_of_gamma = (count + 1).clamp_min(1e-300)
    cdf = torch.zeros_like(mu + k)
    for node, weight in zip(e, weights, strict=True):
        # w_i Q(k + 1, rate(mu + s e_i))
        cdf += weight * torch.special.gammaincc(shape_of_gamma, rate(mu + s * node))
    return torch.where(count < 0, 0.0, cdf)


def _trapezoidal_rule(nodes: int, like: Tensor) -> tuple[Float[Tensor, "K"], Float[Tensor, "K"]]:
    """Return K nodes e and weights of an expectation over N(0, 1), up to MAX_DEVIATIONS from 0."""
    e = torch.linspace(-MAX_DEVIATIONS, MAX_DEVIATIONS, nodes, dtype=like.dtype, device=like.device)
    return e, torch.softmax(-0.5 * e.square(), 0)


def _scores_of_rows(
    log_prob: LogProb,
    rate: Elementwise,
    latent: Elementwise,
    mu: Float[Tensor, "R"],
    v: Float[Tensor, "R"],
    y: Float[Tensor, "R"],
) -> CountScores:
    """Return CRPS and both ends of the interval of rows in float64.

    The arguments are those of `count_scores`, flattened to R rows.
    """
    # 1. The range of counts of every row
    s = v.clamp_min(0).sqrt()
    # NaN and infinite rates are replaced, so that every row has a range of counts. A row with NaN
    # in mu or v has scores of NaN all the same, as they are computed from mu and s.
    low_rate = rate(mu - MAX_DEVIATIONS * s).nan_to_num(0.0, 1e12).clamp(1e-12, 1e12)
    high_rate = rate(mu + MAX_DEVIATIONS * s).nan_to_num(0.0, 1e12).clamp(1e-12, 1e12)
    # The square root of a Poisson count has a standard deviation of about 1/2.
    low = (low_rate.sqrt() - MAX_DEVIATIONS / 2).clamp_min(0).square().floor()
    high = (high_rate.sqrt() + MAX_DEVIATIONS / 2).square().ceil()
    # 2. Rows that are summed count by count
    is_narrow = (high - low <= MAX_SUMMED_RANGE) & (high <= MAX_SUMMED_COUNT)
    scores = CountScores.empty(mu)
    for rows, e, weights in _groups_of_rows(rate, mu, s, high, is_narrow):
        f = mu[rows] + s[rows] * e[:, None]
        first = low[rows].min()
        last = high[rows].max()
        by_counts = _scores_by_counts(log_prob, rate, f, weights, low=first, high=last, y=y[rows])
        scores.fill(rows, by_counts)
    # 3. Rows that are tabulated in blocks
    rows_at_once = ENTRIES_AT_ONCE[mu.device.type] // (BLOCKS * BLOCK_NODES)
    for rows in (~is_narrow).nonzero().squeeze(-1).split(rows_at_once):
        log_range = (high_rate[rows] / low_rate[rows]).log()
        edges = _block_edges(log_range / (2 * MAX_DEVIATIONS), low[rows], high[rows])
        F = _distribution_at(rate, latent, mu[rows], s[rows], edges)
        scores.fill(rows, _scores_by_blocks(edges, F, y[rows]))
    return scores


def _groups_of_rows(
    rate: Elementwise,
    mu: Float[Tensor, "R"],
    s: Float[Tensor, "R"],
    high: Float[Tensor, "R"],
    is_narrow: Bool[Tensor, "R"],
) -> Iterator[tuple[Int[Tensor, "r"], Float[Tensor, "K"], Float[Tensor, "K"]]]:
    """Yield groups of narrow rows to sum together, with nodes and weights of the rule over q.

    Rows of a group have the same number of nodes, and ranges of counts that end near each other. A
    group is cut into pieces that fit into memory.
    """
    # The rule has to resolve the product of q and the likelihood of any likely count. The standard
    # deviation of this product, in units of s, is about 1 / sqrt(1 + s^2 rate), and is small at
    # high counts: take the rate two standard deviations above the mean of q. The step of the rule
    # in these units, 2 MAX_DEVIATIONS / (nodes - 1), may be up to 1.1 such deviations.
    nodes_needed = 2 * MAX_DEVIATIONS * (1 + s.square() * rate(mu + 2 * s)).sqrt() / 1.1 + 1
    # Rows that need more nodes than any rule has use the last rule. Their CRPS is still right: it
    # is a sum over counts, in which errors of F(k) of both signs cancel. The error of their
    # quantiles is a hundredth of the standard deviation of q.
    all_but_last = torch.tensor(NODE_COUNTS[:-1], dtype=mu.dtype, device=mu.device)
    rows = is_narrow.nonzero().squeeze(-1)
    # Sort rows by the ends of their ranges. The stable sort below keeps this order within a group,
    # so that the pieces of a large group span fewer counts than the group.
    rows = rows[high[rows].argsort()]
    # group = rule * GROUPS_PER_RULE + end // GROUP_SPAN
    rule_index = torch.searchsorted(all_but_last, nodes_needed[rows].nan_to_num(NODE_COUNTS[-1]))
    group = rule_index * GROUPS_PER_RULE + (high[rows] // GROUP_SPAN).long()
    group, order = group.sort(stable=True)
    group_numbers, sizes = group.unique(return_counts=True)
    rows_by_group = rows[order].split(sizes.tolist())
    for group_number, rows_of_group in zip(group_numbers.tolist(), rows_by_group, strict=True):
        nodes = NODE_COUNTS[group_number // GROUPS_PER_RULE]
        e, weights = _trapezoidal_rule(nodes, mu)
        for piece in rows_of_group.split(ENTRIES_AT_ONCE[mu.device.type] // nodes):
            yield piece, e, weights


def _scores_by_counts(
    log_prob: LogProb,
    rate: Elementwise,
    f: Float[Tensor, "K R"],
    weights: Float[Tensor, "K"],
    low: Float[Tensor, ""],
    high: Float[Tensor, ""],
    y: Float[Tensor, "R"],
) -> CountScores:
    """Return the scores, summed over the counts `low` to `high`.

    CRPS = sum over all k of (F(k) - [y <= k])^2, where F is 0 below `low` and 1 above `high`.

    Args:
        log_prob: As in `count_scores`.
        rate: As in `count_scores`.
        f: The nodes of the rule over q.
        weights: The weights of the rule.
        low: The first count.
        high: The last count.
        y: The observed counts.
    """
    rates = rate(f)
    # p(low|f), from which p(k|f) = p(k-1|f) rate / k
    p = log_prob(f, low).exp_()
    # The terms of CRPS for counts below `low`, where F is 0, and above `high`, where F is 1
    crps = (low - y).clamp_min(0) + (y - 1 - high).clamp_min(0)
    # An end of the interval is the number of counts k with F(k) below a share. These are all `low`
    # counts before the range, where F is 0, and the first counts of the range.
    lower = low.expand_as(y).clone()
    upper = low.expand_as(y).clone()
    if uses_triton(y):
        from dlmexp.core.gp.fused.small import sums_over_counts

        shares = (LOWER_SHARE, UPPER_SHARE)
        squares, below_lower, below_upper = sums_over_counts(
            p, rates, weights, int(low), int(high), y, shares
        )
        return CountScores(crps + squares, lower + below_lower, upper + below_upper)
    zero = f.new_zeros(1)
    F = torch.zeros_like(y)
    for k in range(int(low), int(high) + 1):
        if k > low:
            # p(k|f) = p(k-1|f) rate / k, computed in place as 0 + p * rates * (1 / k).
            torch.addcmul(zero, p, rates, value=1 / k, out=p)
        # F(k) = sum over j <= k of E_q p(j|f)
        F += weights @ p
        # (F(k) - [y <= k])^2
        crps += (F - (y <= k).to(F.dtype)).square_()
        # An end grows by 1 as long as F(k) is below its share.
        lower += F < LOWER_SHARE
        upper += F < UPPER_SHARE
    return CountScores(crps, lower, upper)


def _block_edges(
    relative_spread: Float[Tensor, "R"], low: Float[Tensor, "R"], high: Float[Tensor, "R"]
) -> Float[Tensor, "R E"]:
    """Return the ends of the blocks of counts [R, BLOCKS + 1].

    Block g has the counts above edge g, up to and including edge g + 1; it may be empty.
    `relative_spread` is the standard deviation r of the log rate over q, so a count with mean x has
    a variance of about x + r^2 x^2. The edges are evenly spaced in asinh(r sqrt(x)) / r, in which
    this variance is constant.
    """
    relative_spread = relative_spread.clamp_min(1e-4)[:, None]
    first = torch.asinh(relative_spread * (low + 1).sqrt()[:, None])
    last = torch.asinh(relative_spread * (high + 1).sqrt()[:, None])
    steps = torch.linspace(
        0, 1, BLOCKS + 1, dtype=relative_spread.dtype, device=relative_spread.device
    )
    t = first + (last - first) * steps
    # t = asinh(r sqrt(x)), with x = edge + 1
    edges = ((torch.sinh(t) / relative_spread).square() - 1).round()
    # The first block begins below `low`, as it has no count at its first edge. The last one ends at
    # `high` exactly, without rounding errors.
    edges[:, 0] = low - 1
    edges[:, -1] = high
    return edges


def _distribution_at(
    rate: Elementwise,
    latent: Elementwise,
    mu: Float[Tensor, "R"],
    s: Float[Tensor, "R"],
    k: Float[Tensor, "R E"],
) -> Float[Tensor, "R E"]:
    """Return F(k) = P(rate(f) < G) for a variable G ~ Gamma(k + 1).

    f is normal, and (G / (k + 1))^(1/3) is close to normal (Wilson and Hilferty). The quadrature is
    over f or G, the one with the smaller variance. Given its value, the probability is a normal
    distribution function of the other variable. For the first counts, where this approximation is
    not good enough, F is a sum.
    """
    F_of_first_counts = _distribution_of_first_counts(rate, mu, s)
    # For an edge of -1 this takes F(0). `_scores_by_blocks` replaces F at the first edge by 0.
    summed = F_of_first_counts.gather(-1, k.clamp(0, FIRST_COUNTS - 1).long())
    is_summed = k < FIRST_COUNTS
    mu = mu[:, None]
    s = s[:, None]
    k_plus_1 = k.clamp_min(0) + 1
    e, log_w = gauss_hermite(BLOCK_NODES, mu.dtype, mu.device)
    e = e.view(-1, 1, 1)
    w = log_w.exp().view(-1, 1, 1)
    # Mean and standard deviation of (G / (k + 1))^(1/3)
    centre = 1 - 1 / (9 * k_plus_1)
    deviation = 1 / (3 * k_plus_1.sqrt())
    # P(G > rate(f) | f) at the nodes of f
    over_f = torch.special.ndtr((centre - (rate(mu + s * e) / k_plus_1) ** (1 / 3)) / deviation)
    # P(f < latent(G) | G) at the nodes of G
    G = k_plus_1 * (centre + deviation * e).clamp_min(1e-3) ** 3
    over_G = torch.special.ndtr((latent(G) - mu) / s)
    # The variance of log G is about 1 / (k + 1).
    f_varies_less = s.square() * k_plus_1 < 1
    by_quadrature = (w * torch.where(f_varies_less, over_f, over_G)).sum(0)
    return torch.where(is_summed, summed, by_quadrature)


def _distribution_of_first_counts(
    rate: Elementwise, mu: Float[Tensor, "R"], s: Float[Tensor, "R"]
) -> Float[Tensor, "R first"]:
    """Return F(k) of the first counts k, by the rule over q."""
    e, weights = _trapezoidal_rule(NODE_COUNTS[-1], mu)
    rates = rate(mu + s * e[:, None])
    # p(0|f) = exp(-rate)
    p = torch.exp(-rates)
    probabilities = []
    for count in range(FIRST_COUNTS):
        probabilities.append(weights @ p)
        # p(k+1|f) = p(k|f) rate / (k + 1)
        p = p * rates / (count + 1)
    return torch.stack(probabilities, -1).cumsum(-1)


def _scores_by_blocks(
    edges: Float[Tensor, "R E"], F: Float[Tensor, "R E"], y: Float[Tensor, "R"]
) -> CountScores:
    """Return the scores from F at the edges of blocks; F is taken as linear between edges."""
    # F is 0 at the first edge, which lies below all counts of the range. From there on F increases:
    # where the approximation falls, its running maximum takes its place.
    zero = torch.zeros_like(F[:, :1])
    increasing = F[:, 1:].cummax(-1).values.clamp(0, 1)
    F = torch.cat((zero, increasing), -1)
    return CountScores(
        crps=_crps_by_blocks(edges, F, y),
        lower=_quantile_by_blocks(edges, F, LOWER_SHARE),
        upper=_quantile_by_blocks(edges, F, UPPER_SHARE),
    )


def _block_that_reaches(
    table: Float[Tensor, "R E"], value: Float[Tensor, "R 1"]
) -> Int[Tensor, "R 1"]:
    """Return the number of the block in which an increasing table reaches a value."""
    return (torch.searchsorted(table, value) - 1).clamp(0, BLOCKS - 1)


def _crps_by_blocks(
    edges: Float[Tensor, "R E"], F: Float[Tensor, "R E"], y: Float[Tensor, "R"]
) -> Float[Tensor, "R"]:
    """Return CRPS = E|X - y| - E|X - X'|/2, with E|X - y| = E X - y + 2 E max(y - X, 0).

    Here E X is the sum of 1 - F over all counts, E|X - X'|/2 is the sum of F (1 - F) over all
    counts, and E max(y - X, 0) is the sum of F(k) over k < y.
    """
    size = edges.diff(dim=-1)
    start = F[:, :-1]
    end = F[:, 1:]

    def sum_in_block(at_start: Tensor, at_end: Tensor) -> Tensor:
        """Return the sum, over the counts of each block, of values linear between its edges.

        Block g has the counts of the half-open interval (edge g, edge g + 1].
        """
        return size * at_start + (at_end - at_start) * (size + 1) / 2

    # E|X - X'|/2
    half_distance = sum_in_block(start * (1 - start), end * (1 - end)).sum(-1)
    # E X. The counts 0 to the first edge, where F is 0, contribute 1 each to the sum.
    mean = edges[:, 0] + 1 + sum_in_block(1 - start, 1 - end).sum(-1)
    # shortfall = E max(y - X, 0), the sum of F(k) over k <= y - 1. It has these terms:
    # - sum_before_block: the sum over the blocks before the one that contains y - 1;
    # - sum_of_start + sum_of_rise: the sum over the counts of this block up to y - 1;
    # - counts_beyond: the sum over the counts beyond the table, where F is 1.
    sum_before_block = torch.nn.functional.pad(sum_in_block(start, end).cumsum(-1), (1, 0))
    last = (y - 1).unsqueeze(-1)
    block = _block_that_reaches(edges, last)
    counts_from_edge = (last - edges.gather(-1, block)).clamp_min(0)
    n = size.gather(-1, block).clamp_min(1)
    counts_in_block = torch.minimum(counts_from_edge, n)
    counts_beyond = counts_from_edge - counts_in_block
    # Within the block F = start + (end - start) j / n, with j = 1 ... counts_in_block.
    sum_of_start = start.gather(-1, block) * counts_in_block
    slope = (end - start).gather(-1, block) / n
    sum_of_rise = slope * counts_in_block * (counts_in_block + 1) / 2
    shortfall = sum_before_block.gather(-1, block) + sum_of_start + sum_of_rise + counts_beyond
    return 2 * shortfall.squeeze(-1) - y + mean - half_distance


def _quantile_by_blocks(
    edges: Float[Tensor, "R E"], F: Float[Tensor, "R E"], share: float
) -> Float[Tensor, "R"]:
    """Return the smallest count k with F(k) >= share."""
    size = edges.diff(dim=-1)
    start = F[:, :-1]
    end = F[:, 1:]
    block = _block_that_reaches(F, F.new_full((len(F), 1), share))
    n = size.gather(-1, block)
    mass = (end - start).gather(-1, block)
    # The smallest j with start + mass j / n >= share
    steps = ((share - start.gather(-1, block)) / mass.clamp_min(1e-300) * n).ceil()
    return (edges.gather(-1, block) + torch.minimum(steps.clamp_min(1), n)).squeeze(-1)
