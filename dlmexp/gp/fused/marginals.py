"""What the sparse posterior does with arrays of [B, M, N] beside matrix products, each in one pass."""
# pyright: reportMissingImports=false, reportIndexIssue=false

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from dlmexp.gp.fused.launch import chunks_of_rows

TM, TN = 32, 64
TG = 32  # tiles of a Gram matrix


def column_sums(
    w: Float[Tensor, "B M"], Kuf: Float[Tensor, "B M N"], V: Float[Tensor, "B M N"]
) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B N"]]:
    """`Kuf^T w`, and the sums of `Kuf * V` over the inducing inputs."""
    w = w.contiguous()
    B, M, N = Kuf.shape
    fit, gain = Kuf.new_empty(B, N), Kuf.new_empty(B, N)
    _column_sums[(triton.cdiv(N, TN), B)](w, Kuf, V, fit, gain, M, N, TM, TN)
    return fit, gain


def weighted_gram(A: Float[Tensor, "B M N"], h: Float[Tensor, "B N"] | None) -> Float[Tensor, "B M M"]:
    """`A diag(h) A^T` (h None: `A A^T`). Tiles below the diagonal are computed, and written above it too."""
    A, h = A.contiguous(), None if h is None else h.contiguous()
    B, M, N = A.shape
    tiles = triton.cdiv(M, TG)
    chunks, rows = chunks_of_rows(N, TG, B * tiles * (tiles + 1) // 2, A.device)
    P = A.new_empty(chunks, B, M, M)
    _weighted_gram[(chunks, tiles * tiles, B)](A, h, P, B, M, N, rows, tiles, h is not None, TG)
    return P.sum(0) if chunks > 1 else P[0]


def squares(a: Float[Tensor, "*C M N"]) -> Float[Tensor, "*C N"]:
    """Sums of squares over the inducing inputs."""
    *C, M, N = a.shape
    out = a.new_empty(*C, N)
    _squares[(triton.cdiv(N, TN), out.numel() // N)](a.contiguous(), out, M, N, TM, TN)
    return out


@triton.jit(do_not_specialize=["M", "N"])
def _squares(a, out, M, N, TM: tl.constexpr, TN: tl.constexpr):
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
def _column_sums(w, Kuf, V, fit, gain, M, N, TM: tl.constexpr, TN: tl.constexpr):
    b = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * TN + tl.arange(0, TN)
    dtype: tl.constexpr = Kuf.dtype.element_ty
    first = tl.zeros([TM, TN], dtype)
    second = tl.zeros([TM, TN], dtype)
    for start in range(0, M, TM):
        m = start + tl.arange(0, TM)
        inside = (m[:, None] < M) & (n[None, :] < N)
        at = (b * M + m[:, None]) * N + n[None, :]
        value = tl.load(Kuf + at, mask=inside, other=0)
        first += tl.load(w + b * M + m, mask=m < M, other=0)[:, None] * value
        second += value * tl.load(V + at, mask=inside, other=0)
    tl.store(fit + b * N + n, tl.sum(first, 0), mask=n < N)
    tl.store(gain + b * N + n, tl.sum(second, 0), mask=n < N)


@triton.jit(do_not_specialize=["B", "M", "N", "rows", "tiles"])
def _weighted_gram(A, h, P, B, M, N, rows, tiles, WEIGHTED: tl.constexpr, T: tl.constexpr):
    row = tl.program_id(1) // tiles
    column = tl.program_id(1) % tiles
    if column > row:
        return
    b = tl.program_id(2).to(tl.int64)
    i = row * T + tl.arange(0, T)
    j = column * T + tl.arange(0, T)
    first = tl.program_id(0) * rows
    last = tl.minimum(first + rows, N)
    total = tl.zeros([T, T], A.dtype.element_ty)
    for start in range(first, last, T):  # a further use of the tiles in here would make it four times slower
        n = start + tl.arange(0, T)
        left = tl.load(A + (b * M + i[:, None]) * N + n[None, :], mask=(i[:, None] < M) & (n[None, :] < last), other=0)
        right = tl.load(A + (b * M + j[None, :]) * N + n[:, None], mask=(j[None, :] < M) & (n[:, None] < last), other=0)
        if WEIGHTED:
            left = left * tl.load(h + b * N + n, mask=n < last, other=0)[None, :]
        total = tl.dot(left, right, total, input_precision="ieee", out_dtype=A.dtype.element_ty)
    inside = (i[:, None] < M) & (j[None, :] < M)
    of_chunk = (tl.program_id(0) * B + b) * M
    tl.store(P + (of_chunk + i[:, None]) * M + j[None, :], total, mask=inside)
    tl.store(P + (of_chunk + j[None, :]) * M + i[:, None], total, mask=inside & (column < row))
