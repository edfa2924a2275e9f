"""What the sparse posterior does with arrays of [B, M, N] beside matrix products, each in one pass."""
# pyright: reportMissingImports=false, reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false

import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

TM, TN = 32, 64


def column_sums(
    w: Float[Tensor, "B M"], Kuf: Float[Tensor, "B M N"], V: Float[Tensor, "B M N"]
) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B N"]]:
    """`Kuf^T w`, and the sums of `Kuf * V` over the inducing inputs."""
    w = w.contiguous()
    B, M, N = Kuf.shape
    fit, gain = Kuf.new_empty(B, N), Kuf.new_empty(B, N)
    _column_sums[(triton.cdiv(N, TN), B)](w, Kuf, V, fit, gain, M, N, TM, TN)
    return fit, gain


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
