"""Scores of a whole predictive distribution, per row: CRPS, coverage and width of central intervals, Brier score.

Those of counts are in `count_calibration.py`.

Their means over rows are recorded with the other metrics (docs/SPEC.md, section 7). All of them are lower = better but
coverage, which should be what the interval promises.
"""

import math
from statistics import NormalDist

import torch
from jaxtyping import Float
from torch import Tensor

Scores = dict[str, Tensor]

LEVELS = (50, 90, 95)  # per cent, of central intervals in regression
INV_SQRT_PI = 1 / math.sqrt(math.pi)


def brier(p: Float[Tensor, "*B N"], y: Float[Tensor, "*B N"]) -> Scores:
    """(p - y)^2 per row of binary data, p the probability of class 1."""
    return {"brier": (p - y).square()}


def normal_scores(mu: Float[Tensor, "*B N"], variance: Float[Tensor, "*B N"], y: Float[Tensor, "*B N"]) -> Scores:
    """Scores of N(mu, variance); CRPS in closed form: s (z (2 Phi(z) - 1) + 2 phi(z) - 1/sqrt(pi)), z = (y - mu)/s."""
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
    """Of the central interval of N(0, 1) that holds `level` per cent."""
    return NormalDist().inv_cdf((1 + level / 100) / 2)


def normal_mixture_scores(
    d: Float[Tensor, "*B N"], variances: Float[Tensor, "K *B N"], weights: Float[Tensor, "K *B #N"]
) -> Scores:
    """Scores of a mixture of N(mu, variance_k) with a common mean, at the distances d = y - mu.

    CRPS = E|X - y| - E|X - X'|/2, and X - X' is a mixture of N(0, variance_k + variance_l).
    """
    s, d = variances.sqrt(), d.abs()
    z = d / s
    mean = s * (z * torch.erf(z * math.sqrt(0.5)) + (-0.5 * z.square()).exp() * math.sqrt(2 / math.pi))
    apart = torch.zeros_like(d)
    for variance, weight in zip(variances, weights, strict=True):  # over the few nodes: K^2 rows would not fit
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
    """Of the central interval that holds `level` per cent of a mixture of normals with a common mean and standard
    deviations s. The distribution function of |X - mu| is concave: from the first step on Newton stays left of the
    root."""
    h = half_width(level) * (weights * s).sum(0)
    for _ in range(4):
        density = (weights / s * (-0.5 * (h / s).square()).exp()).sum(0) * math.sqrt(2 / math.pi)
        h = (h + (level / 100 - _inside(h, s, weights)) / density).clamp_min(0)
    return h


def _inside(h: Tensor, s: Tensor, weights: Tensor) -> Tensor:
    """P(|X - mu| <= h)."""
    return (weights * torch.erf(h / s * math.sqrt(0.5))).sum(0)
