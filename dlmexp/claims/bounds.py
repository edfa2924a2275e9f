"""Claim 17: the bounds of the paper's Table 1 on likelihoods and their first two derivatives in f, on a dense grid."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import gammaln, ndtr

from dlmexp.claims.claim import Part, claim
from dlmexp.claims.evidence import Evidence
from dlmexp.claims.rules import Verdict
from dlmexp.claims.thresholds import BOUND_TOLERANCE

Derivatives = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
GRID = np.linspace(-40.0, 40.0, 40_001)
COUNTS = (0, 1, 2, 3, 5, 10, 20, 50)


@dataclass(frozen=True)
class Row:
    """A row of Table 1 at given parameters: p, p', p'' as functions of f, and B, b', B', b'', B''."""

    name: str
    derivatives: Derivatives
    bounds: tuple[float, float, float, float, float]


def logistic(f: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    p = 1 / (1 + np.exp(-f))
    return p, p * (1 - p), p * (1 - p) * (1 - 2 * p)


def gaussian(sigma: float) -> Row:
    c = 1 / (math.sqrt(2 * math.pi) * sigma)

    def derivatives(f: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        z = f / sigma
        p = c * np.exp(-(z**2) / 2)
        return p, -z / sigma * p, (z**2 - 1) / sigma**2 * p

    slope = c / (math.sqrt(math.e) * sigma)
    return Row(
        f"gaussian, σ={sigma:g}", derivatives, (c, -slope, slope, -c / sigma**2, 2 * c / (sigma**2 * math.e**1.5))
    )


def probit(f: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    density = np.exp(-(f**2) / 2) / math.sqrt(2 * math.pi)
    return ndtr(f), density, -f * density


def poisson(y: int, softplus: bool) -> Derivatives:
    """Through log p: p' = p l', p'' = p (l'' + l'^2), with l = y log g - g - log y!."""

    def derivatives(f: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if softplus:
            g, s = np.logaddexp(0, f), 1 / (1 + np.exp(-f))
            # log(1 + e^f) -> e^f as f -> -inf, so the ratios below tend to 1 and are taken in that form.
            ratio = np.where(f > -30, s / np.maximum(g, 1e-300), 1.0)
            log_g = np.where(f > -30, np.log(np.maximum(g, 1e-300)), f)
            first = y * ratio - s
            second = y * (ratio * (1 - s) - ratio**2) - s * (1 - s)
        else:
            g, log_g = np.exp(f), f
            first, second = y - g, -g
        p = np.exp(y * log_g - g - gammaln(y + 1))
        # Where p is 0 in floating point, so are its derivatives: g grows far slower than p falls.
        return p, np.where(p > 0, p * first, 0.0), np.where(p > 0, p * (second + first**2), 0.0)

    return derivatives


def student_t(sigma: float, nu: float) -> Row:
    c = math.exp(gammaln((nu + 1) / 2) - gammaln(nu / 2)) / (math.sqrt(math.pi * nu) * sigma)

    def derivatives(f: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        w = 1 + f**2 / (sigma**2 * nu)
        k = (nu + 1) / (sigma**2 * nu)
        p = c * w ** (-(nu + 1) / 2)
        first = -k * f * p / w
        second = -k * p / w * (1 - f**2 * (nu + 3) / (sigma**2 * nu * w))
        return p, first, second

    slope = c / sigma * (nu + 1) / nu * math.sqrt(nu / (nu + 2)) / ((nu + 3) / (nu + 2)) ** ((nu + 3) / 2)
    low = -c / sigma**2 * (nu + 1) / nu
    high = 2 * c / sigma**2 * (nu + 1) / nu * ((nu + 2) / (nu + 5)) ** ((nu + 5) / 2)
    return Row(f"student t, σ={sigma:g}, ν={nu:g}", derivatives, (c, -slope, slope, low, high))


def rows() -> Iterator[Row]:
    """Table 1, at several scales, degrees of freedom and counts. The targets are at 0: f - y is all that matters."""
    yield Row("logistic", logistic, (1, -0.25, 0.25, -0.25, 0.25))
    for sigma in (0.1, 1.0, 3.0):
        yield gaussian(sigma)
    normal, curved = 1 / math.sqrt(2 * math.pi), 1 / math.sqrt(2 * math.pi * math.e)
    yield Row("probit", probit, (1, -normal, normal, -curved, curved))
    for y in COUNTS:
        yield Row(f"poisson (softplus), y={y}", poisson(y, True), (1, -1, 1, -2.25, 2.25))
        yield Row(f"poisson (exp), y={y}", poisson(y, False), (1, -y - 1, y, -y - 0.25, 2 * y**2 + 3 * y + 2))
    for nu in (1.0, 3.0, 10.0):
        for sigma in (0.3, 1.0):
            yield student_t(sigma, nu)


def excess(row: Row) -> float:
    """How far p, p' or p'' leave their bounds on the grid; negative or zero where they do not."""
    B, low1, high1, low2, high2 = row.bounds
    with np.errstate(over="ignore", under="ignore"):
        p, first, second = row.derivatives(GRID)
    return float(
        max(
            p.max() - B, -p.min(), first.max() - high1, low1 - first.min(), second.max() - high2, low2 - second.min()
        )
    )  # fmt: skip


@cache
def largest_excess() -> dict[str, tuple[str, float]]:
    """Likelihood -> the row of Table 1 that comes closest to leaving its bounds, and by how much it does."""
    families: dict[str, list[tuple[str, float]]] = {}
    for row in rows():
        families.setdefault(row.name.split(",")[0], []).append((row.name, excess(row)))
    return {family: max(measured, key=lambda item: item[1]) for family, measured in families.items()}


@claim(17, "Table 1's derivative bounds hold.", "section 4, table 1")
def table_1(evidence: Evidence | None = None) -> Iterator[Part]:
    for family, (name, worst) in largest_excess().items():
        inside = worst <= BOUND_TOLERANCE
        yield Part(
            f"{family}: B, b', B', b'', B'' hold", verdict=Verdict.HOLDS if inside else Verdict.FAILS,
            figures={"largest_excess": worst},
            reason="inside its bounds everywhere" if inside else f"{name} leaves a bound by {worst:.3g}",
        )  # fmt: skip
