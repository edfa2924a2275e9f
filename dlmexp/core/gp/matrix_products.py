"""Products of which a part is zero or known, strip by strip without it; what marginals and moments compute with them, the same for kernels of any kind and for
those whose Kuf has a gradient of its own (`fused.projected`)."""

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.core.gp.cholesky import pullback
from dlmexp.core.gp.fused import MULTIPLE, fused
from dlmexp.core.gp.precision import PARAMETERS, as_rows

LARGE_PRODUCT = 20_000_000  # entries of [B, M, N] from which tiles of our own pay on a GPU
WIDTH = 45  # of a strip on a CPU; measured with M from 74 to 206
LEAST_WORK = 2_500_000  # multiplications of a strip on a CPU
ROWS_OF_A_PIECE = 64  # of float32 rows that are summed in float64


def triangular_product(
    R: Float[Tensor, "B M M"], K: Float[Tensor, "B M N"], out: Float[Tensor, "B M N"] | None = None
) -> Float[Tensor, "B M N"]:
    """`R K` for lower triangles R, without most of the products with zeros."""
    if K.shape[-1] % MULTIPLE == 0 and _large(K, K.numel()):
        from dlmexp.core.gp.fused.tile_products import triangular_product

        return triangular_product(R, K)
    strips = _strips(K)
    if len(strips) == 1:
        return torch.bmm(R, K, out=out)
    out = torch.empty_like(K) if out is None else out
    for rows in strips:
        torch.bmm(R[:, rows, : rows.stop], K[:, : rows.stop], out=out[:, rows])
    return out


def columns(Z: Float[Tensor, "B M D"], N: int) -> int:
    """How many columns Kuf of Z and N inputs should have: a few more than N where kernels of our
    own pay then."""
    return MULTIPLE * -(-N // MULTIPLE) if _large(Z, Z.shape[0] * Z.shape[1] * N) else N


def _large(like: Tensor, entries: int) -> bool:
    """Whether kernels of our own pay for an array of so many entries, of the kind and on the device
    of `like`."""
    return fused(like) and like.dtype == torch.float64 and entries >= LARGE_PRODUCT


def gram(
    A: Float[Tensor, "B M N"], h: Float[Tensor, "B N"] | None = None
) -> Float[Tensor, "B M M"]:
    """`A diag(h) A^T`, or `A A^T`."""
    if fused(A) and A.dtype == torch.float64 and not (torch.is_grad_enabled() and A.requires_grad):
        from dlmexp.core.gp.fused.tile_products import weighted_gram

        return weighted_gram(A, h)
    return symmetric_product(A if h is None else A * h.unsqueeze(-2), A)


def spread(L: Float[Tensor, "*S K M M"], A: Float[Tensor, "*S M N"]) -> Float[Tensor, "*S K N"]:
    """`|L_k^T A_i|^2` for lower triangles L that share an A."""
    K, M = L.shape[-3:-1]
    if _large(A, L.shape[:-1].numel() * A.shape[-1]):
        from dlmexp.core.gp.fused.tile_products import spread

        return spread(L.reshape(-1, K, M, M), A.reshape(-1, *A.shape[-2:])).reshape(
            *L.shape[:-2], A.shape[-1]
        )
    LA = (L.mT.flatten(-3, -2) @ A).unflatten(-2, (K, M))
    if not fused(LA):
        return LA.square_().sum(-2)
    from dlmexp.core.gp.fused.tile_products import squares

    return squares(LA)


def shared_gram(
    A: Float[Tensor, "*S M N"], h: Float[Tensor, "*S K N"]
) -> Float[Tensor, "*S K M M"]:
    """`A diag(h_k) A^T`, for weights that share an A."""
    M, N = A.shape[-2:]
    if _large(A, h.numel() * M):
        from dlmexp.core.gp.fused.tile_products import weighted_gram

        return weighted_gram(A.reshape(-1, M, N), h.reshape(-1, N)).reshape(*h.shape[:-1], M, M)
    weighted = (A.unsqueeze(-3) * h.unsqueeze(-2)).flatten(-3, -2)
    return (weighted @ A.mT).unflatten(-2, (h.shape[-2], M))


def symmetric_product(
    left: Float[Tensor, "B M N"], right: Float[Tensor, "B M N"]
) -> Float[Tensor, "B M M"]:
    """`left right^T` where that is symmetric. What lies above the strips on the diagonal is copied,
    unless torch is to differentiate it."""
    strips = _strips(left)
    if len(strips) == 1 or left.is_cuda or (torch.is_grad_enabled() and left.requires_grad):
        return torch.bmm(left, right.mT)
    B, M, _ = left.shape
    out = left.new_empty(B, M, M)
    for rows in strips:
        torch.bmm(left[:, rows], right[:, : rows.stop].mT, out=out[:, rows, : rows.stop])
        out[:, : rows.start, rows] = out[:, rows, : rows.start].mT
    return out


def _strips(K: Float[Tensor, "B M N"]) -> list[slice]:
    """The rows of K, in as many strips as pay."""
    M, N = K.shape[-2:]
    if K.is_cuda:
        return [slice(0, M)]
    count = max(1, min(round(M / WIDTH), M * M * N // LEAST_WORK))
    return [slice(M * i // count, M * (i + 1) // count) for i in range(count)]


def row_gram(A: Float[Tensor, "B M N"]) -> Float[Tensor, "B M M"]:
    """`A A^T`, of float32 rows in pieces whose products are summed in float64.

    A product of n float32 rows adds them up one after the other, and its error grows with n: `log
    |I + A A^T / t|` with a small t (a small beta or noise) was wrong by 1e-4 a row, in pieces by
    2e-6 (cadata, n = 691). A piece has at least M / 2 rows, so that all of their products take no
    more than twice the memory of A."""
    if A.dtype == PARAMETERS:
        return gram(A)
    rows = max(ROWS_OF_A_PIECE, A.shape[-2] // 2)
    whole = A.shape[-1] // rows * rows
    pieces, rest = A[..., :whole].unflatten(-1, (-1, rows)).transpose(-3, -2), A[..., whole:]
    return (pieces @ pieces.mT).sum(-3, dtype=PARAMETERS) + rest @ rest.mT


def symmetrised(P: Float[Tensor, "*B M M"]) -> Float[Tensor, "*B M M"]:
    """P, which is symmetric but for rounding; of float32 rows without that. At the start, where q
    is the prior, the gradient of the inducing inputs is a multiple of `P - P^T`: Adam would make a
    step of what float32 leaves of it."""
    return P if P.dtype == PARAMETERS else 0.5 * (P + P.mT)


def marginal_products(
    Kuf: Float[Tensor, "B M N"], Luu_inv: Float[Tensor, "B M M"], L: Float[Tensor, "B M M"]
) -> tuple[Float[Tensor, "B M N"], Float[Tensor, "B M N"]]:
    """A and V of `posterior._Marginals`."""
    S = L @ L.mT
    S.diagonal(dim1=-2, dim2=-1).sub_(1)
    A = triangular_product(Luu_inv, Kuf)
    return A, (Luu_inv.mT @ S) @ A


def marginal_gradients(
    Luu_inv: Tensor, m: Tensor, L: Tensor, A: Tensor, g: Tensor, h: Tensor
) -> tuple[Float[Tensor, "B M M"], Float[Tensor, "B M"], Float[Tensor, "B M M"]]:
    """Those in Kuu, m and L of `posterior._Marginals`."""
    P, r = symmetrised(gram(A, h)), (A @ g.unsqueeze(-1)).squeeze(-1)
    PL = P @ L
    SP = L @ PL.mT - P
    return -pullback(Luu_inv, 2 * SP + m.unsqueeze(-1) * r.unsqueeze(-2)), r, 2 * PL


def moments_of_rows(
    Kuf: Float[Tensor, "B M N"], Luu_inv: Float[Tensor, "B M M"], y: Float[Tensor, "B N"]
) -> tuple[Float[Tensor, "B M N"], Float[Tensor, "B M M"], Float[Tensor, "B M"]]:
    """A, A A^T and A y."""
    A = triangular_product(Luu_inv, Kuf)
    return A, row_gram(A), (A @ y.unsqueeze(-1)).squeeze(-1)


def moment_gradients(
    Luu_inv: Tensor, A: Tensor, AA: Tensor, Ay: Tensor, d_AA: Tensor, d_Ay: Tensor
) -> tuple[Float[Tensor, "B M N"], Float[Tensor, "B M"], Float[Tensor, "B M M"]]:
    """V and w of `dKuf = V + w y^T`, and the gradient in Kuu, as `collapsed._Moments` has them."""
    G, AA = as_rows(A, d_AA + d_AA.mT, AA)
    g = d_Ay.unsqueeze(-1)
    d_Kuu = -pullback(Luu_inv, G @ AA + g * Ay.unsqueeze(-2))
    return (Luu_inv.mT @ G) @ A, (Luu_inv.mT @ g).squeeze(-1), d_Kuu
