"""Chains on arrays of [B, M, M], where launching many kernels takes longer than what they do."""
# pyright: reportMissingImports=false, reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

T = 1024
PIECE = 4096  # entries of a matrix that one program sums


def added_to_diagonal(K: Float[Tensor, "B M M"], jitter: Float[Tensor, "B"]) -> Float[Tensor, "B M M"]:
    """K + jitter * mean(diag K) * I."""
    K = K.contiguous()
    B, M, _ = K.shape
    out = torch.empty_like(K)
    grid = (triton.cdiv(M * M, T), B)
    _added_to_diagonal[grid](K, jitter, out, M, triton.next_power_of_2(M), T)
    return out


def kl(m: Float[Tensor, "B M"], L: Float[Tensor, "B M M"]) -> Float[Tensor, "B"]:
    """KL(N(m, L L^T) || N(0, I)), L triangular."""
    m, L = m.contiguous(), L.contiguous()
    B, M = m.shape
    pieces = triton.cdiv(M * M, PIECE)
    out = m.new_empty(pieces, B)
    _kl[(pieces, B)](m, L, out, M, B, triton.next_power_of_2(M), T, PIECE)
    return out.sum(0)


def kl_gradients(
    m: Float[Tensor, "B M"], L: Float[Tensor, "B M M"], d: Float[Tensor, "B"]
) -> tuple[Float[Tensor, "B M"], Float[Tensor, "B M M"]]:
    """Those of `kl` times d."""
    m, L, d = m.contiguous(), L.contiguous(), d.contiguous()
    B, M = m.shape
    d_m, d_L = torch.empty_like(m), torch.empty_like(L)
    _kl_gradients[(triton.cdiv(M * M, T), B)](m, L, d, d_m, d_L, M, T)
    return d_m, d_L


@triton.jit(do_not_specialize=["M"])
def _added_to_diagonal(K, jitter, out, M, MP: tl.constexpr, T: tl.constexpr):
    b = tl.program_id(1).to(tl.int64)
    j = tl.arange(0, MP)
    diagonal = tl.load(K + b * M * M + j * (M + 1), mask=j < M, other=0)
    added = tl.load(jitter + b) * (tl.sum(diagonal, 0) / M)
    i = tl.program_id(0) * T + tl.arange(0, T)
    value = tl.load(K + b * M * M + i, mask=i < M * M, other=0)
    tl.store(out + b * M * M + i, tl.where(i % (M + 1) == 0, value + added, value), mask=i < M * M)


@triton.jit(do_not_specialize=["M", "B"])
def _kl(m, L, out, M, B, MP: tl.constexpr, T: tl.constexpr, PIECE: tl.constexpr):
    b = tl.program_id(1).to(tl.int64)
    first = tl.program_id(0) * PIECE
    squares = tl.zeros([T], m.dtype.element_ty)
    for start in range(first, first + PIECE, T):
        i = start + tl.arange(0, T)
        value = tl.load(L + b * M * M + i, mask=i < M * M, other=0)
        squares += value * value
    total = 0.5 * tl.sum(squares, 0)
    if tl.program_id(0) == 0:
        j = tl.arange(0, MP)
        mean = tl.load(m + b * M + j, mask=j < M, other=0)
        diagonal = tl.load(L + b * M * M + j * (M + 1), mask=j < M, other=1)
        total += 0.5 * (tl.sum(mean * mean, 0) - M) - tl.sum(tl.log(tl.abs(diagonal)), 0)
    tl.store(out + tl.program_id(0) * B + b, total)


@triton.jit(do_not_specialize=["M"])
def _kl_gradients(m, L, d, d_m, d_L, M, T: tl.constexpr):
    b = tl.program_id(1).to(tl.int64)
    scale = tl.load(d + b)
    i = tl.program_id(0) * T + tl.arange(0, T)
    value = tl.load(L + b * M * M + i, mask=i < M * M, other=1)
    on_diagonal = i % (M + 1) == 0
    tl.store(
        d_L + b * M * M + i,
        scale * (value - tl.where(on_diagonal, 1 / tl.where(on_diagonal, value, 1), 0)),
        mask=i < M * M,
    )
    if tl.program_id(0) * T < M:
        mean = tl.load(m + b * M + i, mask=i < M, other=0)
        tl.store(d_m + b * M + i, scale * mean, mask=i < M)
