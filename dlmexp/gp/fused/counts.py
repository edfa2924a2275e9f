"""Scores of Poisson mixtures, count by count, in one kernel: the loop over counts would launch several for each."""
# pyright: reportMissingImports=false, reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

ROWS = 8


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
