"""What likelihoods compute row by row: log Phi with its derivative, and scores of Poisson mixtures count by count."""
# pyright: reportMissingImports=false, reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

ELEMENTS, ROWS = 256, 8  # elements of log Phi, and rows of counts, in one program


def log_ndtr_and_hazard(x: Tensor) -> tuple[Tensor, Tensor]:
    """log Phi(x) and phi(x) / Phi(x), elementwise."""
    x = x.contiguous()
    value, slope = torch.empty_like(x), torch.empty_like(x)
    _log_ndtr_and_hazard[(triton.cdiv(x.numel(), ELEMENTS),)](x, value, slope, x.numel(), ELEMENTS)
    return value, slope


@triton.jit
def _erfcx_of_positive(y):
    """exp(y^2) erfc(y) for y >= 0, by the rational functions of W. J. Cody (Math. Comp. 23, 1969)."""
    # y <= 0.46875: erf is a polynomial ratio in y^2.
    z = tl.minimum(y, 0.46875)
    z = z * z
    above = 1.85777706184603153e-1 * z
    below = z
    above = (above + 3.16112374387056560) * z
    below = (below + 2.36012909523441209e1) * z
    above = (above + 1.13864154151050156e2) * z
    below = (below + 2.44024637934444173e2) * z
    above = (above + 3.77485237685302021e2) * z
    below = (below + 1.28261652607737228e3) * z
    small = tl.exp(z) * (1 - y * (above + 3.20937758913846947e3) / (below + 2.84423683343917062e3))
    # up to 4: a ratio in y.
    u = tl.minimum(tl.maximum(y, 0.46875), 4.0)
    above = 2.15311535474403846e-8 * u
    below = u
    above = (above + 5.64188496988670089e-1) * u
    below = (below + 1.57449261107098347e1) * u
    above = (above + 8.88314979438837594) * u
    below = (below + 1.17693950891312499e2) * u
    above = (above + 6.61191906371416295e1) * u
    below = (below + 5.37181101862009858e2) * u
    above = (above + 2.98635138197400131e2) * u
    below = (below + 1.62138957456669019e3) * u
    above = (above + 8.81952221241769090e2) * u
    below = (below + 3.29079923573345963e3) * u
    above = (above + 1.71204761263407058e3) * u
    below = (below + 4.36261909014324716e3) * u
    above = (above + 2.05107837782607147e3) * u
    below = (below + 3.43936767414372164e3) * u
    middle = (above + 1.23033935479799725e3) / (below + 1.23033935480374942e3)
    # beyond: a ratio in 1 / y^2, next to 1 / (sqrt(pi) y).
    v = tl.maximum(y, 4.0)
    w = 1 / (v * v)
    above = 1.63153871373020978e-2 * w
    below = w
    above = (above + 3.05326634961232344e-1) * w
    below = (below + 2.56852019228982242) * w
    above = (above + 3.60344899949804439e-1) * w
    below = (below + 1.87295284992346047) * w
    above = (above + 1.25781726111229246e-1) * w
    below = (below + 5.27905102951428412e-1) * w
    above = (above + 1.60837851487422766e-2) * w
    below = (below + 6.05183413124413191e-2) * w
    large = (0.56418958354775628695 - w * (above + 6.58749161529837803e-4) / (below + 2.33520497626869185e-3)) / v
    return tl.where(y <= 0.46875, small, tl.where(y <= 4.0, middle, large))


@triton.jit(do_not_specialize=["N"])
def _log_ndtr_and_hazard(x_, value_, slope_, N, T: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * T + tl.arange(0, T)
    x = tl.load(x_ + i, mask=i < N, other=0)
    y = tl.abs(x) * 0.70710678118654752440
    scaled = _erfcx_of_positive(y)
    density = 0.79788456080286535588 * tl.exp(-y * y)  # 2 phi(x)
    twice_tail = tl.exp(-y * y) * scaled  # 2 Phi(-|x|)
    rest = 1 - 0.5 * twice_tail  # Phi(|x|), and below what rounding took from it
    value = tl.where(x < 0, tl.log(0.5 * scaled) - y * y, tl.log(rest) + ((1 - rest) - 0.5 * twice_tail) / rest)
    slope = tl.where(x < 0, 0.79788456080286535588 / scaled, density / (2 - twice_tail))
    tl.store(value_ + i, value, mask=i < N)
    tl.store(slope_ + i, slope, mask=i < N)


def sums_over_counts(
    p: Float[Tensor, "K R"],
    rates: Float[Tensor, "K R"],
    weights: Float[Tensor, "K"],
    low: int,
    high: int,
    y: Float[Tensor, "R"],
    shares: tuple[float, float],
) -> tuple[Float[Tensor, "R"], Float[Tensor, "R"], Float[Tensor, "R"]]:
    """With `p` the probabilities of count `low` at the nodes: the sum over counts of (F(k) - [y <= k])^2, and how many
    counts have F(k) below each of the two `shares`."""
    K, R = p.shape
    crps, lower, upper = (torch.empty_like(y) for _ in range(3))
    _sums_over_counts[(triton.cdiv(R, ROWS),)](
        p.contiguous(), rates.contiguous(), weights, y.contiguous(), crps, lower, upper, low, high, K, R,
        shares[0], shares[1], triton.next_power_of_2(K), ROWS,
    )  # fmt: skip
    return crps, lower, upper


@triton.jit(do_not_specialize=["low", "high", "K", "R"])
def _sums_over_counts(
    p_, rates_, weights, y_, crps_, lower_, upper_, low, high, K, R,
    LOWER: tl.constexpr, UPPER: tl.constexpr, KP: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    i = tl.arange(0, KP)
    r = tl.program_id(0) * T + tl.arange(0, T)
    inside = (i[:, None] < K) & (r[None, :] < R)
    at = i[:, None].to(tl.int64) * R + r[None, :]
    # The weights are part of p from the start: F(k) then is a plain sum.
    p = tl.load(p_ + at, mask=inside, other=0) * tl.load(weights + i, mask=i < K, other=0)[:, None]
    rates = tl.load(rates_ + at, mask=inside, other=0)
    y = tl.load(y_ + r, mask=r < R, other=0)
    F = tl.sum(p, 0)
    below = tl.where(y <= low, 1.0, 0.0).to(y.dtype)
    crps = (F - below) * (F - below)
    first = tl.full([], LOWER, y.dtype)
    last = tl.full([], UPPER, y.dtype)
    lower = tl.where(first > F, 1.0, 0.0).to(y.dtype)
    upper = tl.where(last > F, 1.0, 0.0).to(y.dtype)
    for k in range(low + 1, high + 1):
        p = p * rates / k
        F += tl.sum(p, 0)
        below = tl.where(y <= k, 1.0, 0.0).to(y.dtype)
        crps += (F - below) * (F - below)
        lower += tl.where(first > F, 1.0, 0.0).to(y.dtype)
        upper += tl.where(last > F, 1.0, 0.0).to(y.dtype)
    tl.store(crps_ + r, crps, mask=r < R)
    tl.store(lower_ + r, lower, mask=r < R)
    tl.store(upper_ + r, upper, mask=r < R)
