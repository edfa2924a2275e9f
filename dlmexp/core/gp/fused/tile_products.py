"""Products of M x M with M x N matrices in tiles, and sums over inducing inputs.

Tiles of zeros are skipped, and of symmetric results only one half is computed. If N is a multiple
of 32 (`matrix_products.padded_columns`), two numbers are loaded at a time; `triangular_product`
requires such an N.

In the GPU kernels, b is a cell, i and j are rows of M x M matrices, k is the index of the sum and n
a column; TM, TN and TK are the sizes of tiles. EVEN says that N is a multiple of 32.
"""
# pyright: reportMissingImports=false, reportIndexIssue=false, reportArgumentType=false
# pyright: reportCallIssue=false, reportReturnType=false

from collections.abc import Iterator
from functools import cache

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from dlmexp.core.gp.fused import COLUMN_MULTIPLE

PROGRAMS_PER_SM = 4
"""Programs (blocks of GPU threads) per multiprocessor; with fewer programs, a part of the device
would have no work."""

TILE_COLUMNS = 128
"""Columns of a tile of `R K` and of `L_k^T A`."""
TILE_DEPTH = 16
"""Number of terms that a tile adds at a time."""
TRIANGULAR_ROWS = 32
"""Rows of a tile of a triangular product."""
TRIANGULAR_OPTIONS = {"num_warps": 4, "num_stages": 4}
VARIANCE_ROWS = 64
"""Rows of a tile of `L_k^T A`."""
VARIANCE_OPTIONS = {"num_warps": 4, "num_stages": 3}
GRAM_TILE = 64
"""Rows and columns of a tile of a Gram matrix."""
GRAM_DEPTH = 32
"""Number of terms that such a tile adds at a time."""
GRAM_OPTIONS = {"num_warps": 4, "num_stages": 3}
SUM_TILE = (32, 64)
"""Inducing inputs and rows of a tile of sums over inducing inputs."""


def padded_size(size: int) -> int:
    """Return the power of two that is at least `size`, and at least 16, as Triton's `dot` needs."""
    return max(16, triton.next_power_of_2(size))


def chunks_of_rows(N: int, step: int, programs: int, device: torch.device) -> tuple[int, int]:
    """Return into how many chunks N rows are cut, and the rows of a chunk (a multiple of `step`).

    `programs` is the number of programs of each chunk. There are as many chunks as are needed to
    keep the whole device busy.
    """
    chunks_to_fill = triton.cdiv(PROGRAMS_PER_SM * _processors(device), programs)
    rows = step * triton.cdiv(triton.cdiv(N, chunks_to_fill), step)
    return triton.cdiv(N, rows), rows


@cache
def _processors(device: torch.device) -> int:
    """Return the number of multiprocessors; 1 for a CPU, where Triton's interpreter runs."""
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count


def triangular_product(
    R: Float[Tensor, "B M M"], K: Float[Tensor, "B M N"]
) -> Float[Tensor, "B M N"]:
    """Return `R K` [B, M, N] for lower triangles R."""
    R = R.contiguous()
    K = K.contiguous()
    B, M, N = K.shape
    out = K.new_empty(B, M, N)
    grid = (triton.cdiv(M, TRIANGULAR_ROWS), triton.cdiv(N, TILE_COLUMNS), B)
    _triangular_product[grid](
        R, K, out, M, N, TRIANGULAR_ROWS, TILE_COLUMNS, TILE_DEPTH, **TRIANGULAR_OPTIONS
    )
    return out


def projected_variance(
    L: Float[Tensor, "S K M M"], A: Float[Tensor, "S M N"]
) -> Float[Tensor, "S K N"]:
    """Return `|L_k^T A_i|^2` [S, K, N] for lower triangles L; `L_k^T A` is never written."""
    L = L.contiguous()
    A = A.contiguous()
    S, K, M, _ = L.shape
    N = A.shape[-1]
    is_even = N % COLUMN_MULTIPLE == 0
    out = A.new_empty(S, K, N)
    grid = (triton.cdiv(N, TILE_COLUMNS), K, S)
    _projected_variance[grid](
        L, A, out, K, M, N, is_even, VARIANCE_ROWS, TILE_COLUMNS, TILE_DEPTH, **VARIANCE_OPTIONS
    )
    return out


def weighted_gram(
    A: Float[Tensor, "S M N"], h: Float[Tensor, "B N"] | None
) -> Float[Tensor, "B M M"]:
    """Return `A diag(h) A^T` [B, M, M] (h None: `A A^T`).

    If there are more weights (B) than matrices A (S), every B / S consecutive weights share an A.
    Tiles on and below the diagonal are computed, and written above it too.
    """
    A = A.contiguous()
    if h is not None:
        h = h.contiguous()
    S, M, N = A.shape
    B = S if h is None else len(h)
    columns = triton.cdiv(M, GRAM_TILE)
    tiles_on_or_below_diagonal = columns * (columns + 1) // 2
    chunks, rows = chunks_of_rows(N, GRAM_DEPTH, B * tiles_on_or_below_diagonal, A.device)
    P = A.new_empty(chunks, B, M, M)
    for first, count, height in _rows_of_tiles(M, GRAM_TILE):
        _weighted_gram[(chunks, count * columns, B)](
            A,
            h,
            P,
            B,
            B // S,
            M,
            N,
            rows,
            first,
            columns,
            WEIGHTED=h is not None,
            EVEN=N % GRAM_DEPTH == 0,
            height=height,
            T=GRAM_TILE,
            TK=GRAM_DEPTH,
            **GRAM_OPTIONS,
        )
    return P.sum(0) if chunks > 1 else P[0]


def _rows_of_tiles(M: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Yield first row, number and height of the tiles of M rows: the full tiles, then the rest."""
    full_tiles = M // size
    if full_tiles:
        yield 0, full_tiles, size
    remaining_rows = M % size
    if remaining_rows:
        yield M - remaining_rows, 1, padded_size(remaining_rows)


@triton.jit(do_not_specialize=["M"])
def _triangular_product(R, K, out, M, N, rows: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    """Write a tile of R K."""
    top = tl.program_id(0) * rows
    i = top + tl.arange(0, rows)
    n = tl.program_id(1) * TN + tl.arange(0, TN)
    b = tl.program_id(2).to(tl.int64)
    column = tl.max_contiguous(tl.multiple_of(tl.where(n < N, n, 0), 16), 16)
    # Column k of R is zero above row k, so the sum ends with the last row of the tile.
    end = tl.minimum(top + rows, M)
    total = tl.zeros([rows, TN], K.dtype.element_ty)
    for start in range(0, end, TK):
        k = start + tl.arange(0, TK)
        left = tl.load(
            R + (b * M + i[:, None]) * M + k[None, :],
            mask=(i[:, None] < M) & (k[None, :] < end),
            other=0,
        )
        right = tl.load(
            K + (b * M + k[:, None]) * N + column[None, :], mask=k[:, None] < end, other=0
        )
        total = tl.dot(left, right, total, input_precision="ieee", out_dtype=K.dtype.element_ty)
    tl.store(
        out + (b * M + i[:, None]) * N + n[None, :], total, mask=(i[:, None] < M) & (n[None, :] < N)
    )


@triton.jit(do_not_specialize=["K", "M"])
def _projected_variance(  # noqa: PLR0913 - a GPU kernel takes pointers and sizes one by one
    L, A, out, K, M, N, EVEN: tl.constexpr, rows: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr
):
    """Write `|L_k^T A_i|^2` for TN columns i of A and one k; `L^T A` is computed tile by tile."""
    n = tl.program_id(0) * TN + tl.arange(0, TN)
    s = tl.program_id(2).to(tl.int64)
    b = s * K + tl.program_id(1)
    column = tl.where(n < N, n, 0)
    if EVEN:
        column = tl.max_contiguous(tl.multiple_of(column, 16), 16)
    squares = tl.zeros([TN], A.dtype.element_ty)
    for top in range(0, M, rows):
        i = top + tl.arange(0, rows)
        total = tl.zeros([rows, TN], A.dtype.element_ty)
        # Row i of L^T is zero before column i, so the sum begins with the first row of the tile.
        for start in range(top, M, TK):
            k = start + tl.arange(0, TK)
            left = tl.load(
                L + (b * M + k[None, :]) * M + i[:, None],
                mask=(i[:, None] < M) & (k[None, :] < M),
                other=0,
            )
            right = tl.load(
                A + (s * M + k[:, None]) * N + column[None, :], mask=k[:, None] < M, other=0
            )
            total = tl.dot(left, right, total, input_precision="ieee", out_dtype=A.dtype.element_ty)
        squares += tl.sum(total * total, 0)
    tl.store(out + b * N + n, squares, mask=n < N)


@triton.jit(do_not_specialize=["B", "share", "M", "first", "columns"])
def _weighted_gram(  # noqa: PLR0913 - a GPU kernel takes pointers and sizes one by one
    A,
    h,
    P,
    B,
    share,
    M,
    N,
    rows,
    first,
    columns,
    WEIGHTED: tl.constexpr,
    EVEN: tl.constexpr,
    height: tl.constexpr,
    T: tl.constexpr,
    TK: tl.constexpr,
):
    """Write a tile of the sum over a chunk of rows, and its mirror image.

    `share` consecutive weights share an A. `first` is the first row of the tiles, and `columns` the
    number of tiles side by side.
    """
    top = first + tl.program_id(1) // columns * height
    column = tl.program_id(1) % columns * T
    # Tiles above the diagonal are written as mirror images.
    if column >= top + height:
        return
    b = tl.program_id(2).to(tl.int64)
    first_row_of_A = b // share * M
    i = top + tl.arange(0, height)
    j = column + tl.arange(0, T)
    begin = tl.program_id(0) * rows
    end = tl.minimum(begin + rows, N)
    total = tl.zeros([height, T], A.dtype.element_ty)
    # Any further operation on the tiles in this loop would make it four times slower.
    for start in range(begin, end, TK):
        n = start + tl.arange(0, TK)
        mask_i = i[:, None] < M
        mask_j = j[None, :] < M
        if not EVEN:
            mask_i = mask_i & (n[None, :] < end)
            mask_j = mask_j & (n[:, None] < end)
        left = tl.load(A + (first_row_of_A + i[:, None]) * N + n[None, :], mask=mask_i, other=0)
        right = tl.load(A + (first_row_of_A + j[None, :]) * N + n[:, None], mask=mask_j, other=0)
        if WEIGHTED:
            left = left * tl.load(h + b * N + n, mask=None if EVEN else n < end)[None, :]
        total = tl.dot(left, right, total, input_precision="ieee", out_dtype=A.dtype.element_ty)
    inside = (i[:, None] < M) & (j[None, :] < M)
    first_row = (tl.program_id(0) * B + b) * M
    tl.store(P + (first_row + i[:, None]) * M + j[None, :], total, mask=inside)
    tl.store(P + (first_row + j[None, :]) * M + i[:, None], total, mask=inside & (j[None, :] < top))


def fit_and_gain(
    w: Float[Tensor, "B M"], Kuf: Float[Tensor, "B M N"], V: Float[Tensor, "B M N"]
) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B N"]]:
    """Return fit and gain [B, N]: `Kuf^T w`, and the sums of `Kuf * V` over the inducing inputs."""
    w = w.contiguous()
    B, M, N = Kuf.shape
    fit = Kuf.new_empty(B, N)
    gain = Kuf.new_empty(B, N)
    _fit_and_gain[(triton.cdiv(N, SUM_TILE[1]), B)](w, Kuf, V, fit, gain, M, N, *SUM_TILE)
    return fit, gain


def squares(a: Float[Tensor, "*C M N"]) -> Float[Tensor, "*C N"]:
    """Return the sums of squares over the inducing inputs [..., N]."""
    *C, M, N = a.shape
    out = a.new_empty(*C, N)
    grid = (triton.cdiv(N, SUM_TILE[1]), out.numel() // N)
    _squares[grid](a.contiguous(), out, M, N, *SUM_TILE)
    return out


@triton.jit(do_not_specialize=["M", "N"])
def _squares(a, out, M, N, TM: tl.constexpr, TN: tl.constexpr):
    """Write the sums of squares of TN columns."""
    b = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * TN + tl.arange(0, TN)
    total = tl.zeros([TM, TN], a.dtype.element_ty)
    for start in range(0, M, TM):
        m = start + tl.arange(0, TM)
        inside = (m[:, None] < M) & (n[None, :] < N)
        value = tl.load(a + (b * M + m[:, None]) * N + n[None, :], mask=inside, other=0)
        total += value * value
    tl.store(out + b * N + n, tl.sum(total, 0), mask=n < N)


@triton.jit(do_not_specialize=["M", "N"])
def _fit_and_gain(  # noqa: PLR0913 - a GPU kernel takes pointers and sizes one by one
    w, Kuf, V, fit, gain, M, N, TM: tl.constexpr, TN: tl.constexpr
):
    """Write fit and gain of TN columns."""
    b = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * TN + tl.arange(0, TN)
    dtype: tl.constexpr = Kuf.dtype.element_ty
    fit_terms = tl.zeros([TM, TN], dtype)
    gain_terms = tl.zeros([TM, TN], dtype)
    for start in range(0, M, TM):
        m = start + tl.arange(0, TM)
        inside = (m[:, None] < M) & (n[None, :] < N)
        entry = (b * M + m[:, None]) * N + n[None, :]
        value = tl.load(Kuf + entry, mask=inside, other=0)
        fit_terms += tl.load(w + b * M + m, mask=m < M, other=0)[:, None] * value
        gain_terms += value * tl.load(V + entry, mask=inside, other=0)
    tl.store(fit + b * N + n, tl.sum(fit_terms, 0), mask=n < N)
    tl.store(gain + b * N + n, tl.sum(gain_terms, 0), mask=n < N)
