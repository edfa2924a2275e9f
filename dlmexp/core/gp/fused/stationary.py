"""Matrices of a stationary kernel, computed in one pass, and gradients in its parameters.

The gradients take a second pass. As in `gp.kernels`, `E = -r^2 / 2`, where r are the distances
divided by the lengthscales, is a product `left right^T`. Its columns are in another order here:

    left  = [z / l^2, -|z|^2 / (2 l^2), -1/(2 l^2)]
    right = [x, 1, |x|^2]

With ARD, `-1/(2 l^2)` and `|x|^2` are one column per feature. The product is computed tile by tile
on tensor cores; columns of zeros make the number F of columns a power of two.

l are lengthscales, s outputscales, and P is the number of lengthscales of a cell. In the GPU
kernels, b is a cell, m are inducing inputs, n rows, f columns of the factors and d features; T, TM
and TN are the sizes of tiles, and DP is D rounded up by `padded_size`.
"""
# pyright: reportMissingImports=false, reportIndexIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from dlmexp.core.gp.fused.tile_products import chunks_of_rows, padded_size
from dlmexp.core.gp.special import once_differentiable

MATRIX_TILE = (32, 64)
"""Inducing inputs and rows of a tile of a kernel matrix. This and the sizes below are the fastest
that were measured on an H200."""
GRADIENT_TILE = (16, 32)
"""Inducing inputs and rows of a tile of a gradient."""
GRADIENT_WARPS = 2
FACTOR_ROWS = 32
"""Rows of a tile of `left`, `right` and the gradient in Z; such a tile has all columns."""
FAR_AWAY = 1e30
"""Squared norm of the inputs that `right_factor` adds."""
SLAB = 64
"""Columns of the factors that are loaded at a time: with many features, all columns together would
not fit into the memory of a multiprocessor."""


class Outer(NamedTuple):
    """h, w and g of a gradient `V diag(h) + w g^T`, or `V + w g^T` if h is None."""

    h: Float[Tensor, "B N"] | None
    w: Float[Tensor, "B M"]
    g: Float[Tensor, "B N"]


def right_factor(
    X: Float[Tensor, "B N D"], l: Float[Tensor, "B P"], rows: int | None = None
) -> Float[Tensor, "B rows F"]:
    """Return `right` [B, rows, F] for inputs X; of l, only the number of lengthscales matters.

    If `rows` is larger than N, the factor gets rows for additional inputs, which are so far away
    that the kernel is 0 there.
    """
    B, N, D = X.shape
    P = l.shape[1]
    F = padded_size(D + P + 1)
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


def parameter_gradients(  # noqa: PLR0913 - the parameters of the kernel, and how its gradient is made
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
    """Return the gradients in Z, l and s from the gradient in K.

    With `G = d_K dK/dE`, all three gradients are computed from sums of G times `right` over the
    rows. G is computed tile by tile and never written to memory.

    Args:
        V: The gradient d_K in K; with `outer`, a part of it.
        K: The kernel matrix.
        Z: The inducing inputs.
        right: The factor of the other inputs.
        l: The lengthscales.
        s: The outputscales.
        matern: As in `covariance`.
        gram: Whether K is the matrix of Z with itself. `right` is then that of Z, and Z gets the
            gradients of both sides. `gram` and `outer` are never used together.
        outer: h, w and g of `d_K = V diag(h) + w g^T`; None: d_K is V.
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
    # 1. The sums over the rows of each chunk
    slab = min(F, SLAB)
    tiles = triton.cdiv(M, GRADIENT_TILE[0]) * (F // slab)
    chunks, rows = chunks_of_rows(N, GRADIENT_TILE[1], B * tiles, Z.device)
    sums = Z.new_empty(chunks, B, M, F)
    sums_dK_K = Z.new_empty(chunks, B, M)
    left = _left_factor(Z, l, F) if matern else None
    _gradient_sums[(chunks, tiles, B)](
        V,
        h,
        w,
        g,
        K,
        left,
        right,
        s,
        sums,
        sums_dK_K,
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
        # With a Matern kernel, more stages would not fit into the memory of a multiprocessor.
        num_stages=1 if matern else 3,
    )
    # 2. The gradients from the sums
    d_Z = Z.new_empty(B, M, D)
    d_l = l.new_empty(l.shape)
    d_s = s.new_empty(B)
    _gradients[(B,)](
        sums,
        sums_dK_K,
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
        DP=padded_size(D),
        TM=FACTOR_ROWS,
    )
    return d_Z, d_l, d_s


def _contiguous_parts(outer: Outer | None) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return h, w and g as contiguous tensors, which Triton needs; absent ones are None."""
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
        d_Z, d_l, d_s = parameter_gradients(grads[0], K, Z, right, l, s, ctx.matern, ctx.gram)
        return d_Z, None, d_l, d_s, None


def _left_factor(
    Z: Float[Tensor, "B M D"], l: Float[Tensor, "B P"], F: int
) -> Float[Tensor, "B M F"]:
    """Return `left` [B, M, F] for inducing inputs Z."""
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
    """Write T rows of `right` = [x, 1, |x|^2], or [x, 1, x^2] with ARD; XB, XN, XD are strides."""
    b = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * T + tl.arange(0, T)
    f = tl.arange(0, F)
    inside = n[:, None] < N
    entry = b * XB + n[:, None].to(tl.int64) * XN
    value = tl.load(X + entry + f[None, :] * XD, mask=inside & (f[None, :] < D), other=0)
    if ARD:
        squared = (f[None, :] > D) & (f[None, :] <= 2 * D)
        x = tl.load(X + entry + (f[None, :] - D - 1) * XD, mask=inside & squared, other=0)
        value += x * x
    else:
        value = tl.where(f[None, :] == D + 1, tl.sum(value * value, 1)[:, None], value)
    value = tl.where(f[None, :] == D, 1.0, value)
    value = tl.where(inside, value, tl.where(f[None, :] == D + 1, far, 0.0))
    tl.store(right + (b * rows + n[:, None]) * F + f[None, :], value, mask=n[:, None] < rows)


@triton.jit(do_not_specialize=["M", "D"])
def _left(Z, l, left, M, D, ARD: tl.constexpr, F: tl.constexpr, T: tl.constexpr):
    """Write T rows of `left`."""
    b = tl.program_id(1).to(tl.int64)
    m = tl.program_id(0) * T + tl.arange(0, T)
    f = tl.arange(0, F)
    z = tl.load(
        Z + (b * M + m[:, None]) * D + f[None, :], mask=(m[:, None] < M) & (f[None, :] < D), other=0
    )
    if ARD:
        length = tl.load(l + b * D + f, mask=f < D, other=1)
        is_square = (f > D) & (f <= 2 * D)
        length_of_square = tl.load(l + b * D + f - D - 1, mask=is_square, other=1)
        minus_half_precision = tl.where(is_square, -0.5 / (length_of_square * length_of_square), 0)
    else:
        length = tl.load(l + b + f * 0)
        minus_half_precision = tl.where(f == D + 1, -0.5 / (length * length), 0)
    # z is 0 from column D on, so there `scaled` is, too.
    scaled = z / (length * length)[None, :]
    norm = tl.sum(scaled * z, 1)[:, None]
    value = tl.where(f[None, :] == D, -0.5 * norm, scaled + minus_half_precision[None, :])
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
    """Return E at the inducing inputs m and the rows n of a cell b."""
    E = tl.zeros([TM, TN], dtype)
    for start in tl.static_range(0, F, SLAB):
        f = start + tl.arange(0, SLAB)
        left_m = tl.load(left + (b * M + m[:, None]) * F + f[None, :], mask=m[:, None] < M, other=0)
        right_n = tl.load(
            right + (b * N + n[None, :]) * F + f[:, None], mask=n[None, :] < N, other=0
        )
        E = tl.dot(left_m, right_n, E, input_precision="ieee", out_dtype=dtype)
    # E > 0 comes from rounding and becomes 0. NaN stays NaN, as it is not > 0.
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
    """Write a tile of the kernel matrix."""
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
def _gradient_sums(  # noqa: PLR0913 - a GPU kernel takes pointers and sizes one by one
    V,
    h,
    w,
    g,
    K,
    left,
    right,
    s,
    sums,
    sums_dK_K,
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

    The gradient in s needs the sums of d_K K. With the RBF kernel these are the sums of G, as
    dK/dE is K. With a Matern kernel they are written to `sums_dK_K`.
    """
    b = tl.program_id(2).to(tl.int64)
    m = tl.program_id(1) // (F // SLAB) * TM + tl.arange(0, TM)
    slab = tl.program_id(1) % (F // SLAB)
    f = slab * SLAB + tl.arange(0, SLAB)
    first = tl.program_id(0) * rows
    last = tl.minimum(first + rows, N)
    dtype: tl.constexpr = K.dtype.element_ty
    total = tl.zeros([TM, SLAB], dtype)
    total_dK_K = tl.zeros([TM, TN], dtype)
    for start in range(first, last, TN):
        n = start + tl.arange(0, TN)
        inside = (m[:, None] < M) & (n[None, :] < last)
        entry = (b * M + m[:, None]) * N + n[None, :]
        d_K = tl.load(V + entry, mask=inside, other=0)
        if SCALED:
            d_K = d_K * tl.load(h + b * N + n, mask=n < last, other=0)[None, :]
        if OUTER:
            w_m = tl.load(w + b * M + m, mask=m < M, other=0)
            d_K += w_m[:, None] * tl.load(g + b * N + n, mask=n < last, other=0)[None, :]
        # d_K K, which is G of the RBF kernel; a Matern kernel replaces it below
        G = d_K * tl.load(K + entry, mask=inside, other=0)
        right_n = tl.load(
            right + (b * N + n[:, None]) * F + f[None, :], mask=n[:, None] < last, other=0
        )
        if MATERN:
            total_dK_K += G
            E = _exponents(left, right, b, m, n, M, N, F, SLAB, TM, TN, dtype)
            # dK/dE = 3 s exp(-u), or 5/3 s (1 + u) exp(-u)
            u = tl.sqrt(-2 * MATERN * E)
            if MATERN == 3:
                G = d_K * (tl.load(s + b) * 3 * tl.exp(-u))
            else:
                G = d_K * (tl.load(s + b) * (1 + u) * tl.exp(-u) * 5 / 3)
        total = tl.dot(G, right_n, total, input_precision="ieee", out_dtype=dtype)
    entry = (tl.program_id(0) * B + b) * M + m
    tl.store(sums + entry[:, None] * F + f[None, :], total, mask=m[:, None] < M)
    if MATERN:
        # Only the first slab writes. The mask is not written as `(m < M) & (slab == 0)`: Triton's
        # interpreter would make it int32, which from version 3.9 on is not accepted as a mask.
        tl.store(sums_dK_K + entry, tl.sum(total_dK_K, 1), mask=m < tl.where(slab == 0, M, 0))


@triton.jit(do_not_specialize=["chunks", "B", "M", "D"])
def _gradients(  # noqa: PLR0913 - a GPU kernel takes pointers and sizes one by one
    sums,
    sums_dK_K,
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
    """Write d_z = sum G (x - z) / l^2, d_l = sum G (x - z)^2 / l^3 and d_s = sum d_K K / s.

    G1, Gx and Gx2 are the sums over all rows of G, G x and G x^2: columns of `sums`.
    """
    b = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, DP)
    dtype: tl.constexpr = Z.dtype.element_ty
    lengths = tl.load(l + (b * D + d if ARD else b + d * 0), mask=d < D, other=1)
    total_l = tl.zeros([DP], dtype)
    total_s = tl.zeros([TM], dtype)
    for start in range(0, M, TM):
        m = start + tl.arange(0, TM)
        inside = (m[:, None] < M) & (d[None, :] < D)
        Gx = tl.zeros([TM, DP], dtype)
        Gx2 = tl.zeros([TM, DP], dtype)
        G1 = tl.zeros([TM], dtype)
        for chunk in range(chunks):
            row = (chunk * B + b) * M + m
            Gx += tl.load(sums + row[:, None] * F + d[None, :], mask=inside, other=0)
            # Without ARD there is one column G |x|^2, which is added to the first feature alone.
            column = D + 1 + (d if ARD else d * 0)
            has_column = inside if ARD else inside & (d[None, :] == 0)
            Gx2 += tl.load(sums + row[:, None] * F + column[None, :], mask=has_column, other=0)
            G1_of_chunk = tl.load(sums + row * F + D, mask=m < M, other=0)
            G1 += G1_of_chunk
            if MATERN:
                total_s += tl.load(sums_dK_K + row, mask=m < M, other=0)
            else:
                total_s += G1_of_chunk
        entry = (b * M + m[:, None]) * D + d[None, :]
        z = tl.load(Z + entry, mask=inside, other=0)
        tl.store(d_Z + entry, (Gx - z * G1[:, None]) / (lengths * lengths)[None, :], mask=inside)
        total_l += tl.sum(z * z * G1[:, None] - 2 * z * Gx + Gx2, 0)
    # With GRAM, V was symmetrised as V + V^T, which counts l and s twice.
    half = 0.5 if GRAM else 1.0
    total_l = total_l * half / (lengths * lengths * lengths)
    if ARD:
        tl.store(d_l + b * D + d, total_l, mask=d < D)
    else:
        tl.store(d_l + b, tl.sum(total_l, 0))
    tl.store(d_s + b, tl.sum(total_s, 0) * half / tl.load(s + b))
