"""Claim 17: the bounds of the paper's Table 1 on likelihoods and their derivatives in f."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln, ndtr

from dlmexp.presentation.claims.claim import ClaimTest, Part, claim
from dlmexp.presentation.claims.evidence import Evidence
from dlmexp.presentation.claims.rules import BOUND_TOLERANCE, Outcome

Values = Float[np.ndarray, " G"]
GRID: Values = np.linspace(-40.0, 40.0, 40_001)
# At this f and below it, log(1 + e^f) equals e^f in floating point.
SOFTPLUS_IS_EXP = -30.0
NORMAL_DENSITY_AT_0 = 1 / math.sqrt(2 * math.pi)
# Where rates are divided by or have a logarithm, they are bounded below by this value, against
# warnings. It changes no result: where f is at most SOFTPLUS_IS_EXP, `np.where` takes the limits.
MIN_RATE = 1e-300


@dataclass(frozen=True)
class Bounds:
    """Bounds 0 <= p <= B, b' <= p' <= B' and b'' <= p'' <= B''.

    Attributes:
        B: The bound of p.
        first: The bounds (b', B') of the first derivative.
        second: The bounds (b'', B'') of the second derivative.
    """

    B: float
    first: tuple[float, float]
    second: tuple[float, float]


@dataclass(frozen=True)
class TableRow:
    """A row of Table 1: a likelihood p(y | f), its first two derivatives in f, and their bounds.

    The values are on a grid of f. For likelihoods that depend on f - y alone, y is 0.
    """

    p: Values
    first: Values
    second: Values
    bounds: Bounds


def logistic(f: Values) -> TableRow:
    """Return the row of p = 1 / (1 + e^-f)."""
    p = 1 / (1 + np.exp(-f))
    # p' = p (1 - p)
    first = p * (1 - p)
    # p'' = p (1 - p) (1 - 2 p)
    second = first * (1 - 2 * p)
    bounds = Bounds(B=1, first=(-0.25, 0.25), second=(-0.25, 0.25))
    return TableRow(p, first, second, bounds)


def gaussian(f: Values, sigma: float) -> TableRow:
    """Return the row of p = c exp(-f^2 / (2 sigma^2)), with c = 1 / (sqrt(2 pi) sigma)."""
    z = f / sigma
    c = 1 / (math.sqrt(2 * math.pi) * sigma)
    p = c * np.exp(-(z**2) / 2)
    # p' = -f / sigma^2 p, steepest at f = sigma
    first = -z / sigma * p
    steepest = c / (math.sqrt(math.e) * sigma)
    # p'' = (f^2 / sigma^2 - 1) / sigma^2 p, lowest at f = 0, highest at f = sqrt(3) sigma
    second = (z**2 - 1) / sigma**2 * p
    lowest = -c / sigma**2
    highest = 2 * c / (sigma**2 * math.e**1.5)
    bounds = Bounds(B=c, first=(-steepest, steepest), second=(lowest, highest))
    return TableRow(p, first, second, bounds)


def probit(f: Values) -> TableRow:
    """Return the row of the standard normal distribution function."""
    # p' is the normal density, highest at f = 0
    first = NORMAL_DENSITY_AT_0 * np.exp(-(f**2) / 2)
    # p'' = -f p', extreme at f = -1 and 1
    second = -f * first
    extreme = 1 / math.sqrt(2 * math.pi * math.e)
    first_bounds = (-NORMAL_DENSITY_AT_0, NORMAL_DENSITY_AT_0)
    bounds = Bounds(B=1, first=first_bounds, second=(-extreme, extreme))
    return TableRow(ndtr(f), first, second, bounds)


def poisson_softplus(f: Values, y: int) -> TableRow:
    """Return the row of a Poisson with rate g = log(1 + e^f) and count y."""
    # s = g'
    sigmoid = 1 / (1 + np.exp(-f))
    rate = np.logaddexp(0, f)
    # Where g equals e^f, g'/g is 1 and log g is f.
    is_exp = f <= SOFTPLUS_IS_EXP
    ratio = np.where(is_exp, 1.0, sigmoid / np.maximum(rate, MIN_RATE))  # g'/g
    log_rate = np.where(is_exp, f, np.log(np.maximum(rate, MIN_RATE)))
    # l = log p = y log g - g - log y!, with g' = s and s' = s (1 - s)
    log_p = y * log_rate - rate - gammaln(y + 1)
    # l' = y g'/g - s
    log_first = y * ratio - sigmoid
    # l'' = y (g'/g (1 - s) - (g'/g)^2) - s (1 - s)
    log_second = y * (ratio * (1 - sigmoid) - ratio**2) - sigmoid * (1 - sigmoid)
    bounds = Bounds(B=1, first=(-1, 1), second=(-2.25, 2.25))
    return _from_log(log_p, log_first, log_second, bounds)


def poisson_exp(f: Values, y: int) -> TableRow:
    """Return the row of a Poisson with rate g = e^f and count y."""
    rate = np.exp(f)
    # l = log p = y f - g - log y!
    log_p = y * f - rate - gammaln(y + 1)
    # l' = y - g
    log_first = y - rate
    # l'' = -g
    log_second = -rate
    bounds = Bounds(B=1, first=(-y - 1, y), second=(-y - 0.25, 2 * y**2 + 3 * y + 2))
    return _from_log(log_p, log_first, log_second, bounds)


def _from_log(log_p: Values, log_first: Values, log_second: Values, bounds: Bounds) -> TableRow:
    """Return a row from l = log p and its derivatives: p' = p l', p'' = p (l'' + l'^2)."""
    p = np.exp(log_p)
    # Where p is 0 in floating point, its derivatives are 0 too: p falls faster than l' and l''
    # grow.
    first = np.where(p > 0, p * log_first, 0.0)
    second = np.where(p > 0, p * (log_second + log_first**2), 0.0)
    return TableRow(p, first, second, bounds)


def student_t(f: Values, sigma: float, nu: float) -> TableRow:
    """Return the row of p = c w^(-(nu + 1) / 2), with w = 1 + f^2 / (sigma^2 nu)."""
    # c = Gamma((nu + 1) / 2) / Gamma(nu / 2) / (sqrt(pi nu) sigma)
    gamma_ratio = math.exp(gammaln((nu + 1) / 2) - gammaln(nu / 2))
    c = gamma_ratio / (math.sqrt(math.pi * nu) * sigma)
    w = 1 + f**2 / (sigma**2 * nu)
    p = c * w ** (-(nu + 1) / 2)
    # p' = -k f p / w, with k = (nu + 1) / (sigma^2 nu)
    k = (nu + 1) / (sigma**2 * nu)
    first = -k * f * p / w
    # p'' = -k p / w (1 - f^2 (nu + 3) / (sigma^2 nu w))
    second = -k * p / w * (1 - f**2 * (nu + 3) / (sigma**2 * nu * w))

    # steepest: c / sigma (nu + 1) / nu sqrt(nu / (nu + 2)) ((nu + 3) / (nu + 2))^(-(nu + 3) / 2)
    height = c / sigma * (nu + 1) / nu
    steepest = height * math.sqrt(nu / (nu + 2)) / ((nu + 3) / (nu + 2)) ** ((nu + 3) / 2)
    # lowest: -c / sigma^2 (nu + 1) / nu
    lowest = -c / sigma**2 * (nu + 1) / nu
    # highest: 2 c / sigma^2 (nu + 1) / nu ((nu + 2) / (nu + 5))^((nu + 5) / 2)
    highest = -2 * lowest * ((nu + 2) / (nu + 5)) ** ((nu + 5) / 2)
    bounds = Bounds(B=c, first=(-steepest, steepest), second=(lowest, highest))
    return TableRow(p, first, second, bounds)


def table_rows(f: Values = GRID) -> Iterator[tuple[str, TableRow]]:
    """Yield the rows of Table 1 by name, at various scales, degrees of freedom and counts."""
    yield "logistic", logistic(f)
    for sigma in (0.1, 1.0, 3.0):
        yield "gaussian", gaussian(f, sigma)
    yield "probit", probit(f)
    for y in (0, 1, 2, 3, 5, 10, 20, 50):
        yield "poisson (softplus)", poisson_softplus(f, y)
        yield "poisson (exp)", poisson_exp(f, y)
    for nu in (1.0, 3.0, 10.0):
        for sigma in (0.3, 1.0):
            yield "student t", student_t(f, sigma, nu)


def excess(row: TableRow) -> float:
    """Return the largest amount by which p, p' or p'' is beyond a bound; at most 0 if none is."""
    bounds = row.bounds
    lowest_first, highest_first = bounds.first
    lowest_second, highest_second = bounds.second
    above = (row.p - bounds.B, row.first - highest_first, row.second - highest_second)
    below = (-row.p, lowest_first - row.first, lowest_second - row.second)
    return float(max(values.max() for values in (*above, *below)))


@cache
def largest_excess() -> dict[str, float]:
    """Return the largest `excess` of each likelihood over all of its parameters."""
    largest: dict[str, float] = {}
    with np.errstate(over="ignore", under="ignore"):
        for name, row in table_rows():
            largest[name] = max(excess(row), largest.get(name, -math.inf))
    return largest


@claim(17, "section 4, table 1", text="Table 1's derivative bounds hold.")
def derivative_bounds(evidence: Evidence | None = None) -> Iterator[Part]:
    """Compare each likelihood with its bounds on a dense grid of f; no records are needed."""
    for name, largest in largest_excess().items():
        part = Part(f"{name}: B, b', B', b'', B'' hold", figures={"largest_excess": largest})
        if largest <= BOUND_TOLERANCE:
            part.tests = [ClaimTest(outcome=Outcome.SUPPORTED)]
            part.reason = "inside its bounds everywhere"
        else:
            part.tests = [ClaimTest(outcome=Outcome.CONTRADICTED)]
            part.reason = f"a bound is left by {largest:.3g}"
        yield part
