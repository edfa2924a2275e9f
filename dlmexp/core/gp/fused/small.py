"""Small operations as single kernels: launching many kernels would take longer than the work.

On arrays [B, M, M]: jitter, KL, the inverse of a lower triangle, and the symmetric matrix in the
gradient of a Cholesky factor. On rows: log Phi with its derivative, and scores of mixtures of
Poisson distributions.
"""
# pyright: reportMissingImports=false, reportIndexIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

ENTRIES = 1024
"""Number of entries of a matrix that one program (a block of GPU threads) writes, or loads at a
time."""
PIECE = 4096
"""Number of entries of a matrix that one program sums."""
BLOCK = 32
"""Rows of the triangles that are inverted by substitution; larger inverses are made of theirs."""
ELEMENTS = 256
"""Number of values of log Phi that one program computes."""
ROWS = 8
"""Number of rows of counts that one program scores."""
# In the GPU kernels, arrays are passed as pointers. A pointer has a trailing underscore where the
# name without it is needed for the loaded values.


def added_to_diagonal(
    K: Float[Tensor, "B M M"], jitter: Float[Tensor, "B"]
) -> Float[Tensor, "B M M"]:
    """Return K + jitter * mean(diag K) * I [B, M, M]."""
    K = K.contiguous()
    B, M, _ = K.shape
    out = torch.empty_like(K)
    grid = (triton.cdiv(M * M, ENTRIES), B)
    _added_to_diagonal[grid](K, jitter, out, M, triton.next_power_of_2(M), ENTRIES)
    return out


def kl(m: Float[Tensor, "B M"], L: Float[Tensor, "B M M"]) -> Float[Tensor, "B"]:
    """Return KL(N(m, L L^T) || N(0, I)) [B], for triangular L."""
    m = m.contiguous()
    L = L.contiguous()
    B, M = m.shape
    pieces = triton.cdiv(M * M, PIECE)
    out = m.new_empty(pieces, B)
    _kl[(pieces, B)](m, L, out, M, B, triton.next_power_of_2(M), ENTRIES, PIECE)
    return out.sum(0)


def kl_gradients(
    m: Float[Tensor, "B M"], L: Float[Tensor, "B M M"], d_kl: Float[Tensor, "B"]
) -> tuple[Float[Tensor, "B M"], Float[Tensor, "B M M"]]:
    """Return the gradients in m and L from the gradient d_kl in `kl(m, L)`."""
    m = m.contiguous()
    L = L.contiguous()
    d_kl = d_kl.contiguous()
    B, M = m.shape
    d_m = torch.empty_like(m)
    d_L = torch.empty_like(L)
    _kl_gradients[(triton.cdiv(M * M, ENTRIES), B)](m, L, d_kl, d_m, d_L, M, ENTRIES)
    return d_m, d_L


@triton.jit(do_not_specialize=["M"])
def _added_to_diagonal(K, jitter, out, M, MP: tl.constexpr, T: tl.constexpr):
    """Write T entries of a matrix; MP is M rounded up to a power of two."""
    b = tl.program_id(1).to(tl.int64)
    j = tl.arange(0, MP)
    diagonal = tl.load(K + b * M * M + j * (M + 1), mask=j < M, other=0)
    # jitter mean(diag K)
    added = tl.load(jitter + b) * (tl.sum(diagonal, 0) / M)
    i = tl.program_id(0) * T + tl.arange(0, T)
    value = tl.load(K + b * M * M + i, mask=i < M * M, other=0)
    tl.store(out + b * M * M + i, tl.where(i % (M + 1) == 0, value + added, value), mask=i < M * M)


@triton.jit(do_not_specialize=["M", "B"])
def _kl(m, L, out, M, B, MP: tl.constexpr, T: tl.constexpr, PIECE: tl.constexpr):
    """Write the part of the KL that a piece of L contributes.

    The part of the first piece includes the terms of m and of the diagonal of L.
    """
    b = tl.program_id(1).to(tl.int64)
    first = tl.program_id(0) * PIECE
    squares = tl.zeros([T], m.dtype.element_ty)
    for start in range(first, first + PIECE, T):
        i = start + tl.arange(0, T)
        value = tl.load(L + b * M * M + i, mask=i < M * M, other=0)
        squares += value * value
    # 1/2 sum_ij L_ij^2, of the entries of this piece
    total = 0.5 * tl.sum(squares, 0)
    if tl.program_id(0) == 0:
        j = tl.arange(0, MP)
        mean = tl.load(m + b * M + j, mask=j < M, other=0)
        diagonal = tl.load(L + b * M * M + j * (M + 1), mask=j < M, other=1)
        # + 1/2 (m^T m - M) - sum_j log |L_jj|
        total += 0.5 * (tl.sum(mean * mean, 0) - M) - tl.sum(tl.log(tl.abs(diagonal)), 0)
    tl.store(out + tl.program_id(0) * B + b, total)


@triton.jit(do_not_specialize=["M"])
def _kl_gradients(m, L, d_kl, d_m, d_L, M, T: tl.constexpr):
    """Write T entries of d_L; the first programs also write d_m."""
    b = tl.program_id(1).to(tl.int64)
    scale = tl.load(d_kl + b)
    i = tl.program_id(0) * T + tl.arange(0, T)
    value = tl.load(L + b * M * M + i, mask=i < M * M, other=1)
    on_diagonal = i % (M + 1) == 0
    # d_L = d_kl (L - diag(1 / L_jj))
    tl.store(
        d_L + b * M * M + i,
        scale * (value - tl.where(on_diagonal, 1 / tl.where(on_diagonal, value, 1), 0)),
        mask=i < M * M,
    )
    if tl.program_id(0) * T < M:
        # d_m = d_kl m
        mean = tl.load(m + b * M + i, mask=i < M, other=0)
        tl.store(d_m + b * M + i, scale * mean, mask=i < M)


def inverse(L: Float[Tensor, "B M M"]) -> Float[Tensor, "B M M"]:
    """Return L^-1 [B, M, M] of lower triangles.

    The inverse of [[P, 0], [Q, R]] is [[P^-1, 0], [-R^-1 Q P^-1, R^-1]]. So blocks of 32 rows are
    inverted first, then combined to blocks of 64, 128, ... rows by a few matrix products. A
    triangular solve would go through M columns one after the other.
    """
    B, M, _ = L.shape
    # 1. L, extended by the identity, and the inverses of its diagonal blocks.
    size = BLOCK * triton.next_power_of_2(triton.cdiv(M, BLOCK))
    L = L.contiguous()
    padded = L.new_empty(B, size, size)
    result = torch.empty_like(padded)
    grid = (size // BLOCK, size // BLOCK, B)
    _diagonal_blocks[grid](L, padded, result, M, size, BLOCK)
    # 2. Two neighbouring blocks of `half` rows at a time become one.
    half = BLOCK
    while half < size:
        pairs = size // (2 * half)
        P_inv = _blocks(result, half, pairs, 0, 0)
        Q = _blocks(padded, half, pairs, 1, 0)
        R_inv = _blocks(result, half, pairs, 1, 1)
        # -R^-1 Q P^-1
        _blocks(result, half, pairs, 1, 0).copy_((R_inv @ (Q @ P_inv)).neg_())
        half *= 2
    if size == M:
        return result
    return result[:, :M, :M].contiguous()


def _blocks(t: Tensor, half: int, pairs: int, row: int, column: int) -> Tensor:
    """Return block (row, column) of each square of 2 x 2 blocks along the diagonal.

    The result is a view [B, pairs, half, half]; blocks have `half` rows.
    """
    B, size, _ = t.shape
    step = 2 * half * (size + 1)
    offset = t.storage_offset() + row * half * size + column * half
    return t.as_strided((B, pairs, half, half), (size * size, step, size, 1), offset)


def symmetric_middle(C: Float[Tensor, "B M M"]) -> Float[Tensor, "B M M"]:
    """Return `sym(Phi(C))`, where Phi keeps the lower triangle and halves the diagonal.

    `sym(P)` is (P + P^T) / 2. So entry (i, j) of the result is half of the entry of C on or below
    the diagonal, in row max(i, j) and column min(i, j).
    """
    B, M, _ = C.shape
    C = C.contiguous()
    out = torch.empty_like(C)
    tiles = triton.cdiv(M, BLOCK)
    _symmetric_middle[(tiles, tiles, B)](C, out, M, BLOCK)
    return out


@triton.jit(do_not_specialize=["M", "size"])
def _diagonal_blocks(L, padded, result, M, size, T: tl.constexpr):
    """Write to `padded` L, extended by the identity to `size` rows.

    Write to `result` the inverses of its diagonal blocks, and zero everywhere else.
    """
    b = tl.program_id(2).to(tl.int64)
    i = tl.program_id(0) * T + tl.arange(0, T)
    j = tl.program_id(1) * T + tl.arange(0, T)
    inside = (i[:, None] < M) & (j[None, :] < M) & (i[:, None] >= j[None, :])
    identity = tl.where(i[:, None] == j[None, :], 1.0, 0.0).to(L.dtype.element_ty)
    value = tl.load(L + (b * M + i[:, None]) * M + j[None, :], mask=inside, other=0)
    value = tl.where((i[:, None] < M) & (j[None, :] < M), value, identity)
    entry = (b * size + i[:, None]) * size + j[None, :]
    tl.store(padded + entry, value)
    if tl.program_id(0) == tl.program_id(1):
        # Forward substitution, all columns at once: row k of the inverse is finished, and its
        # multiples are subtracted from the rows below.
        row = tl.arange(0, T)
        x = identity
        for k in range(T):
            column_k = tl.sum(tl.where(row[None, :] == k, value, 0), 1)
            pivot = tl.sum(tl.where(row == k, column_k, 0), 0)
            row_k = tl.sum(tl.where(row[:, None] == k, x, 0), 0) / pivot
            below = tl.where(row > k, column_k, 0)
            x = tl.where(row[:, None] == k, row_k[None, :], x - below[:, None] * row_k[None, :])
        tl.store(result + entry, x)
    else:
        tl.store(result + entry, tl.zeros([T, T], L.dtype.element_ty))


@triton.jit(do_not_specialize=["M"])
def _symmetric_middle(C, out, M, T: tl.constexpr):
    """Write a tile of T x T entries."""
    b = tl.program_id(2).to(tl.int64)
    i = tl.program_id(0) * T + tl.arange(0, T)
    j = tl.program_id(1) * T + tl.arange(0, T)
    inside = (i[:, None] < M) & (j[None, :] < M)
    # Row and column of the entry on or below the diagonal
    larger = tl.maximum(i[:, None], j[None, :])
    smaller = tl.minimum(i[:, None], j[None, :])
    value = tl.load(C + (b * M + larger) * M + smaller, mask=inside, other=0)
    tl.store(out + (b * M + i[:, None]) * M + j[None, :], 0.5 * value, mask=inside)


def log_ndtr_and_hazard(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return log Phi(x) and phi(x) / Phi(x), elementwise."""
    x = x.contiguous()
    value = torch.empty_like(x)
    slope = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), ELEMENTS),)
    _log_ndtr_and_hazard[grid](x, value, slope, x.numel(), ELEMENTS)
    return value, slope


@triton.jit
def _erfcx_of_positive(y):
    """Return exp(y^2) erfc(y) for y >= 0, by the rational functions of Cody (1969).

    W. J. Cody, Mathematics of Computation 23. `top` and `bottom` are numerator and denominator of a
    ratio of polynomials, by Horner's rule.
    """
    # y <= 0.46875: erf(y) is y times a ratio of polynomials in y^2.
    z = tl.minimum(y, 0.46875)
    z = z * z
    top = 1.85777706184603153e-1 * z
    bottom = z
    top = (top + 3.16112374387056560) * z
    bottom = (bottom + 2.36012909523441209e1) * z
    top = (top + 1.13864154151050156e2) * z
    bottom = (bottom + 2.44024637934444173e2) * z
    top = (top + 3.77485237685302021e2) * z
    bottom = (bottom + 1.28261652607737228e3) * z
    small = tl.exp(z) * (1 - y * (top + 3.20937758913846947e3) / (bottom + 2.84423683343917062e3))
    # y <= 4: a ratio of polynomials in y.
    u = tl.minimum(tl.maximum(y, 0.46875), 4.0)
    top = 2.15311535474403846e-8 * u
    bottom = u
    top = (top + 5.64188496988670089e-1) * u
    bottom = (bottom + 1.57449261107098347e1) * u
    top = (top + 8.88314979438837594) * u
    bottom = (bottom + 1.17693950891312499e2) * u
    top = (top + 6.61191906371416295e1) * u
    bottom = (bottom + 5.37181101862009858e2) * u
    top = (top + 2.98635138197400131e2) * u
    bottom = (bottom + 1.62138957456669019e3) * u
    top = (top + 8.81952221241769090e2) * u
    bottom = (bottom + 3.29079923573345963e3) * u
    top = (top + 1.71204761263407058e3) * u
    bottom = (bottom + 4.36261909014324716e3) * u
    top = (top + 2.05107837782607147e3) * u
    bottom = (bottom + 3.43936767414372164e3) * u
    middle = (top + 1.23033935479799725e3) / (bottom + 1.23033935480374942e3)
    # y > 4: 1 / (sqrt(pi) y), corrected by a ratio of polynomials in 1 / y^2.
    v = tl.maximum(y, 4.0)
    w = 1 / (v * v)
    top = 1.63153871373020978e-2 * w
    bottom = w
    top = (top + 3.05326634961232344e-1) * w
    bottom = (bottom + 2.56852019228982242) * w
    top = (top + 3.60344899949804439e-1) * w
    bottom = (bottom + 1.87295284992346047) * w
    top = (top + 1.25781726111229246e-1) * w
    bottom = (bottom + 5.27905102951428412e-1) * w
    top = (top + 1.60837851487422766e-2) * w
    bottom = (bottom + 6.05183413124413191e-2) * w
    large = (
        0.56418958354775628695
        - w * (top + 6.58749161529837803e-4) / (bottom + 2.33520497626869185e-3)
    ) / v
    return tl.where(y <= 0.46875, small, tl.where(y <= 4.0, middle, large))


@triton.jit(do_not_specialize=["N"])
def _log_ndtr_and_hazard(x_, value_, slope_, N, T: tl.constexpr):
    """Write T values of log Phi and its derivative."""
    i = tl.program_id(0).to(tl.int64) * T + tl.arange(0, T)
    x = tl.load(x_ + i, mask=i < N, other=0)
    y = tl.abs(x) * 0.70710678118654752440  # |x| / sqrt(2)
    erfcx = _erfcx_of_positive(y)
    twice_density = 0.79788456080286535588 * tl.exp(-y * y)  # 2 phi(x); the number is sqrt(2 / pi)
    twice_tail = tl.exp(-y * y) * erfcx  # 2 Phi(-|x|)
    # x < 0: log Phi(x) = log(erfcx / 2) - y^2
    value_left = tl.log(0.5 * erfcx) - y * y
    # x >= 0: log Phi(x) = log(1 - tail), with the rounding error of 1 - tail added to first order
    Phi = 1 - 0.5 * twice_tail
    rounding_error = (1 - Phi) - 0.5 * twice_tail
    value_right = tl.log(Phi) + rounding_error / Phi
    value = tl.where(x < 0, value_left, value_right)
    slope = tl.where(x < 0, 0.79788456080286535588 / erfcx, twice_density / (2 - twice_tail))
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
    """Return sums over the counts `low` to `high` for R rows of mixtures of Poissons.

    F is the distribution function of a row's mixture. Counts below `low` are taken to have
    probability 0.

    Args:
        p: The probabilities of count `low` under each of the K Poissons.
        rates: The rates of the Poissons.
        weights: The weights of the Poissons.
        low: The first count.
        high: The last count.
        y: The observed counts.
        shares: Two values of F.

    Returns:
        The sum of (F(k) - [y <= k])^2, and for each of the two shares the number of counts k with
        F(k) below the share.
    """
    K, R = p.shape
    crps = torch.empty_like(y)
    lower = torch.empty_like(y)
    upper = torch.empty_like(y)
    _sums_over_counts[(triton.cdiv(R, ROWS),)](
        p.contiguous(),
        rates.contiguous(),
        weights,
        y.contiguous(),
        crps,
        lower,
        upper,
        low,
        high,
        K,
        R,
        LOWER=shares[0],
        UPPER=shares[1],
        KP=triton.next_power_of_2(K),
        T=ROWS,
    )
    return crps, lower, upper


@triton.jit(do_not_specialize=["low", "high", "K", "R"])
def _sums_over_counts(  # noqa: PLR0913 - a GPU kernel takes pointers and sizes one by one
    p_,
    rates_,
    weights,
    y_,
    crps_,
    lower_,
    upper_,
    low,
    high,
    K,
    R,
    LOWER: tl.constexpr,
    UPPER: tl.constexpr,
    KP: tl.constexpr,
    T: tl.constexpr,
):
    """Write the three sums of T rows; KP is K rounded up to a power of two."""
    i = tl.arange(0, KP)
    r = tl.program_id(0) * T + tl.arange(0, T)
    inside = (i[:, None] < K) & (r[None, :] < R)
    entry = i[:, None].to(tl.int64) * R + r[None, :]
    # p is multiplied by the weights, so that the probability of a count is a plain sum.
    weight = tl.load(weights + i, mask=i < K, other=0)
    p = tl.load(p_ + entry, mask=inside, other=0) * weight[:, None]
    rates = tl.load(rates_ + entry, mask=inside, other=0)
    y = tl.load(y_ + r, mask=r < R, other=0)
    F = tl.sum(p, 0)
    # [y <= k]
    step = tl.where(y <= low, 1.0, 0.0).to(y.dtype)
    crps = (F - step) * (F - step)
    lower_share = tl.full([], LOWER, y.dtype)
    upper_share = tl.full([], UPPER, y.dtype)
    lower = tl.where(lower_share > F, 1.0, 0.0).to(y.dtype)
    upper = tl.where(upper_share > F, 1.0, 0.0).to(y.dtype)
    for k in range(low + 1, high + 1):
        # Probability of count k under each Poisson, from that of count k - 1
        p = p * rates / k
        F += tl.sum(p, 0)
        step = tl.where(y <= k, 1.0, 0.0).to(y.dtype)
        crps += (F - step) * (F - step)
        lower += tl.where(lower_share > F, 1.0, 0.0).to(y.dtype)
        upper += tl.where(upper_share > F, 1.0, 0.0).to(y.dtype)
    tl.store(crps_ + r, crps, mask=r < R)
    tl.store(lower_ + r, lower, mask=r < R)
    tl.store(upper_ + r, upper, mask=r < R)
