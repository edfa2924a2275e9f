"""What the sparse posterior does with arrays of [B, M, N] beside matrix products, each in one pass."""
# pyright: reportMissingImports=false, reportIndexIssue=false

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from dlmexp.gp.fused.launch import chunks_of_rows

TM, TN = 32, 64


def column_sums(
    m: Float[Tensor, "B M"], A: Float[Tensor, "B M N"], Kuf: Float[Tensor, "B M N"], V: Float[Tensor, "B M N"]
) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B N"]]:
    """`A^T m`, and the sums of `Kuf * V` over the inducing inputs."""
    m = m.contiguous()
    B, M, N = A.shape
    fit, gain = A.new_empty(B, N), A.new_empty(B, N)
    _column_sums[(triton.cdiv(N, TN), B)](m, A, Kuf, V, fit, gain, M, N, TM, TN)
    return fit, gain


def weighted(
    A: Float[Tensor, "B M N"], h: Float[Tensor, "B N"], g: Float[Tensor, "B N"]
) -> tuple[Float[Tensor, "B M N"], Float[Tensor, "B M"]]:
    """`A diag(h)` and `A g`."""
    h, g = h.contiguous(), g.contiguous()
    B, M, N = A.shape
    tiles = triton.cdiv(M, TM)
    chunks, rows = chunks_of_rows(N, TN, B * tiles, A.device)
    Ah, r = torch.empty_like(A), A.new_empty(chunks, B, M)
    _weighted[(chunks, tiles, B)](A, h, g, Ah, r, B, M, N, rows, TM, TN)
    return Ah, r.sum(0) if chunks > 1 else r[0]


def with_outer(
    V: Float[Tensor, "B M N"], h: Float[Tensor, "B N"], w: Float[Tensor, "B M"], g: Float[Tensor, "B N"]
) -> Float[Tensor, "B M N"]:
    """`2 V diag(h) + w g^T`."""
    h, w, g = h.contiguous(), w.contiguous(), g.contiguous()
    B, M, N = V.shape
    out = torch.empty_like(V)
    _with_outer[(triton.cdiv(N, TN), triton.cdiv(M, TM), B)](V, h, w, g, out, M, N, TM, TN)
    return out


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
def _column_sums(m_, A, Kuf, V, fit, gain, M, N, TM: tl.constexpr, TN: tl.constexpr):
    b = tl.program_id(1).to(tl.int64)
    n = tl.program_id(0) * TN + tl.arange(0, TN)
    dtype: tl.constexpr = A.dtype.element_ty
    first = tl.zeros([TM, TN], dtype)
    second = tl.zeros([TM, TN], dtype)
    for start in range(0, M, TM):
        m = start + tl.arange(0, TM)
        inside = (m[:, None] < M) & (n[None, :] < N)
        at = (b * M + m[:, None]) * N + n[None, :]
        weight = tl.load(m_ + b * M + m, mask=m < M, other=0)
        first += weight[:, None] * tl.load(A + at, mask=inside, other=0)
        second += tl.load(Kuf + at, mask=inside, other=0) * tl.load(V + at, mask=inside, other=0)
    tl.store(fit + b * N + n, tl.sum(first, 0), mask=n < N)
    tl.store(gain + b * N + n, tl.sum(second, 0), mask=n < N)


@triton.jit(do_not_specialize=["B", "M", "N", "rows"])
def _weighted(A, h, g, Ah, r, B, M, N, rows, TM: tl.constexpr, TN: tl.constexpr):
    b = tl.program_id(2).to(tl.int64)
    m = tl.program_id(1) * TM + tl.arange(0, TM)
    first = tl.program_id(0) * rows
    last = tl.minimum(first + rows, N)
    total = tl.zeros([TM, TN], A.dtype.element_ty)
    for start in range(first, last, TN):
        n = start + tl.arange(0, TN)
        inside = (m[:, None] < M) & (n[None, :] < last)
        at = (b * M + m[:, None]) * N + n[None, :]
        a = tl.load(A + at, mask=inside, other=0)
        tl.store(Ah + at, a * tl.load(h + b * N + n, mask=n < last, other=0)[None, :], mask=inside)
        total += a * tl.load(g + b * N + n, mask=n < last, other=0)[None, :]
    tl.store(r + (tl.program_id(0) * B + b) * M + m, tl.sum(total, 1), mask=m < M)


@triton.jit(do_not_specialize=["M", "N"])
def _with_outer(V, h, w, g, out, M, N, TM: tl.constexpr, TN: tl.constexpr):
    b = tl.program_id(2).to(tl.int64)
    m = tl.program_id(1) * TM + tl.arange(0, TM)
    n = tl.program_id(0) * TN + tl.arange(0, TN)
    inside = (m[:, None] < M) & (n[None, :] < N)
    at = (b * M + m[:, None]) * N + n[None, :]
    h_n = tl.load(h + b * N + n, mask=n < N, other=0)
    g_n = tl.load(g + b * N + n, mask=n < N, other=0)
    w_m = tl.load(w + b * M + m, mask=m < M, other=0)
    value = 2 * tl.load(V + at, mask=inside, other=0) * h_n[None, :] + w_m[:, None] * g_n[None, :]
    tl.store(out + at, value, mask=inside)
