"""Matrices of a stationary kernel from inputs and lengthscales in one pass, and its gradients in one pass more."""
# pyright: reportMissingImports=false, reportIndexIssue=false

from typing import NamedTuple

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from dlmexp.gp.fused.launch import chunks_of_rows, tile

TM, TN = 32, 64  # of a matrix
TR = 32  # rows at a time in its gradients


class Outer(NamedTuple):
    """What makes the gradient `V diag(h) + w g^T` (h None: `V + w g^T`) of V."""

    h: Float[Tensor, "B N"] | None
    w: Float[Tensor, "B M"]
    g: Float[Tensor, "B N"]


def covariance(
    Z: Float[Tensor, "B M D"], X: Float[Tensor, "B N D"], l: Float[Tensor, "B P"], s: Float[Tensor, "B"], matern: bool
) -> Float[Tensor, "B M N"]:
    """`s exp(-r^2 / 2)`, or the Matern-5/2 kernel, of the scaled distances r."""
    Z, l, s = (t.contiguous() for t in (Z, l, s))
    (B, M, D), N = Z.shape, X.shape[1]
    K = Z.new_empty(B, M, N)
    grid = (triton.cdiv(N, TN), triton.cdiv(M, TM), B)
    _covariance[grid](Z, X, l, s, K, *X.stride(), M, N, D, l.shape[1] > 1, matern, tile(D), TM, TN)
    return K


def pull(
    V: Float[Tensor, "B M N"],
    K: Float[Tensor, "B M N"],
    Z: Float[Tensor, "B M D"],
    X: Float[Tensor, "B N D"],
    l: Float[Tensor, "B P"],
    s: Float[Tensor, "B"],
    matern: bool,
    gram: bool = False,
    outer: Outer | None = None,
) -> tuple[Float[Tensor, "B M D"], Float[Tensor, "B P"], Float[Tensor, "B"]]:
    """Gradients in Z, l and s from that in K, which is V or what `outer` makes of it; `gram`: X is Z, which then gets
    the gradients of both sides.

    With `G = d_K dK/dE`, E = -r^2 / 2, all of them are sums over rows of G times 1, x and x^2: a matrix product of G,
    tile by tile, without writing G."""
    V, Z, l, s = (t.contiguous() for t in (V + V.mT if gram else V, Z, l, s))
    (B, M, D), N = Z.shape, X.shape[1]
    ard, tiles, DP = l.shape[1] > 1, triton.cdiv(M, TM), tile(D + 3)
    chunks, rows = chunks_of_rows(N, TR, B * tiles, Z.device)
    sums = Z.new_empty(chunks, B, M, DP)
    squares = Z.new_empty(chunks, B, M, DP) if ard else sums
    h, w, g = (None if part is None else part.contiguous() for part in outer or (None, None, None))
    _pull[(chunks, tiles, B)](
        V, h, w, g, K, Z, X, l, s, sums, squares, *X.stride(), B, M, N, D, rows,
        h is not None, outer is not None, ard, matern, DP, TM, TR,
    )  # fmt: skip
    d_Z, d_l, d_s = Z.new_empty(B, M, D), l.new_empty(l.shape), s.new_empty(B)
    _gradients[(B,)](sums, squares, Z, l, s, d_Z, d_l, d_s, chunks, B, M, D, ard, matern, gram, DP, TM)
    return d_Z, d_l, d_s


@triton.jit
def _scaled_square_distance(
    Z, X, l, b, m, n, XB, XN, XD, M, N, D,
    ARD: tl.constexpr, DP: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, dtype: tl.constexpr,
):  # fmt: skip
    """In float64 `|z|^2 - 2 z x + |x|^2`, which tensor cores compute; in float32 that would lose small distances."""
    if dtype == tl.float64:
        d = tl.arange(0, DP)
        z = tl.load(Z + (b * M + m[:, None]) * D + d[None, :], mask=(m[:, None] < M) & (d[None, :] < D), other=0)
        at = b * XB + n[None, :].to(tl.int64) * XN + d[:, None] * XD
        x = tl.load(X + at, mask=(n[None, :] < N) & (d[:, None] < D), other=0)
        if ARD:
            scale = 1 / tl.load(l + b * D + d, mask=d < D, other=1)
            z, x = z * scale[None, :], x * scale[:, None]
        r2 = tl.sum(z * z, 1)[:, None] + tl.sum(x * x, 0)[None, :] - 2 * tl.dot(z, x, out_dtype=dtype)
        r2 = tl.where(r2 < 0, 0, r2)  # by rounding; what is not a number stays that
    else:
        r2 = tl.zeros([TM, TN], dtype)
        for i in range(D):
            z = tl.load(Z + (b * M + m) * D + i, mask=m < M, other=0)
            x = tl.load(X + b * XB + n.to(tl.int64) * XN + i * XD, mask=n < N, other=0)
            if ARD:
                scale = 1 / tl.load(l + b * D + i)
                z, x = z * scale, x * scale
            difference = z[:, None] - x[None, :]
            r2 += difference * difference
    if not ARD:
        scale = 1 / tl.load(l + b)
        r2 = r2 * (scale * scale)
    return r2


@triton.jit(do_not_specialize=["XB", "XN", "XD", "M", "N", "D"])
def _covariance(
    Z, X, l, s, K, XB, XN, XD, M, N, D,
    ARD: tl.constexpr, MATERN: tl.constexpr, DP: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(2).to(tl.int64)
    m = tl.program_id(1) * TM + tl.arange(0, TM)
    n = tl.program_id(0) * TN + tl.arange(0, TN)
    r2 = _scaled_square_distance(Z, X, l, b, m, n, XB, XN, XD, M, N, D, ARD, DP, TM, TN, K.dtype.element_ty)
    scale = tl.load(s + b)
    if MATERN:
        u = tl.sqrt(5 * r2)
        value = scale * (1 + u + u * u / 3) * tl.exp(-u)
    else:
        value = scale * tl.exp(r2 * -0.5)
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(K + (b * M + m[:, None]) * N + n[None, :], value, mask=inside)


@triton.jit(do_not_specialize=["XB", "XN", "XD", "B", "M", "N", "D", "rows"])
def _pull(
    V, h, w, g, K, Z, X, l, s, sums, squares, XB, XN, XD, B, M, N, D, rows,
    SCALED: tl.constexpr, OUTER: tl.constexpr, ARD: tl.constexpr, MATERN: tl.constexpr,
    DP: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr,
):  # fmt: skip
    """Over the rows of a chunk the sums of G x, and in columns D to D + 2 those of G, G |x|^2 and d_K K; with ARD, in
    `squares`, of G x^2."""
    b = tl.program_id(2).to(tl.int64)
    m = tl.program_id(1) * TM + tl.arange(0, TM)
    d = tl.arange(0, DP)
    first = tl.program_id(0) * rows
    last = tl.minimum(first + rows, N)
    dtype: tl.constexpr = K.dtype.element_ty
    total = tl.zeros([TM, DP], dtype)
    total_squares = tl.zeros([TM, DP], dtype)
    dK1 = tl.zeros([TM, TN], dtype)
    if OUTER:
        w_m = tl.load(w + b * M + m, mask=m < M, other=0)
    for start in range(first, last, TN):
        n = start + tl.arange(0, TN)
        inside = (m[:, None] < M) & (n[None, :] < last)
        at = (b * M + m[:, None]) * N + n[None, :]
        d_K = tl.load(V + at, mask=inside, other=0)
        if SCALED:
            d_K = d_K * tl.load(h + b * N + n, mask=n < last, other=0)[None, :]
        if OUTER:
            d_K += w_m[:, None] * tl.load(g + b * N + n, mask=n < last, other=0)[None, :]
        G = d_K * tl.load(K + at, mask=inside, other=0)
        if MATERN:
            dK1 += G
            u = tl.sqrt(5 * _scaled_square_distance(Z, X, l, b, m, n, XB, XN, XD, M, N, D, ARD, DP, TM, TN, dtype))
            G = d_K * (tl.load(s + b) * (1 + u) * tl.exp(-u) * 5 / 3)
        at = b * XB + n[:, None].to(tl.int64) * XN + d[None, :] * XD
        x = tl.load(X + at, mask=(n[:, None] < last) & (d[None, :] < D), other=0)
        if ARD:
            total_squares = tl.dot(G, x * x, total_squares, input_precision="ieee", out_dtype=dtype)
        else:
            x = tl.where(d[None, :] == D + 1, tl.sum(x * x, 1)[:, None], x)
        x = tl.where(d[None, :] == D, 1.0, x).to(dtype)
        total = tl.dot(G, x, total, input_precision="ieee", out_dtype=dtype)
    if MATERN:
        total = tl.where(d[None, :] == D + 2, tl.sum(dK1, 1)[:, None], total)
    at = ((tl.program_id(0) * B + b) * M + m[:, None]) * DP + d[None, :]
    tl.store(sums + at, total, mask=m[:, None] < M)
    if ARD:
        tl.store(squares + at, total_squares, mask=m[:, None] < M)


@triton.jit(do_not_specialize=["chunks", "B", "M", "D"])
def _gradients(
    sums, squares, Z, l, s, d_Z, d_l, d_s, chunks, B, M, D,
    ARD: tl.constexpr, MATERN: tl.constexpr, GRAM: tl.constexpr, DP: tl.constexpr, TM: tl.constexpr,
):  # fmt: skip
    """d_z = sum G (x - z) / l^2, d_l = sum G (x - z)^2 / l^3, d_s = sum d_K K / s."""
    b = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, DP)
    dtype: tl.constexpr = Z.dtype.element_ty
    lengths = tl.load(l + (b * D + d if ARD else b + d * 0), mask=d < D, other=1)
    total_l = tl.zeros([DP], dtype)
    total_s = tl.zeros([TM, DP], dtype)
    for start in range(0, M, TM):
        m = start + tl.arange(0, TM)
        Gx = tl.zeros([TM, DP], dtype)
        Gx2 = tl.zeros([TM, DP], dtype)
        for chunk in range(chunks):
            at = ((chunk * B + b) * M + m[:, None]) * DP + d[None, :]
            Gx += tl.load(sums + at, mask=m[:, None] < M, other=0)
            if ARD:
                Gx2 += tl.load(squares + at, mask=m[:, None] < M, other=0)
        G1 = tl.sum(tl.where(d[None, :] == D, Gx, 0), 1)[:, None]
        total_s += tl.where(d[None, :] == (D + 2 if MATERN else D), Gx, 0)
        if not ARD:
            Gx2 = tl.where(d[None, :] == 0, tl.sum(tl.where(d[None, :] == D + 1, Gx, 0), 1)[:, None], 0)
        there = (m[:, None] < M) & (d[None, :] < D)
        at = (b * M + m[:, None]) * D + d[None, :]
        z = tl.load(Z + at, mask=there, other=0)
        tl.store(d_Z + at, (Gx - z * G1) / (lengths * lengths)[None, :], mask=there)
        total_l += tl.sum(tl.where(there, z * z * G1 - 2 * z * Gx + Gx2, 0), 0)
    half = 0.5 if GRAM else 1.0
    total_l = total_l * half / (lengths * lengths * lengths)
    if ARD:
        tl.store(d_l + b * D + d, total_l, mask=d < D)
    else:
        tl.store(d_l + b, tl.sum(total_l, 0))
    tl.store(d_s + b, tl.sum(tl.sum(total_s, 1), 0) * half / tl.load(s + b))
