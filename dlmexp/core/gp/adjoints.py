"""Gradients of marginals and moments: the derivation, and the matrix products in them.

The autograd functions of `posterior`, `closed_form` and `fused.projected` call these functions.
`rbf_posterior` repeats their formulas, so that it can write results to memory that it reuses.

**Marginals.** With `A = Luu^-1 Kuf` and `S = L L^T - I`, the marginals of q are (docs/SPEC.md,
section 1)

    mu_i = mean + fit_i,      fit_i  = A_i . m
    v_i  = kff_i + gain_i,    gain_i = A_i^T S A_i

1. Forward pass. With `V = Luu^-T S A`, `gain_i = Kuf_i . V_i`. A and V take two products of M x M
   by M x N.
2. Gradient in A. With the gradients g and h [N] of the loss in fit and gain,

       dA = m g^T + 2 S A diag(h)

3. Gradient in Kuf, where Luu is constant:

       dKuf = Luu^-T dA = 2 V diag(h) + Luu^-T m g^T

   V is known from the forward pass, so this takes no product of M x M by M x N.
4. Gradients in m and L. With `r = A g` and `P = A diag(h) A^T`, the third and last large product,

       dm = r,    dL = 2 P L

5. Gradient in Kuu. As `Kuf = Luu A`, a change of Luu changes A by `-Luu^-1 (change of Luu) A`, so
   that

       Luu^T dLuu = -dA A^T = -(m r^T + 2 S P)

   and `cholesky.pullback` turns this into dKuu. Luu^-1 is a function of Kuu, so dKuu includes its
   part, and Luu^-1 itself gets no gradient.

With A, the rounding error is about eps * cond(Luu), as with triangular solves. The form
`gain_i = Kuf_i . W Kuf_i` with `W = Luu^-T S Luu^-1` would save another product, but its error is
eps * cond(Kuu): measured, 3 to 6 digits are lost.

**Moments.** For `A A^T` and `A y` with gradients dAA and dAy, and `G = dAA + dAA^T`:

    dA           = G A + dAy y^T
    dKuf         = Luu^-T dA = Luu^-T G A + (Luu^-T dAy) y^T
    Luu^T dLuu   = -dA A^T   = -(G AA + dAy Ay^T)
    dy           = A^T dAy
"""

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.core.gp.cholesky import pullback
from dlmexp.core.gp.matrix_products import gram, row_gram, triangular_product
from dlmexp.core.gp.precision import PARAMETER_DTYPE, in_type_of


def marginal_products(
    Kuf: Float[Tensor, "B M N"], Luu_inv: Float[Tensor, "B M M"], L: Float[Tensor, "B M M"]
) -> tuple[Float[Tensor, "B M N"], Float[Tensor, "B M N"]]:
    """Return A and V of step 1, both [B, M, N]."""
    A = triangular_product(Luu_inv, Kuf)
    return A, excess_product(Luu_inv, L, A)


def excess_product(
    Luu_inv: Float[Tensor, "B M M"], L: Float[Tensor, "B M M"], A: Float[Tensor, "B M N"]
) -> Float[Tensor, "B M N"]:
    """Return `V = Luu^-T (L L^T - I) A` (step 1)."""
    S = L @ L.mT
    S.diagonal(dim1=-2, dim2=-1).sub_(1)
    return (Luu_inv.mT @ S) @ A


def marginal_gradients(
    Luu_inv: Float[Tensor, "B M M"],
    m: Float[Tensor, "B M"],
    L: Float[Tensor, "B M M"],
    A: Float[Tensor, "B M N"],
    g: Float[Tensor, "B N"],
    h: Float[Tensor, "B N"],
) -> tuple[Float[Tensor, "B M M"], Float[Tensor, "B M"], Float[Tensor, "B M M"]]:
    """Return the gradients in Kuu [B, M, M], m [B, M] and L [B, M, M] (steps 4 and 5).

    g and h [B, N] are the gradients in fit and gain.
    """
    C, d_m, d_L = whitened_gradients(m, L, A, g, h)
    return -pullback(Luu_inv, C), d_m, d_L


def whitened_gradients(
    m: Float[Tensor, "B M"],
    L: Float[Tensor, "B M M"],
    A: Float[Tensor, "B M N"],
    g: Float[Tensor, "B N"],
    h: Float[Tensor, "B N"],
) -> tuple[Float[Tensor, "B M M"], Float[Tensor, "B M"], Float[Tensor, "B M M"]]:
    """Return `-Luu^T dLuu` [B, M, M], and the gradients in m [B, M] and L [B, M, M].

    g and h [B, N] are the gradients in fit and gain. Where several Gaussians share A,
    `-Luu^T dLuu` is summed over them before `pullback`.
    """
    P = symmetrised(gram(A, h))
    r = (A @ g.unsqueeze(-1)).squeeze(-1)
    PL = P @ L
    # S P = L (P L)^T - P, as P is symmetric.
    SP = L @ PL.mT - P
    # -Luu^T dLuu = 2 S P + m r^T
    C = 2 * SP + m.unsqueeze(-1) * r.unsqueeze(-2)
    return C, r, 2 * PL


def moment_products(
    Kuf: Float[Tensor, "B M N"], Luu_inv: Float[Tensor, "B M M"], y: Float[Tensor, "B N"]
) -> tuple[Float[Tensor, "B M N"], Float[Tensor, "B M M"], Float[Tensor, "B M"]]:
    """Return A [B, M, N], A A^T [B, M, M] and A y [B, M]."""
    A = triangular_product(Luu_inv, Kuf)
    AA = row_gram(A)
    Ay = (A @ y.unsqueeze(-1)).squeeze(-1)
    return A, AA, Ay


def moment_gradients(
    Luu_inv: Float[Tensor, "B M M"],
    A: Float[Tensor, "B M N"],
    AA: Float[Tensor, "B M M"],
    Ay: Float[Tensor, "B M"],
    d_AA: Float[Tensor, "B M M"],
    d_Ay: Float[Tensor, "B M"],
) -> tuple[Float[Tensor, "B M N"], Float[Tensor, "B M"], Float[Tensor, "B M M"]]:
    """Return V [B, M, N] and w [B, M] of `dKuf = V + w y^T`, and the gradient in Kuu [B, M, M].

    d_AA and d_Ay are the gradients in A A^T and A y.
    """
    G, AA = in_type_of(A, d_AA + d_AA.mT, AA)
    d_Ay = d_Ay.unsqueeze(-1)
    # -Luu^T dLuu = G AA + dAy Ay^T
    d_Kuu = -pullback(Luu_inv, G @ AA + d_Ay * Ay.unsqueeze(-2))
    # V = Luu^-T G A,  w = Luu^-T dAy
    V = (Luu_inv.mT @ G) @ A
    w = (Luu_inv.mT @ d_Ay).squeeze(-1)
    return V, w, d_Kuu


def symmetrised(P: Float[Tensor, "*B M M"]) -> Float[Tensor, "*B M M"]:
    """Return the symmetric part of a float32 P, and a float64 P as it is.

    P is symmetric but for rounding errors. At the start of training, where q is the prior, the
    gradient in the inducing inputs is a multiple of `P - P^T`. Adam divides a gradient by its size,
    and would blow up these rounding errors of float32 to steps of full size.
    """
    if P.dtype == PARAMETER_DTYPE:
        return P
    return 0.5 * (P + P.mT)


def column_sums(a: Float[Tensor, "B M N"]) -> Float[Tensor, "B N"]:
    """Return the sum of each column [B, N], over the inducing inputs."""
    if a.is_cuda:
        return a.sum(-2)
    # On a CPU a product with ones takes a third of the time.
    ones = a.new_ones(1, a.shape[-2])
    return torch.matmul(ones, a).squeeze(-2)
