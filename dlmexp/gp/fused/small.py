"""Work on arrays of [B, M, M], where launching many kernels takes longer than what they do: jitter, KL, the inverse of
a lower triangle by halves, and the symmetric matrix that a Cholesky factor's gradient comes from."""
# pyright: reportMissingImports=false, reportIndexIssue=false, reportArgumentType=false, reportCallIssue=false

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

ENTRIES = 1024  # of a matrix in one program
PIECE = 4096  # entries of a matrix that one program sums
BLOCK = 32  # of a triangle, inverted column by column; larger ones are put together from halves


def added_to_diagonal(K: Float[Tensor, "B M M"], jitter: Float[Tensor, "B"]) -> Float[Tensor, "B M M"]:
    """K + jitter * mean(diag K) * I."""
    K = K.contiguous()
    B, M, _ = K.shape
    out = torch.empty_like(K)
    grid = (triton.cdiv(M * M, ENTRIES), B)
    _added_to_diagonal[grid](K, jitter, out, M, triton.next_power_of_2(M), ENTRIES)
    return out


def kl(m: Float[Tensor, "B M"], L: Float[Tensor, "B M M"]) -> Float[Tensor, "B"]:
    """KL(N(m, L L^T) || N(0, I)), L triangular."""
    m, L = m.contiguous(), L.contiguous()
    B, M = m.shape
    pieces = triton.cdiv(M * M, PIECE)
    out = m.new_empty(pieces, B)
    _kl[(pieces, B)](m, L, out, M, B, triton.next_power_of_2(M), ENTRIES, PIECE)
    return out.sum(0)


def kl_gradients(
    m: Float[Tensor, "B M"], L: Float[Tensor, "B M M"], d: Float[Tensor, "B"]
) -> tuple[Float[Tensor, "B M"], Float[Tensor, "B M M"]]:
    """Those of `kl` times d."""
    m, L, d = m.contiguous(), L.contiguous(), d.contiguous()
    B, M = m.shape
    d_m, d_L = torch.empty_like(m), torch.empty_like(L)
    _kl_gradients[(triton.cdiv(M * M, ENTRIES), B)](m, L, d, d_m, d_L, M, ENTRIES)
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


def inverse(L: Float[Tensor, "B M M"]) -> Float[Tensor, "B M M"]:
    """L^-1. Of a triangle [[P, 0], [Q, R]] it is [[P^-1, 0], [-R^-1 Q P^-1, R^-1]], from blocks of 32 upwards: a few
    products of matrices that grow, where a triangular solve goes through M columns one after the other."""
    B, M, _ = L.shape
    blocks = triton.cdiv(M, BLOCK)
    size = BLOCK * triton.next_power_of_2(blocks)
    L = L.contiguous()
    padded = L.new_empty(B, size, size)
    found = torch.empty_like(padded)
    _diagonal_blocks[(size // BLOCK, size // BLOCK, B)](L, padded, found, M, size, BLOCK)
    half = BLOCK
    while half < size:
        pairs = size // (2 * half)
        P, Q, R = (_blocks(t, half, pairs, *at) for t, at in ((found, (0, 0)), (padded, (1, 0)), (found, (1, 1))))
        _blocks(found, half, pairs, 1, 0).copy_((R @ (Q @ P)).neg_())
        half *= 2
    return found[:, :M, :M].contiguous() if size > M else found


def _blocks(t: Tensor, half: int, pairs: int, row: int, column: int) -> Tensor:
    """Block (row, column) of each of the `pairs` 2 x 2 arrangements along the diagonal: [B, pairs, half, half]."""
    B, size, _ = t.shape
    step = 2 * half * (size + 1)
    offset = t.storage_offset() + row * half * size + column * half
    return t.as_strided((B, pairs, half, half), (size * size, step, size, 1), offset)


def symmetric(C: Float[Tensor, "B M M"]) -> Float[Tensor, "B M M"]:
    """`1/2 sym(Phi(C))`, where Phi keeps the lower triangle and halves the diagonal."""
    B, M, _ = C.shape
    C = C.contiguous()
    out = torch.empty_like(C)
    tiles = triton.cdiv(M, BLOCK)
    _symmetric[(tiles, tiles, B)](C, out, M, BLOCK)
    return out


@triton.jit(do_not_specialize=["M", "size"])
def _diagonal_blocks(L, padded, found, M, size, T: tl.constexpr):
    """L continued by the identity to `size`; in `found` the inverses of its diagonal blocks, and zeros."""
    b = tl.program_id(2).to(tl.int64)
    i = tl.program_id(0) * T + tl.arange(0, T)
    j = tl.program_id(1) * T + tl.arange(0, T)
    inside = (i[:, None] < M) & (j[None, :] < M) & (i[:, None] >= j[None, :])
    one = tl.where(i[:, None] == j[None, :], 1.0, 0.0).to(L.dtype.element_ty)
    value = tl.load(L + (b * M + i[:, None]) * M + j[None, :], mask=inside, other=0)
    value = tl.where((i[:, None] < M) & (j[None, :] < M), value, one)
    at = (b * size + i[:, None]) * size + j[None, :]
    tl.store(padded + at, value)
    if tl.program_id(0) == tl.program_id(1):
        # Forward substitution, all columns at once: row k is done, and leaves the rows below it.
        row = tl.arange(0, T)
        x = one
        for k in range(T):
            column = tl.sum(tl.where(row[None, :] == k, value, 0), 1)
            pivot = tl.sum(tl.where(row == k, column, 0), 0)
            done = tl.sum(tl.where(row[:, None] == k, x, 0), 0) / pivot
            below = tl.where(row > k, column, 0)
            x = tl.where(row[:, None] == k, done[None, :], x - below[:, None] * done[None, :])
        tl.store(found + at, x)
    else:
        tl.store(found + at, tl.zeros([T, T], L.dtype.element_ty))


@triton.jit(do_not_specialize=["M"])
def _symmetric(C, out, M, T: tl.constexpr):
    b = tl.program_id(2).to(tl.int64)
    i = tl.program_id(0) * T + tl.arange(0, T)
    j = tl.program_id(1) * T + tl.arange(0, T)
    inside = (i[:, None] < M) & (j[None, :] < M)
    low = tl.maximum(i[:, None], j[None, :])
    high = tl.minimum(i[:, None], j[None, :])
    value = tl.load(C + (b * M + low) * M + high, mask=inside, other=0)
    tl.store(out + (b * M + i[:, None]) * M + j[None, :], 0.5 * value, mask=inside)
