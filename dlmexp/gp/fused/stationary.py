"""Matrices of a stationary kernel from inputs and lengthscales in one pass, and its gradients in one pass more."""
# pyright: reportMissingImports=false, reportIndexIssue=false

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from dlmexp.gp.fused.launch import chunks_of_rows, tile

TM, TN = 32, 64


def covariance(
    Z: Float[Tensor, "B M D"], X: Float[Tensor, "B N D"], l: Float[Tensor, "B P"], s: Float[Tensor, "B"], matern: bool
) -> Float[Tensor, "B M N"]:
    """`s exp(-r^2 / 2)`, or the Matern-5/2 kernel, of the scaled distances r."""
    Z, l, s = (t.contiguous() for t in (Z, l, s))
    (B, M, D), N = Z.shape, X.shape[1]
    K = Z.new_empty(B, M, N)
    grid = (triton.cdiv(N, TN), triton.cdiv(M, TM), B)
    _covariance[grid](Z, X, l, s, K, *X.stride(), M, N, D, l.shape[1] > 1, matern, TM, TN)
    return K


def pull(
    d_K: Float[Tensor, "B M N"],
    K: Float[Tensor, "B M N"],
    Z: Float[Tensor, "B M D"],
    X: Float[Tensor, "B N D"],
    l: Float[Tensor, "B P"],
    s: Float[Tensor, "B"],
    matern: bool,
    gram: bool,
) -> tuple[Float[Tensor, "B M D"], Float[Tensor, "B P"], Float[Tensor, "B"]]:
    """Gradients in Z, l and s from that in K; `gram`: X is Z, which then gets the gradients of both sides.

    With `G = d_K dK/dE`, E = -r^2 / 2, all of them are sums over rows of G times 1, x and x^2. One pass makes G and
    the sums of single numbers; those of x are a matrix product."""
    d_K, Z, l, s = (t.contiguous() for t in (d_K, Z, l, s))
    (B, M, D), N = Z.shape, X.shape[1]
    ard, tiles = l.shape[1] > 1, triton.cdiv(M, TM)
    chunks, rows = chunks_of_rows(N, TN, B * tiles, Z.device)
    G, sums = torch.empty_like(K), Z.new_empty(chunks, B, M, 3)
    _weighted[(chunks, tiles, B)](
        d_K, K, Z, X, l, s, G, sums, *X.stride(), B, M, N, D, rows, ard, matern, gram, TM, TN
    )  # fmt: skip
    Gx = G @ X
    Gxx = G @ X.square() if ard else Gx
    d_Z, d_l, d_s = torch.empty_like(Z), torch.empty_like(l), torch.empty_like(s)
    _gradients[(B,)](Gx, Gxx, sums, Z, l, s, d_Z, d_l, d_s, chunks, B, M, D, ard, gram, tile(D), TM)
    return d_Z, d_l, d_s


@triton.jit
def _scaled_square_distance(
    Z, X, l, b, m, n, XB, XN, XD, M, N, D,
    ARD: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, dtype: tl.constexpr,
):  # fmt: skip
    r2 = tl.zeros([TM, TN], dtype)
    for d in range(D):
        z = tl.load(Z + (b * M + m) * D + d, mask=m < M, other=0)
        x = tl.load(X + b * XB + n * XN + d * XD, mask=n < N, other=0)
        if ARD:
            scale = 1 / tl.load(l + b * D + d)
            z, x = z * scale, x * scale
        difference = z[:, None] - x[None, :]
        r2 += difference * difference
    if not ARD:
        scale = 1 / tl.load(l + b)
        r2 = r2 * (scale * scale)
    return r2


@triton.jit
def _covariance(
    Z, X, l, s, K, XB, XN, XD, M, N, D,
    ARD: tl.constexpr, MATERN: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(2).to(tl.int64)
    m = tl.program_id(1) * TM + tl.arange(0, TM)
    n = tl.program_id(0) * TN + tl.arange(0, TN)
    r2 = _scaled_square_distance(Z, X, l, b, m, n, XB, XN, XD, M, N, D, ARD, TM, TN, K.dtype.element_ty)
    scale = tl.load(s + b)
    if MATERN:
        u = tl.sqrt(5 * r2)
        value = scale * (1 + u + u * u / 3) * tl.exp(-u)
    else:
        value = scale * tl.exp(r2 * -0.5)
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(K + (b * M + m[:, None]) * N + n[None, :], value, mask=inside)


@triton.jit
def _weighted(
    d_K, K, Z, X, l, s, G, sums, XB, XN, XD, B, M, N, D, rows,
    ARD: tl.constexpr, MATERN: tl.constexpr, GRAM: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr,
):  # fmt: skip
    """G, and over the rows of a chunk the sums of G, G |x|^2 and d_K K."""
    b = tl.program_id(2).to(tl.int64)
    m = tl.program_id(1) * TM + tl.arange(0, TM)
    first = tl.program_id(0) * rows
    last = tl.minimum(first + rows, N)
    dtype: tl.constexpr = K.dtype.element_ty
    G1 = tl.zeros([TM, TN], dtype)
    Gx2 = tl.zeros([TM, TN], dtype)
    dK1 = tl.zeros([TM, TN], dtype)
    for start in range(first, last, TN):
        n = start + tl.arange(0, TN)
        inside = (m[:, None] < M) & (n[None, :] < last)
        at = (b * M + m[:, None]) * N + n[None, :]
        g = tl.load(d_K + at, mask=inside, other=0)
        if GRAM:
            g += tl.load(d_K + (b * M + n[None, :]) * N + m[:, None], mask=inside, other=0)
        value = g * tl.load(K + at, mask=inside, other=0)
        if MATERN:
            dK1 += value
            r2 = _scaled_square_distance(Z, X, l, b, m, n, XB, XN, XD, M, N, D, ARD, TM, TN, dtype)
            u = tl.sqrt(5 * r2)
            value = g * (tl.load(s + b) * (1 + u) * tl.exp(-u) * 5 / 3)
        tl.store(G + at, value, mask=inside)
        G1 += value
        if not ARD:
            x2 = tl.zeros([TN], dtype)
            for d in range(D):
                x = tl.load(X + b * XB + n * XN + d * XD, mask=n < last, other=0)
                x2 += x * x
            Gx2 += value * x2[None, :]
    row = sums + ((tl.program_id(0) * B + b) * M + m) * 3
    tl.store(row, tl.sum(G1, 1), mask=m < M)
    tl.store(row + 1, tl.sum(Gx2, 1), mask=m < M)
    tl.store(row + 2, tl.sum(dK1 if MATERN else G1, 1), mask=m < M)


@triton.jit
def _gradients(
    Gx_, Gxx_, sums, Z, l, s, d_Z, d_l, d_s, chunks, B, M, D,
    ARD: tl.constexpr, GRAM: tl.constexpr, DP: tl.constexpr, TM: tl.constexpr,
):  # fmt: skip
    """d_z = sum G (x - z) / l^2, d_l = sum G (x - z)^2 / l^3, d_s = sum d_K K / s."""
    b = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, DP)
    dtype: tl.constexpr = Z.dtype.element_ty
    lengths = tl.load(l + (b * D + d if ARD else b + d * 0), mask=d < D, other=1)
    total_l = tl.zeros([DP], dtype)
    total_s = tl.zeros([TM], dtype)
    for start in range(0, M, TM):
        m = start + tl.arange(0, TM)
        there = (m[:, None] < M) & (d[None, :] < D)
        at = (b * M + m[:, None]) * D + d[None, :]
        G1 = tl.zeros([TM], dtype)
        Gx2 = tl.zeros([TM], dtype)
        for chunk in range(chunks):
            row = sums + ((chunk * B + b) * M + m) * 3
            G1 += tl.load(row, mask=m < M, other=0)
            Gx2 += tl.load(row + 1, mask=m < M, other=0)
            total_s += tl.load(row + 2, mask=m < M, other=0)
        Gx = tl.load(Gx_ + at, mask=there, other=0)
        z = tl.load(Z + at, mask=there, other=0)
        tl.store(d_Z + at, (Gx - z * G1[:, None]) / (lengths * lengths)[None, :], mask=there)
        squares = z * z * G1[:, None] - 2 * z * Gx
        if ARD:
            squares += tl.load(Gxx_ + at, mask=there, other=0)
        else:
            squares += tl.where(d[None, :] == 0, Gx2[:, None], 0)
        total_l += tl.sum(squares, 0)
    half = 0.5 if GRAM else 1.0
    total_l = total_l * half / (lengths * lengths * lengths)
    if ARD:
        tl.store(d_l + b * D + d, total_l, mask=d < D)
    else:
        tl.store(d_l + b, tl.sum(tl.where(d < D, total_l, 0), 0))
    tl.store(d_s + b, tl.sum(total_s, 0) * half / tl.load(s + b))
