"""Claim 17: the bounds of the paper's Table 1 on likelihoods and their first two derivatives in f,
on a dense grid."""

import math
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, ndtr

from dlmexp.presentation.claims.claim import Part, claim
from dlmexp.presentation.claims.evidence import Evidence
from dlmexp.presentation.claims.rules import BOUND_TOLERANCE, Verdict

GRID = np.linspace(-40.0, 40.0, 40_001)


class Row(NamedTuple):
    """A row of Table 1 at given parameters: p, p', p'' on the grid, and B, b', B', b'', B''."""

    p: np.ndarray
    first: np.ndarray
    second: np.ndarray
    bounds: tuple[float, float, float, float, float]


def logistic(f: np.ndarray) -> Row:
    p = 1 / (1 + np.exp(-f))
    return Row(p, p * (1 - p), p * (1 - p) * (1 - 2 * p), (1, -0.25, 0.25, -0.25, 0.25))


def gaussian(f: np.ndarray, sigma: float) -> Row:
    c, z = 1 / (math.sqrt(2 * math.pi) * sigma), f / sigma
    p, slope = c * np.exp(-(z**2) / 2), c / (math.sqrt(math.e) * sigma)
    bounds = (c, -slope, slope, -c / sigma**2, 2 * c / (sigma**2 * math.e**1.5))
    return Row(p, -z / sigma * p, (z**2 - 1) / sigma**2 * p, bounds)


def probit(f: np.ndarray) -> Row:
    normal, curved = 1 / math.sqrt(2 * math.pi), 1 / math.sqrt(2 * math.pi * math.e)
    density = normal * np.exp(-(f**2) / 2)
    return Row(ndtr(f), density, -f * density, (1, -normal, normal, -curved, curved))


def poisson(f: np.ndarray, y: int, softplus: bool) -> Row:
    """Through log p: p' = p l', p'' = p (l'' + l'^2), with l = y log g - g - log y!."""
    if softplus:
        g, s = np.logaddexp(0, f), 1 / (1 + np.exp(-f))
        # log(1 + e^f) -> e^f as f -> -inf, so the ratios below tend to 1 and are taken in that
        # form.
        ratio = np.where(f > -30, s / np.maximum(g, 1e-300), 1.0)
        log_g = np.where(f > -30, np.log(np.maximum(g, 1e-300)), f)
        first, second = y * ratio - s, y * (ratio * (1 - s) - ratio**2) - s * (1 - s)
        bounds = (1, -1, 1, -2.25, 2.25)
    else:
        g, log_g = np.exp(f), f
        first, second = y - g, -g
        bounds = (1, -y - 1, y, -y - 0.25, 2 * y**2 + 3 * y + 2)
    p = np.exp(y * log_g - g - gammaln(y + 1))
    # Where p is 0 in floating point, so are its derivatives: g grows far slower than p falls.
    return Row(
        p, np.where(p > 0, p * first, 0.0), np.where(p > 0, p * (second + first**2), 0.0), bounds
    )


def student_t(f: np.ndarray, sigma: float, nu: float) -> Row:
    c = math.exp(gammaln((nu + 1) / 2) - gammaln(nu / 2)) / (math.sqrt(math.pi * nu) * sigma)
    w, k = 1 + f**2 / (sigma**2 * nu), (nu + 1) / (sigma**2 * nu)
    p = c * w ** (-(nu + 1) / 2)
    second = -k * p / w * (1 - f**2 * (nu + 3) / (sigma**2 * nu * w))
    slope = (
        c
        / sigma
        * (nu + 1)
        / nu
        * math.sqrt(nu / (nu + 2))
        / ((nu + 3) / (nu + 2)) ** ((nu + 3) / 2)
    )
    low = -c / sigma**2 * (nu + 1) / nu
    high = 2 * c / sigma**2 * (nu + 1) / nu * ((nu + 2) / (nu + 5)) ** ((nu + 5) / 2)
    return Row(p, -k * f * p / w, second, (c, -slope, slope, low, high))


def rows(f: np.ndarray = GRID) -> Iterator[tuple[str, Row]]:
    """Table 1, at several scales, degrees of freedom and counts. The targets are at 0: f - y is all
    that matters."""
    yield "logistic", logistic(f)
    yield from (("gaussian", gaussian(f, sigma)) for sigma in (0.1, 1.0, 3.0))
    yield "probit", probit(f)
    for y in (0, 1, 2, 3, 5, 10, 20, 50):
        yield "poisson (softplus)", poisson(f, y, True)
        yield "poisson (exp)", poisson(f, y, False)
    yield from (
        ("student t", student_t(f, sigma, nu)) for nu in (1.0, 3.0, 10.0) for sigma in (0.3, 1.0)
    )


def excess(row: Row) -> float:
    """How far p, p' or p'' leave their bounds on the grid; negative or zero where they do not."""
    B, *bounds = row.bounds
    above = [row.p - B, row.first - bounds[1], row.second - bounds[3]]
    below = [-row.p, bounds[0] - row.first, bounds[2] - row.second]
    return float(max(values.max() for values in above + below))


@cache
def largest_excess() -> dict[str, float]:
    """By likelihood, the largest excess over its bounds at any parameters."""
    worst: dict[str, float] = {}
    with np.errstate(over="ignore", under="ignore"):
        for name, row in rows():
            worst[name] = max(excess(row), worst.get(name, -math.inf))
    return worst


@claim(17, "section 4, table 1")
def table_1(evidence: Evidence | None = None) -> Iterator[Part]:
    """Table 1's derivative bounds hold."""
    for name, largest in largest_excess().items():
        inside = largest <= BOUND_TOLERANCE
        part = Part(
            f"{name}: B, b', B', b'', B'' hold", verdict=Verdict.HOLDS if inside else Verdict.FAILS
        )
        part.figures = {"largest_excess": largest}
        part.reason = (
            "inside its bounds everywhere" if inside else f"a bound is left by {largest:.3g}"
        )
        yield part
