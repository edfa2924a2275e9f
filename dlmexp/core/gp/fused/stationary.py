"""Matrices of a stationary kernel in one pass from inputs and lengthscales, and their gradients.

The gradients take one pass more. As in `gp.kernels`, `E = -r^2 / 2` of the scaled distances r is a
product `left right^T`, here with `left = [z / l^2, -|z|^2 / (2 l^2), -1/(2 l^2)]` and
`right = [x, 1, |x|^2]` (with ARD, `1/(2 l^2)` and `|x|^2` are one column per feature). It is
computed tile by tile on tensor cores; columns of zeros make the number F of columns a power of two.
"""
# pyright: reportMissingImports=false, reportIndexIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from dlmexp.core.gp.fused.tile_products import chunks_of_rows, tile
from dlmexp.core.gp.special import once_differentiable

# Tiles, measured on an H200: inducing inputs and rows.
MATRIX_TILE = (32, 64)
GRADIENT_TILE = (16, 32)
GRADIENT_WARPS = 2
FACTOR_ROWS = 32
"""Rows of a tile of what has one column per feature."""
FAR_AWAY = 1e30
"""Squared distance of the rows that are added to fill a tile."""
SLAB = 64
"""Columns of the factors at a time: all of many features would not fit into the memory of a
processor."""


class Outer(NamedTuple):
    """What makes the gradient `V diag(h) + w g^T` (h None: `V + w g^T`) of V."""

    h: Float[Tensor, "B N"] | None
    w: Float[Tensor, "B M"]
    g: Float[Tensor, "B N"]


def right_factor(
    X: Float[Tensor, "B N D"], l: Float[Tensor, "B P"], rows: int | None = None
) -> Float[Tensor, "B rows F"]:
    """Return `right` [B, rows, F] of inputs X; of l only the number of lengthscales matters.

    Where there are to be more `rows` than inputs, inputs are added so far away that the kernel is 0
    there.
    """
    B, N, D = X.shape
    P = l.shape[1]
    F = tile(D + P + 1)
    if rows is None:
        rows = N
    right = X.new_empty(B, rows, F)
    grid = (triton.cdiv(rows, FACTOR_ROWS), B)
    _right[grid](X, right, *X.stride(), N, rows, D, FAR_AWAY, P > 1, F, FACTOR_ROWS)
    return right


def covariance(
    Z: Float[Tensor, "B M D"],
    right: Float[Tensor, "B N F"],
    l: Float[Tensor, "B P"],
    s: Float[Tensor, "B"],
    matern: int,
) -> Float[Tensor, "B M N"]:
    """Return the kernel matrix [B, M, N] between Z and the inputs of `right`.

    It is `s exp(E)` where `matern` is 0, else the Matern kernel of that order, 3 or 5.
    """
    s = s.contiguous()
    B, M, _ = Z.shape
    _, N, F = right.shape
    left = _left_factor(Z, l, F)
    K = Z.new_empty(B, M, N)
    grid = (triton.cdiv(N, MATRIX_TILE[1]), triton.cdiv(M, MATRIX_TILE[0]), B)
    _covariance[grid](left, right, s, K, M, N, matern, F, min(F, SLAB), *MATRIX_TILE)
    return K


def pull(  # noqa: PLR0913 - the parameters of the kernel, and how its gradient is made
    V: Float[Tensor, "B M N"],
    K: Float[Tensor, "B M N"],
    Z: Float[Tensor, "B M D"],
    right: Float[Tensor, "B N F"],
    l: Float[Tensor, "B P"],
    s: Float[Tensor, "B"],
    matern: int,
    gram: bool = False,
    outer: Outer | None = None,
) -> tuple[Float[Tensor, "B M D"], Float[Tensor, "B P"], Float[Tensor, "B"]]:
    """Return the gradients in Z, l and s from that in K, which is V or what `outer` makes of it.

    With `gram`, `right` is that of Z, which then gets the gradients of both sides. With
    `G = d_K dK/dE` all gradients are sums of G times `right` over the rows: a product of tiles of
    G, which is not written.
    """
    if gram:
        V = V + V.mT
    V = V.contiguous()
    Z = Z.contiguous()
    l = l.contiguous()
    s = s.contiguous()
    h, w, g = _contiguous_parts(outer)
    B, M, D = Z.shape
    _, N, F = right.shape
    slab = min(F, SLAB)
    tiles = triton.cdiv(M, GRADIENT_TILE[0]) * (F // slab)
    chunks, rows = chunks_of_rows(N, GRADIENT_TILE[1], B * tiles, Z.device)
    sums = Z.new_empty(chunks, B, M, F)
    of_scale = Z.new_empty(chunks, B, M)
    left = _left_factor(Z, l, F) if matern else None
    _pull[(chunks, tiles, B)](
        V,
        h,
        w,
        g,
        K,
        left,
        right,
        s,
        sums,
        of_scale,
        B,
        M,
        N,
        rows,
        SCALED=h is not None,
        OUTER=outer is not None,
        MATERN=matern,
        F=F,
        SLAB=slab,
        TM=GRADIENT_TILE[0],
        TN=GRADIENT_TILE[1],
        num_warps=GRADIENT_WARPS,
        # More stages would not fit into the memory of a processor.
        num_stages=1 if matern else 3,
    )
    d_Z = Z.new_empty(B, M, D)
    d_l = l.new_empty(l.shape)
    d_s = s.new_empty(B)
    _gradients[(B,)](
        sums,
        of_scale,
        Z,
        l,
        s,
        d_Z,
        d_l,
        d_s,
        chunks,
        B,
        M,
        D,
        ARD=l.shape[1] > 1,
        MATERN=matern,
        GRAM=gram,
        F=F,
        DP=tile(D),
        TM=FACTOR_ROWS,
    )
    return d_Z, d_l, d_s


def _contiguous_parts(outer: Outer | None) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return h, w and g as Triton reads them."""
    if outer is None:
        return None, None, None
    h = None if outer.h is None else outer.h.contiguous()
    return h, outer.w.contiguous(), outer.g.contiguous()


class StationaryMatrix(torch.autograd.Function):
    """The kernel matrix between Z and X (None: Z itself) in one pass, its gradients in another."""

    @staticmethod
    def forward(
        ctx: Any,
        Z: Tensor,
        X: Tensor | None,
        lengthscale: Tensor,
        outputscale: Tensor,
        matern: int,
    ) -> Tensor:
        """Return the kernel matrix [B, M, N]."""
        right = right_factor(Z if X is None else X, lengthscale)
        K = covariance(Z, right, lengthscale, outputscale, matern)
        ctx.save_for_backward(Z, right, lengthscale, outputscale, K)
        ctx.matern = matern
        ctx.gram = X is None
        return K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, Tensor, Tensor, None]:
        """Return the gradients in Z, lengthscale and outputscale, at their places."""
        Z, right, l, s, K = ctx.saved_tensors
        d_Z, d_l, d_s = pull(grads[0], K, Z, right, l, s, ctx.matern, ctx.gram)
        return d_Z, None, d_l, d_s, None


def _left_factor(
    Z: Float[Tensor, "B M D"], l: Float[Tensor, "B P"], F: int
) -> Float[Tensor, "B M F"]:
    Z = Z.contiguous()
    l = l.contiguous()
    B, M, D = Z.shape
    left = Z.new_empty(B, M, F)
    grid = (triton.cdiv(M, FACTOR_ROWS), B)
    _left[grid](Z, l, left, M, D, l.shape[1] > 1, F, FACTOR_ROWS)
    return left


@triton.jit(do_not_specialize=["XB", "XN", "XD", "N", "rows", "D"])
def _right(  # noqa: PLR0913 - a GPU kernel takes pointers and sizes one by one
    X,
    right,
    XB,
    XN,
    XD,
    N,
    rows,
    D,
    far: tl.constexpr,
    ARD: tl.constexpr,
    F: tl.constexpr,
    T: tl.constexpr,
):
    b = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * T + tl.arange(0, T)
    f = tl.arange(0, F)
    there = n[:, None] < N
    at = b * XB + n[:, None].to(tl.int64) * XN
    value = tl.load(X + at + f[None, :] * XD, mask=there & (f[None, :] < D), other=0)
    if ARD:
        squared = (f[None, :] > D) & (f[None, :] <= 2 * D)
        x = tl.load(X + at + (f[None, :] - D - 1) * XD, mask=there & squared, other=0)
        value += x * x
    else:
        value = tl.where(f[None, :] == D + 1, tl.sum(value * value, 1)[:, None], value)
    value = tl.where(f[None, :] == D, 1.0, value)
    value = tl.where(there, value, tl.where(f[None, :] == D + 1, far, 0.0))
    tl.store(right + (b * rows + n[:, None]) * F + f[None, :], value, mask=n[:, None] < rows)


@triton.jit(do_not_specialize=["M", "D"])
def _left(Z, l, left, M, D, ARD: tl.constexpr, F: tl.constexpr, T: tl.constexpr):
    b = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * T + tl.arange(0, T)
    f = tl.arange(0, F)
    z = tl.load(
        Z + (b * M + m[:, None]) * D + f[None, :], mask=(m[:, None] < M) & (f[None, :] < D), other=0
    )
    if ARD:
        length = tl.load(l + b * D + f, mask=f < D, other=1)
        last = tl.load(l + b * D + f - D - 1, mask=(f > D) & (f <= 2 * D), other=1)
        of_square = tl.where((f > D) & (f <= 2 * D), -0.5 / (last * last), 0)
    else:
        length = tl.load(l + b + f * 0)
        of_square = tl.where(f == D + 1, -0.5 / (length * length), 0)
    scaled = z / (length * length)[None, :]
    value = tl.where(
        f[None, :] == D, -0.5 * tl.sum(scaled * z, 1)[:, None], scaled + of_square[None, :]
    )
    tl.store(left + (b * M + m[:, None]) * F + f[None, :], value, mask=m[:, None] < M)


@triton.jit
def _exponents(  # noqa: PLR0913 - a GPU kernel takes pointers and sizes one by one
    left,
    right,
    b,
    m,
    n,
    M,
    N,
    F: tl.constexpr,
    SLAB: tl.constexpr,
    TM: tl.constexpr,
    TN: tl.constexpr,
    dtype: tl.constexpr,
):
    E = tl.zeros([TM, TN], dtype)
    for start in tl.static_range(0, F, SLAB):
        f = start + tl.arange(0, SLAB)
        of_m = tl.load(left + (b * M + m[:, None]) * F + f[None, :], mask=m[:, None] < M, other=0)
        of_n = tl.load(right + (b * N + n[None, :]) * F + f[:, None], mask=n[None, :] < N, other=0)
        E = tl.dot(of_m, of_n, E, input_precision="ieee", out_dtype=dtype)
    # E > 0 comes from rounding. NaN stays NaN.
    return tl.where(E > 0, 0, E)


@triton.jit(do_not_specialize=["M", "N"])
def _covariance(  # noqa: PLR0913 - a GPU kernel takes pointers and sizes one by one
    left,
    right,
    s,
    K,
    M,
    N,
    MATERN: tl.constexpr,
    F: tl.constexpr,
    SLAB: tl.constexpr,
    TM: tl.constexpr,
    TN: tl.constexpr,
):
    b = tl.program_id(2).to(tl.int64)
    m = tl.program_id(1) * TM + tl.arange(0, TM)
    n = tl.program_id(0) * TN + tl.arange(0, TN)
    E = _exponents(left, right, b, m, n, M, N, F, SLAB, TM, TN, K.dtype.element_ty)
    scale = tl.load(s + b)
    if MATERN:
        u = tl.sqrt(-2 * MATERN * E)
        if MATERN == 3:
            value = scale * (1 + u) * tl.exp(-u)
        else:
            value = scale * (1 + u + u * u / 3) * tl.exp(-u)
    else:
        value = scale * tl.exp(E)
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(K + (b * M + m[:, None]) * N + n[None, :], value, mask=inside)


@triton.jit(do_not_specialize=["B", "M", "N", "rows"])
def _pull(  # noqa: PLR0913 - a GPU kernel takes pointers and sizes one by one
    V,
    h,
    w,
    g,
    K,
    left,
    right,
    s,
    sums,
    of_scale,
    B,
    M,
    N,
    rows,
    SCALED: tl.constexpr,
    OUTER: tl.constexpr,
    MATERN: tl.constexpr,
    F: tl.constexpr,
    SLAB: tl.constexpr,
    TM: tl.constexpr,
    TN: tl.constexpr,
):
    """Write the sums over the rows of a chunk of G times a slab of `right`.

    With a Matern kernel, also those of d_K K, to `of_scale`.
    """
    b = tl.program_id(2).to(tl.int64)
    m = tl.program_id(1) // (F // SLAB) * TM + tl.arange(0, TM)
    slab = tl.program_id(1) % (F // SLAB)
    f = slab * SLAB + tl.arange(0, SLAB)
    first = tl.program_id(0) * rows
    last = tl.minimum(first + rows, N)
    dtype: tl.constexpr = K.dtype.element_ty
    total = tl.zeros([TM, SLAB], dtype)
    dK1 = tl.zeros([TM, TN], dtype)
    for start in range(first, last, TN):
        n = start + tl.arange(0, TN)
        inside = (m[:, None] < M) & (n[None, :] < last)
        at = (b * M + m[:, None]) * N + n[None, :]
        d_K = tl.load(V + at, mask=inside, other=0)
        if SCALED:
            d_K = d_K * tl.load(h + b * N + n, mask=n < last, other=0)[None, :]
        if OUTER:
            w_m = tl.load(w + b * M + m, mask=m < M, other=0)
            d_K += w_m[:, None] * tl.load(g + b * N + n, mask=n < last, other=0)[None, :]
        G = d_K * tl.load(K + at, mask=inside, other=0)
        of_n = tl.load(
            right + (b * N + n[:, None]) * F + f[None, :], mask=n[:, None] < last, other=0
        )
        if MATERN:
            dK1 += G
            E = _exponents(left, right, b, m, n, M, N, F, SLAB, TM, TN, dtype)
            u = tl.sqrt(-2 * MATERN * E)
            if MATERN == 3:
                G = d_K * (tl.load(s + b) * 3 * tl.exp(-u))
            else:
                G = d_K * (tl.load(s + b) * (1 + u) * tl.exp(-u) * 5 / 3)
        total = tl.dot(G, of_n, total, input_precision="ieee", out_dtype=dtype)
    at = (tl.program_id(0) * B + b) * M + m
    tl.store(sums + at[:, None] * F + f[None, :], total, mask=m[:, None] < M)
    if MATERN:
        # A block of bools `&` a single one is int32 in Triton's interpreter, which takes it for no
        # mask from 3.9 on.
        tl.store(of_scale + at, tl.sum(dK1, 1), mask=m < tl.where(slab == 0, M, 0))


@triton.jit(do_not_specialize=["chunks", "B", "M", "D"])
def _gradients(  # noqa: PLR0913 - a GPU kernel takes pointers and sizes one by one
    sums,
    of_scale,
    Z,
    l,
    s,
    d_Z,
    d_l,
    d_s,
    chunks,
    B,
    M,
    D,
    ARD: tl.constexpr,
    MATERN: tl.constexpr,
    GRAM: tl.constexpr,
    F: tl.constexpr,
    DP: tl.constexpr,
    TM: tl.constexpr,
):
    """Write d_z = sum G (x - z) / l^2, d_l = sum G (x - z)^2 / l^3 and d_s = sum d_K K / s."""
    b = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, DP)
    dtype: tl.constexpr = Z.dtype.element_ty
    lengths = tl.load(l + (b * D + d if ARD else b + d * 0), mask=d < D, other=1)
    total_l = tl.zeros([DP], dtype)
    total_s = tl.zeros([TM], dtype)
    for start in range(0, M, TM):
        m = start + tl.arange(0, TM)
        there = (m[:, None] < M) & (d[None, :] < D)
        Gx = tl.zeros([TM, DP], dtype)
        Gx2 = tl.zeros([TM, DP], dtype)
        G1 = tl.zeros([TM], dtype)
        for chunk in range(chunks):
            row = (chunk * B + b) * M + m
            Gx += tl.load(sums + row[:, None] * F + d[None, :], mask=there, other=0)
            column = D + 1 + (d if ARD else d * 0)
            wanted = there if ARD else there & (d[None, :] == 0)
            Gx2 += tl.load(sums + row[:, None] * F + column[None, :], mask=wanted, other=0)
            G1_chunk = tl.load(sums + row * F + D, mask=m < M, other=0)
            G1 += G1_chunk
            if MATERN:
                total_s += tl.load(of_scale + row, mask=m < M, other=0)
            else:
                total_s += G1_chunk
        at = (b * M + m[:, None]) * D + d[None, :]
        z = tl.load(Z + at, mask=there, other=0)
        tl.store(d_Z + at, (Gx - z * G1[:, None]) / (lengths * lengths)[None, :], mask=there)
        total_l += tl.sum(z * z * G1[:, None] - 2 * z * Gx + Gx2, 0)
    half = 0.5 if GRAM else 1.0
    total_l = total_l * half / (lengths * lengths * lengths)
    if ARD:
        tl.store(d_l + b * D + d, total_l, mask=d < D)
    else:
        tl.store(d_l + b, tl.sum(total_l, 0))
    tl.store(d_s + b, tl.sum(total_s, 0) * half / tl.load(s + b))
