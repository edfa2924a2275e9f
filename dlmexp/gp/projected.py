"""What marginals and moments compute from Kuf, and their gradients in M x M matrices: the same for kernels of any kind
and for those whose Kuf has a gradient of its own (`fused.projected`)."""

from jaxtyping import Float
from torch import Tensor

from dlmexp.gp.cholesky import pullback
from dlmexp.gp.precision import as_rows, row_gram, symmetrised
from dlmexp.gp.products import gram, triangular_product


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
