"""Batched products of triangular matrices, and products that are symmetric.

Entries that are zero, or known by symmetry, are mostly not computed. On a CPU the products are cut
into strips of rows; on a GPU, large products are computed in the tiles of `fused.tile_products`.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.core.gp.fused import COLUMN_MULTIPLE, uses_triton
from dlmexp.core.gp.precision import PARAMETER_DTYPE

LARGE_PRODUCT = 20_000_000
"""Number of entries of [B, M, N] from which `fused.tile_products` is faster on a GPU than torch."""
STRIP_ROWS = 45
"""The approximate number of rows of a strip on a CPU; measured to be fast with M from 74 to 206."""
MIN_WORK = 2_500_000
"""Smallest number of multiplications of a strip on a CPU."""
MIN_ROWS_PER_PIECE = 64
"""Smallest number of rows in the float32 products whose sum is float64 (`row_gram`)."""


def triangular_product(
    R: Float[Tensor, "B M M"], K: Float[Tensor, "B M N"], out: Float[Tensor, "B M N"] | None = None
) -> Float[Tensor, "B M N"]:
    """Return `R K` [B, M, N] for lower triangles R, without most of the products with zeros.

    On a CPU, `out` is memory for the result, if it is not None.
    """
    if K.shape[-1] % COLUMN_MULTIPLE == 0 and _uses_tiles(K, K.numel()):
        from dlmexp.core.gp.fused.tile_products import triangular_product as tiled_product

        return tiled_product(R, K)
    strips = _strips(K)
    if len(strips) == 1:
        return torch.bmm(R, K, out=out)
    if out is None:
        out = torch.empty_like(K)
    # The rows of a strip of R are zero from column `rows.stop` on.
    for rows in strips:
        torch.bmm(R[:, rows, : rows.stop], K[:, : rows.stop], out=out[:, rows])
    return out


def padded_columns(Z: Float[Tensor, "B M D"], N: int) -> int:
    """Return how many columns Kuf of Z and N inputs should have.

    Where `fused.tile_products` will multiply Kuf, N is rounded up to the multiple of
    `COLUMN_MULTIPLE` that its functions need.
    """
    entries = Z.shape[0] * Z.shape[1] * N
    if not _uses_tiles(Z, entries):
        return N
    return COLUMN_MULTIPLE * math.ceil(N / COLUMN_MULTIPLE)


def _uses_tiles(like: Tensor, entries: int) -> bool:
    """Return whether `fused.tile_products` computes a product with this number of entries.

    It does for tensors like this one if they use Triton, are float64, and the product is large.
    """
    return uses_triton(like) and like.dtype == torch.float64 and entries >= LARGE_PRODUCT


def gram(
    A: Float[Tensor, "B M N"], h: Float[Tensor, "B N"] | None = None
) -> Float[Tensor, "B M M"]:
    """Return `A diag(h) A^T` [B, M, M], or `A A^T` without h."""
    # The Triton product has no backward pass.
    is_differentiated = torch.is_grad_enabled() and A.requires_grad
    if uses_triton(A) and A.dtype == torch.float64 and not is_differentiated:
        from dlmexp.core.gp.fused.tile_products import weighted_gram

        return weighted_gram(A, h)
    weighted = A if h is None else A * h.unsqueeze(-2)
    return symmetric_product(weighted, A)


def projected_variance(
    L: Float[Tensor, "*S K M M"], A: Float[Tensor, "*S M N"]
) -> Float[Tensor, "*S K N"]:
    """Return `|L_k^T A_i|^2` [..., K, N] for lower triangles L_k that share an A."""
    K, M = L.shape[-3:-1]
    N = A.shape[-1]
    if _uses_tiles(A, L.shape[:-1].numel() * N):
        from dlmexp.core.gp.fused.tile_products import projected_variance as tiled_variance

        variances = tiled_variance(L.reshape(-1, K, M, M), A.reshape(-1, M, N))
        return variances.reshape(*L.shape[:-2], N)
    LA = (L.mT.flatten(-3, -2) @ A).unflatten(-2, (K, M))
    if not uses_triton(LA):
        return LA.square_().sum(-2)
    from dlmexp.core.gp.fused.tile_products import squares

    return squares(LA)


def shared_gram(
    A: Float[Tensor, "*S M N"], h: Float[Tensor, "*S K N"]
) -> Float[Tensor, "*S K M M"]:
    """Return `A diag(h_k) A^T` [..., K, M, M], for weights h_k that share an A."""
    M, N = A.shape[-2:]
    K = h.shape[-2]
    if _uses_tiles(A, h.numel() * M):
        from dlmexp.core.gp.fused.tile_products import weighted_gram

        grams = weighted_gram(A.reshape(-1, M, N), h.reshape(-1, N))
        return grams.reshape(*h.shape[:-1], M, M)
    weighted = (A.unsqueeze(-3) * h.unsqueeze(-2)).flatten(-3, -2)
    return (weighted @ A.mT).unflatten(-2, (K, M))


def symmetric_product(
    left: Float[Tensor, "B M N"], right: Float[Tensor, "B M N"]
) -> Float[Tensor, "B M M"]:
    """Return `left right^T` [B, M, M], which must be symmetric.

    On a CPU each strip of rows is computed up to the diagonal, and copied to its mirror image,
    unless torch is to differentiate the product.
    """
    strips = _strips(left)
    is_differentiated = torch.is_grad_enabled() and left.requires_grad
    if len(strips) == 1 or left.is_cuda or is_differentiated:
        return torch.bmm(left, right.mT)
    B, M, _ = left.shape
    out = left.new_empty(B, M, M)
    for rows in strips:
        torch.bmm(left[:, rows], right[:, : rows.stop].mT, out=out[:, rows, : rows.stop])
        out[:, : rows.start, rows] = out[:, rows, : rows.start].mT
    return out


def _strips(K: Float[Tensor, "B M N"]) -> list[slice]:
    """Return the rows of the strips into which a product with K is cut: on a GPU a single strip."""
    M, N = K.shape[-2:]
    if K.is_cuda:
        return [slice(0, M)]
    count = min(round(M / STRIP_ROWS), M * M * N // MIN_WORK)
    count = max(1, count)
    return [slice(M * i // count, M * (i + 1) // count) for i in range(count)]


def row_gram(A: Float[Tensor, "B M N"]) -> Float[Tensor, "B M M"]:
    """Return `A A^T` [B, M, M] in float64.

    Rows in float32 are multiplied in pieces, whose products are summed in float64. A single product
    of n float32 rows would add them up one after the other, with an error that grows with n: for a
    small t (a small beta or noise), the error of `log |I + A A^T / t|` was 1e-4 per row with a
    single product and is 2e-6 with pieces (cadata, n = 691). A piece has at least M / 2 rows, so
    that the products of all pieces take no more than twice the memory of A.
    """
    if A.dtype == PARAMETER_DTYPE:
        return gram(A)
    M, N = A.shape[-2:]
    rows_per_piece = max(MIN_ROWS_PER_PIECE, M // 2)
    start_of_last_piece = N // rows_per_piece * rows_per_piece
    full_pieces = A[..., :start_of_last_piece].unflatten(-1, (-1, rows_per_piece))
    # [B, pieces, M, rows per piece]
    pieces = full_pieces.transpose(-3, -2)
    last_piece = A[..., start_of_last_piece:]
    return (pieces @ pieces.mT).sum(-3, dtype=PARAMETER_DTYPE) + last_piece @ last_piece.mT
